#pragma once

#include "core/backend/cuda/kernels/law.h"

// Turns logits into tokens. One kernel does what Distribution::assign_logits() does on the host, another
// draws tokens from the result. Each row has one block.

namespace speclab::cuda {

/// Turns rows of logits into laws. At temperature 0 a row becomes one-hot at its argmax. Otherwise the
/// weights are exp((z - max) * scale), and those below e^-87 are zero. Top-k and then top-p set the weights
/// that they drop to zero. The law holds the sum of the remaining weights.
struct Standardise {
  const float* logits = nullptr;  ///< [rows, columns]
  const std::int32_t* ids =
      nullptr;  ///< [columns] tokens of a reduced vocabulary, ascending; null: column i is token i
  int rows = 0, columns = 0, vocab = 0;
  bool greedy = false;  ///< temperature 0
  float scale = 1;      ///< float(min(1 / temperature, 1e30))
  int top_k = 0;        ///< 0: keep all
  double top_p = 1;
  float* weights = nullptr;  ///< out [rows, vocab]; not written when greedy, may then be null
  Law* laws = nullptr;       ///< out [rows]
  int every = 1;             ///< row i is written to row i * every of weights and laws
};

/// Draws one token from each law with a coin of the position of the row, as Distribution::sample() or
/// sample_coupled() does on the host.
struct Sample {
  const float* weights = nullptr;  ///< [rows, vocab]
  const Law* laws = nullptr;       ///< [rows], valid
  int rows = 0, vocab = 0;
  PhiloxKey key{};
  const PhiloxKey* key_at = nullptr;  ///< see PhiloxCoins
  const std::int64_t* positions =
      nullptr;                      ///< [rows] positions of the coins; when coupled, of the drawn tokens
  simt::u32 purpose = 0, draw = 0;  ///< purpose and draw index of the coins; unused when coupled
  bool coupled = false;
  std::int32_t* tokens = nullptr;  ///< out [rows]
};

inline namespace SPECLAB_SIDE {

// kAnyThreads says that the bits do not depend on the number of threads (law_threads), so a block may have
// fewer.
template <bool kTruncate>
struct StandardiseKernel {
  static constexpr const char* kName = kTruncate ? "standardise_truncate" : "standardise";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAnyThreads = true;
  Standardise a;

  SPECLAB_DEVICE float weight(float z, float max) const { return exp_nonpositive((z - max) * a.scale); }

  /// Returns the key of the smallest entry that is kept.
  SPECLAB_DEVICE simt::u64 cut_of(const LawSpace& space, const float* logits, float max) const {
    if constexpr (!kTruncate) return 0;
    const int n = a.columns;
    const auto key = [&](int i) { return key_of(simt::load(logits + i), i); };
    simt::u64 cut = 0;
    if (a.top_k > 0 && a.top_k < n) {
      const auto most = static_cast<simt::u64>(a.top_k);
      cut = cut_of_row(
          space, n, key, [](int) { return simt::u64{1}; }, [&](simt::u64 count) { return count >= most; });
    }
    if (a.top_p < 1) {
      const auto mass = [&](int i) {
        const float z = simt::load(logits + i);
        return key_of(z, i) < cut ? 0 : mass_of(weight(z, max));
      };
      simt::u64 total[kCutBuckets] = {};
      for (int i = simt::thread_index(); i < n; i += simt::block_threads()) total[0] += mass(i);
      sum_buckets(space, total);
      const double wanted = a.top_p * static_cast<double>(total[0]);
      const simt::u64 first = cut_of_row(space, n, key, mass,
                                         [&](simt::u64 kept) { return static_cast<double>(kept) >= wanted; });
      cut = first > cut ? first : cut;
    }
    return cut;
  }

  SPECLAB_DEVICE void operator()() const {
    const LawSpace space(a.vocab);
    const int row = simt::block_x(), to = row * a.every, n = a.columns;
    const float* logits = a.logits + static_cast<std::size_t>(row) * static_cast<std::size_t>(n);
    const simt::u64 best = largest_of_row(space, n, [&](int i) { return simt::load(logits + i); });
    const float max = value_of(best);
    Law law;
    if (best >= kInvalidKey) law.invalid = index_of(best);
    else if (simt::bits_of(max) == 0xff800000u) law.invalid = n;
    if (law.invalid >= 0) {
      law.one_hot = 0;
    } else if (a.greedy) {
      law.one_hot = a.ids == nullptr ? index_of(best) : simt::load(a.ids + index_of(best));
    } else {
      float* weights = a.weights + static_cast<std::size_t>(to) * static_cast<std::size_t>(a.vocab);
      if (a.ids != nullptr) {
        for (int i = simt::thread_index(); i < a.vocab; i += simt::block_threads())
          simt::store(weights + i, 0.0f);
        simt::block_sync();
      }
      const simt::u64 cut = cut_of(space, logits, max);
      law.sum = sum_row(space, n, [&](int i) {
        const float z = simt::load(logits + i), w = key_of(z, i) < cut ? 0.0f : weight(z, max);
        simt::store(weights + (a.ids == nullptr ? i : simt::load(a.ids + i)), w);
        return static_cast<double>(w);
      });
    }
    if (simt::thread_index() == 0) {
      simt::store(&a.laws[to].sum, law.sum);
      simt::store(&a.laws[to].one_hot, law.one_hot);
      simt::store(&a.laws[to].invalid, law.invalid);
    }
  }
};

template <typename Coins>
struct SampleKernel {
  static constexpr const char* kName = "sample";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAnyThreads = true;
  Sample a;
  Coins coins;

  SPECLAB_DEVICE void operator()() const {
    const LawSpace space(a.vocab);
    const int row = simt::block_x();
    const LawRow law = LawRow::of(a.weights, a.laws, row, a.vocab);
    const std::int64_t position = simt::load(a.positions + row);
    const int token = a.coupled ? law.sample_coupled(space, a.vocab, coins, position)
                                : law.sample(space, a.vocab, coins, position, a.purpose, a.draw);
    if (simt::thread_index() == 0) simt::store(a.tokens + row, token);
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const Standardise& a, const Visit& visit) {
  const LaunchShape shape{
      .grid_x = a.rows, .threads = law_threads(a.vocab), .shared_bytes = LawSpace(a.vocab).bytes()};
  if (a.top_k > 0 || a.top_p < 1) visit(StandardiseKernel<true>{a}, shape);
  else visit(StandardiseKernel<false>{a}, shape);
}
template <typename Visit>
void with_kernel(const Sample& a, const Visit& visit) {
  visit(SampleKernel<PhiloxCoins>{a, {a.key, a.key_at}},
        LaunchShape{
            .grid_x = a.rows, .threads = law_threads(a.vocab), .shared_bytes = LawSpace(a.vocab).bytes()});
}

}  // namespace speclab::cuda
