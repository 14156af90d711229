#pragma once

#include <cstdint>

#include "core/backend/cuda/kernels/law_space.h"
#include "core/backend/cuda/simulator/simt.h"
#include "core/base/philox.h"

// Laws over a vocabulary as a block of threads sees them: sums, searches and races over one row, with the
// coins that address them. What is promised: given the same bits of logits (or of weights), every number and
// every choice here has the bits of core/decoding (Distribution, Coins, row_kernels), whatever the number of
// threads. Sums run in the order of row_kernels::kSumChunk, exp and log are the same polynomials, and nothing
// is fused. Logits themselves differ between numerics classes, so texts do too.

namespace speclab::cuda {

/// One row of weights as core/decoding/rows/distribution.h has it: probabilities are weight / sum.
struct Law {
  double sum = 1;
  std::int32_t one_hot = -1;  ///< all mass on this token, the weights are not there; -1: look at the weights
  /// Index of the first logit that is NaN or +infinity; the number of logits where all are -infinity; -1: a
  /// valid row. Others have one_hot 0, so that whoever goes on with them reads no weights.
  std::int32_t invalid = -1;
};

inline constexpr int kRaceBlock = 64;  ///< tokens that share their Philox counters, row_kernels::race

inline namespace SPECLAB_SIDE {

// ---- Polynomials of core/decoding/rows/row_kernels.cpp and noise_kernels.cpp, operation by operation.

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

/// Coins (core/decoding/rows/coins.h) of one prompt on the device. Another type with the same members can
/// stand for it in kernels that are templates over it: one that walks every branch, for proofs by
/// enumeration.
struct PhiloxCoins {
  PhiloxKey key{};                    ///< Coins::key()
  const PhiloxKey* key_at = nullptr;  ///< where not null it is there, so that one launch serves any prompt

  SPECLAB_DEVICE PhiloxKey own_key() const {
    if (key_at == nullptr) return key;
    return {{simt::load(&key_at->word[0]), simt::load(&key_at->word[1])}};
  }
  SPECLAB_DEVICE double uniform(std::int64_t position, simt::u32 purpose, simt::u32 draw) const {
    const auto at = static_cast<simt::u64>(position);
    const PhiloxCounter words =
        philox4x32({draw, purpose, static_cast<simt::u32>(at), static_cast<simt::u32>(at >> 32)}, own_key());
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
    return race_row(space, n, own_key(), position, purpose, weight);
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
                            simt::u32 purpose, simt::u32 draw = 0) const {
    if (one_hot >= 0) return one_hot;
    return coins.categorical(space, vocab, [&](int i) { return weight(i); }, position, purpose, draw);
  }
  /// Distribution::sample_coupled.
  template <typename Coins>
  SPECLAB_DEVICE int sample_coupled(const LawSpace& space, int vocab, const Coins& coins,
                                    std::int64_t position) const {
    if (one_hot >= 0) return one_hot;
    const int winner =
        coins.race(space, vocab, [&](int i) { return simt::load(weights + i); }, position, kGumbelCoin);
    return winner < vocab ? winner : argmax(space, vocab);
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
