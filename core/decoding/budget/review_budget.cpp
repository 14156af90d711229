#include "core/decoding/budget/review_budget.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr double kReviewMemory = .97;           // decay factor of observations at each review with guesses
constexpr double kReviewGuess = .6;             // P(a guess is kept) before anything was seen
constexpr double kOfReviews = 4, kOfPlace = 6;  // observations that the first guesses count as

}  // namespace

ReviewBudget::ReviewBudget(int most_tokens)
    : rests_(static_cast<std::size_t>(most_tokens) + 1),
      missed_ns_(2 * rests_.size()),
      since_start_ns_(2 * rests_.size()) {}

void ReviewBudget::begin() {
  any_ = {};
  std::fill(std::begin(by_place_), std::end(by_place_), RunningShare());
  trials_.begin();
}

double ReviewBudget::acceptance(int place) const {
  return by_place_[std::min(place, kPlaces) - 1].over(any_.over(kReviewGuess, kOfReviews), kOfPlace);
}

std::span<const double> ReviewBudget::first_ns() const {
  return std::span(has_guessed_ ? missed_ns_ : since_start_ns_).subspan(missed_);
}

// Missed tokens add the same time for every number of guesses. So each length has one best number of guesses
// (Rest::guesses), and this function only seeks how many reviews without guesses come first.
double ReviewBudget::rest_ns(int tokens, std::span<const double> first_ns) const {
  double least = tokens * review_ns_;
  for (int plain = 0; plain < tokens; ++plain) {
    const Rest& rest = rests_[static_cast<std::size_t>(tokens - plain)];
    if (rest.guesses == 0) break;  // shorter chains allow none either
    least = std::min(least, plain * review_ns_ + first_ns[static_cast<std::size_t>(plain)] + rest.guessed_ns);
  }
  return least;
}

void ReviewBudget::plan(const StepCosts& times, int behind, int most_guesses) {
  const double guess_ns = most_guesses > 0 ? times.draft(1) : 0;
  for (std::size_t i = 0; i < missed_ns_.size(); ++i) {
    const int missed = static_cast<int>(i);
    missed_ns_[i] = most_guesses > 0 ? times.draft(1 + missed) - guess_ns : 0;
    since_start_ns_[i] = most_guesses > 0 ? times.draft(1 + std::max(behind, 0) + missed) - guess_ns : 0;
  }
  has_guessed_ = false;
  missed_ = 0;
  review_ns_ = times.target(1);
  const std::span<const double> from_none = missed_ns_;
  for (int n = 1; n < static_cast<int>(rests_.size()); ++n) {
    Rest& rest = rests_[static_cast<std::size_t>(n)];
    rest = {};
    double reached = 1, after_rejection = 0;
    for (int g = 1; g <= std::min(most_guesses, n - 1); ++g) {
      const auto left = static_cast<std::size_t>(n - g);
      after_rejection += reached * (1 - acceptance(g)) * rests_[left].read_all_ns;
      reached *= acceptance(g);
      const double ns =
          g * guess_ns + times.target(g + 1) + after_rejection + reached * rests_[left - 1].missed_one_ns;
      if (rest.guesses == 0 || ns < rest.guessed_ns) rest.guesses = g, rest.guessed_ns = ns;
    }
    rest.read_all_ns = rest_ns(n, from_none);
    rest.missed_one_ns = rest_ns(n, from_none.subspan(1));
  }
}

double ReviewBudget::chain_ns(int tokens) const { return rest_ns(tokens, since_start_ns_); }

int ReviewBudget::guesses(int tokens) {
  SPECLAB_CHECK(tokens >= 1 && tokens < static_cast<int>(rests_.size()), "a chain that lacks {} of {} tokens",
                tokens, rests_.size() - 1);
  const Rest& rest = rests_[static_cast<std::size_t>(tokens)];
  if (rest.guesses == 0) return 0;
  const std::span<const double> now_ns = first_ns();
  const double plain_ns = review_ns_ + rest_ns(tokens - 1, now_ns.subspan(1)),
               loss_ns = rest.guessed_ns + now_ns.front() - plain_ns;
  if (loss_ns > 0 && !trials_.try_now(review_ns_, loss_ns, 1)) return 0;
  return rest.guesses;
}

void ReviewBudget::reviewed(int guessed, int passed) {
  if (guessed == 0) {
    missed_ = std::min(missed_ + 1, rests_.size() - 1);
    return;
  }
  has_guessed_ = true;
  missed_ = passed == guessed ? 1 : 0;
  any_.fade(kReviewMemory);
  for (RunningShare& share : by_place_) share.fade(kReviewMemory);
  for (int place = 1; place <= std::min(guessed, passed + 1); ++place) {
    any_.add(place <= passed);
    by_place_[std::min(place, kPlaces) - 1].add(place <= passed);
  }
}

}  // namespace speclab
