#pragma once

#include <span>
#include <vector>

/// Acceptance processes: laws of how many drafted tokens of each round are accepted, with exact expectations.
/// A round is a step with a chain of gamma tokens as draft. Estimators, predictions and the strategy
/// `simulated` are compared with them, because their alpha and tau are known.
namespace speclab::theory {

/// A hidden Markov process of acceptance. In state s, drafted token i + 1 is accepted (if tested) with
/// probability acceptance[s][i]; the last entry also holds for later tokens. After every round the state
/// changes by transition[s]. One state with one entry is the i.i.d. model of Leviathan et al. 2023. One state
/// with several entries is the positional model. Several states model easy and hard stretches of text.
struct AcceptanceProcess {
  std::vector<std::vector<double>> acceptance;  // [states][positions]
  std::vector<std::vector<double>> transition;  // [states][states], rows sum to 1
};

/// All functions that make a process throw Error for probabilities outside [0, 1].
AcceptanceProcess iid_process(double alpha);
AcceptanceProcess positional_process(std::vector<double> acceptance);  // [positions]
/// Acceptance that decays along the draft: token i + 1 is accepted with probability first * ratio^i, for the
/// first `positions` tokens; later tokens are accepted like the last of these.
AcceptanceProcess decaying_process(double first, double ratio, int positions);
/// One alpha per state. After a round the state stays with probability `stay`, otherwise it moves to any
/// other with equal probability.
AcceptanceProcess switching_process(std::vector<double> alphas, double stay);  // [states]
/// The number of accepted tokens of each round has the law shares[n] / sum of shares, independently of the
/// other rounds. In a round that may accept fewer tokens, the number is cut. shares: [largest number + 1],
/// non-negative, sum > 0.
AcceptanceProcess lengths_process(std::span<const double> shares);
/// The number of accepted tokens of each round is floor(mean) or ceil(mean), drawn so that its expectation is
/// `mean` exactly. No law with this mean has a smaller variance. vLLM's synthetic acceptance of a given
/// length (`synthetic_acceptance_length`, which counts the bonus token) is this law. Throws Error unless
/// the mean is from 0 to kMaxGamma.
AcceptanceProcess minimum_variance_process(double mean);

/// Throws Error unless there is a state, each state has a position, and all probabilities are valid.
void require_process(const AcceptanceProcess& process);
/// P(drafted token `position` + 1 is accepted | tested) in a state.
double acceptance_at(const AcceptanceProcess& process, std::size_t state, int position);

/// Long-run share of rounds in each state. Every state must be reachable.
std::vector<double> stationary_law(const AcceptanceProcess& process);  // [states]

/// P(the first i + 1 tokens of a round are all accepted), [gamma], in the stationary process. vLLM takes such
/// numbers as `synthetic_acceptance_rates`.
std::vector<double> joint_acceptance(const AcceptanceProcess& process, int gamma);

/// P(n tokens of a round are accepted), [gamma + 1], in the stationary process.
std::vector<double> accepted_lengths(const AcceptanceProcess& process, int gamma);

/// Exact E[tau] of the stationary process: mean over states of 1 + sum_i prod_{j<=i} a_j.
double exact_expected_tokens(const AcceptanceProcess& process, int gamma);

/// Exact long-run alpha = P(accept | tested). It differs from the mean over states, because easy states test
/// more tokens. Throws Error for gamma < 1.
double exact_alpha(const AcceptanceProcess& process, int gamma);

/// Expected counts of rounds.
struct RoundCounts {
  double rounds = 0;
  double emitted = 0;   ///< tokens
  double tests = 0;     ///< acceptance tests
  double accepted = 0;  ///< tests that accepted their token

  double tau() const { return emitted / rounds; }
  double alpha() const { return accepted / tests; }  ///< NaN without tests
  RoundCounts& add(const RoundCounts& other, double weight);
};

/// Expected counts of one round of the stationary process.
RoundCounts counts_of_round(const AcceptanceProcess& process, int gamma);

/// Expected counts of the rounds of a text of exactly `tokens` tokens, which begins in the stationary law.
/// The last round is cut as in simulate_prompt(). tau() is the number of tokens / E[rounds]: the tokens per
/// step that many such texts have together. It is a little below E[tau] of a round, because the end of a text
/// cuts a round.
RoundCounts counts_of_text(const AcceptanceProcess& process, int gamma, int tokens);

}  // namespace speclab::theory
