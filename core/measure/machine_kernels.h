#pragma once

#include <cstdint>
#include <span>

/// The two kernels that measure the speed of the machine. One is limited by reads of memory, the other by
/// arithmetic. Both run on the calling thread, with the widest vectors of the processor.
namespace speclab {

/// Sums 64-bit words modulo 2^64, except a rest that does not fill four vectors. Only loads limit its speed.
std::uint64_t sum_words(std::span<const std::uint64_t> words);

/// Runs independent multiply-adds in `rounds` rounds of ten vectors each. Returns the number of operations; a
/// multiply-add counts as 2.
double multiply_adds(std::int64_t rounds);

}  // namespace speclab
