#pragma once

// The order of operations on a row over the vocabulary. The host and the devices follow it, so that sums,
// searches and races have the same bits for any number of vector lanes or threads. A race draws a token: each
// token gets a random arrival time, and the earliest one wins (arrival() in exact_float.h).

namespace speclab {

/// A sum over a row splits it into chunks of kSumChunk entries. Entry i of a chunk belongs to lane i mod
/// kSumLanes. Each lane adds its entries in ascending order. Then the lanes are added in order, and the
/// chunks are added one after the other.
inline constexpr int kSumLanes = 16;
inline constexpr int kSumChunk = 1024;
/// A search for the entry at which the running sum reaches a value looks at whole chunks first, then at
/// groups of this many entries, then at single entries.
inline constexpr int kSearchGroup = 32;
/// A race draws the random bits of this many tokens at a time: kSumLanes Philox counters of four words each
/// give one word per token.
inline constexpr int kRaceBlock = 64;

}  // namespace speclab
