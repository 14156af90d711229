#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/decoding/rows/distribution.h"

/// SIMD loops that find the largest entries of a row; see core/decoding/rows/row_kernels.h. The results are
/// the same for every vector width.
namespace speclab::row_kernels {

/// A value that at least `count` entries reach, and in an unordered row few more. It takes the largest entry
/// of each class i mod kSumLanes and returns the count-th largest of these. count in 1 .. kSumLanes, at most
/// row.size(). NaN counts as -inf.
float reached_by(std::span<const float> row, std::size_t count);
/// Appends the entries that reach `bar`, by ascending index. `maxima` are those of block_max(): blocks whose
/// maximum is below the bar are not read.
void append_reaching(std::span<const float> row, std::span<const float> maxima, float bar,
                     std::vector<TopEntry>& out);

}  // namespace speclab::row_kernels
