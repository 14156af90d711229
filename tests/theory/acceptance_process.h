#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/measure/rounds.h"

/// Simulates acceptance without a model. It makes random rounds with a known law, so that estimators and
/// closed forms can be tested against the true values.
namespace speclab::simulate {

/// A hidden Markov process of acceptance. In state s, drafted token i + 1 is accepted (if tested) with
/// probability acceptance[s][i]; the last entry also holds for later tokens. After every round the state
/// changes by transition[s]. One state with one entry is the i.i.d. model of Leviathan et al. 2023. One state
/// with several entries is the positional model. Several states model easy and hard stretches of text.
struct AcceptanceProcess {
  std::vector<std::vector<double>> acceptance;  // [states][positions]
  std::vector<std::vector<double>> transition;  // [states][states], rows sum to 1
};

AcceptanceProcess iid_process(double alpha);
AcceptanceProcess positional_process(std::vector<double> acceptance);  // [positions]
/// One alpha per state. After a round the state stays with probability `stay`, otherwise it moves to any
/// other with equal probability.
AcceptanceProcess switching_process(std::vector<double> alphas, double stay);  // [states]

/// Long-run share of rounds in each state. Every state must be reachable.
std::vector<double> stationary_law(const AcceptanceProcess& process);  // [states]

/// Exact E[tau] of the stationary process: mean over states of 1 + sum_i prod_{j<=i} a_j.
double exact_expected_tokens(const AcceptanceProcess& process, int gamma);

/// Exact long-run alpha = P(accept | tested). It differs from the mean over states,
/// because easy states test more tokens.
double exact_alpha(const AcceptanceProcess& process, int gamma);

/// A schedule: returns the draft length of the next round, given the rounds before.
using Schedule = std::function<int(const PromptRounds& before)>;

/// Simulates one prompt until `tokens` are emitted. The last round is cut at that length and censored, as at
/// an end of text. The first state is drawn from the stationary law. The same seed gives the same rounds on
/// every platform. expected_sum holds the acceptance probabilities of the tested positions. Throws Error for
/// probabilities outside [0, 1], rows of transition that do not sum to 1, and tokens < 1.
PromptRounds simulate_prompt(const AcceptanceProcess& process, const Schedule& gamma, int tokens,
                             std::uint64_t seed);
PromptRounds simulate_prompt(const AcceptanceProcess& process, int gamma, int tokens, std::uint64_t seed);

/// Simulates exactly `rounds` rounds; none is cut.
PromptRounds simulate_rounds(const AcceptanceProcess& process, int gamma, int rounds, std::uint64_t seed);

}  // namespace speclab::simulate
