#pragma once

// The order of work on a row over the vocabulary. Host and devices keep to it, so that sums, searches and
// races give the same bits whatever the number of vector lanes or threads.

namespace speclab {

/// A sum over a row goes chunk after chunk. In a chunk of kSumChunk entries, lane i mod kSumLanes adds the
/// entries i in ascending order; then the lanes are added in order.
inline constexpr int kSumLanes = 16;
inline constexpr int kSumChunk = 1024;
/// A search for a running sum looks at chunks, then at groups of this many entries, then at entries.
inline constexpr int kSearchGroup = 32;
/// Tokens that share their Philox counters in a race: four words of each of kSumLanes counters.
inline constexpr int kRaceBlock = 64;

}  // namespace speclab
