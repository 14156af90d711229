#include "core/theory/processes/acceptance_process.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

/// Expected tests and accepted tokens of a round in `state` that may accept at most `most` tokens.
RoundCounts counts_in_state(const AcceptanceProcess& process, std::size_t state, int most) {
  RoundCounts counts{.rounds = 1};
  double reached = 1;
  for (int i = 0; i < most; ++i) {
    counts.tests += reached;
    counts.accepted += reached *= acceptance_at(process, state, i);
  }
  return counts;
}

}  // namespace

RoundCounts& RoundCounts::add(const RoundCounts& other, double weight) {
  rounds += weight * other.rounds;
  emitted += weight * other.emitted;
  tests += weight * other.tests;
  accepted += weight * other.accepted;
  return *this;
}

void require_process(const AcceptanceProcess& process) {
  const std::size_t states = process.acceptance.size();
  bool good = states > 0 && process.transition.size() == states;
  const auto probability = [](double value) { return value >= 0 && value <= 1; };
  for (const auto& row : process.acceptance)
    good = good && !row.empty() && std::all_of(row.begin(), row.end(), probability);
  for (const auto& row : process.transition) {
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    good = good && row.size() == states && std::all_of(row.begin(), row.end(), probability) &&
           std::abs(sum - 1) < 1e-9;
  }
  if (!good) {
    throw Error({"acceptance process", fmt::format("{} states", states),
                 "probabilities in [0, 1], at least one position per state, transition rows that sum to 1",
                 ""});
  }
}

double acceptance_at(const AcceptanceProcess& process, std::size_t state, int position) {
  const std::vector<double>& row = process.acceptance[state];
  return row[std::min(static_cast<std::size_t>(position), row.size() - 1)];
}

AcceptanceProcess iid_process(double alpha) { return positional_process({alpha}); }

AcceptanceProcess positional_process(std::vector<double> acceptance) {
  AcceptanceProcess process{{std::move(acceptance)}, {{1.0}}};
  require_process(process);
  return process;
}

AcceptanceProcess decaying_process(double first, double ratio, int positions) {
  require_probability("first acceptance", first);
  require_probability("ratio of the decay", ratio);
  if (positions < 1 || positions > kMaxGamma)
    throw Error(
        {"positions of the decay", fmt::format("{}", positions), fmt::format("1 to {}", kMaxGamma), ""});
  std::vector<double> acceptance;
  for (int i = 0; i < positions; ++i) acceptance.push_back(first * std::pow(ratio, i));
  return positional_process(std::move(acceptance));
}

AcceptanceProcess switching_process(std::vector<double> alphas, double stay) {
  const std::size_t states = alphas.size();
  AcceptanceProcess process;
  for (std::size_t state = 0; state < states; ++state) {
    process.acceptance.push_back({alphas[state]});
    process.transition.emplace_back(states, states > 1 ? (1 - stay) / static_cast<double>(states - 1) : 0.0);
    process.transition[state][state] = states > 1 ? stay : 1;
  }
  require_process(process);
  return process;
}

AcceptanceProcess lengths_process(std::span<const double> shares) {
  double sum = 0;
  for (const double share : shares)
    sum += require_non_negative("share of a number of accepted tokens", share);
  if (!(sum > 0)) {
    throw Error({"shares of numbers of accepted tokens",
                 fmt::format("{} shares with the sum {}", shares.size(), sum), "at least one share above 0",
                 ""});
  }
  // P(more than i tokens | at least i tokens). The last entry is 0, so no round accepts more.
  std::vector<double> acceptance;
  double left = sum;
  for (const double share : shares) {
    const double more = std::max(0.0, left - share);
    acceptance.push_back(left > 0 ? more / left : 0);
    left = more;
  }
  acceptance.back() = 0;
  return positional_process(std::move(acceptance));
}

AcceptanceProcess minimum_variance_process(double mean) {
  require_range("mean number of accepted tokens", mean, 0, kMaxGamma);
  const double whole = std::floor(mean);
  std::vector<double> acceptance(static_cast<std::size_t>(whole), 1.0);
  acceptance.push_back(mean - whole);
  acceptance.push_back(0);
  return positional_process(std::move(acceptance));
}

std::vector<double> stationary_law(const AcceptanceProcess& process) {
  require_process(process);
  const std::size_t states = process.acceptance.size();
  // Power iteration on (1 + transition) / 2, which has the same fixed point and cannot oscillate.
  std::vector<double> law(states, 1.0 / static_cast<double>(states)), next(states);
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

std::vector<double> joint_acceptance(const AcceptanceProcess& process, int gamma) {
  require_gamma("gamma", gamma);
  const std::vector<double> law = stationary_law(process);
  std::vector<double> joint(static_cast<std::size_t>(gamma));
  for (std::size_t state = 0; state < law.size(); ++state) {
    double reached = law[state];
    for (int i = 0; i < gamma; ++i)
      joint[static_cast<std::size_t>(i)] += reached *= acceptance_at(process, state, i);
  }
  return joint;
}

std::vector<double> accepted_lengths(const AcceptanceProcess& process, int gamma) {
  std::vector<double> shares = joint_acceptance(process, gamma);
  shares.insert(shares.begin(), 1.0);
  for (std::size_t n = 0; n + 1 < shares.size(); ++n) shares[n] -= shares[n + 1];
  return shares;
}

RoundCounts counts_of_round(const AcceptanceProcess& process, int gamma) {
  require_gamma("gamma", gamma);
  const std::vector<double> law = stationary_law(process);
  RoundCounts counts;
  for (std::size_t state = 0; state < law.size(); ++state)
    counts.add(counts_in_state(process, state, gamma), law[state]);
  counts.emitted = counts.rounds + counts.accepted;
  return counts;
}

double exact_expected_tokens(const AcceptanceProcess& process, int gamma) {
  return 1 + counts_of_round(process, gamma).accepted;
}

double exact_alpha(const AcceptanceProcess& process, int gamma) {
  if (gamma < 1) throw Error({"gamma", fmt::format("{}", gamma), "at least 1", ""});
  return counts_of_round(process, gamma).alpha();
}

RoundCounts counts_of_text(const AcceptanceProcess& process, int gamma, int tokens) {
  require_gamma("gamma", gamma);
  if (tokens < 1) throw Error({"tokens of a text", fmt::format("{}", tokens), "at least 1", ""});
  const std::vector<double> law = stationary_law(process);
  const std::size_t states = law.size();
  RoundCounts counts;
  // begun[left][state]: expected number of rounds that begin there when `left` tokens are missing.
  std::vector<std::vector<double>> begun(static_cast<std::size_t>(tokens) + 1, std::vector<double>(states));
  begun.back() = law;
  for (int left = tokens; left > 0; --left) {
    for (std::size_t state = 0; state < states; ++state) {
      const double mass = begun[static_cast<std::size_t>(left)][state];
      if (mass == 0) continue;
      const int most = std::min(gamma, left);
      counts.add(counts_in_state(process, state, most), mass);
      double reached = mass;
      for (int n = 0; n <= most; ++n) {
        const double more = n < most ? reached * acceptance_at(process, state, n) : 0;
        // A round of n accepted tokens emits one more, unless the text ends before it.
        const auto after = static_cast<std::size_t>(std::max(0, left - n - 1));
        for (std::size_t to = 0; to < states; ++to)
          begun[after][to] += (reached - more) * process.transition[state][to];
        reached = more;
      }
    }
  }
  counts.emitted = tokens;
  return counts;
}

}  // namespace speclab::theory
