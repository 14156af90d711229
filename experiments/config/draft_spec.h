#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/files/inflate.h"

namespace speclab {

/// Where a draft model comes from: a checkpoint, or some layers of the target.
struct DraftSpec {
  std::string name;         ///< as in case ids
  std::string model;        ///< path of the checkpoint; empty when layers of the target are used
  std::string from;         ///< where the model can be had, for the message when it is missing
  std::vector<int> layers;  ///< the layers to use, ascending; empty with `keep`
  int keep = 0;  ///< number of layers to use, spread evenly, with the first and the last (spread_layers)
  InflateShape inflate;  ///< the larger shape that the checkpoint is embedded in, if any
};

/// Reads {"hidden": 2048, ...}. Throws Error with the JSON pointer of a value that is no size.
InflateShape parse_inflate(const nlohmann::json& value, const std::string& where);
/// The sizes that are set, in the form that parse_inflate reads.
nlohmann::json to_json(const InflateShape& shape);

/// `keep` layers of 0 .. count-1, spread evenly. Throws Error when keep is not in 1 .. count.
std::vector<int> spread_layers(int keep, int count);

/// Reads {"model": PATH}, with "inflate" (needs a name) and "from" as wanted, or {"layers": [0, 1]} or
/// {"layers": {"keep": 2}}. Makes a name when `name` is empty. Throws Error for anything else.
DraftSpec parse_draft(const nlohmann::json& value, std::string name, const std::string& where);

}  // namespace speclab
