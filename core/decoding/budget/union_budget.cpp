#include "core/decoding/budget/union_budget.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr double kUnionMemory = .97;  // decay factor of old observations at each new one
constexpr double kUnionGuess = .6;    // P(a token of one source is right) before anything was seen
constexpr double kFreshGuess = .7;    // share of new nodes among the tokens of further sources
constexpr double kOfSet = 4, kOfSetEvidence = 6, kOfFresh = 20;  // observations that first guesses count as
/// Lengths that are tried. The longest length that a source allows is tried, too.
constexpr int kLengths[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

constexpr std::size_t kMostCombinations = 1000;  // if there are more, climb() searches

bool has(unsigned set, int source) { return (set >> source & 1) != 0; }

}  // namespace

UnionBudget::UnionBudget(std::shared_ptr<const StepCosts> costs, int sources)
    : costs_(std::move(costs)), sources_(sources) {
  SPECLAB_CHECK(costs_ && !costs_->target_ns.empty(), "a budget without costs");
  SPECLAB_CHECK(sources >= 1 && sources <= kMostSources, "a tree of {} sources", sources);
  begin();
}

void UnionBudget::begin() {
  by_depth_.assign(kSets * kDepths, {});
  own_.assign(kSets * kDepths * kEvidence, {});
  fresh_ = {};
  trials_ = {};
}

double UnionBudget::one_alone(int source, int depth) const {
  const std::size_t at = (1U << source) * kDepths + static_cast<std::size_t>(depth);
  const double any = by_depth_[at].over(kUnionGuess, kOfSet);
  if (source + 1 != sources_ || evidence_ == 0) return any;
  return own_[at * kEvidence + static_cast<std::size_t>(evidence_)].over(any, kOfSetEvidence);
}

/// P(some chain of the set is right up to this depth, if some chain is right up to the depth before). The
/// first guess lies halfway between sources that are right together and sources that are right independently.
double UnionBudget::next_is_right(unsigned set, int depth) const {
  depth = std::min(depth - 1, kDepths - 1);
  double most = 0, none = 1;
  int members = 0, last = 0;
  for (int source = 0; source < sources_; ++source) {
    if (!has(set, source)) continue;
    const double alone = one_alone(source, depth);
    most = std::max(most, alone), none *= 1 - alone;
    ++members, last = source;
  }
  if (members == 1) return one_alone(last, depth);
  const std::size_t at = set * kDepths + static_cast<std::size_t>(depth);
  const double any = by_depth_[at].over((most + 1 - none) / 2, kOfSet);
  if (!has(set, sources_ - 1) || evidence_ == 0) return any;
  return own_[at * kEvidence + static_cast<std::size_t>(evidence_)].over(any, kOfSetEvidence);
}

/// Fills reach_: P(some chain of the set is right up to this depth). A larger set never reaches less.
void UnionBudget::find_reach(std::span<const Source> sources, int deepest) {
  unsigned offered = 0;
  for (int source = 0; source < sources_; ++source)
    offered |= sources[static_cast<std::size_t>(source)].most > 0 ? 1U << source : 0;
  for (unsigned set = 1; set < 1U << sources_; ++set) {
    if ((set & ~offered) != 0) continue;
    reach_[set][0] = 1;
    for (int depth = 1; depth <= deepest; ++depth) {
      const auto at = static_cast<std::size_t>(depth);
      reach_[set][at] = reach_[set][at - 1] * next_is_right(set, depth);
      for (int source = 0; source < sources_; ++source) {
        const unsigned less = set & ~(1U << source);
        if (less != set && less != 0) reach_[set][at] = std::max(reach_[set][at], reach_[less][at]);
      }
    }
  }
}

UnionBudget::Plan UnionBudget::plan_of(std::span<const Source> sources, const Lengths& lengths,
                                       int most_nodes) const {
  Plan plan{.lengths = lengths};
  int first = 0, deepest = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (lengths[i] == 0) continue;
    const int tokens = lengths[i] * sources[i].chains;
    if (plan.tokens == 0) first = tokens;
    plan.tokens += tokens;
    plan.ns += sources[i].first_ns + (lengths[i] - 1) * sources[i].next_ns;
    deepest = std::max(deepest, lengths[i]);
  }
  for (int depth = 1; depth <= deepest; ++depth) {
    unsigned set = 0;
    for (std::size_t i = 0; i < sources.size(); ++i) set |= lengths[i] >= depth ? 1U << i : 0;
    plan.expected += reach_[set][static_cast<std::size_t>(depth)];
  }
  const double nodes = first + (plan.tokens - first) * fresh_.over(kFreshGuess, kOfFresh);
  plan.ns += costs_->target(1 + std::min(most_nodes, static_cast<int>(std::lround(nodes))));
  return plan;
}

/// Visits all combinations of lengths except all zeros, as an odometer counts.
template <class Visit>
void UnionBudget::try_all(std::span<const Source> sources, const Visit& visit) const {
  Lengths lengths{};
  std::array<std::size_t, kMostSources> at{};
  for (;;) {
    std::size_t i = 0;
    for (; i < sources.size(); ++i) {
      const int most = std::min(sources[i].most, kMostLength);
      if (lengths[i] < most) {
        const int next = kLengths[++at[i]];
        lengths[i] = std::min(next, most);
        break;
      }
      lengths[i] = 0, at[i] = 0;
    }
    if (i == sources.size()) return;
    visit(lengths);
  }
}

/// Starts with `lengths`. Sets the length of one source after the other to its best value, until no such
/// change helps. `visit` returns the tokens per time, or 0 for lengths that are not allowed.
template <class Visit>
void UnionBudget::climb(std::span<const Source> sources, Lengths lengths, const Visit& visit) const {
  double best = visit(lengths);
  for (bool better = true; better;) {
    better = false;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const int most = std::min(sources[i].most, kMostLength);
      Lengths other = lengths;
      for (const int length : kLengths) {
        other[i] = std::min(length, most);
        const double rate = visit(other);
        if (rate > best) best = rate, lengths[i] = other[i], better = true;
        if (length >= most) break;
      }
    }
  }
}

int UnionBudget::choose(std::span<const Source> sources, int most_tokens, int most_nodes, int evidence) {
  SPECLAB_CHECK(static_cast<int>(sources.size()) == sources_, "{} sources for a budget of {}", sources.size(),
                sources_);
  evidence_ = std::clamp(evidence, 0, kEvidence - 1);
  int deepest = 0;
  for (const Source& source : sources) deepest = std::max(deepest, std::min(source.most, kMostLength));
  find_reach(sources, deepest);
  Plan best = plan_of(sources, {}, most_nodes);
  // For each source: the best plan in which this source drafts, alone or with others.
  std::array<Plan, kMostSources> with{};
  const auto visit = [&](const Lengths& lengths) {
    const Plan plan = plan_of(sources, lengths, most_nodes);
    if (plan.tokens > most_tokens) return 0.0;
    if (plan.rate() > best.rate() || (plan.rate() == best.rate() && plan.tokens > best.tokens)) best = plan;
    for (std::size_t j = 0; j < sources.size(); ++j) {
      if (lengths[j] > 0 && (with[j].tokens == 0 || plan.rate() > with[j].rate())) with[j] = plan;
    }
    return plan.rate();
  };
  std::size_t combinations = 1;
  for (const Source& source : sources) {
    const int most = std::min(source.most, kMostLength);
    std::size_t lengths = 1;
    while (most > 0 && lengths < std::size(kLengths) && kLengths[lengths - 1] < most) ++lengths;
    combinations *= lengths;
  }
  if (combinations <= kMostCombinations) {
    try_all(sources, visit);
  } else {
    climb(sources, {}, visit);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      Lengths alone{};
      alone[i] = std::min(sources[i].most, 1);
      if (alone[i] > 0) climb(sources, alone, visit);
    }
  }
  // The sources that are not in use share the time of trials.
  int unused = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) unused += best.lengths[i] == 0 && with[i].tokens > 0;
  const Plan usual = best;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (usual.lengths[i] > 0 || with[i].tokens == 0 ||
        !trials_[i].try_now(usual.ns / unused, with[i].ns - with[i].expected / usual.rate(), 1))
      continue;
    best = with[i];
    break;
  }
  chosen_ = best.lengths;
  for (std::size_t i = 0; i < sources.size(); ++i) chains_[i] = sources[i].chains;
  return best.tokens;
}

void UnionBudget::observe(std::span<const int> drafted, std::span<const int> right, int emitted, int nodes) {
  for (unsigned set = 1; set < 1U << sources_; ++set) {
    bool complete = true;
    for (int i = 0; i < sources_; ++i)
      complete = complete && (!has(set, i) || drafted[static_cast<std::size_t>(i)] > 0);
    if (!complete) continue;
    for (int depth = 1; depth <= emitted; ++depth) {
      bool tested = false, accepted = false;
      for (std::size_t i = 0; i < drafted.size(); ++i) {
        if (!has(set, static_cast<int>(i)) || drafted[i] < depth || right[i] < depth - 1) continue;
        tested = true;
        accepted = accepted || right[i] >= depth;
      }
      if (!tested) break;
      const std::size_t at = set * kDepths + static_cast<std::size_t>(std::min(depth - 1, kDepths - 1));
      for (RunningShare* share :
           {&by_depth_[at],
            &own_[at * kEvidence + static_cast<std::size_t>(has(set, sources_ - 1) ? evidence_ : 0)]}) {
        share->fade(kUnionMemory);
        share->add(accepted);
      }
      if (!accepted) break;
    }
  }
  int tokens = 0, first = 0;
  for (std::size_t i = 0; i < drafted.size(); ++i) {
    if (drafted[i] == 0) continue;
    if (tokens == 0) first = drafted[i] * chains_[i];
    tokens += drafted[i] * chains_[i];
  }
  if (tokens <= first) return;
  fresh_.fade(kUnionMemory);
  fresh_.seen += tokens - first;
  fresh_.accepted += std::clamp(nodes - first, 0, tokens - first);
}

}  // namespace speclab
