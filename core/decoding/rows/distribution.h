#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"
#include "core/decoding/rows/coins.h"

namespace speclab {

/// How logits become the distribution that is sampled from: logits / temperature, top-k, top-p,
/// renormalise.
struct SamplingParams {
  double temperature = 0;  ///< 0: the one-hot argmax, ties to the lowest id
  int top_k = 0;           ///< keep exactly k (ties: lowest id); 0 = all
  /// Keep the smallest prefix of the sorted row whose mass reaches top_p, at least one token. Masses are
  /// counted in units of 2^-44 of the heaviest token's, cut off, so that no order of adding them matters.
  double top_p = 1;
  bool operator==(const SamplingParams&) const = default;
};

/// An entry of a row while the row is truncated.
struct TopEntry {
  float value;
  Token index;
};

/// The `count` first entries of a row in the order "larger first, ties by index", themselves in no order.
/// `by_block`: the largest value of each row_kernels::kBlock entries where they are known, so that little of
/// the row is read; else empty. Of a row with NaN some entries, perhaps fewer.
void first_entries(std::span<const float> row, std::span<const float> by_block, std::size_t count,
                   std::vector<float>& scratch, std::vector<TopEntry>& out);
/// That order.
inline bool comes_first(const TopEntry& a, const TopEntry& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

/// One row over the vocabulary, standardised once; every rule works on it. Weights are floats that
/// need not sum to one; probabilities are weight / sum in double, so that a row is a law to 1e-15 by
/// construction. Reuse objects: assignment keeps the allocation.
///
/// Standardising runs in float with our own exp (relative error 2e-7, after (z - max) / T in float; weights
/// below e^-87 of the largest become 0), on fixed partial sums: the same bits on every machine and for every
/// vector width.
class Distribution {
 public:
  /// `ids` maps row i to a token (ascending) for a reduced vocabulary; empty = identity. Tokens outside have
  /// weight 0. Throws Error when a logit is NaN or +inf, or all are -inf ("the model gave NaN logits", with
  /// the index).
  void assign_logits(std::span<const float> logits, const SamplingParams& params, std::span<const Token> ids,
                     int vocab);
  void assign_weights(std::span<const double> weights);  ///< non-negative, sum > 0; stored as float
  void assign_one_hot(Token token, int vocab);
  /// `other` when it is known not to be `token`. False, and no law, when that leaves no mass.
  bool assign_without(const Distribution& other, Token token);

  int vocab() const { return vocab_; }
  bool one_hot() const { return one_hot_ >= 0; }  ///< all mass on one token by construction (temperature 0)
  double prob(Token token) const;                 ///< one division; O(1)
  Token argmax() const;                           ///< ties to the lowest id
  Token sample(const Coins& coins, const Coins::Address& address) const;
  /// argmax over tokens with p > 0 of log p + Gumbel(position, token): coupled sampling, in
  /// float.
  Token sample_coupled(const Coins& coins, std::int64_t position) const;
  /// 0 = the most probable token; ties count as earlier when their id is lower.
  int rank(Token token) const;
  /// The k most probable tokens in that order, at most those of positive probability.
  void top(int k, std::vector<Token>& out) const;
  double entropy() const;  ///< nats, in double

  /// Weights [vocab] (not normalised) and their sum; empty span when one_hot().
  std::span<const float> weights() const { return weights_; }
  double sum() const { return sum_; }
  /// p in double, [vocab]; also for one-hot rows.
  void probabilities(std::vector<double>& out) const;

 private:
  void truncate(std::span<const float> logits, std::span<const float> exps, float max, float scale,
                std::size_t top_k, double top_p);

  std::vector<float> weights_;
  double sum_ = 0;
  Token one_hot_ = -1;
  int vocab_ = 0;
  // Scratch of assign_logits.
  std::vector<float> compact_;             // weights of a reduced vocabulary
  std::vector<float> maxima_;              // block maxima
  std::vector<std::uint64_t> bins_;        // mass by logit
  std::vector<TopEntry> kept_, crossing_;  // survivors of top-k and top-p; those that top-p may still cut
};

/// sum over tokens of min(p, q), sum p q, total variation, KL(p || q) in nats (inf where q misses support of
/// p).
double overlap(const Distribution& p, const Distribution& q);
double agreement(const Distribution& p, const Distribution& q);
double total_variation(const Distribution& p, const Distribution& q);
double kl_divergence(const Distribution& p, const Distribution& q);

}  // namespace speclab
