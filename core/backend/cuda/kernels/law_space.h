#pragma once

#include <cstdint>

#include "core/backend/cuda/kernels/simt.h"
#include "core/base/row_order.h"

// The tools with which a block of threads works on one row over the vocabulary: a layout of shared memory,
// sums, searches, and cuts for top-k and top-p. Sums follow the order of core/base/row_order.h for any
// number of threads, so that law.h can promise the bits of the host's code.

namespace speclab::cuda {

inline constexpr int kLawThreads = 512;  ///< largest number of threads per block
inline constexpr int kCutBuckets = 16;   ///< buckets of one step of cut_of_entries()
/// Size of the shared memory of sum_buckets(), in numbers of 64 bits: 16 sums of each warp, and 16 totals.
inline constexpr int kBucketWords = kCutBuckets * (kLawThreads / simt::kWarp + 1);
/// Numbers that a thread loads before it computes with the first of them. 512 threads then have 32 KiB in
/// flight, 256 threads 16 KiB. The compiler must assume that a store may change what a later load reads, so
/// loads run ahead of stores only if the code puts them first.
inline constexpr int kRowLoads = 16;

/// Number of chunks (kSumChunk) of a row of n entries.
SPECLAB_BOTH constexpr int chunks_of(int n) { return (n + kSumChunk - 1) / kSumChunk; }

/// Threads per block for rows of `vocab` tokens: one per lane of a chunk, rounded up to whole warps, at most
/// kLawThreads. No result depends on this number.
inline int law_threads(int vocab) {
  const int threads = chunks_of(vocab) * kSumLanes;
  return threads > kLawThreads ? kLawThreads : (threads + simt::kWarp - 1) / simt::kWarp * simt::kWarp;
}

inline namespace SPECLAB_SIDE {

/// Layout of the shared memory of a block that works on rows of `vocab` tokens.
class LawSpace {
 public:
  SPECLAB_BOTH explicit constexpr LawSpace(int vocab) : chunks_(chunks_of(vocab)) {}
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
  int chunks_;
};

// ---- Entries of a row

/// Sums of chunks that are already known, so that a kernel need not read the row again.
struct KnownSums {
  /// [chunks] in global memory; null: not known.
  const double* chunks = nullptr;
  int changed = -1;       ///< an entry that changed since the sums were taken; -1: none
  bool in_space = false;  ///< the sums are in space.chunk_sums()
};

/// A row that kernels compute from memory. load(i) fetches what entry i needs, and value(i, fetched) computes
/// the entry. The two are separate so that many loads can be in flight before the first of them is used.
template <typename Load, typename Value>
struct Entries {
  Load load;
  Value value;
  KnownSums known{};
  SPECLAB_DEVICE auto operator()(int i) const { return value(i, load(i)); }
};
template <typename Load, typename Value>
Entries(Load, Value) -> Entries<Load, Value>;
template <typename Load, typename Value>
Entries(Load, Value, KnownSums) -> Entries<Load, Value>;

/// Calls visit(i, load(i)) for i = first, first + step, and so on below `end`. Loads kRowLoads entries before
/// it visits the first of them, or half as many if an entry has more than four bytes. Past the end it loads
/// the last entry again, so that no load needs a branch.
template <typename Load, typename Visit>
SPECLAB_DEVICE void visit_entries(int first, int end, int step, const Load& load, const Visit& visit) {
  constexpr int kEntries = sizeof(load(0)) <= 4 ? kRowLoads : kRowLoads / 2, kGroup = 4;
  SPECLAB_ROLLED
  for (; first < end; first += kEntries * step) {
    decltype(load(0)) loaded[kEntries];
    SPECLAB_UNROLL
    for (int j = 0; j < kEntries; ++j) loaded[j] = load(simt::min(first + j * step, end - 1));
    // Visits four entries at a time, then moves the others down in registers. So the code has four copies of
    // the visit, not sixteen.
    SPECLAB_ROLLED
    for (int i = first, group = 0; group < kEntries / kGroup; ++group, i += kGroup * step) {
      SPECLAB_UNROLL
      for (int j = 0; j < kGroup; ++j) {
        if (i + j * step < end) visit(i + j * step, loaded[j]);
      }
      SPECLAB_UNROLL
      for (int j = 0; j < kEntries - kGroup; ++j) loaded[j] = loaded[j + kGroup];
    }
  }
}

/// Calls visit(i, load(i)) for this thread's share of the n entries of a row.
template <typename Load, typename Visit>
SPECLAB_DEVICE void visit_row(int n, const Load& load, const Visit& visit) {
  visit_entries(simt::thread_index(), n, simt::block_threads(), load, visit);
}

// ---- Sums and searches. Those that take shared memory are called by all threads of a block together.

/// Writes the sum of each chunk's lanes, for the chunks from `first` to end - 1.
SPECLAB_DEVICE void add_lanes(const simt::Shared<double>& lanes, const simt::Shared<double>& sums, int first,
                              int end) {
  SPECLAB_ROLLED
  for (int chunk = first + simt::thread_index(); chunk < end; chunk += simt::block_threads()) {
    double sum = 0;
    SPECLAB_UNROLL
    for (int lane = 0; lane < kSumLanes; ++lane) sum += lanes[chunk * kSumLanes + lane];
    sums.set(chunk, sum);
  }
}
/// Adds the sums of the chunks in order.
SPECLAB_DEVICE double add_chunks(const simt::Shared<double>& sums, int chunks) {
  double total = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) total += sums[chunk];
  return total;
}

/// Returns the sum of the first n entries of `row` (Entries), where n is at most the vocabulary. Each entry
/// is computed once, by one thread, or not at all if its chunk's sum is known. Leaves the sums of the chunks
/// in space.chunk_sums().
template <typename Row>
SPECLAB_DEVICE double sum_row(const LawSpace& space, int n, const Row& row) {
  const int chunks = chunks_of(n);
  const auto lanes = space.lanes(), sums = space.chunk_sums();
  simt::block_sync();  // all threads have read the old contents
  if (row.known.in_space) return add_chunks(sums, chunks);
  int first = 0, end = chunks;  // chunks to be summed
  if (row.known.chunks != nullptr) {
    first = row.known.changed < 0 ? chunks : row.known.changed / kSumChunk;
    end = row.known.changed < 0 ? chunks : first + 1;
    SPECLAB_ROLLED
    for (int chunk = simt::thread_index(); chunk < chunks; chunk += simt::block_threads()) {
      if (chunk != first) sums.set(chunk, simt::load(row.known.chunks + chunk));
    }
  }
  SPECLAB_ROLLED
  for (int part = first * kSumLanes + simt::thread_index(); part < end * kSumLanes;
       part += simt::block_threads()) {
    const int begin = part / kSumLanes * kSumChunk;
    double sum = 0;
    visit_entries(begin + part % kSumLanes, simt::min(begin + kSumChunk, n), kSumLanes, row.load,
                  [&](int i, const auto& loaded) { sum += row.value(i, loaded); });
    lanes.set(part, sum);
  }
  simt::block_sync();
  add_lanes(lanes, sums, first, end);
  simt::block_sync();
  return add_chunks(sums, chunks);
}

/// Returns the index of the first of `count` masses at which the running sum exceeds `wanted`. If the sum
/// never exceeds it, returns the last index with any mass. The sum starts at `running`, which becomes the sum
/// before the returned index.
template <typename Masses>
SPECLAB_DEVICE int pass(const Masses& masses, int count, double wanted, double& running) {
  constexpr int kTogether = 8;  // masses that are read before the first of them is used
  int chosen = 0;
  double before_chosen = running;
  bool passed = false;
  SPECLAB_ROLLED
  for (int first = 0; first < count && !passed; first += kTogether) {
    double mass[kTogether];
    SPECLAB_UNROLL
    for (int i = 0; i < kTogether; ++i) mass[i] = masses[simt::min(first + i, count - 1)];
    SPECLAB_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      if (passed || first + i >= count || !(mass[i] > 0)) continue;
      chosen = first + i;
      before_chosen = running;
      running += mass[i];
      passed = running > wanted;
    }
  }
  running = before_chosen;
  return chosen;
}

/// Does what Coins::categorical() does on the host, with the uniform number u. It sums the row, then finds
/// the chunk, the group and the entry.
template <typename Row>
SPECLAB_DEVICE int search_row(const LawSpace& space, int n, double u, const Row& row) {
  const double wanted = u * sum_row(space, n, row);
  double running = 0;
  const int chunk = pass(space.chunk_sums(), chunks_of(n), wanted, running);
  const int begin = chunk * kSumChunk, size = n - begin < kSumChunk ? n - begin : kSumChunk;
  const int groups = (size + kSearchGroup - 1) / kSearchGroup;
  const auto parts = space.parts();
  if (simt::thread_index() < groups) {  // a block has at least 32 threads, a chunk at most 32 groups
    double sum = 0;
    const int from = simt::thread_index() * kSearchGroup;
    visit_entries(begin + from, begin + simt::min(from + kSearchGroup, size), 1, row.load,
                  [&](int i, const auto& loaded) { sum += row.value(i, loaded); });
    parts.set(simt::thread_index(), sum);
  }
  simt::block_sync();
  const int group = pass(parts, groups, wanted, running);
  const int first = begin + group * kSearchGroup, count = n - first < kSearchGroup ? n - first : kSearchGroup;
  simt::block_sync();
  if (simt::thread_index() < count) parts.set(simt::thread_index(), row(first + simt::thread_index()));
  simt::block_sync();
  return first + pass(parts, count, wanted, running);
}

/// Returns the largest key among all threads of the block. `keys`: one element per warp.
SPECLAB_DEVICE simt::u64 block_largest(const simt::Shared<simt::u64>& keys, simt::u64 key) {
  for (int mask = simt::kWarp / 2; mask > 0; mask /= 2) {
    const simt::u64 other = simt::shuffle_xor(key, mask);
    key = other > key ? other : key;
  }
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

/// Returns the key of the largest of the floats load(0) .. load(n - 1), with the lowest index on ties.
template <typename Load>
SPECLAB_DEVICE simt::u64 largest_of_row(const LawSpace& space, int n, const Load& load) {
  simt::u64 best = 0;
  visit_row(n, load, [&](int i, float value) {
    const simt::u64 key = key_of(value, i);
    best = key > best ? key : best;
  });
  return block_largest(space.keys(), best);
}

/// Every thread has 16 numbers. Replaces each of them by its sum over all threads of the block. `buckets`:
/// room for kBucketWords numbers.
SPECLAB_DEVICE void sum_buckets(const simt::Shared<simt::u64>& buckets, simt::u64 (&own)[kCutBuckets]) {
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
/// if even the mass of all entries is not enough. Entry i has the key key(i, load(i)) and the mass mass(key).
/// The n entries may be only those of a row that have the smallest keys. Then `above`, the mass of the row's
/// other entries, is part of every mass that `enough` gets. Masses are integers, so the order of their sum
/// does not matter. Makes sixteen passes over the entries and finds four bits of the key in each. `buckets`:
/// see sum_buckets().
template <typename Load, typename Key, typename Mass, typename Enough>
SPECLAB_DEVICE simt::u64 cut_of_entries(const simt::Shared<simt::u64>& buckets, int n, const Load& load,
                                        const Key& key, const Mass& mass, simt::u64 above,
                                        const Enough& enough) {
  simt::u64 cut = 0;
  for (int shift = 60; shift >= 0; shift -= 4) {
    simt::u64 own[kCutBuckets] = {};
    visit_row(n, load, [&](int i, const auto& loaded) {
      const simt::u64 k = key(i, loaded);
      if (shift < 60 && k >> (shift + 4) != cut >> (shift + 4)) return;
      const simt::u64 m = mass(k);
      const int digit = static_cast<int>(k >> shift & 15);
      SPECLAB_UNROLL
      for (int b = 0; b < kCutBuckets; ++b) own[b] += digit == b ? m : 0;
    });
    sum_buckets(buckets, own);
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
