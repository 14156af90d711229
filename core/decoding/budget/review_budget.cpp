#include "core/decoding/budget/review_budget.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr double kReviewMemory = .97;           // factor of old observations at each review with guesses
constexpr double kReviewGuess = .6;             // P(a guess is kept) before anything was seen
constexpr double kOfReviews = 4, kOfPlace = 6;  // observations that the first guesses count as

}  // namespace

ReviewBudget::ReviewBudget(int most_tokens) : rests_(static_cast<std::size_t>(most_tokens) + 1) {}

void ReviewBudget::begin() {
  any_ = {};
  std::fill(std::begin(by_place_), std::end(by_place_), RunningShare());
  trials_.begin();
}

double ReviewBudget::acceptance(int place) const {
  return by_place_[std::min(place, kPlaces) - 1].over(any_.over(kReviewGuess, kOfReviews), kOfPlace);
}

double ReviewBudget::Rest::ns(double first_ns) const {
  return guesses > 0 ? std::min(plain_ns, guessed_ns + first_ns) : plain_ns;
}

void ReviewBudget::plan(const StepCosts& times, int behind, int most_guesses) {
  const double guess_ns = most_guesses > 0 ? times.draft(1) : 0;
  first_ns_ = most_guesses > 0 ? times.draft(1 + std::max(behind, 0)) - guess_ns : 0;
  review_ns_ = times.target(1);
  for (std::size_t n = 1; n < rests_.size(); ++n) {
    Rest& rest = rests_[n];
    // After the first review of a step the guessing model has missed no tokens.
    rest = {.plain_ns = review_ns_ + rests_[n - 1].ns(0)};
    double reached = 1, after_rejection = 0;
    for (int g = 1; g <= std::min(most_guesses, static_cast<int>(n) - 1); ++g) {
      const auto at = static_cast<std::size_t>(g);
      after_rejection += reached * (1 - acceptance(g)) * rests_[n - at].ns(0);
      reached *= acceptance(g);
      const double ns =
          g * guess_ns + times.target(g + 1) + after_rejection + reached * rests_[n - at - 1].ns(0);
      if (rest.guesses == 0 || ns < rest.guessed_ns) rest.guesses = g, rest.guessed_ns = ns;
    }
  }
}

double ReviewBudget::chain_ns(int tokens) const {
  return rests_[static_cast<std::size_t>(tokens)].ns(first_ns_);
}

int ReviewBudget::guesses(int tokens) {
  SPECLAB_CHECK(tokens >= 1 && tokens < static_cast<int>(rests_.size()), "a chain that lacks {} of {} tokens",
                tokens, rests_.size() - 1);
  const Rest& rest = rests_[static_cast<std::size_t>(tokens)];
  if (rest.guesses == 0) return 0;
  const double loss_ns = rest.guessed_ns + first_ns_ - rest.plain_ns;
  if (loss_ns > 0 && !trials_.try_now(review_ns_, loss_ns, 1)) return 0;
  first_ns_ = 0;
  return rest.guesses;
}

void ReviewBudget::reviewed(int guessed, int passed) {
  any_.fade(kReviewMemory);
  for (RunningShare& share : by_place_) share.fade(kReviewMemory);
  for (int place = 1; place <= std::min(guessed, passed + 1); ++place) {
    any_.add(place <= passed);
    by_place_[std::min(place, kPlaces) - 1].add(place <= passed);
  }
}

}  // namespace speclab
