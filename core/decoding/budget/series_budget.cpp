#include "core/decoding/budget/series_budget.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr double kSeriesMemory = .97;          // decay factor of observations of a class at each new one
constexpr double kSeriesGuess = .6;            // P(a token is accepted) before anything was seen
constexpr double kOfSource = 4, kOfClass = 6;  // observations that the first guesses count as

}  // namespace

SeriesBudget::SeriesBudget(std::span<const int> most)
    : most_(most.begin(), most.end()), chosen_(most.size(), 0) {
  SPECLAB_CHECK(!most.empty() && most.size() <= kMostSources, "a chain of {} sources", most.size());
  begin();
}

void SeriesBudget::begin() {
  by_source_.assign(most_.size(), {});
  classes_.assign(most_.size() * 2 * kEvidence, {});
  trials_.assign(most_.size(), {});
  evidence_ = 0;
}

std::size_t SeriesBudget::class_of(int source, bool first) const {
  const bool last = source + 1 == static_cast<int>(most_.size());
  const int evidence = last ? evidence_ : 0;
  return static_cast<std::size_t>((source * 2 + (first ? 0 : 1)) * kEvidence + evidence);
}

double SeriesBudget::acceptance(int source, bool first) const {
  const double any = by_source_[static_cast<std::size_t>(source)].over(kSeriesGuess, kOfSource);
  return classes_[class_of(source, first)].over(any, kOfClass);
}

/// Replaces `best` if these sources make a better chain, of any length.
void SeriesBudget::extend(const Step& step, unsigned sources, Plan& best) const {
  Plan plan{.sources = sources};
  double reached = 1, tokens_ns = 0;
  for (int source = 0; source < static_cast<int>(most_.size()); ++source) {
    if ((sources >> source & 1) == 0) continue;
    for (int i = 0; i < most_[static_cast<std::size_t>(source)] && plan.tokens < step.limit; ++i) {
      reached *= acceptance(source, plan.tokens == 0);
      ++plan.tokens;
      plan.expected += reached;
      tokens_ns += step.token_ns[static_cast<std::size_t>(source)];
      plan.ns = step.verifier->target(1 + step.further_rows + plan.tokens) + tokens_ns;
      if (best.ns == 0 || plan.rate() > best.rate() ||
          (plan.rate() == best.rate() && plan.tokens > best.tokens))
        best = plan;
    }
  }
}

int SeriesBudget::take(const Plan& plan) {
  int left = plan.tokens;
  for (std::size_t source = 0; source < most_.size(); ++source) {
    chosen_[source] = (plan.sources >> source & 1) != 0 ? std::min(left, most_[source]) : 0;
    left -= chosen_[source];
  }
  const unsigned last = 1U << (most_.size() - 1);
  if (plan.sources != last) evidence_ = 0;
  return plan.tokens;
}

int SeriesBudget::choose(const Step& step) {
  SPECLAB_CHECK(step.token_ns.size() == most_.size(), "{} times for {} sources", step.token_ns.size(),
                most_.size());
  const int sources = static_cast<int>(most_.size()), last = sources - 1;
  const int evidence = std::clamp(step.evidence, 0, kEvidence - 1);
  std::array<Plan, kMostSources> from{};  // the best chain that begins with each source
  for (unsigned set = 1; set < 1U << sources; ++set) {
    const int first = std::countr_zero(set);
    bool empty = false;  // a source of the set has nothing to hand in; a smaller set makes the same chains
    for (int source = 0; source < sources; ++source)
      empty = empty || ((set >> source & 1) != 0 && most_[static_cast<std::size_t>(source)] == 0);
    if (empty || (first == last && evidence == 0)) continue;
    evidence_ = first == last ? evidence : 0;
    extend(step, set, from[static_cast<std::size_t>(first)]);
  }
  evidence_ = evidence;
  const double plain_ns = step.verifier->target(1 + step.further_rows);
  Plan best{.ns = plain_ns};
  int used = -1;
  for (int source = 0; source < sources; ++source) {
    const Plan& plan = from[static_cast<std::size_t>(source)];
    if (plan.tokens > 0 && plan.rate() >= best.rate()) best = plan, used = source;
  }
  // The sources that are not in use share the time of trials. So a source whose trial is dear does not delay
  // the trials of the others.
  int unused = 0;
  for (int source = 0; source < sources; ++source)
    unused += source != used && from[static_cast<std::size_t>(source)].tokens > 0;
  for (int source = 0; source < sources; ++source) {
    const Plan& plan = from[static_cast<std::size_t>(source)];
    if (source != used && plan.tokens > 0 &&
        trials_[static_cast<std::size_t>(source)].try_now(best.ns / unused,
                                                          plan.ns - plan.expected / best.rate(), 1))
      return take(plan);
  }
  return take(best);
}

void SeriesBudget::verified(int source, bool first, bool accepted) {
  // A source that is not in use keeps its estimates.
  for (RunningShare* share :
       {&by_source_[static_cast<std::size_t>(source)], &classes_[class_of(source, first)]}) {
    share->fade(kSeriesMemory);
    share->add(accepted);
  }
}

}  // namespace speclab
