#pragma once

#include <map>
#include <string>

#include "core/theory/cost.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// Reads the shapes of the models of a run from the files at the paths in environment.json. The target is
/// under "", drafts are under their names. A model whose files are not here is left out. `weight_bytes`:
/// bytes per weight on the device for which the costs are wanted.
std::map<std::string, theory::DecoderShape> run_shapes(const RunData& run, double weight_bytes);

}  // namespace speclab
