#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/decoding/rows/distribution.h"

/// SIMD loops that find the largest entries of a row; see core/decoding/rows/row_kernels.h. The results are
/// the same for every vector width.
namespace speclab::row_kernels {

/// Returns a value that at least `count` entries reach. If the entries are in no particular order, usually
/// only few more entries than `count` reach it. The value is the count-th largest of kSumLanes maxima. Each
/// maximum is over the entries i with the same i mod kSumLanes. `count` is at least 1 and at most kSumLanes
/// and row.size(). NaN counts as -inf.
float reached_by(std::span<const float> row, std::size_t count);
/// Appends the entries that reach `bar`, by ascending index. `maxima` is the output of block_max() for
/// this row. Blocks whose maximum is below the bar are not read.
void append_reaching(std::span<const float> row, std::span<const float> maxima, float bar,
                     std::vector<TopEntry>& out);

}  // namespace speclab::row_kernels
