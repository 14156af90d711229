#pragma once

#include <vector>

#include "core/backend/backend.h"
#include "core/model/net/model_config.h"

namespace speclab {

/// Cosines and sines of the first positions, [positions, dims/2] each. The row of a position depends neither
/// on the length of the sequence nor on the length of the table. With dynamic scaling, position p has the
/// theta of a sequence of p + 1 tokens, as in decoding token by token.
struct RopeTable {
  int dims = 0;
  std::vector<float> cos, sin;
};
/// Makes a table. `known` is a table of the same rope; rows that it contains are copied instead of computed.
RopeTable make_rope_table(const Rope& rope, int positions, const RopeTable& known = {});

/// A table in a backend's memory.
struct RopeBuffers {
  int dims = 0;
  Buffer<float> cos, sin;
  Rotation rotation() const { return {cos.data(), sin.data(), dims}; }
};

/// The frequencies for a sequence of `length` tokens, [dims/2]. Only dynamic scaling depends on the length.
std::vector<float> rope_frequencies(const Rope& rope, int length);

}  // namespace speclab
