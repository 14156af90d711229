#include "core/theory/processes/simulate_rounds.h"

#include <algorithm>
#include <limits>
#include <random>

#include "core/base/error.h"

namespace speclab::theory {
namespace {

void require_count(const char* name, int value) {
  if (value < 1) throw Error({name, fmt::format("{}", value), "at least 1", ""});
}

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

/// Runs the hidden state and draws rounds.
class Walk {
 public:
  Walk(const AcceptanceProcess& process, std::uint64_t seed)
      : process_(process), random_(seed), state_(draw(stationary_law(process))) {}

  /// One round that emits at most `left` tokens. Token `left` of the round ends the text: no later token is
  /// tested, and no bonus follows.
  Round round(int gamma, int left) {
    if (gamma < 0) throw Error({"gamma", fmt::format("{}", gamma), "at least 0", ""});
    Round round{.drafted = gamma};
    while (round.accepted < std::min(gamma, left) && !round.rejected) {
      const double a = acceptance_at(process_, state_, round.accepted);
      round.expected_sum += a;
      round.expected_variance += a * (1 - a);
      if (uniform(random_) < a) {
        ++round.accepted;
      } else {
        round.rejected = true;
      }
    }
    round.emitted = std::min(round.accepted + 1, left);
    state_ = draw(process_.transition[state_]);
    return round;
  }

 private:
  std::size_t draw(const std::vector<double>& law) {
    double rest = uniform(random_);
    for (std::size_t state = 0; state + 1 < law.size(); ++state) {
      rest -= law[state];
      if (rest < 0) return state;
    }
    return law.size() - 1;
  }

  const AcceptanceProcess& process_;
  std::mt19937_64 random_;
  std::size_t state_;
};

}  // namespace

PromptRounds simulate_prompt(const AcceptanceProcess& process, const RoundSchedule& gamma, int tokens,
                             std::uint64_t seed) {
  require_count("tokens", tokens);
  Walk walk(process, seed);
  PromptRounds rounds;
  for (int left = tokens; left > 0; left -= rounds.back().emitted)
    rounds.push_back(walk.round(gamma(rounds), left));
  return rounds;
}

PromptRounds simulate_prompt(const AcceptanceProcess& process, int gamma, int tokens, std::uint64_t seed) {
  return simulate_prompt(process, [gamma](const PromptRounds&) { return gamma; }, tokens, seed);
}

PromptRounds simulate_rounds(const AcceptanceProcess& process, int gamma, int rounds, std::uint64_t seed) {
  require_count("rounds", rounds);
  Walk walk(process, seed);
  PromptRounds out;
  out.reserve(static_cast<std::size_t>(rounds));
  for (int i = 0; i < rounds; ++i) out.push_back(walk.round(gamma, std::numeric_limits<int>::max()));
  return out;
}

std::vector<PromptRounds> simulate_run(const PromptProcess& process, int gamma, int prompts, int tokens,
                                       std::uint64_t seed) {
  require_count("prompts", prompts);
  if (gamma > process.most_gamma()) {
    throw Error({"gamma", fmt::format("{}", gamma),
                 fmt::format("at most {}, as in the recorded run", process.most_gamma()), ""});
  }
  std::mt19937_64 random(seed);
  std::vector<PromptRounds> run;
  for (int i = 0; i < prompts; ++i) {
    const AcceptanceProcess of_prompt = process.draw(uniform(random));
    run.push_back(simulate_prompt(of_prompt, gamma, tokens, random()));
  }
  return run;
}

}  // namespace speclab::theory
