#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/decoding/rows/distribution.h"

/// Loops that find the largest entries of a row, in SIMD; see core/decoding/rows/row_kernels.h. The same
/// results for every vector width.
namespace speclab::row_kernels {

/// A value that `count` entries reach at least, and in a row without order few more: the count-th largest of
/// the kSumLanes largest values of the entries with the same i mod kSumLanes. count in 1 .. kSumLanes, at
/// most row.size(). NaN counts as -inf.
float reached_by(std::span<const float> row, std::size_t count);
/// Appends the entries that reach `bar`, ascending; `maxima` are those of block_max(), by which most of the
/// row is not read at all.
void append_reaching(std::span<const float> row, std::span<const float> maxima, float bar,
                     std::vector<TopEntry>& out);

}  // namespace speclab::row_kernels
