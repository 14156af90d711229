#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/budget/step_costs.h"

namespace speclab {

/// Chooses how many guesses each review of a chain gets, for one sequence. A chain is made by reviews: a
/// small model guesses some tokens, a larger one judges them in one forward, keeps the guesses before the
/// first wrong one and adds one token of its own. Reviews follow each other until the chain is long enough.
/// The budget takes the numbers of guesses with which the chain takes the least expected time. With
/// D(0, m) = 0, a chain that lacks n tokens takes
///
///     D(n, m) = min over g < n of: time of g guesses + r(g + 1)
///                                  + sum over k of P(k guesses are kept) D(n - k - 1, m').
///
/// Here m is the number of missed tokens: the guessing model has read neither them nor the newest token. The
/// first guess of a review reads all of these. After a review without guesses m' is m + 1. After a review
/// whose guesses were all kept m' is 1, because the last guess was not read. Otherwise m' is 0.
///
/// r is the time of a review by its number of rows. P is estimated from this sequence alone, for each place
/// of a guess in its review. Only guesses that were judged teach anything. So while guesses are not worth
/// their time, a review with guesses is made now and then (TrialFund).
///
/// The choice depends on the text, on earlier steps and on earlier reviews. Each token of the chain is drawn
/// from the row of the reviewing model, whatever was guessed. So the choice does not change the distribution
/// of the chain.
class ReviewBudget {
 public:
  /// For chains of at most `most_tokens` tokens.
  explicit ReviewBudget(int most_tokens);
  /// Forgets all estimates. Called when a sequence starts.
  void begin();
  /// Computes D for the chain of the next step. `times.target(n)` is the time of a review over n rows, and
  /// `times.draft(n)` is the time of a forward of the guessing model over n rows. `behind`: number of missed
  /// tokens when the step begins.
  /// `most_guesses`: the most guesses of one review; with 0 the times of the guessing model are not read.
  void plan(const StepCosts& times, int behind, int most_guesses);
  /// D of a chain of 0 to most_tokens tokens, before its first review.
  double chain_ns(int tokens) const;
  /// Chooses the number of guesses for the next review of a chain that lacks `tokens` tokens.
  int guesses(int tokens);
  /// Tells that a review had `guessed` guesses, perhaps none, and that it kept the first `passed` of them.
  /// Called after each review of a step.
  void reviewed(int guessed, int passed);

 private:
  static constexpr int kPlaces = 4;  // later places of a review count as place kPlaces
  /// The best number of guesses and the times of a chain that lacks n tokens.
  struct Rest {
    int guesses = 0;           // the best number of guesses of a review that has guesses; 0: none are allowed
    double guessed_ns = 0;     // expected time with this number in the next review, if m = 0
    double read_all_ns = 0;    // D(n, 0)
    double missed_one_ns = 0;  // D(n, 1)
  };
  double acceptance(int place) const;
  /// D(tokens, m). first_ns[i] is how much longer the first guess takes than other guesses if it also reads
  /// m + i missed tokens.
  double rest_ns(int tokens, std::span<const double> first_ns) const;
  /// The argument first_ns of rest_ns() for the number of tokens that are missed now.
  std::span<const double> first_ns() const;

  std::vector<Rest> rests_;  // [most_tokens + 1]
  // [2 (most_tokens + 1)], how much longer the first guess takes than other guesses. missed_ns_[i]: if it
  // also reads i missed tokens. since_start_ns_[i]: if it reads i more than were missed when the step began.
  std::vector<double> missed_ns_, since_start_ns_;
  bool has_guessed_ = false;  // some review of this step had guesses
  std::size_t missed_ = 0;    // index into missed_ns_ if has_guessed_, otherwise into since_start_ns_
  double review_ns_ = 0;      // time of a review without guesses
  RunningShare any_, by_place_[kPlaces];
  TrialFund trials_;
};

}  // namespace speclab
