#pragma once

#include <cstdint>

#include "core/backend/cuda/kernels/simt.h"
#include "core/base/row_order.h"

// The tools with which a block of threads works on one row over the vocabulary: a layout of shared memory,
// sums, searches, and cuts for top-k and top-p. Sums follow the order of row_kernels::kSumChunk for any
// number of threads, so that law.h can promise the bits of the host's code.

namespace speclab::cuda {

inline constexpr int kLawThreads = 512;  ///< most threads per block
inline constexpr int kCutBuckets = 16;   ///< buckets of one step of cut_of_row()

/// Threads per block for rows of `vocab` tokens: one per partial sum, at most kLawThreads. No result depends
/// on it.
inline int law_threads(int vocab) {
  const int threads = (vocab + kSumChunk - 1) / kSumChunk * kSumLanes;
  return threads > kLawThreads ? kLawThreads : (threads + simt::kWarp - 1) / simt::kWarp * simt::kWarp;
}

inline namespace SPECLAB_SIDE {

/// Layout of the shared memory of a block that works on rows of `vocab` tokens.
class LawSpace {
 public:
  SPECLAB_BOTH explicit constexpr LawSpace(int vocab) : chunks_((vocab + kSumChunk - 1) / kSumChunk) {}
  SPECLAB_BOTH constexpr int chunks() const { return chunks_; }
  SPECLAB_BOTH constexpr int bytes() const {
    return 8 * (chunks_ * (kSumLanes + 1) + kSearchGroup + simt::kWarp + 1 + kBucketWords);
  }

  SPECLAB_DEVICE simt::Shared<double> lanes() const { return simt::shared<double>(0, chunks_ * kSumLanes); }
  SPECLAB_DEVICE simt::Shared<double> chunk_sums() const {
    return simt::shared<double>(8 * chunks_ * kSumLanes, chunks_);
  }
  SPECLAB_DEVICE simt::Shared<double> parts() const {
    return simt::shared<double>(8 * chunks_ * (kSumLanes + 1), kSearchGroup);
  }
  SPECLAB_DEVICE simt::Shared<simt::u64> keys() const {
    return simt::shared<simt::u64>(8 * (chunks_ * (kSumLanes + 1) + kSearchGroup), simt::kWarp);
  }
  /// A number that one thread passes to the others.
  SPECLAB_DEVICE simt::Shared<simt::u64> told() const {
    return simt::shared<simt::u64>(8 * (chunks_ * (kSumLanes + 1) + kSearchGroup + simt::kWarp), 1);
  }
  SPECLAB_DEVICE simt::Shared<simt::u64> buckets() const {
    return simt::shared<simt::u64>(8 * (chunks_ * (kSumLanes + 1) + kSearchGroup + simt::kWarp + 1),
                                   kBucketWords);
  }

 private:
  static constexpr int kBucketWords = kCutBuckets * (kLawThreads / simt::kWarp + 1);
  int chunks_;
};

// ---- Sums and searches. All threads of a block call them together and get the same result.

/// Sum of value(0) .. value(n - 1), where n is at most the vocabulary. Each value is computed once, by one
/// thread. Leaves the sums of the chunks in space.chunk_sums().
template <typename Value>
SPECLAB_DEVICE double sum_row(const LawSpace& space, int n, const Value& value) {
  const int chunks = (n + kSumChunk - 1) / kSumChunk;
  const auto lanes = space.lanes(), sums = space.chunk_sums();
  simt::block_sync();  // all threads have read the old contents
  for (int part = simt::thread_index(); part < chunks * kSumLanes; part += simt::block_threads()) {
    const int begin = part / kSumLanes * kSumChunk, end = begin + kSumChunk < n ? begin + kSumChunk : n;
    double sum = 0;
    for (int i = begin + part % kSumLanes; i < end; i += kSumLanes) sum += value(i);
    lanes.set(part, sum);
  }
  simt::block_sync();
  for (int chunk = simt::thread_index(); chunk < chunks; chunk += simt::block_threads()) {
    double sum = 0;
    for (int lane = 0; lane < kSumLanes; ++lane) sum += lanes[chunk * kSumLanes + lane];
    sums.set(chunk, sum);
  }
  simt::block_sync();
  double total = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) total += sums[chunk];
  return total;
}

/// Returns the index of the first of `count` masses at which the running sum exceeds `wanted`. If the sum
/// never exceeds it, returns the last index with any mass. `running` becomes the sum before the returned
/// index.
template <typename Masses>
SPECLAB_DEVICE int pass(const Masses& masses, int count, double wanted, double& running) {
  int chosen = 0;
  double before_chosen = running;
  for (int i = 0; i < count; ++i) {
    const double mass = masses[i];
    if (!(mass > 0)) continue;
    chosen = i;
    before_chosen = running;
    running += mass;
    if (running > wanted) break;
  }
  running = before_chosen;
  return chosen;
}

/// Does what Coins::categorical() does on the host, with the uniform number u. It sums the row, then finds
/// the chunk, the group and the entry.
template <typename Value>
SPECLAB_DEVICE int search_row(const LawSpace& space, int n, double u, const Value& value) {
  const double wanted = u * sum_row(space, n, value);
  double running = 0;
  const int chunk = pass(space.chunk_sums(), (n + kSumChunk - 1) / kSumChunk, wanted, running);
  const int begin = chunk * kSumChunk, size = n - begin < kSumChunk ? n - begin : kSumChunk;
  const int groups = (size + kSearchGroup - 1) / kSearchGroup;
  const auto parts = space.parts();
  if (simt::thread_index() < groups) {  // a block has at least 32 threads, a chunk at most 32 groups
    double sum = 0;
    for (int i = 0; i < kSearchGroup; ++i) {
      const int at = simt::thread_index() * kSearchGroup + i;
      if (at < size) sum += value(begin + at);
    }
    parts.set(simt::thread_index(), sum);
  }
  simt::block_sync();
  const int group = pass(parts, groups, wanted, running);
  const int first = begin + group * kSearchGroup, count = n - first < kSearchGroup ? n - first : kSearchGroup;
  simt::block_sync();
  if (simt::thread_index() < count) parts.set(simt::thread_index(), value(first + simt::thread_index()));
  simt::block_sync();
  return first + pass(parts, count, wanted, running);
}

/// Returns the largest key among all threads.
SPECLAB_DEVICE simt::u64 block_largest(const LawSpace& space, simt::u64 key) {
  for (int mask = simt::kWarp / 2; mask > 0; mask /= 2) {
    const simt::u64 other = simt::shuffle_xor(key, mask);
    key = other > key ? other : key;
  }
  const auto keys = space.keys();
  simt::block_sync();
  if (simt::lane() == 0) keys.set(simt::warp_index(), key);
  simt::block_sync();
  for (int warp = 0; warp < simt::block_threads() / simt::kWarp; ++warp)
    key = keys[warp] > key ? keys[warp] : key;
  return key;
}

/// Returns a key that orders pairs (value, index). A larger value has a larger key. Among equal values the
/// lower index has the larger key. Both zeros are the same value. NaN and +infinity are above all finite
/// values.
SPECLAB_DEVICE simt::u64 key_of(float value, int index) {
  const simt::u32 bits = simt::bits_of(value + 0.0f);
  simt::u32 order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  if ((bits & 0x7f800000u) == 0x7f800000u && bits != 0xff800000u) order = 0xffffffffu;
  return static_cast<simt::u64>(order) << 32 | (0xffffffffu - static_cast<simt::u32>(index));
}
SPECLAB_DEVICE int index_of(simt::u64 key) {
  return static_cast<int>(0xffffffffu - static_cast<simt::u32>(key));
}
SPECLAB_DEVICE float value_of(simt::u64 key) {
  const auto order = static_cast<simt::u32>(key >> 32);
  return simt::float_of(order >> 31 != 0 ? order & 0x7fffffffu : ~order);
}
inline constexpr simt::u64 kInvalidKey = 0xffffffffull
                                         << 32;  ///< keys from here on belong to NaN or +infinity

/// Returns the key of the largest value, with the lowest index on ties.
template <typename Value>
SPECLAB_DEVICE simt::u64 largest_of_row(const LawSpace& space, int n, const Value& value) {
  simt::u64 best = 0;
  for (int i = simt::thread_index(); i < n; i += simt::block_threads()) {
    const simt::u64 key = key_of(value(i), i);
    best = key > best ? key : best;
  }
  return block_largest(space, best);
}

/// Every thread has 16 numbers. Replaces each of them by its sum over all threads of the block.
SPECLAB_DEVICE void sum_buckets(const LawSpace& space, simt::u64 (&own)[kCutBuckets]) {
  const auto buckets = space.buckets();
  const int warps = simt::block_threads() / simt::kWarp;
  SPECLAB_UNROLL
  for (int b = 0; b < kCutBuckets; ++b) {
    for (int mask = simt::kWarp / 2; mask > 0; mask /= 2) own[b] += simt::shuffle_xor(own[b], mask);
  }
  simt::block_sync();
  if (simt::lane() == 0) {
    SPECLAB_UNROLL
    for (int b = 0; b < kCutBuckets; ++b) buckets.set(simt::warp_index() * kCutBuckets + b, own[b]);
  }
  simt::block_sync();
  if (simt::thread_index() < kCutBuckets) {
    simt::u64 sum = 0;
    for (int warp = 0; warp < warps; ++warp) sum += buckets[warp * kCutBuckets + simt::thread_index()];
    buckets.set(kLawThreads / simt::kWarp * kCutBuckets + simt::thread_index(), sum);
  }
  simt::block_sync();
  SPECLAB_UNROLL
  for (int b = 0; b < kCutBuckets; ++b) own[b] = buckets[kLawThreads / simt::kWarp * kCutBuckets + b];
}

/// Returns the largest key for which enough(mass of all entries with this key or a larger one) is true, or 0
/// if it is not true even for all entries. Masses are integers, so the order of their sum does not matter.
/// Makes sixteen passes over the row and finds four bits of the key in each.
template <typename Key, typename Mass, typename Enough>
SPECLAB_DEVICE simt::u64 cut_of_row(const LawSpace& space, int n, const Key& key, const Mass& mass,
                                    const Enough& enough) {
  simt::u64 cut = 0, above = 0;
  for (int shift = 60; shift >= 0; shift -= 4) {
    simt::u64 own[kCutBuckets] = {};
    for (int i = simt::thread_index(); i < n; i += simt::block_threads()) {
      const simt::u64 k = key(i);
      if (shift < 60 && k >> (shift + 4) != cut >> (shift + 4)) continue;
      const simt::u64 m = mass(i);
      const int digit = static_cast<int>(k >> shift & 15);
      SPECLAB_UNROLL
      for (int b = 0; b < kCutBuckets; ++b) own[b] += digit == b ? m : 0;
    }
    sum_buckets(space, own);
    int bucket = 0;
    bool found = false;
    SPECLAB_UNROLL
    for (int b = kCutBuckets - 1; b > 0; --b) {
      if (found) continue;
      if (enough(above + own[b])) {
        bucket = b;
        found = true;
      } else {
        above += own[b];
      }
    }
    cut |= static_cast<simt::u64>(bucket) << shift;
  }
  return cut;
}

/// Returns the mass of a weight for top-p, in units of 2^-44 of the largest weight, as in
/// core/decoding/rows/distribution.cpp.
SPECLAB_DEVICE simt::u64 mass_of(float weight) { return static_cast<simt::u64>(weight * 0x1p44f); }

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
