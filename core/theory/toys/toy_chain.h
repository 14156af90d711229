#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "core/decoding/rules/chain_law.h"
#include "core/model/toy/markov_rows.h"

/// Exact expectations of speculative decoding on Markov chains: a draft model with the rows q drafts chains
/// of gamma tokens for a target with the rows p, both over the same contexts. Nothing here is i.i.d.: the
/// acceptance of a token depends on the token before it, and where a step starts depends on how the step
/// before it ended.
namespace speclab::theory {

/// Expected counts of steps, as a record counts them. The first token of a text comes from the prefill and
/// is not counted.
struct ChainCounts {
  double steps = 0;
  double emitted = 0;   ///< tokens
  double drafted = 0;   ///< tokens
  double tests = 0;     ///< 0 for `block`, which judges a token only together with the tokens after it
  double accepted = 0;  ///< drafted tokens

  double tau() const { return emitted / steps; }
  /// NaN without tests. `block` accepts tokens without a test of its own for each.
  double alpha() const { return tests > 0 ? accepted / tests : std::numeric_limits<double>::quiet_NaN(); }
  ChainCounts& operator+=(const ChainCounts& other);
};

/// P(the token drafted at this context is x and it is accepted), [vocab]. Throws Error for `block`.
std::vector<double> accepted_law(std::span<const double> p, std::span<const double> q, ChainLaw rule);

/// alpha over the positions of texts that the target wrote: the mean over contexts, weighted by their
/// stationary law under p, of the probability that a drafted token is accepted. A record estimates it as
/// alpha_teacher_forced. Throws Error for `block`.
double stationary_alpha(const toy::MarkovRows& p, const toy::MarkovRows& q, ChainLaw rule);

/// The steps of chains. For `rejection`, `sample_match` and `coupled`, a step is a walk over the contexts:
/// with probability A(x) = accepted_law() the walk goes on with x, and with probability p(x) - A(x) the walk
/// ends in the correction x. For `block` all drafts are enumerated once: the path x_1..x_i is drafted and
/// kept with probability q(x_1..x_i) rho_i, where rho_i = min(1, rho_{i-1} p(x_i)/q(x_i)) and rho_0 = 1, and
/// the correction y follows it with probability q(x_1..x_i) (rho_i p(y) - q(y))+.
class ToyChain {
 public:
  /// Limits of `block`: the largest number of enumerated drafts, contexts x V^gamma, and of contexts.
  static constexpr double kMostPaths = 3e7;
  static constexpr int kMostBlockContexts = 256;

  /// Throws Error if p and q differ in shape or hold no probabilities, for a negative gamma, and if `block`
  /// would take too long.
  ToyChain(toy::MarkovRows p, toy::MarkovRows q, int gamma, ChainLaw rule);

  /// Expected counts, summed over texts. first[c] is the number of texts whose first token is context c.
  /// Each text has `tokens` more tokens. As in the engine, a step drafts at most one token less than the text
  /// still needs. Computed by dynamic programming over (tokens left, context).
  ChainCounts of_texts(std::span<const double> first, int tokens) const;

  /// Expected counts of one step in an endless text. Throws Error if the contexts in which steps begin have
  /// no stationary law that a power iteration finds.
  ChainCounts long_run() const;

 private:
  /// Called with the number of tokens that a step emitted and the mass of the contexts that it ended in.
  using End = std::function<void(int emitted, std::span<const double> mass)>;
  void advance(std::span<const double> start, int drafted, ChainCounts& counts, const End& end) const;
  void advance_block(std::span<const double> start, int drafted, ChainCounts& counts, const End& end) const;
  void enumerate_block();

  toy::MarkovRows p_, q_;
  int gamma_;
  ChainLaw rule_;
  std::size_t contexts_ = 0;
  std::vector<double> accepted_;  // [contexts][vocab]: accepted_law() of each context
  // Of `block`. Entry [i] is after i kept tokens; rows are the context in which the step began.
  std::vector<std::vector<double>> kept_;      // [gamma + 1][contexts]: P(at least i tokens are kept)
  std::vector<std::vector<double>> residual_;  // [gamma][contexts][contexts]: ends with a correction
  std::vector<std::vector<double>> bonus_;     // [gamma + 1][contexts][contexts]: all i drafted tokens kept
};

/// The law of the text: P(the next tokens are x_1..x_n | context), by text. A token is given as the context
/// that it leads to. Texts of probability 0 are left out. Throws Error if V^n is more than a million.
std::map<std::vector<int>, double> text_law(const toy::MarkovRows& rows, int context, int tokens);

/// The law of the context after `tokens` more tokens, [contexts], from the law of the context before them.
std::vector<double> context_law(const toy::MarkovRows& rows, std::span<const double> before, int tokens);

/// Entropy of the next symbol in an endless text, in nats per token.
double entropy_rate(const toy::MarkovRows& rows);

}  // namespace speclab::theory
