#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/decoding/drafting/ngrams/ngram_counts.h"
#include "core/decoding/drafting/ngrams/ngram_file.h"

namespace speclab {

/// How counts become probabilities. Every method gives every context a
/// distribution over the whole vocabulary.
///
/// kneser_ney, modified_kneser_ney: interpolated (Kneser and Ney 1995; Chen and Goodman 1998, Eq. 28 to 30).
/// The highest order uses counts. Lower orders use the number of different tokens before an n-gram instead of
/// its count. A count of r loses D(r), and the lost mass is distributed by the law of the shorter context.
/// The law of single tokens passes its lost mass to the uniform law. The discounts follow from n(r), the
/// number of n-grams of the order with a count of r. kneser_ney has one discount, D = n(1) / (n(1) + 2 n(2)).
/// modified_kneser_ney has three: D(r) = r - (r + 1) D n(r+1) / n(r) for r = 1, 2 and 3; larger counts lose
/// D(3). If an n(r) that is needed is 0, or a D(r) is outside (0, r], kneser_ney uses .5, and
/// modified_kneser_ney uses .5, 1 and 1.5.
///
/// katz: back-off (Katz 1987). A count of r <= k is multiplied by the Good-Turing factor d(r) = (r*/r - A) /
/// (1 - A) with r* = (r + 1) n(r+1) / n(r) and A = (k + 1) n(k+1) / n(1). Larger counts lose nothing. The
/// lost mass goes to the tokens that were not seen in the context, in proportion to their law in the shorter
/// context. k is 5, or less if n(1) to n(k+1) do not give factors in (0, 1]. If no k does, each count loses
/// n(1) / (n(1) + 2 n(2)), or .5 if n(1) or n(2) is 0. If all tokens were seen in the context, they keep all
/// mass.
enum class NgramSmoothing { katz, kneser_ney, modified_kneser_ney };

/// The discount of a count r. The last entry holds for all larger counts.
struct NgramDiscounts {
  std::array<double, CountsOfCounts::kMost + 1> of{};
  double operator()(std::uint32_t r) const { return of[std::min(r, CountsOfCounts::kMost)]; }
};
/// n(r) of one order, [r]; entry 0 unused.
using CountNumbers = std::array<std::uint32_t, CountsOfCounts::kMost + 1>;
NgramDiscounts kneser_ney_discounts(const CountNumbers& n, bool modified);
NgramDiscounts katz_discounts(const CountNumbers& n);

/// Computes the law of the token after a context, from the counts of an NgramCounts or an NgramFile. Reuse
/// the object: condition() and the functions after it do not allocate.
template <class Counts>
class NgramEstimate {
 public:
  /// Uses n-grams of up to `order` tokens. The counts may have a higher order.
  NgramEstimate(int vocab, int order, NgramSmoothing smoothing);
  /// Call this when the counts will not change any more: computes the law without a context once.
  void freeze(const Counts& counts);

  /// Sets the law of the token after `context`. Uses the last order - 1 tokens of the context, or the longest
  /// suffix of them that some token followed. The work is proportional to the number of different tokens that
  /// followed this suffix and the shorter ones.
  void condition(const Counts& counts, TokenSpan context);

  // The law after the context of condition():
  int known() const {
    return known_;
  }  ///< tokens of the longest suffix of the context that some token followed
  double prob(Token token) const;
  Token best() const;                                  ///< the most probable token, ties to the lowest id
  void probabilities(std::span<double> out) const;     ///< [vocab]
  void log_probabilities(std::span<float> out) const;  ///< [vocab], -inf for probability 0

 private:
  void start();
  bool refine(const Counts& counts, typename Counts::Node node, int order);
  double& touch(Token token);
  void scale(double factor);
  bool touched(Token token) const { return stamps_[static_cast<std::size_t>(token)] == stamp_; }
  double base(Token token) const {
    return base_.empty() ? 1.0 / vocab_ : base_[static_cast<std::size_t>(token)];
  }

  int vocab_, order_;
  NgramSmoothing smoothing_;
  // The law: values_ for tokens touched since start(), rest_ * base for all others.
  std::vector<double> values_;         // [vocab]
  std::vector<std::uint32_t> stamps_;  // [vocab]
  std::vector<Token> touched_;
  std::uint32_t stamp_ = 0;
  double rest_ = 1;
  int known_ = 0;
  // After freeze(): the law without a context, its logarithm, and the tokens sorted by this law, best first.
  // Before freeze(): empty; the uniform law is used as the base.
  std::vector<double> base_;
  std::vector<float> base_log_;
  std::vector<Token> base_order_;
};

extern template class NgramEstimate<NgramCounts>;
extern template class NgramEstimate<NgramFile>;

}  // namespace speclab
