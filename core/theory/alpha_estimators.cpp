#include "core/theory/alpha_estimators.h"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "core/base/error.h"
#include "core/theory/chain.h"
#include "core/theory/domain.h"
#include "core/theory/step_costs.h"

namespace speclab::theory {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Sums over the rounds of one prompt. The ratio estimates are computed from these sums alone.
struct Sums {
  double rounds = 0, drafted = 0, accepted = 0, rejected = 0, emitted = 0, expected = 0, variance = 0;
  double tests() const { return accepted + rejected; }
  Sums& operator+=(const Sums& other) {
    rounds += other.rounds;
    drafted += other.drafted;
    accepted += other.accepted;
    rejected += other.rejected;
    emitted += other.emitted;
    expected += other.expected;
    variance += other.variance;
    return *this;
  }
};

void require_round(const Round& round) {
  const bool counts = round.drafted >= 0 && round.accepted >= 0 && round.emitted >= 0;
  const bool sums = round.expected_sum >= 0 && round.expected_sum <= round.tests() * (1 + 1e-6) &&
                    round.expected_variance >= 0;
  if (!counts || !sums || round.tests() > round.drafted || round.emitted > round.accepted + 1) {
    throw Error(
        {"round",
         fmt::format("{} drafted, {} accepted, {} rejected, {} emitted, expected sum {}", round.drafted,
                     round.accepted, round.rejected ? 1 : 0, round.emitted, round.expected_sum),
         "no number below 0, tests <= drafted, emitted <= accepted + 1, expected sum <= tests", ""});
  }
}

std::vector<Sums> sums_by_prompt(RunRounds run) {
  std::vector<Sums> sums(run.size());
  for (std::size_t i = 0; i < run.size(); ++i) {
    for (const Round& round : run[i]) {
      require_round(round);
      sums[i] += {1.0,
                  double(round.drafted),
                  double(round.accepted),
                  round.rejected ? 1.0 : 0.0,
                  double(round.emitted),
                  round.expected_sum,
                  round.expected_variance};
    }
  }
  return sums;
}

Sums total(const std::vector<Sums>& sums) {
  Sums all;
  for (const Sums& prompt : sums) all += prompt;
  return all;
}

using Part = double (*)(const Sums&);

std::optional<Estimate> ratio_of_sums(RunRounds run, Part numerator, Part denominator, bool proportion,
                                      const stats::BootstrapOptions& options) {
  const std::vector<Sums> sums = sums_by_prompt(run);
  const Sums all = total(sums);
  if (denominator(all) == 0) return std::nullopt;
  Estimate out;
  out.terms = denominator(all);
  out.value = numerator(all) / out.terms;
  if (proportion) out.wilson = stats::wilson_interval(numerator(all), out.terms, options.level);
  out.ci = stats::bootstrap_interval(
      run.size(),
      [&](std::span<const std::size_t> prompts) {
        double top = 0, bottom = 0;
        for (std::size_t prompt : prompts) {
          top += numerator(sums[prompt]);
          bottom += denominator(sums[prompt]);
        }
        return bottom > 0 ? top / bottom : kNaN;
      },
      options);
  return out;
}

double chi2_tail(double statistic, double degrees) {
  return boost::math::cdf(
      boost::math::complement(boost::math::chi_squared(degrees), std::max(0.0, statistic)));
}

/// count * ln(rate / reference), with its limit 0 at count = 0.
double relative_entropy_term(double count, double rate, double reference) {
  return count == 0 ? 0 : count * std::log(rate / reference);
}

}  // namespace

std::optional<Estimate> alpha_mle(RunRounds run, const stats::BootstrapOptions& options) {
  return ratio_of_sums(
      run, [](const Sums& s) { return s.accepted; }, [](const Sums& s) { return s.tests(); }, true, options);
}

std::optional<Estimate> alpha_min(RunRounds run, const stats::BootstrapOptions& options) {
  return ratio_of_sums(
      run, [](const Sums& s) { return s.expected; }, [](const Sums& s) { return s.tests(); }, false, options);
}

std::optional<Estimate> alpha_teacher_forced(std::span<const std::vector<double>> expected,
                                             const stats::BootstrapOptions& options) {
  std::vector<double> sums(expected.size()), counts(expected.size());
  Estimate out;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (double value : expected[i]) sums[i] += require_range("expected acceptance", value, 0, 1 + 1e-6);
    out.terms += counts[i] = static_cast<double>(expected[i].size());
  }
  const auto ratio = stats::ratio_of_sums(sums, counts, options);
  if (!ratio) return std::nullopt;
  out.value = ratio->value;
  out.ci = ratio->ci;
  return out;
}

std::optional<Agreement> estimators_agree(RunRounds run) {
  const Sums all = total(sums_by_prompt(run));
  if (all.tests() == 0) return std::nullopt;
  Agreement out;
  const double excess = all.accepted - all.expected;
  out.difference = excess / all.tests();
  // The probabilities of a row sum to 1 only up to about 1e-7, so a mean difference of up to 1e-6 per test
  // counts as equal.
  if (std::abs(excess) <= 1e-6 * all.tests()) return out;
  out.z = all.variance > 0 ? excess / std::sqrt(all.variance)
                           : std::copysign(std::numeric_limits<double>::infinity(), excess);
  out.p_value = std::isfinite(out.z)
                    ? 2 * boost::math::cdf(boost::math::complement(boost::math::normal(), std::abs(out.z)))
                    : 0;
  return out;
}

std::optional<Estimate> draft_utilization(RunRounds run, const stats::BootstrapOptions& options) {
  return ratio_of_sums(
      run, [](const Sums& s) { return s.accepted; }, [](const Sums& s) { return s.drafted; }, true, options);
}

double expected_draft_utilization(double alpha, int gamma) {
  if (gamma < 1)
    throw Error(
        {"gamma", fmt::format("{}", gamma), "at least 1", "Without a draft there is no utilization."});
  return (expected_tokens(alpha, gamma) - 1) / gamma;
}

double alpha_from_utilization(double utilization, int gamma) {
  if (gamma < 1)
    throw Error(
        {"gamma", fmt::format("{}", gamma), "at least 1", "Without a draft there is no utilization."});
  return *alpha_from_tokens(1 + require_probability("utilization", utilization) * gamma, gamma);
}

std::optional<Estimate> tokens_over_eq1(RunRounds run, const stats::BootstrapOptions& options) {
  const std::vector<Sums> sums = sums_by_prompt(run);
  std::vector<DraftLengths> lengths(run.size());  // [prompts][gamma]
  std::size_t longest = 0;
  for (std::size_t i = 0; i < run.size(); ++i) {
    lengths[i] = draft_length_counts(run.subspan(i, 1));
    longest = std::max(longest, lengths[i].size());
  }
  auto ratio = [&](std::span<const std::size_t> prompts) {
    Sums all;
    DraftLengths counts(longest);
    for (std::size_t prompt : prompts) {
      all += sums[prompt];
      for (std::size_t g = 0; g < lengths[prompt].size(); ++g) counts[g] += lengths[prompt][g];
    }
    if (all.tests() == 0) return kNaN;
    return all.emitted / all.rounds / mixture_expected_tokens(all.accepted / all.tests(), counts);
  };
  std::vector<std::size_t> every(run.size());
  for (std::size_t i = 0; i < every.size(); ++i) every[i] = i;
  Estimate out;
  out.value = ratio(every);
  out.terms = total(sums).rounds;
  if (!std::isfinite(out.value)) return std::nullopt;
  out.ci = stats::bootstrap_interval(run.size(), ratio, options);
  return out;
}

std::vector<PositionAcceptance> acceptance_by_position(RunRounds run) {
  std::vector<PositionAcceptance> out;
  for (const PromptRounds& prompt : run) {
    for (const Round& round : prompt) {
      require_round(round);
      if (out.size() < static_cast<std::size_t>(round.tests())) out.resize(round.tests());
      for (int i = 0; i < round.accepted; ++i) out[i].accepted += 1;
      if (round.rejected) out[round.accepted].rejected += 1;
    }
  }
  double joint = 1;
  for (PositionAcceptance& at : out) {
    at.acceptance = at.accepted / (at.accepted + at.rejected);
    at.joint = joint *= at.acceptance;
    at.wilson = stats::wilson_interval(at.accepted, at.accepted + at.rejected);
  }
  return out;
}

std::vector<std::int64_t> accepted_histogram(RunRounds run) {
  std::vector<std::int64_t> counts;
  for (const PromptRounds& prompt : run) {
    for (const Round& round : prompt) {
      require_round(round);
      if (counts.size() <= static_cast<std::size_t>(round.accepted)) counts.resize(round.accepted + 1);
      counts[round.accepted] += 1;
    }
  }
  return counts;
}

std::vector<double> draft_length_counts(RunRounds run) {
  std::vector<double> counts;
  for (const PromptRounds& prompt : run) {
    for (const Round& round : prompt) {
      require_round(round);
      if (counts.size() <= static_cast<std::size_t>(round.drafted)) counts.resize(round.drafted + 1);
      counts[round.drafted] += 1;
    }
  }
  return counts;
}

std::optional<Test> iid_position_test(RunRounds run) {
  const std::vector<PositionAcceptance> positions = acceptance_by_position(run);
  if (positions.size() < 2) return std::nullopt;
  double accepted = 0, rejected = 0;
  for (const auto& at : positions) {
    accepted += at.accepted;
    rejected += at.rejected;
  }
  const double alpha = accepted / (accepted + rejected);
  Test test;
  test.degrees = positions.size() - 1.0;
  for (const auto& at : positions) {
    test.statistic += 2 * (relative_entropy_term(at.accepted, at.acceptance, alpha) +
                           relative_entropy_term(at.rejected, 1 - at.acceptance, 1 - alpha));
  }
  test.p_value = chi2_tail(test.statistic, test.degrees);
  return test;
}

std::optional<SerialCorrelation> serial_correlation(RunRounds run, int lags) {
  if (lags < 1) throw Error({"lags", fmt::format("{}", lags), "at least 1", ""});
  std::vector<double> products(lags + 1), pairs(lags + 1), bias(lags + 1);
  double rounds = 0, freedom = 0;
  for (const PromptRounds& prompt : run) {
    const std::size_t n = prompt.size();
    if (n < 2) continue;
    double mean = 0;
    for (const Round& round : prompt) mean += double(round.accepted) / n;
    rounds += n;
    freedom += n - 1.0;
    for (std::size_t k = 0; k <= static_cast<std::size_t>(lags) && k < n; ++k) {
      for (std::size_t i = 0; i + k < n; ++i)
        products[k] += (prompt[i].accepted - mean) * (prompt[i + k].accepted - mean);
      pairs[k] += n - k;
      // If rounds are independent, subtracting their mean gives each product the expectation -variance / n.
      bias[k] -= (n - k) / double(n);
    }
  }
  if (products[0] <= 0 || pairs[lags] == 0) return std::nullopt;
  SerialCorrelation out;
  out.ljung_box.degrees = lags;
  for (int k = 1; k <= lags; ++k) {
    const double rho = products[k] / products[0] - bias[k] / freedom;
    if (k == 1) out.lag1 = rho;
    out.ljung_box.statistic += rounds * (rounds + 2) * rho * rho / pairs[k];
  }
  out.ljung_box.p_value = chi2_tail(out.ljung_box.statistic, lags);
  return out;
}

std::optional<AlphaDrift> alpha_drift(RunRounds run) {
  constexpr std::size_t kThirds = 3;
  std::array<double, kThirds> accepted = {}, tests = {};  // over all prompts
  std::array<double, 2> excess = {};                      // of the first two thirds; the third follows
  double variance[2] = {}, covariance = 0;
  for (const PromptRounds& prompt : run) {
    std::array<double, kThirds> passed = {}, tested = {};
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      require_round(prompt[i]);
      const std::size_t third = kThirds * i / prompt.size();
      passed[third] += prompt[i].accepted;
      tested[third] += prompt[i].tests();
    }
    double all_passed = 0, all = 0;
    for (std::size_t t = 0; t < kThirds; ++t) {
      accepted[t] += passed[t], tests[t] += tested[t];
      all_passed += passed[t], all += tested[t];
    }
    if (all < 2) continue;
    const double alpha = all_passed / all, spread = alpha * (1 - alpha) * all / (all - 1);
    for (std::size_t t = 0; t < 2; ++t) {
      excess[t] += passed[t] - tested[t] * alpha;
      variance[t] += spread * tested[t] * (1 - tested[t] / all);
    }
    covariance -= spread * tested[0] * tested[1] / all;
  }
  const double product = variance[0] * variance[1], determinant = product - covariance * covariance;
  if (!(determinant > 1e-9 * product)) return std::nullopt;  // 0 up to rounding
  AlphaDrift out;
  for (std::size_t t = 0; t < kThirds; ++t) out.alpha[t] = accepted[t] / tests[t];
  out.chi2.degrees = 2;
  out.chi2.statistic = (excess[0] * excess[0] * variance[1] - 2 * excess[0] * excess[1] * covariance +
                        excess[1] * excess[1] * variance[0]) /
                       determinant;
  out.chi2.p_value = chi2_tail(out.chi2.statistic, out.chi2.degrees);
  return out;
}

std::optional<Dispersion> prompt_dispersion(RunRounds run) {
  const std::vector<Sums> sums = sums_by_prompt(run);
  const Sums all = total(sums);
  const double alpha = all.tests() > 0 ? all.accepted / all.tests() : 0;
  Dispersion out;
  for (const Sums& prompt : sums) {
    if (prompt.tests() == 0) continue;
    const double excess = prompt.accepted - prompt.tests() * alpha;
    out.chi2.statistic += excess * excess / (prompt.tests() * alpha * (1 - alpha));
    out.chi2.degrees += 1;
  }
  out.chi2.degrees -= 1;
  if (out.chi2.degrees < 1 || alpha == 0 || alpha == 1) return std::nullopt;
  out.factor = out.chi2.statistic / out.chi2.degrees;
  out.chi2.p_value = chi2_tail(out.chi2.statistic, out.chi2.degrees);
  return out;
}

}  // namespace speclab::theory
