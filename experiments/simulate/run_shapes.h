#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/theory/cost.h"

namespace speclab {

/// Reads the shapes of the models of a run from the files at the paths in its environment.json. The target is
/// under "", drafts are under their names. A model whose files are not here is left out. `weight_bytes` and
/// `kv_bytes`: bytes per weight and per cached number on the device for which the costs are wanted.
std::map<std::string, theory::DecoderShape> run_shapes(const nlohmann::json& environment, double weight_bytes,
                                                       double kv_bytes);

}  // namespace speclab
