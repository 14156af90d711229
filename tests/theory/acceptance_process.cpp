#include "tests/theory/acceptance_process.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "core/base/error.h"

namespace speclab::simulate {
namespace {

void require_process(const AcceptanceProcess& process) {
  const std::size_t states = process.acceptance.size();
  bool good = states > 0 && process.transition.size() == states;
  auto probability = [](double value) { return value >= 0 && value <= 1; };
  for (const auto& row : process.acceptance)
    good = good && !row.empty() && std::all_of(row.begin(), row.end(), probability);
  for (const auto& row : process.transition) {
    double sum = 0;
    for (double value : row) sum += value;
    good = good && row.size() == states && std::all_of(row.begin(), row.end(), probability) &&
           std::abs(sum - 1) < 1e-9;
  }
  if (!good) {
    throw Error({"acceptance process", fmt::format("{} states", states),
                 "probabilities in [0, 1], at least one position per state, transition rows that sum to 1",
                 ""});
  }
}

void require_count(const char* name, int value) {
  if (value < 1) throw Error({name, fmt::format("{}", value), "at least 1", ""});
}

double acceptance_at(const AcceptanceProcess& process, std::size_t state, int position) {
  const auto& row = process.acceptance[state];
  return row[std::min<std::size_t>(position, row.size() - 1)];
}

/// Runs the hidden state and draws rounds.
class Walk {
 public:
  Walk(const AcceptanceProcess& process, std::uint64_t seed)
      : process_(process), random_(seed), state_(draw(stationary_law(process))) {}

  /// One round that emits at most `left` tokens. The token that fills them ends the text: no later token is
  /// tested, and no bonus follows.
  Round round(int gamma, int left) {
    if (gamma < 0) throw Error({"gamma", fmt::format("{}", gamma), "at least 0", ""});
    Round round{.drafted = gamma};
    while (round.accepted < std::min(gamma, left) && !round.rejected) {
      const double a = acceptance_at(process_, state_, round.accepted);
      round.expected_sum += a;
      round.expected_variance += a * (1 - a);
      if (uniform() < a) {
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
  double uniform() { return (random_() >> 11) * 0x1p-53; }
  std::size_t draw(const std::vector<double>& law) {
    double rest = uniform();
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

AcceptanceProcess iid_process(double alpha) { return positional_process({alpha}); }

AcceptanceProcess positional_process(std::vector<double> acceptance) {
  AcceptanceProcess process{{std::move(acceptance)}, {{1.0}}};
  require_process(process);
  return process;
}

AcceptanceProcess switching_process(std::vector<double> alphas, double stay) {
  const std::size_t states = alphas.size();
  AcceptanceProcess process;
  for (std::size_t state = 0; state < states; ++state) {
    process.acceptance.push_back({alphas[state]});
    process.transition.emplace_back(states, states > 1 ? (1 - stay) / (states - 1) : 0);
    process.transition[state][state] = states > 1 ? stay : 1;
  }
  require_process(process);
  return process;
}

std::vector<double> stationary_law(const AcceptanceProcess& process) {
  require_process(process);
  const std::size_t states = process.acceptance.size();
  // Power iteration on (1 + transition) / 2, which has the same fixed point and cannot oscillate.
  std::vector<double> law(states, 1.0 / states), next(states);
  for (int iteration = 0; iteration < 100'000; ++iteration) {
    double change = 0;
    for (std::size_t to = 0; to < states; ++to) {
      next[to] = 0.5 * law[to];
      for (std::size_t from = 0; from < states; ++from)
        next[to] += 0.5 * law[from] * process.transition[from][to];
      change += std::abs(next[to] - law[to]);
    }
    law.swap(next);
    if (change < 1e-15) break;
  }
  return law;
}

double exact_expected_tokens(const AcceptanceProcess& process, int gamma) {
  const std::vector<double> law = stationary_law(process);
  double tokens = 1;
  for (std::size_t state = 0; state < law.size(); ++state) {
    double reached = law[state];
    for (int i = 0; i < gamma; ++i) tokens += reached *= acceptance_at(process, state, i);
  }
  return tokens;
}

double exact_alpha(const AcceptanceProcess& process, int gamma) {
  require_count("gamma", gamma);
  const std::vector<double> law = stationary_law(process);
  double tests = 0;
  for (std::size_t state = 0; state < law.size(); ++state) {
    double reached = law[state];
    for (int i = 0; i < gamma; ++i) {
      tests += reached;
      reached *= acceptance_at(process, state, i);
    }
  }
  return (exact_expected_tokens(process, gamma) - 1) / tests;
}

PromptRounds simulate_prompt(const AcceptanceProcess& process, const Schedule& gamma, int tokens,
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
  out.reserve(rounds);
  for (int i = 0; i < rounds; ++i) out.push_back(walk.round(gamma, std::numeric_limits<int>::max()));
  return out;
}

}  // namespace speclab::simulate
