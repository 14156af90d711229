#pragma once

#include <vector>

#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/budget/step_costs.h"

namespace speclab {

/// Chooses how many guesses each review of a chain gets, for one sequence. A chain is made by reviews: a
/// small model guesses some tokens, a larger one judges them in one forward, keeps those up to the first
/// wrong one and adds one token of its own. Reviews follow each other until the chain is long enough. The
/// budget takes the numbers of guesses with which the chain takes the least expected time. With D(0) = 0, a
/// chain that lacks n tokens takes
///
///     D(n) = min over g < n of: time of g guesses + r(g + 1) + sum over k of P(k guesses are kept) D(n - k -
///     1).
///
/// Here r is the time of a review by its number of rows. P is estimated from this sequence alone, by the
/// place of a guess in its review. Only guesses that were judged teach anything. So while guesses are not
/// worth their time, a review with guesses is made now and then (TrialFund).
///
/// The choice depends on the text, on earlier steps and on earlier reviews. Each token of the chain is drawn
/// from the law of the reviewing model, whatever was guessed. So the choice does not change the law of the
/// chain.
class ReviewBudget {
 public:
  /// For chains of at most `most_tokens` tokens.
  explicit ReviewBudget(int most_tokens);
  /// Forgets all estimates. Called when a sequence starts.
  void begin();
  /// Computes D for the chain of the next step. `times.target(n)` is the time of a review over n rows, and
  /// `times.draft(n)` that of a forward of the guessing model over n rows. `behind`: tokens that the guessing
  /// model has not read; its first guess also reads them. `most_guesses`: the most guesses of one review;
  /// with 0 the times of the guessing model are not read.
  void plan(const StepCosts& times, int behind, int most_guesses);
  /// D of a chain of 0 to most_tokens tokens.
  double chain_ns(int tokens) const;
  /// Chooses the number of guesses for the next review of a chain that lacks `tokens` tokens.
  int guesses(int tokens);
  /// Tells that a review had `guessed` guesses, more than 0, and that it kept the first `passed` of them.
  void reviewed(int guessed, int passed);

 private:
  static constexpr int kPlaces = 4;  // further ones count as the last
  /// What a chain that lacks n tokens takes.
  struct Rest {
    double plain_ns = 0;    // if the next review has no guesses
    double guessed_ns = 0;  // if it has the best number of guesses
    int guesses = 0;        // this number; 0: none are allowed
    double ns(double first_ns) const;
  };
  double acceptance(int place) const;

  std::vector<Rest> rests_;  // [most_tokens + 1]
  double first_ns_ = 0;      // what the first guess takes longer than others, because of missed tokens
  double review_ns_ = 0;     // time of a review without guesses
  RunningShare any_, by_place_[kPlaces];
  TrialFund trials_;
};

}  // namespace speclab
