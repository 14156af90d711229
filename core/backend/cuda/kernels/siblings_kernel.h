#pragma once

#include "core/backend/cuda/kernels/law.h"

// Draws the children of drafted nodes. The results have the bits of SiblingDraw on the host
// (core/decoding/drafting/draft_model.h).

namespace speclab::cuda {

/// Draws `count` tokens without replacement from each standardised row of a draft. Token j is drawn from the
/// law (distribution) in which the j tokens drawn before have probability 0. If no mass is left, or if the
/// temperature is 0, the kernel takes the next best token by logit instead, with a one-hot law. Token j of
/// row i uses the coin (random number) with draw index draw + i * count + j, unless the draws are coupled.
struct Siblings {
  const float* logits = nullptr;  ///< [rows, columns]
  const std::int32_t* ids =
      nullptr;  ///< [columns] tokens of a reduced vocabulary, ascending; null: column i is token i
  int rows = 0, columns = 0, vocab = 0;
  int count = 0;                 ///< at most `columns`
  float* weights = nullptr;      ///< [rows, count, vocab]: entry 0 of each row is input, the others are
                                 ///< output; null if all are one-hot
  Law* laws = nullptr;           ///< [rows, count]: entry 0 of each row is input, the others are output
  const double* sums = nullptr;  ///< [rows, count, chunks]: the chunk sums of each row's entry 0, see
                                 ///< Standardise::sums; the other entries are not read. null: not known
  PhiloxKey key{};
  const PhiloxKey* key_at = nullptr;       ///< see PhiloxCoins
  const std::int64_t* position = nullptr;  ///< position of the coins; when coupled, of the drawn tokens
  simt::u32 draw = 0;                      ///< draw index of the first token's coin; unused when coupled
  bool coupled = false;
  std::int32_t* tokens = nullptr;  ///< out [rows, count]
};

inline namespace SPECLAB_SIDE {

template <typename Coins>
struct SiblingsKernel {
  static constexpr const char* kName = "siblings";
  static constexpr int kThreads = kLawThreads;
  static constexpr bool kAlone = true;  // few rows, so a block has a multiprocessor to itself
  Siblings a;
  Coins coins;

  SPECLAB_DEVICE void operator()() const {
    const LawSpace space(a.vocab);
    const int first = simt::block_x() * a.count;
    const std::int64_t position = simt::load(a.position);
    const int invalid = simt::load(&a.laws[first].invalid);
    LawRow q = LawRow::of(a.weights, a.laws, first, a.vocab, a.sums);
    bool has_mass = true;
    simt::u64 bound = ~simt::u64{0};  // keys of the logits that were not yet used are below this
    for (int i = first; i < first + a.count; ++i) {
      int token = 0;
      if (invalid < 0) {
        if (!has_mass) token = next_best(space, first, i, bound);
        else if (a.coupled) token = q.sample_coupled(space, a.vocab, coins, position);
        else
          token = q.sample(space, a.vocab, coins, position, kDraftCoin, a.draw + static_cast<simt::u32>(i));
      }
      const bool writes = simt::thread_index() == 0;
      if (writes) simt::store(a.tokens + i, token);
      if (writes && i > first) {
        const bool drawn = invalid < 0 && has_mass;
        simt::store(&a.laws[i].sum, drawn ? q.sum : 1.0);
        simt::store(&a.laws[i].one_hot, drawn ? -1 : token);
        simt::store(&a.laws[i].invalid, invalid);
      }
      if (invalid < 0 && has_mass && i + 1 < first + a.count) has_mass = leave_out(space, token, q);
    }
  }

 private:
  /// Takes the token out of the law q: writes the remaining weights behind the weights of q, and makes them
  /// the weights of q. Returns false if no mass is left.
  SPECLAB_DEVICE bool leave_out(const LawSpace& space, int token, LawRow& q) const {
    if (q.one_hot >= 0) return false;
    const float* from = q.weights;
    float* to = const_cast<float*>(from) + a.vocab;
    // The whole row is copied, so its sums are not looked up even if they are known.
    q.sum = sum_row(space, a.vocab,
                    Entries{[=](int x) { return simt::load(from + x); },
                            [=](int x, float w) {
                              const float left = x == token ? 0.0f : w;
                              simt::store(to + x, left);
                              return static_cast<double>(left);
                            }});
    q.weights = to;
    q.known = {.in_space = true};  // the next draw does not sum the row again
    return q.sum > 0;
  }

  /// Returns the best token of the row by logit that is not among a.tokens[first] to a.tokens[end - 1].
  SPECLAB_DEVICE int next_best(const LawSpace& space, int first, int end, simt::u64& bound) const {
    const float* logits =
        a.logits + static_cast<std::size_t>(simt::block_x()) * static_cast<std::size_t>(a.columns);
    for (;;) {
      simt::u64 best = 0;
      visit_row(
          a.columns, [=](int i) { return simt::load_constant(logits + i); },
          [&](int i, float z) {
            const simt::u64 key = key_of(z, i);
            if (key < bound && key > best) best = key;
          });
      bound = best = block_largest(space.keys(), best);
      const int token = a.ids == nullptr ? index_of(best) : simt::load(a.ids + index_of(best));
      bool taken = false;
      for (int i = first; i < end; ++i) taken = taken || simt::load(a.tokens + i) == token;
      if (!taken) return token;
    }
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const Siblings& a, const Visit& visit) {
  if (a.count < 1 || a.count > a.columns)
    fail_arguments("siblings", "the number of tokens must be 1 to the number of columns");
  visit(SiblingsKernel<PhiloxCoins>{a, {a.key, a.key_at}},
        LaunchShape{
            .grid_x = a.rows, .threads = law_threads(a.vocab), .shared_bytes = LawSpace(a.vocab).bytes()});
}

}  // namespace speclab::cuda
