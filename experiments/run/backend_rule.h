#pragma once

#include <string>

#include "experiments/run/model_set.h"

namespace speclab {

/// "cpu", "cuda" or "host-simt": what a choice means on a machine where a GPU is absent for this reason ("":
/// one is there). auto is cuda where there is one, unless a numerics class is asked for, which can be chosen
/// on the CPU only. Throws Error for an unknown backend.
std::string backend_name(const BackendChoice& choice, const std::string& gpu_absent);

}  // namespace speclab
