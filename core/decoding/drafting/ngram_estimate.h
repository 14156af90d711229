#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/decoding/drafting/ngram_counts.h"
#include "core/decoding/drafting/ngram_file.h"

namespace speclab {

/// How counts become probabilities. All of them give every context a law over the whole vocabulary.
///
/// kneser_ney, modified_kneser_ney: interpolated (Kneser and Ney 1995; Chen and Goodman 1998, Eq. 28 to 30).
/// The highest order has its counts, lower ones the number of different tokens before an n-gram; a count of r
/// loses D(r) and what is lost goes to the law of the shorter context, below one token to the uniform law.
/// One discount D = n1 / (n1 + 2 n2), or three, for r = 1, 2 and more: D(r) = r - (r + 1) D n(r+1) / n(r),
/// where n(r) n-grams of that order have a count of r. Where the numbers allow no such discount (some n(r) is
/// 0, D outside (0, r]): .5, or .5, 1, 1.5.
///
/// katz: back-off (Katz 1987). A count of r <= k loses by Good and Turing, d(r) = (r*/r - A) / (1 - A) with
/// r* = (r + 1) n(r+1) / n(r) and A = (k + 1) n(k+1) / n(1), greater ones lose nothing; what is lost goes to
/// the tokens that were not seen in the context, in proportion to their law in the shorter one. k is 5, or
/// less where n(1) to n(k+1) do not give discounts in (0, 1]; where none does each count loses n1 / (n1 + 2
/// n2), or .5. Where all tokens were seen, those keep everything.
enum class NgramSmoothing { katz, kneser_ney, modified_kneser_ney };

/// What a count of r loses; the last entry goes on for all greater ones.
struct NgramDiscounts {
  std::array<double, CountsOfCounts::kMost + 1> of{};
  double operator()(std::uint32_t r) const { return of[std::min(r, CountsOfCounts::kMost)]; }
};
/// Of n(r), entry 0 unused, for one order.
using CountNumbers = std::array<std::uint32_t, CountsOfCounts::kMost + 1>;
NgramDiscounts kneser_ney_discounts(const CountNumbers& n, bool modified);
NgramDiscounts katz_discounts(const CountNumbers& n);

/// The law of the token after a context, by the counts of an NgramCounts or an NgramFile. Reusable: nothing
/// allocates after construction.
template <class Counts>
class NgramEstimate {
 public:
  /// From n-grams of up to `order` tokens, of a table with that order or a higher one.
  NgramEstimate(int vocab, int order, NgramSmoothing smoothing);
  /// The counts will not change any more: computes the law without a context once and for all.
  void fix(const Counts& counts);

  /// Takes in what follows the last order - 1 tokens of `context`, or of the longest ending of them that is
  /// known. Work is in proportion to the number of different tokens that have followed its endings.
  void condition(const Counts& counts, TokenSpan context);

  // Of the context taken in:
  int known() const { return known_; }  ///< tokens of the longest ending that has been followed by something
  double prob(Token token) const;
  Token best() const;                                  ///< the most probable token, ties to the lowest id
  void probabilities(std::span<double> out) const;     ///< [vocab]
  void log_probabilities(std::span<float> out) const;  ///< [vocab], -inf for none

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
  // The law: values_ where it was touched since start(), elsewhere rest_ * base.
  std::vector<double> values_;         // [vocab]
  std::vector<std::uint32_t> stamps_;  // [vocab]
  std::vector<Token> touched_;
  std::uint32_t stamp_ = 0;
  double rest_ = 1;
  int known_ = 0;
  // After fix(): the law without a context, its logarithm, its tokens, best first; else empty, and base is
  // uniform.
  std::vector<double> base_;
  std::vector<float> base_log_;
  std::vector<Token> base_order_;
};

extern template class NgramEstimate<NgramCounts>;
extern template class NgramEstimate<NgramFile>;

}  // namespace speclab
