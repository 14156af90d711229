#pragma once

#include <cstdint>

#include "core/backend/cuda/simt.h"
#include "core/base/philox.h"

// Laws over a vocabulary as a block of threads sees them: sums, searches and races over one row, with the
// coins that address them. What is promised: given the same bits of logits (or of weights), every number and
// every choice here has the bits of core/spec (Distribution, Coins, row_kernels), whatever the number of
// threads. Sums run in the order of row_kernels::kSumChunk, exp and log are the same polynomials, and nothing
// is fused. Logits themselves differ between numerics classes, so texts do too.

namespace speclab::cuda {

/// One row of weights as core/spec/distribution.h has it: probabilities are weight / sum.
struct Law {
  double sum = 1;
  std::int32_t one_hot = -1;  ///< all mass on this token, the weights are not there; -1: look at the weights
  /// Index of the first logit that is NaN or +infinity; the number of logits where all are -infinity; -1: a
  /// valid row.
  std::int32_t invalid = -1;
};

inline constexpr int kLawThreads = 512;  ///< of a block, at most
inline constexpr int kSumLanes = 16;     ///< row_kernels::kSumLanes
inline constexpr int kSumChunk = 1024;   ///< row_kernels::kSumChunk
inline constexpr int kSearchGroup = 32;  ///< of the search in Coins::categorical
inline constexpr int kRaceBlock = 64;    ///< tokens that share their Philox counters, row_kernels::race
inline constexpr int kCutBuckets = 16;   ///< of a step of cut_of_row

/// Threads for rows of `vocab` tokens: one for each partial sum while there are enough. No result depends on
/// it.
inline int law_threads(int vocab) {
  const int threads = (vocab + kSumChunk - 1) / kSumChunk * kSumLanes;
  return threads > kLawThreads ? kLawThreads : (threads + simt::kWarp - 1) / simt::kWarp * simt::kWarp;
}

inline namespace SPECLAB_SIDE {

/// The shared memory of a block that works on rows of `vocab` tokens, from its beginning on.
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
  /// One number that a thread tells the others.
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

// ---- Sums and searches. All threads of the block call them together and get the same result.

/// Sum of value(0) .. value(n - 1), n at most the vocabulary; each is asked for once, by one thread. Leaves
/// the sums of the chunks in space.chunk_sums().
template <typename Value>
SPECLAB_DEVICE double sum_row(const LawSpace& space, int n, const Value& value) {
  const int chunks = (n + kSumChunk - 1) / kSumChunk;
  const auto lanes = space.lanes(), sums = space.chunk_sums();
  simt::block_sync();  // what was there has been read
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

/// The first of `count` masses with which the running sum passes `wanted`, else the last one with any mass;
/// `running` becomes the sum before it.
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

/// Coins::categorical with the uniform number u: sums the row, then chunk, group and entry.
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

/// The largest key of all threads.
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

/// A key whose order is that of floats, then of lower indices; both zeros are one number. Of NaN and
/// +infinity: above all finite ones.
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
inline constexpr simt::u64 kInvalidKey = 0xffffffffull << 32;  ///< keys from here on are of NaN or +infinity

/// Key of the largest value, ties to the lowest index.
template <typename Value>
SPECLAB_DEVICE simt::u64 largest_of_row(const LawSpace& space, int n, const Value& value) {
  simt::u64 best = 0;
  for (int i = simt::thread_index(); i < n; i += simt::block_threads()) {
    const simt::u64 key = key_of(value(i), i);
    best = key > best ? key : best;
  }
  return block_largest(space, best);
}

/// Sums over the block of each of the 16 numbers of its threads.
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

/// The largest key such that the entries with that key or a larger one are enough; 0 when all together are
/// not. Masses are integers, so that their order does not matter. Sixteen passes over the row, four bits of
/// the key each.
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

/// Mass of a weight for top-p, as core/spec/distribution.cpp counts it: in units of 2^-44 of the heaviest
/// token's.
SPECLAB_DEVICE simt::u64 mass_of(float weight) {
  return static_cast<simt::u64>(weight * 0x1p44f);
}

// ---- Polynomials of core/spec/row_kernels.cpp and noise_kernels.cpp, operation by operation.

/// exp for x <= 0, zero below -87.
SPECLAB_DEVICE float exp_nonpositive(float x) {
  const float clamped = x > -100.0f ? x : -100.0f;
  const float magic = 12582912.0f;  // 1.5 * 2^23 rounds to the nearest integer
  const float shifted = clamped * 1.44269504f + magic;
  const float whole = shifted - magic;
  float r = clamped - whole * 0.693359375f;
  r = r - whole * -2.12194440e-4f;
  const float r2 = r * r;
  const float low = (1.0f / 6 * r + 0.5f) * r2 + (1.0f * r + 1.0f);
  const float high = (1.0f / 5040 * r + 1.0f / 720) * r2 + (1.0f / 120 * r + 1.0f / 24);
  const float y = high * (r2 * r2) + low;
  const float power = simt::float_of((simt::bits_of(shifted) + 127u) << 23);
  return x >= -87.0f ? y * power : 0.0f;
}

/// log(1 + t), 1 + t in [sqrt(1/2), sqrt(2)].
SPECLAB_DEVICE float log1p_reduced(float t) {
  const float s = t / (t + 2.0f), s2 = s * s;
  float y = 1.0f / 9;
  y = y * s2 + 1.0f / 7;
  y = y * s2 + 1.0f / 5;
  y = y * s2 + 1.0f / 3;
  y = y * s2 + 1.0f;
  return (s + s) * y;
}

/// (x + 1/2) / 2^32.
SPECLAB_DEVICE float fraction_of(simt::u32 x) {
  const auto high = static_cast<float>(static_cast<int>(x >> 16)),
             low = static_cast<float>(static_cast<int>(x & 0xffffu));
  return (high * 65536.0f + (low + 0.5f)) * 0x1p-32f;
}

/// The standard exponential of 32 random bits, -log(1 - (x + 1/2) / 2^32).
SPECLAB_DEVICE float exponential(simt::u32 x) {
  const float v = fraction_of(x), w = fraction_of(~x);
  const int shifted = static_cast<int>(simt::bits_of(w) - 0x3f3504f3u);  // sqrt(1/2)
  const int e = shifted >> 23;
  const float mantissa = simt::float_of(simt::bits_of(w) - (static_cast<simt::u32>(e) << 23));
  const auto ef = static_cast<float>(e);
  const float t = ef == 0.0f ? -v : mantissa - 1.0f;
  return -(ef * 0.693147181f + log1p_reduced(t));
}

/// row_kernels::race: the token whose exponential / weight comes first, ties to the lowest; n when no weight
/// is positive.
template <typename Weight>
SPECLAB_DEVICE int race_row(const LawSpace& space, int n, PhiloxKey key, std::int64_t position,
                            simt::u32 purpose, const Weight& weight) {
  const auto at = static_cast<simt::u64>(position);
  const int counters = (n + kRaceBlock - 1) / kRaceBlock * kSumLanes;
  simt::u64 best = 0;  // of (bits of the time, token), both turned round
  for (int i = simt::thread_index(); i < counters; i += simt::block_threads()) {
    const PhiloxCounter words = philox4x32(
        {static_cast<simt::u32>(i), purpose, static_cast<simt::u32>(at), static_cast<simt::u32>(at >> 32)},
        key);
    for (int word = 0; word < 4; ++word) {
      const int token = i / kSumLanes * kRaceBlock + word * kSumLanes + i % kSumLanes;
      if (token >= n) continue;
      const float w = weight(token);
      if (!(w > 0)) continue;
      const simt::u32 time = simt::bits_of(exponential(words.word[word]) / w);
      if (time >= 0x7f800000u) continue;  // not within the floats: loses against everything
      const simt::u64 candidate =
          static_cast<simt::u64>(~time) << 32 | (0xffffffffu - static_cast<simt::u32>(token));
      best = candidate > best ? candidate : best;
    }
  }
  best = block_largest(space, best);
  return best == 0 ? n : index_of(best);
}

// ---- Coins

/// Coins (core/spec/coins.h) of one prompt on the device. Another type with the same members can stand for it
/// in kernels that are templates over it: one that walks every branch, for proofs by enumeration.
struct PhiloxCoins {
  PhiloxKey key{};  ///< Coins::key()

  SPECLAB_DEVICE double uniform(std::int64_t position, simt::u32 purpose, simt::u32 draw) const {
    const auto at = static_cast<simt::u64>(position);
    const PhiloxCounter words =
        philox4x32({draw, purpose, static_cast<simt::u32>(at), static_cast<simt::u32>(at >> 32)}, key);
    return uniform_of(words.word[0], words.word[1]);
  }
  SPECLAB_DEVICE bool bernoulli(const LawSpace&, double probability, std::int64_t position, simt::u32 purpose,
                                simt::u32 draw) const {
    if (probability <= 0) return false;
    if (probability >= 1) return true;
    return uniform(position, purpose, draw) < probability;
  }
  template <typename Value>
  SPECLAB_DEVICE int categorical(const LawSpace& space, int n, const Value& value, std::int64_t position,
                                 simt::u32 purpose, simt::u32 draw) const {
    return search_row(space, n, uniform(position, purpose, draw), value);
  }
  template <typename Weight>
  SPECLAB_DEVICE int race(const LawSpace& space, int n, const Weight& weight, std::int64_t position,
                          simt::u32 purpose) const {
    return race_row(space, n, key, position, purpose, weight);
  }
};

/// Purposes of coins as Coins addresses them.
enum : simt::u32 { kTargetCoin = 0, kDraftCoin = 1, kAcceptCoin = 2, kResidualCoin = 3, kGumbelCoin = 4 };

/// A row on the device.
struct LawRow {
  const float* weights = nullptr;  ///< may be null where the row is one-hot
  double sum = 1;
  int one_hot = -1;

  SPECLAB_DEVICE static LawRow of(const float* weights, const Law* laws, int row, int vocab) {
    return {weights == nullptr ? nullptr
                               : weights + static_cast<std::size_t>(row) * static_cast<std::size_t>(vocab),
            simt::load(&laws[row].sum), simt::load(&laws[row].one_hot)};
  }
  SPECLAB_DEVICE double weight(int x) const { return static_cast<double>(simt::load(weights + x)); }
  SPECLAB_DEVICE double prob(int x) const {
    if (one_hot >= 0) return x == one_hot ? 1 : 0;
    return weight(x) / sum;
  }
  /// Distribution::argmax; ties to the lowest token.
  SPECLAB_DEVICE int argmax(const LawSpace& space, int vocab) const {
    if (one_hot >= 0) return one_hot;
    return index_of(largest_of_row(space, vocab, [&](int i) { return simt::load(weights + i); }));
  }
  /// Distribution::sample.
  template <typename Coins>
  SPECLAB_DEVICE int sample(const LawSpace& space, int vocab, const Coins& coins, std::int64_t position,
                            simt::u32 purpose) const {
    if (one_hot >= 0) return one_hot;
    return coins.categorical(
        space, vocab, [&](int i) { return weight(i); }, position, purpose, 0);
  }
  /// Distribution::sample_coupled.
  template <typename Coins>
  SPECLAB_DEVICE int sample_coupled(const LawSpace& space, int vocab, const Coins& coins,
                                    std::int64_t position) const {
    if (one_hot >= 0) return one_hot;
    const int winner = coins.race(
        space, vocab, [&](int i) { return simt::load(weights + i); }, position, kGumbelCoin);
    return winner < vocab ? winner : argmax(space, vocab);
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
