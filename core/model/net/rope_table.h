#pragma once

#include <vector>

#include "core/backend/backend.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// Cosines and sines of the first positions, [positions, dims/2] each. A position has its own row whatever
/// the length of the sequence or of the table: with dynamic scaling position p turns with the base of a
/// sequence of p + 1 tokens, as it does when tokens come one by one.
struct RopeTable {
  int dims = 0;
  std::vector<float> cos, sin;
};
/// `known`: a table of the same rope whose rows are copied instead of computed again.
RopeTable make_rope_table(const Rope& rope, int positions, const RopeTable& known = {});

/// A table in memory of a backend.
struct RopeBuffers {
  int dims = 0;
  Buffer<float> cos, sin;
  Rotation rotation() const { return {cos.data(), sin.data(), dims}; }
};

/// The frequencies of a sequence of `length` tokens (which only dynamic scaling asks for), [dims/2].
std::vector<float> rope_frequencies(const Rope& rope, int length);

}  // namespace speclab
