#include "core/theory/processes/prompt_process.h"

#include <algorithm>
#include <boost/math/quadrature/tanh_sinh.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

double inside_unit_interval(const char* what, double value) {
  if (value > 0 && value < 1) return value;
  throw Error({what, fmt::format("{}", value), "a number between 0 and 1, without the ends", ""});
}

}  // namespace

PromptProcess::PromptProcess(std::variant<Beta, Mixture> effect)
    : effect_(std::move(effect)), most_gamma_(kMaxGamma) {}

PromptProcess::PromptProcess(AcceptanceProcess process) : most_gamma_(kMaxGamma) {
  require_process(process);
  Mixture one;
  one.parts.push_back(std::move(process));
  one.weights.push_back(1);
  effect_ = std::move(one);
}

PromptProcess PromptProcess::beta(double mean, double correlation) {
  inside_unit_interval("mean of alpha", mean);
  const double sum = 1 / inside_unit_interval("correlation of a prompt's tests", correlation) - 1;
  return PromptProcess(std::variant<Beta, Mixture>(Beta{mean * sum, (1 - mean) * sum}));
}

PromptProcess PromptProcess::mixture(std::vector<AcceptanceProcess> parts, std::vector<double> weights) {
  if (weights.empty()) weights.assign(parts.size(), 1.0);
  double sum = 0;
  for (const double weight : weights) sum += require_non_negative("weight of a process", weight);
  if (parts.empty() || weights.size() != parts.size() || !(sum > 0)) {
    throw Error(
        {"mixture of processes",
         fmt::format("{} processes and {} weights with the sum {}", parts.size(), weights.size(), sum),
         "as many weights as processes, with a sum above 0", ""});
  }
  for (const AcceptanceProcess& part : parts) require_process(part);
  for (double& weight : weights) weight /= sum;
  return PromptProcess(std::variant<Beta, Mixture>(Mixture{std::move(parts), std::move(weights)}));
}

PromptProcess PromptProcess::recorded(std::span<const PromptRounds> run) {
  int gamma = 0;
  for (const PromptRounds& prompt : run) {
    for (const Round& round : prompt) gamma = std::max(gamma, round.drafted);
  }
  std::vector<AcceptanceProcess> parts;
  for (const PromptRounds& prompt : run) {
    std::vector<double> shares(static_cast<std::size_t>(gamma) + 1);
    bool any = false;
    for (const Round& round : prompt) {
      const bool cut = round.emitted != round.accepted + 1;
      if (round.drafted != gamma || cut || round.accepted < 0 || round.accepted > gamma) continue;
      ++shares[static_cast<std::size_t>(round.accepted)];
      any = true;
    }
    if (any) parts.push_back(lengths_process(shares));
  }
  if (gamma < 1 || parts.empty()) {
    throw Error({"recorded rounds",
                 fmt::format("{} prompts, the longest draft has {} tokens", run.size(), gamma),
                 "at least one whole round with a draft", "Take a case that drafts chains."});
  }
  PromptProcess process = mixture(std::move(parts));
  process.most_gamma_ = gamma;
  return process;
}

int PromptProcess::checked(int gamma) const {
  require_gamma("gamma", gamma);
  if (gamma <= most_gamma_) return gamma;
  throw Error({"gamma", fmt::format("{}", gamma),
               fmt::format("at most {}, as in the recorded run", most_gamma_),
               "The rounds do not show what happens to longer drafts."});
}

AcceptanceProcess PromptProcess::draw(double u) const {
  if (const Beta* beta = std::get_if<Beta>(&effect_))
    return iid_process(std::clamp(boost::math::ibeta_inv(beta->a, beta->b, u), 0.0, 1.0));
  const Mixture& mixture = std::get<Mixture>(effect_);
  std::size_t part = 0;
  while (part + 1 < mixture.parts.size() && (u -= mixture.weights[part]) >= 0) ++part;
  return mixture.parts[part];
}

RoundCounts PromptProcess::of_round(int gamma) const {
  checked(gamma);
  RoundCounts counts;
  if (const Beta* beta = std::get_if<Beta>(&effect_)) {
    counts.rounds = 1;
    double moment = 1;  // E[alpha^i]
    for (int i = 0; i < gamma; ++i) {
      counts.tests += moment;
      counts.accepted += moment *= (beta->a + i) / (beta->a + beta->b + i);
    }
    counts.emitted = 1 + counts.accepted;
    return counts;
  }
  const Mixture& mixture = std::get<Mixture>(effect_);
  for (std::size_t i = 0; i < mixture.parts.size(); ++i)
    counts.add(counts_of_round(mixture.parts[i], gamma), mixture.weights[i]);
  return counts;
}

RoundCounts PromptProcess::of_text(int gamma, int tokens) const {
  checked(gamma);
  RoundCounts counts;
  if (std::holds_alternative<Beta>(effect_)) {
    // Integrates over u and not over alpha, because the density of the beta law may be infinite at the ends.
    // u is kept kEnd away from 0 and 1; the share of these ends is negligible.
    constexpr double kEnd = 1e-12;
    boost::math::quadrature::tanh_sinh<double> integrator;
    const auto mean = [&](double RoundCounts::* field) {
      return integrator.integrate(
          [&](double u) { return counts_of_text(draw(std::clamp(u, kEnd, 1 - kEnd)), gamma, tokens).*field; },
          0.0, 1.0, 1e-9);
    };
    counts.rounds = mean(&RoundCounts::rounds);
    counts.tests = mean(&RoundCounts::tests);
    counts.accepted = mean(&RoundCounts::accepted);
    counts.emitted = tokens;
    return counts;
  }
  const Mixture& mixture = std::get<Mixture>(effect_);
  for (std::size_t i = 0; i < mixture.parts.size(); ++i)
    counts.add(counts_of_text(mixture.parts[i], gamma, tokens), mixture.weights[i]);
  return counts;
}

}  // namespace speclab::theory
