#pragma once

#include <span>
#include <vector>

#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/budget/step_costs.h"

namespace speclab {

/// Chooses before a chain is made how many tokens each of several sources hands in. The sources hand in one
/// after the other: the first tokens of the chain come from one of them, the later ones from the next. Some
/// model then verifies the chain in one forward. The choice is a set of sources and the length n of the chain
/// that maximise
///
///     (1 + sum of P(token accepted) over the n tokens) / (t(n + 1) + times of the n tokens),
///
/// the expected tokens divided by their time. Here t is the time of the verifying forward by its number of
/// rows. Each chosen source hands in as many tokens as it may, except the last chosen one. That one hands in
/// only the tokens that the chain still lacks.
///
/// P is estimated from this sequence alone. There is one estimate for each source, separately for the first
/// token of a chain and for later tokens. The last source copies text. For a chain that begins with a copy,
/// the estimates are also separate by the evidence for the copy (evidence_of_match).
/// Only tokens that were verified teach anything. So now and then a chain is tried that begins with a source
/// that is not in use (TrialFund).
///
/// The choice depends only on the text so far and on earlier steps, not on the tokens that are drafted next.
/// So it does not change the distribution of the text.
class SeriesBudget {
 public:
  static constexpr int kMostSources = 4, kEvidence = 4;

  /// `most`: the most tokens that each source hands in, [sources]. There are 1 to kMostSources sources.
  explicit SeriesBudget(std::span<const int> most);
  /// Forgets all estimates. Called when a sequence starts.
  void begin();
  /// What the choice depends on besides the estimates.
  struct Step {
    const StepCosts* verifier = nullptr;  ///< its target() is the time of the verifying forward
    int further_rows = 0;                 ///< rows besides the chain and the token before the chain
    int limit = 0;                        ///< most tokens of the chain
    std::span<const double> token_ns;     ///< time of one token of each source, [sources]
    /// Evidence for a chain that begins with the last source, from 1 to kEvidence - 1; 0: no chain can begin
    /// with this source.
    int evidence = kEvidence - 1;
  };
  /// Returns the number of tokens of the chosen chain; 0: make none.
  int choose(const Step& step);
  /// The number of tokens that a source hands in, by the last choice.
  int tokens(int source) const { return chosen_[static_cast<std::size_t>(source)]; }
  /// Tells that a token of the last chain was verified. `first`: it was the first of the chain.
  void verified(int source, bool first, bool accepted);

 private:
  struct Plan {
    unsigned sources = 0;  // one bit for each
    int tokens = 0;
    double expected = 1, ns = 0;
    double rate() const { return expected / ns; }
  };
  std::size_t class_of(int source, bool first) const;
  double acceptance(int source, bool first) const;
  void extend(const Step& step, unsigned sources, Plan& best) const;
  int take(const Plan& plan);

  std::vector<int> most_, chosen_;
  int evidence_ = 0;  // for the chain in progress; 0 if it does not begin with the last source
  std::vector<RunningShare> by_source_, classes_;
  std::vector<TrialFund> trials_;  // [sources]
};

/// The time that a source takes for one of its tokens: a running mean over chains. The times come from the
/// table of costs.
class TokenTime {
 public:
  /// `guess_ns`: the time before anything was seen.
  explicit TokenTime(double guess_ns) : guess_ns_(guess_ns) {}
  void begin() { ns_ = tokens_ = 0; }
  /// Adds `tokens` tokens that took `ns` together.
  void add(double ns, int tokens) { ns_ = kMemory * ns_ + ns, tokens_ = kMemory * tokens_ + tokens; }
  double mean() const { return (ns_ + kWeight * guess_ns_) / (tokens_ + kWeight); }

 private:
  static constexpr double kMemory = .97, kWeight = 4;
  double guess_ns_, ns_ = 0, tokens_ = 0;
};

}  // namespace speclab
