#include "core/decoding/drafting/selection/drafter_scores.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/base/exp_log.h"

namespace speclab {

DrafterScores::DrafterScores(std::shared_ptr<const DrafterCosts> costs, std::vector<int> longest,
                             Settings settings)
    : costs_(std::move(costs)),
      settings_(settings),
      best_rate_(costs_->best_rate(longest)),
      drafters_(longest.size()) {
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    SPECLAB_CHECK(longest[i] >= 1, "a drafter without drafts");
    drafters_[i].by_length.resize(static_cast<std::size_t>(longest[i]));
  }
}

void DrafterScores::begin() {
  for (Scored& one : drafters_) {
    std::fill(one.by_length.begin(), one.by_length.end(), Sums());
    one.places = 0;
  }
}

void DrafterScores::add(int drafter, std::span<const double> acceptance) {
  Scored& one = drafters_[static_cast<std::size_t>(drafter)];
  SPECLAB_CHECK(acceptance.size() <= one.by_length.size(), "a draft of {} tokens, at most {}",
                acceptance.size(), one.by_length.size());
  one.places = settings_.memory * one.places + 1;
  double tokens = 1, product = 1;
  int drafted = 0;
  for (std::size_t n = 0; n < one.by_length.size(); ++n) {
    if (n < acceptance.size()) {
      product *= acceptance[n];
      tokens += product;
      ++drafted;
    }
    Sums& sums = one.by_length[n];
    sums.tokens = settings_.memory * sums.tokens + tokens;
    sums.ns = settings_.memory * sums.ns + costs_->step_ns(drafter, drafted) +
              costs_->catch_up_ns(drafter, static_cast<int>(std::lround(tokens))) +
              (drafted > 0 ? product * costs_->token_ns(drafter) : 0);
  }
}

double DrafterScores::rate(int drafter) const {
  const Scored& one = drafters_[static_cast<std::size_t>(drafter)];
  if (one.places <= 0) return 0;
  const auto rate_of = [](const Sums& sums) { return sums.tokens / sums.ns; };
  if (!settings_.any_length) return rate_of(one.by_length.back());
  double best = 0;
  for (const Sums& sums : one.by_length) best = std::max(best, rate_of(sums));
  return best;
}

int DrafterScores::choose(std::span<const char> awake, const Coins& coins, std::int64_t position) {
  SPECLAB_CHECK(awake.size() == drafters_.size(), "{} drafters, not {}", awake.size(), drafters_.size());
  weights_.assign(drafters_.size(), 0);
  double best = 0, places = 0;
  int first = -1, count = 0;  // the first drafter that is awake, and how many are
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    if (awake[i] == 0) continue;
    if (++count == 1) first = static_cast<int>(i);
    best = std::max(best, rate(static_cast<int>(i)));
    places = std::max(places, drafters_[i].places);
  }
  if (count < 2) return first;
  int leader = -1;
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    if (awake[i] == 0) continue;
    const bool scored = drafters_[i].places > 0;
    const double behind = scored ? (best - rate(static_cast<int>(i))) / best_rate_ : 0;
    if (leader < 0 && behind <= 0) leader = static_cast<int>(i);
    weights_[i] = exact_exp(-settings_.rate * places * behind);
  }
  if (settings_.learner == DrafterLearner::leader) return leader;
  return static_cast<int>(coins.categorical(weights_, {position, Purpose::simulate, 0}));
}

}  // namespace speclab
