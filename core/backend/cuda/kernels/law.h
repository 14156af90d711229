#pragma once

#include <cstdint>

#include "core/backend/cuda/kernels/law_space.h"
#include "core/backend/cuda/kernels/simt.h"
#include "core/base/coin_address.h"
#include "core/base/exact_float.h"
#include "core/base/row_order.h"

// Probabilities and samples of one distribution over the vocabulary (a "law"), for kernels in which a block
// of threads works on one row. The functions draw tokens with the same coins (random numbers) as the host.
//
// Given the same logits or weights, these functions compute the same bits as the host's code in core/decoding
// (Distribution, Coins, row_kernels), for any number of threads. For this, sums follow the order of
// core/base/row_order.h, exp and log use the same polynomials, and no multiply-add is fused. Generated texts
// can still differ from those of the host, because each numerics class computes other logits.

namespace speclab::cuda {

/// What a kernel knows about one row of weights besides the weights. The probability of a token is weight /
/// sum, as in Distribution (core/decoding/rows/distribution.h).
struct Law {
  double sum = 1;
  std::int32_t one_hot = -1;  ///< token with probability 1 in a row without weights; -1: there are weights
  /// -1: the row is valid. Otherwise it is the index of the first logit that is NaN or +infinity, or the
  /// number of logits if all are -infinity. Invalid rows have one_hot = 0, so that no kernel reads their
  /// weights.
  std::int32_t invalid = -1;
};

inline namespace SPECLAB_SIDE {

/// In a race each token has a random arrival time, and the earliest token wins (race_row()). Returns the
/// largest candidate of a thread, for the Philox counters first, first + step, and so on below `end`. A
/// candidate is a 64-bit number: the arrival time in the upper half and the token in the lower half, both
/// with inverted bits. So the largest candidate belongs to the earliest token and, among equal times, to the
/// lowest token. Returns 0 if there is no candidate.
template <typename Weight>
SPECLAB_DEVICE simt::u64 race_entries(int first, int end, int step, int n, PhiloxKey key,
                                      std::int64_t position, simt::u32 purpose, const Weight& weight) {
  constexpr int kWords = kRaceBlock / kSumLanes;  // tokens of a counter
  const auto token_of = [](int counter, int word) {
    return counter / kSumLanes * kRaceBlock + word * kSumLanes + counter % kSumLanes;
  };
  simt::u64 best = 0;
  SPECLAB_ROLLED
  for (; first < end; first += kRowLoads / kWords * step) {
    float w[kRowLoads];
    SPECLAB_UNROLL
    for (int j = 0; j < kRowLoads; ++j)
      w[j] = weight(simt::min(token_of(first + j / kWords * step, j % kWords), n - 1));
    SPECLAB_ROLLED
    for (int i = first, group = 0; group < kRowLoads / kWords && i < end; ++group, i += step) {
      const PhiloxCounter words = philox4x32(coin_counter(position, purpose, static_cast<simt::u32>(i)), key);
      SPECLAB_UNROLL
      for (int word = 0; word < kWords; ++word) {
        const int token = token_of(i, word);
        if (token >= n || !(w[word] > 0)) continue;
        const simt::u32 time = exact_bits(arrival(words.word[word], w[word]));
        if (time >= 0x7f800000u) continue;  // an infinite time never wins
        const simt::u64 candidate =
            static_cast<simt::u64>(~time) << 32 | (0xffffffffu - static_cast<simt::u32>(token));
        best = candidate > best ? candidate : best;
      }
      SPECLAB_UNROLL
      for (int j = 0; j < kRowLoads - kWords; ++j) w[j] = w[j + kWords];
    }
  }
  return best;
}
/// Number of Philox counters of a race between n tokens.
SPECLAB_BOTH constexpr int race_counters(int n) { return (n + kRaceBlock - 1) / kRaceBlock * kSumLanes; }

/// The same as row_kernels::race(). Draws a standard exponential variable for each token and returns the
/// token with the smallest quotient variable / weight, on ties the lowest one. Returns n if no token has a
/// positive weight and a finite quotient.
template <typename Weight>
SPECLAB_DEVICE int race_row(const LawSpace& space, int n, PhiloxKey key, std::int64_t position,
                            simt::u32 purpose, const Weight& weight) {
  const simt::u64 best =
      block_largest(space.keys(), race_entries(simt::thread_index(), race_counters(n), simt::block_threads(),
                                               n, key, position, purpose, weight));
  return best == 0 ? n : index_of(best);
}

// ---- Coins

/// The coins (core/decoding/rows/coins.h) of one prompt, on the device. Kernels take the type of the coins as
/// a template parameter. Tests pass a type that goes through every possible outcome, to prove by enumeration
/// that the output distribution is right.
struct PhiloxCoins {
  PhiloxKey key{};  ///< Coins::key()
  /// If not null, the key is read from this address instead. So a launch that was recorded once works for
  /// every prompt.
  const PhiloxKey* key_at = nullptr;

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
  /// `row`: Entries.
  template <typename Row>
  SPECLAB_DEVICE int categorical(const LawSpace& space, int n, const Row& row, std::int64_t position,
                                 simt::u32 purpose, simt::u32 draw) const {
    return search_row(space, n, uniform(position, purpose, draw), row);
  }
  template <typename Weight>
  SPECLAB_DEVICE int race(const LawSpace& space, int n, const Weight& weight, std::int64_t position,
                          simt::u32 purpose) const {
    return race_row(space, n, own_key(), position, purpose, weight);
  }
};

/// Purposes of coins, with the same numbers as the host uses (Purpose).
enum : simt::u32 {
  kTargetCoin = static_cast<simt::u32>(Purpose::target),
  kDraftCoin = static_cast<simt::u32>(Purpose::draft),
  kAcceptCoin = static_cast<simt::u32>(Purpose::accept),
  kResidualCoin = static_cast<simt::u32>(Purpose::residual),
  kGumbelCoin = static_cast<simt::u32>(Purpose::gumbel),
};

/// One row of weights together with its Law.
struct LawRow {
  const float* weights = nullptr;  ///< may be null if the row is one-hot
  double sum = 1;
  int one_hot = -1;
  KnownSums known{};  ///< sums of `weights` that need not be computed again

  /// `sums`: see Standardise; null: not known.
  SPECLAB_DEVICE static LawRow of(const float* weights, const Law* laws, int row, int vocab,
                                  const double* sums = nullptr) {
    const auto at = static_cast<std::size_t>(row);
    return {weights == nullptr ? nullptr : weights + at * static_cast<std::size_t>(vocab),
            simt::load(&laws[row].sum),
            simt::load(&laws[row].one_hot),
            {.chunks = sums == nullptr ? nullptr : sums + at * static_cast<std::size_t>(chunks_of(vocab))}};
  }
  SPECLAB_DEVICE float load(int x) const { return simt::load(weights + x); }
  /// The weights as Entries.
  SPECLAB_DEVICE auto entries() const {
    return Entries{[row = weights](int x) { return simt::load(row + x); },
                   [](int, float w) { return static_cast<double>(w); }, known};
  }
  SPECLAB_DEVICE double weight(int x) const { return static_cast<double>(load(x)); }
  SPECLAB_DEVICE double prob(int x) const {
    if (one_hot >= 0) return x == one_hot ? 1 : 0;
    return weight(x) / sum;
  }
  /// The same as Distribution::argmax(): the lowest token on ties.
  SPECLAB_DEVICE int argmax(const LawSpace& space, int vocab) const {
    if (one_hot >= 0) return one_hot;
    return index_of(largest_of_row(space, vocab, [&](int i) { return load(i); }));
  }
  /// The same as Distribution::sample().
  template <typename Coins>
  SPECLAB_DEVICE int sample(const LawSpace& space, int vocab, const Coins& coins, std::int64_t position,
                            simt::u32 purpose, simt::u32 draw = 0) const {
    if (one_hot >= 0) return one_hot;
    return coins.categorical(space, vocab, entries(), position, purpose, draw);
  }
  /// The same as Distribution::sample_coupled().
  template <typename Coins>
  SPECLAB_DEVICE int sample_coupled(const LawSpace& space, int vocab, const Coins& coins,
                                    std::int64_t position) const {
    if (one_hot >= 0) return one_hot;
    const int winner = coins.race(space, vocab, [&](int i) { return load(i); }, position, kGumbelCoin);
    return winner < vocab ? winner : argmax(space, vocab);
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
