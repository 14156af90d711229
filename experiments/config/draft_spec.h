#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model/files/inflate.h"
#include "core/model/toy/markov_table.h"

namespace speclab {

/// Where a draft model comes from: a checkpoint, some layers of the target, or a toy (core/model/toy).
struct DraftSpec {
  std::string name;         ///< the name in case ids
  std::string model;        ///< path of the checkpoint; empty when layers of the target or a toy are used
  std::string from;         ///< where to get the model, for the message when it is missing
  std::vector<int> layers;  ///< the layers to use, ascending; empty if the draft lists none
  int keep = 0;  ///< number of layers to use, spread evenly over the target (spread_layers); 0: no such draft
  InflateShape inflate;                   ///< the larger shape that the checkpoint is embedded in, if any
  std::optional<toy::MarkovSpec> markov;  ///< the toy, if the draft is one
};

/// Reads {"hidden": 2048, ...}. Throws Error with the JSON pointer of a value that is not a size, and for an
/// object without sizes.
InflateShape parse_inflate(const nlohmann::json& value, const std::string& where);
/// Writes the sizes that are set, in the form that parse_inflate reads.
nlohmann::json to_json(const InflateShape& shape);

/// Chooses `keep` of the layers 0 to count - 1, spread evenly. Throws Error unless keep is from 1 to count.
std::vector<int> spread_layers(int keep, int count);

/// Reads one of {"model": PATH}, {"layers": [0, 1]}, {"layers": {"keep": 2}} and {"markov": {...}}. The first
/// form may also have "from" and "inflate"; a draft with "inflate" needs a name. The last form needs a target
/// that is a toy (`toy_target`, null for another target), and takes the fields that it lacks from this toy
/// (toy_spec.h). Makes a name if `name` is empty. Throws Error for anything else.
DraftSpec parse_draft(const nlohmann::json& value, std::string name, const std::string& where,
                      const toy::MarkovSpec* toy_target = nullptr);

}  // namespace speclab
