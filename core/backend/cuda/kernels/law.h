#pragma once

#include <cstdint>

#include "core/backend/cuda/kernels/law_space.h"
#include "core/backend/cuda/kernels/simt.h"
#include "core/base/coin_address.h"
#include "core/base/exact_float.h"
#include "core/base/row_order.h"

// Distributions over a vocabulary ("laws") as a block of threads computes them: sums, searches and races over
// one row, and the coins that they use. For logits (or weights) with the same bits, every number and every
// choice here has the bits of the host's code in core/decoding (Distribution, Coins, row_kernels), for any
// number of threads: sums follow the order of row_kernels::kSumChunk, exp and log are the same polynomials,
// and no multiply-add is fused. Logits differ between numerics classes, and so do texts.

namespace speclab::cuda {

/// One row of weights, like Distribution (core/decoding/rows/distribution.h): probabilities are weight / sum.
struct Law {
  double sum = 1;
  std::int32_t one_hot = -1;  ///< the token with all mass, then there are no weights; -1: the weights count
  /// -1: a valid row. Otherwise the index of the first logit that is NaN or +infinity, or the number of
  /// logits if all are -infinity. Such rows have one_hot 0, so that no weights are read.
  std::int32_t invalid = -1;
};

inline namespace SPECLAB_SIDE {

/// row_kernels::race(): the token with the least exponential / weight, the lowest one on ties; n if no weight
/// is positive.
template <typename Weight>
SPECLAB_DEVICE int race_row(const LawSpace& space, int n, PhiloxKey key, std::int64_t position,
                            simt::u32 purpose, const Weight& weight) {
  const int counters = (n + kRaceBlock - 1) / kRaceBlock * kSumLanes;
  simt::u64 best = 0;  // inverted bits of (time, token): the largest is the earliest
  for (int i = simt::thread_index(); i < counters; i += simt::block_threads()) {
    const PhiloxCounter words = philox4x32(coin_counter(position, purpose, static_cast<simt::u32>(i)), key);
    for (int word = 0; word < 4; ++word) {
      const int token = i / kSumLanes * kRaceBlock + word * kSumLanes + i % kSumLanes;
      if (token >= n) continue;
      const float w = weight(token);
      if (!(w > 0)) continue;
      const simt::u32 time = exact_bits(arrival(words.word[word], w));
      if (time >= 0x7f800000u) continue;  // infinite: never the first
      const simt::u64 candidate =
          static_cast<simt::u64>(~time) << 32 | (0xffffffffu - static_cast<simt::u32>(token));
      best = candidate > best ? candidate : best;
    }
  }
  best = block_largest(space, best);
  return best == 0 ? n : index_of(best);
}

// ---- Coins

/// Coins (core/decoding/rows/coins.h) of one prompt on the device. Kernels are templates over this type, so
/// tests can put another one in its place that walks every branch, for proofs by enumeration.
struct PhiloxCoins {
  PhiloxKey key{};  ///< Coins::key()
  const PhiloxKey* key_at =
      nullptr;  ///< not null: the key is read from here, so one recorded launch serves any prompt

  SPECLAB_DEVICE PhiloxKey own_key() const {
    if (key_at == nullptr) return key;
    return {{simt::load(&key_at->word[0]), simt::load(&key_at->word[1])}};
  }
  SPECLAB_DEVICE double uniform(std::int64_t position, simt::u32 purpose, simt::u32 draw) const {
    const PhiloxCounter words = philox4x32(coin_counter(position, purpose, draw), own_key());
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

/// Purposes of coins, as in Coins.
enum : simt::u32 {
  kTargetCoin = static_cast<simt::u32>(Purpose::target),
  kDraftCoin = static_cast<simt::u32>(Purpose::draft),
  kAcceptCoin = static_cast<simt::u32>(Purpose::accept),
  kResidualCoin = static_cast<simt::u32>(Purpose::residual),
  kGumbelCoin = static_cast<simt::u32>(Purpose::gumbel),
};

/// One row of weights with its law.
struct LawRow {
  const float* weights = nullptr;  ///< may be null if the row is one-hot
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
  /// Distribution::argmax(); the lowest token on ties.
  SPECLAB_DEVICE int argmax(const LawSpace& space, int vocab) const {
    if (one_hot >= 0) return one_hot;
    return index_of(largest_of_row(space, vocab, [&](int i) { return simt::load(weights + i); }));
  }
  /// Distribution::sample().
  template <typename Coins>
  SPECLAB_DEVICE int sample(const LawSpace& space, int vocab, const Coins& coins, std::int64_t position,
                            simt::u32 purpose, simt::u32 draw = 0) const {
    if (one_hot >= 0) return one_hot;
    return coins.categorical(space, vocab, [&](int i) { return weight(i); }, position, purpose, draw);
  }
  /// Distribution::sample_coupled().
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
