#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/measure/rounds.h"

/// Acceptance without a model: random rounds of a known law, to test estimators and closed forms against the
/// truth.
namespace speclab::simulate {

/// A hidden Markov process of acceptance. In state s the drafted token i + 1 is accepted, if tested, with
/// probability acceptance[s][i] (the last entry goes on for longer drafts); after every round the state moves
/// by transition[s]. One state with one entry is the i.i.d. model of Leviathan et al. 2023, one state with
/// several the positional model, several states make easy and hard stretches of text.
struct AcceptanceProcess {
  std::vector<std::vector<double>> acceptance;  // [states][positions]
  std::vector<std::vector<double>> transition;  // [states][states], rows sum to 1
};

AcceptanceProcess iid_process(double alpha);
AcceptanceProcess positional_process(std::vector<double> acceptance);  // [positions]
/// One alpha per state; `stay` = probability of keeping the state after a round, else a uniform other one.
AcceptanceProcess switching_process(std::vector<double> alphas, double stay);  // [states]

/// Long-run share of rounds in each state. The process must reach every state.
std::vector<double> stationary_law(const AcceptanceProcess& process);  // [states]

/// Exact E[tau] of the stationary process: mean over states of 1 + sum_i prod_{j<=i} a_j.
double exact_expected_tokens(const AcceptanceProcess& process, int gamma);

/// Exact long-run alpha = P(accept | tested): not the mean over states, since easy states test more.
double exact_alpha(const AcceptanceProcess& process, int gamma);

/// The draft length of round number i (0, 1, ...), given the rounds before: a schedule.
using Schedule = std::function<int(const PromptRounds& before)>;

/// One prompt: rounds until `tokens` are emitted; the last round is cut there and censored, as an end of text
/// would do. The first state is drawn from the stationary law. Same seed, same rounds, on every platform.
/// expected_sum holds the acceptance probabilities of the tested positions. Errors: probabilities outside [0,
/// 1], rows of transition that do not sum to 1, tokens < 1 throw Error.
PromptRounds simulate_prompt(const AcceptanceProcess& process, const Schedule& gamma, int tokens,
                             std::uint64_t seed);
PromptRounds simulate_prompt(const AcceptanceProcess& process, int gamma, int tokens, std::uint64_t seed);

/// Exactly `rounds` rounds, none cut.
PromptRounds simulate_rounds(const AcceptanceProcess& process, int gamma, int rounds, std::uint64_t seed);

}  // namespace speclab::simulate
