#pragma once

// The order of operations on a row over the vocabulary. Host and devices follow it, so sums, searches and
// races have the same bits for any number of vector lanes or threads.

namespace speclab {

/// A sum over a row adds chunk after chunk. In a chunk of kSumChunk entries, lane i mod kSumLanes adds its
/// entries i in ascending order; then the lanes are added in order.
inline constexpr int kSumLanes = 16;
inline constexpr int kSumChunk = 1024;
/// A search for a running sum looks at chunks, then at groups of this many entries, then at single entries.
inline constexpr int kSearchGroup = 32;
/// Number of tokens in a race that share Philox counters: four words of each of kSumLanes counters.
inline constexpr int kRaceBlock = 64;

}  // namespace speclab
