#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/measure/rounds.h"
#include "core/theory/processes/prompt_process.h"

/// Random rounds of acceptance processes. The same seed gives the same rounds on every platform, except that
/// beta laws depend on the last digits of the platform's mathematical functions.
namespace speclab::theory {

/// A schedule: returns the draft length of the next round, given the rounds before.
using RoundSchedule = std::function<int(const PromptRounds& before)>;

/// Simulates one prompt until `tokens` are emitted. The last round is cut at that length and censored, as at
/// an end of text. The first state is drawn from the stationary law. expected_sum is the sum of the
/// acceptance probabilities of the tested positions. Throws Error for a bad process, a negative draft length
/// and tokens < 1.
PromptRounds simulate_prompt(const AcceptanceProcess& process, const RoundSchedule& gamma, int tokens,
                             std::uint64_t seed);
PromptRounds simulate_prompt(const AcceptanceProcess& process, int gamma, int tokens, std::uint64_t seed);

/// Simulates exactly `rounds` rounds; none is cut.
PromptRounds simulate_rounds(const AcceptanceProcess& process, int gamma, int rounds, std::uint64_t seed);

/// Simulates the prompts of a run, [prompts][rounds]. Each text has `tokens` tokens.
std::vector<PromptRounds> simulate_run(const PromptProcess& process, int gamma, int prompts, int tokens,
                                       std::uint64_t seed);

}  // namespace speclab::theory
