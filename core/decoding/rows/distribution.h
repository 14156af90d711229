#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"
#include "core/decoding/rows/coins.h"

namespace speclab {

/// How logits become the distribution that tokens are drawn from: divide by
/// temperature, top-k, top-p, renormalise.
struct SamplingParams {
  double temperature = 0;  ///< 0: one-hot at the argmax, ties to the lowest id
  int top_k = 0;           ///< keeps exactly k tokens (ties: lowest id); 0 = all
  /// Keeps the smallest prefix of the sorted row whose mass reaches top_p, at least one token. Masses are
  /// integers: the unit is 2^-44 of the heaviest token's mass, and each mass is rounded down. So the order in
  /// which masses are added does not matter.
  double top_p = 1;
  bool operator==(const SamplingParams&) const = default;
};

/// An entry of a row: its value and its index.
struct TopEntry {
  float value;
  Token index;
};

/// Finds the first `count` entries of a row in the order "larger first, ties by index". `out`
/// itself is unsorted. `by_block` holds the largest value of each block of row_kernels::kBlock entries.
/// With these values the function reads only a small part of the row. Pass an empty span if they are unknown.
/// For a row with NaN the result is arbitrary and may have fewer entries.
void first_entries(std::span<const float> row, std::span<const float> by_block, std::size_t count,
                   std::vector<float>& scratch, std::vector<TopEntry>& out);
/// The order "larger first, ties by index".
inline bool comes_first(const TopEntry& a, const TopEntry& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index);
}

/// A probability distribution over the vocabulary, usually made once from a logits row. Every acceptance rule
/// works on it. Weights are floats that need not sum to one. Probabilities are weight / sum in double, so
/// they sum to 1 up to the rounding of doubles. Reuse objects: assignment keeps the allocation.
///
/// assign_logits() computes exp((z - max) / T) in float with the project's own exp (relative error 2e-7;
/// weights below e^-87 of the largest become 0), and sums in a fixed order. The bits are the same on every
/// machine and for every vector width.
class Distribution {
 public:
  /// `ids` maps row index i to a token (ascending) for a reduced vocabulary; empty = identity. Other tokens
  /// have weight 0. Throws Error when a logit is NaN or +inf (with its index), and when all are -inf.
  void assign_logits(std::span<const float> logits, const SamplingParams& params, std::span<const Token> ids,
                     int vocab);
  void assign_weights(std::span<const double> weights);  ///< non-negative, with sum > 0; stored as float
  void assign_one_hot(Token token, int vocab);
  /// Becomes the distribution under the condition that `token` is not drawn, and returns the token's weight.
  /// If sum() is 0 afterwards, nothing is left to draw. The distribution must not be one_hot().
  float take_out(Token token);
  /// Undoes take_out(): the token has this weight again, and the weights have this sum.
  void put_back(Token token, float weight, double sum);
  /// Becomes `other` after take_out() of these tokens; `sum` is the sum that was left.
  void assign_without(const Distribution& other, std::span<const Token> tokens, double sum);

  int vocab() const { return vocab_; }
  bool one_hot() const { return one_hot_ >= 0; }  ///< all mass on one token by construction (temperature 0)
  double prob(Token token) const;                 ///< O(1), one division
  Token argmax() const;                           ///< ties to the lowest id
  Token sample(const Coins& coins, const Coins::Address& address) const;
  /// Coupled sampling: argmax over tokens with p > 0 of log p + Gumbel(position, token), in float.
  Token sample_coupled(const Coins& coins, std::int64_t position, int stream = 0) const;
  /// Coupled sampling with the noise of several streams: argmax of log p + the largest Gumbel(position,
  /// token) of streams 0 to streams - 1. The token has the distribution p. With one stream it is the token of
  /// sample_coupled().
  Token sample_coupled_list(const Coins& coins, std::int64_t position, int streams) const;
  /// Rank of the token, 0 = the most probable one. Among equally probable tokens the lower id ranks first.
  int rank(Token token) const;
  /// The k most probable tokens in the order of rank(); fewer when fewer have positive probability.
  void top(int k, std::vector<Token>& out) const;
  double entropy() const;  ///< nats, in double

  /// The weights, [vocab], not normalised; empty when one_hot(). sum() is their sum.
  std::span<const float> weights() const { return weights_; }
  double sum() const { return sum_; }
  /// The probabilities in double, [vocab]; also for one-hot distributions.
  void probabilities(std::vector<double>& out) const;

 private:
  void truncate(std::span<const float> logits, std::span<const float> exps, float max, float scale,
                std::size_t top_k, double top_p);

  std::vector<float> weights_;
  double sum_ = 0;
  Token one_hot_ = -1;
  int vocab_ = 0;
  // Scratch of assign_logits.
  std::vector<float> compact_;       // weights of a reduced vocabulary
  std::vector<float> maxima_;        // block maxima
  std::vector<std::uint64_t> bins_;  // mass by logit
  std::vector<TopEntry> kept_,
      crossing_;  // entries that survive top-k and top-p; entries that top-p may still cut
};

/// Comparisons of two distributions: sum of min(p, q), sum of p q, and total variation.
double overlap(const Distribution& p, const Distribution& q);
double agreement(const Distribution& p, const Distribution& q);
double total_variation(const Distribution& p, const Distribution& q);

}  // namespace speclab
