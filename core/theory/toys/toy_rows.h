#pragma once

#include "core/decoding/rows/distribution.h"
#include "core/model/toy/markov_table.h"

namespace speclab::theory {

/// The rows that a model with this table draws from under these sampling parameters: temperature, top-k and
/// top-p are applied with the engine's own code. At temperature 0 each row is one-hot.
toy::MarkovRows sampled_rows(const toy::MarkovTable& table, const SamplingParams& sampling);

}  // namespace speclab::theory
