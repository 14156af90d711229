#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/measure/rounds.h"
#include "core/measure/stats.h"

/// Estimates of acceptance from the rounds (steps) of a run of chain drafts, and tests of the i.i.d.
/// assumption of Leviathan et al. 2023. Rounds of one prompt depend on each other, so every estimate carries
/// a bootstrap interval over prompts beside the textbook one.
namespace speclab::theory {

/// A run, one entry per prompt. Of several repeats give one: they reuse the coins and hold nothing new.
using RunRounds = std::span<const PromptRounds>;  // [prompts][rounds]

/// A ratio of sums over a run: value, its number of terms, and intervals. Absent as a whole when there are no
/// terms.
struct Estimate {
  double value = 0;
  double terms = 0;                       ///< denominator: tests, drafted tokens, steps
  std::optional<stats::Interval> wilson;  ///< proportions only: as if all tests were independent
  std::optional<stats::Interval> ci;      ///< bootstrap over prompts: the interval to report
};

/// alpha: maximum likelihood for a geometric law censored at any mixture of gammas, A / (A + R) with A =
/// accepted tests and R = rejections. Standard error about sqrt(alpha (1 - alpha) / (A + R)).
std::optional<Estimate> alpha_mle(RunRounds run, const stats::BootstrapOptions& options = {});

/// alpha_min: mean of the rule's expected acceptance at tested positions. Estimates the same
/// number with less noise (Rao-Blackwell).
std::optional<Estimate> alpha_min(RunRounds run, const stats::BootstrapOptions& options = {});

/// alpha teacher-forced: mean of the rule's expected acceptance over every position of target-written text,
/// [prompts] [positions]: Leviathan's alpha = E[beta] over the target's prefixes. A different population from
/// alpha_mle, which sees only tested positions.
std::optional<Estimate> alpha_teacher_forced(std::span<const std::vector<double>> expected,
                                             const stats::BootstrapOptions& options = {});

/// Do the first two agree? sum over tests of (accepted - expected) has mean 0 whatever the prefixes are, and
/// variance sum expected (1 - expected): a strong check of rule, rows and bookkeeping. z ~ N(0, 1).
struct Agreement {
  double difference = 0;  ///< alpha_mle - alpha_min
  double z = 0;           ///< infinite when a difference remains although no test was random
  double p_value = 1;     ///< two-sided
};
std::optional<Agreement> estimators_agree(RunRounds run);

/// Accepted / drafted: what llama.cpp and vLLM call acceptance rate. Biased low as an estimate of alpha,
/// because drafts behind a rejection count as not accepted: expectation alpha (1 - alpha^gamma) / (gamma (1 -
/// alpha)).
std::optional<Estimate> draft_utilization(RunRounds run, const stats::BootstrapOptions& options = {});
double expected_draft_utilization(double alpha, int gamma);

/// The alpha of Eq. 1 behind a draft utilization at one gamma >= 1: reads other engines' acceptance rates.
double alpha_from_utilization(double utilization, int gamma);

/// tau: emitted tokens per step, all steps (also those without a draft).
std::optional<Estimate> tokens_per_step(RunRounds run, const stats::BootstrapOptions& options = {});

/// Measured tau / mean over steps of Eq. 1 at alpha_mle and the step's own gamma. 1 for i.i.d. acceptance;
/// above 1 when acceptance falls along the draft; below 1 when it rises, which it does where easy and hard
/// rounds alternate, since only easy rounds get far. (Against the *mean* over prefixes, alpha teacher-forced,
/// such runs are above 1: Jensen. The two alphas differ because easy rounds are tested more often.) Absent
/// without tests.
std::optional<Estimate> tokens_over_eq1(RunRounds run, const stats::BootstrapOptions& options = {});

/// Acceptance by position in the draft: [i] belongs to drafted token i + 1; positions up to the last tested
/// one.
struct PositionAcceptance {
  double accepted = 0, rejected = 0;
  double acceptance = 0;                  ///< acceptance_at: P(accept | tested)
  double joint = 0;                       ///< joint_at: running product of acceptance
  std::optional<stats::Interval> wilson;  ///< of acceptance
};
std::vector<PositionAcceptance> acceptance_by_position(RunRounds run);

/// Steps by number of accepted tokens, [0 .. longest].
std::vector<std::int64_t> accepted_histogram(RunRounds run);

/// Steps by draft length, [0 .. longest]; feeds mixture_expected_tokens.
std::vector<double> draft_length_counts(RunRounds run);

struct Test {
  double statistic = 0;
  double degrees = 0;  ///< of the chi-squared law under the null hypothesis
  double p_value = 1;
};

/// Is alpha the same at every position? G2 = 2 sum_i [A_i ln(a_i / a) + R_i ln((1 - a_i) / (1 - a))] ~ chi2
/// with (positions - 1) degrees. Absent with fewer than two tested positions. Takes all tests as independent.
std::optional<Test> iid_position_test(RunRounds run);

/// Do neighbouring steps of a prompt resemble each other? Autocorrelation of the accepted count, pooled over
/// prompts; each prompt is centred on its own mean and the bias -1/n of that is taken out, so that prompts of
/// different ease are not mistaken for correlation. Meant for runs with one gamma: a schedule correlates
/// counts by itself.
struct SerialCorrelation {
  double lag1 = 0;
  Test ljung_box;  ///< N (N + 2) sum_k rho_k^2 / (pairs at lag k) ~ chi2 with `lags` degrees (Ljung and Box
                   ///< 1978)
};
std::optional<SerialCorrelation> serial_correlation(RunRounds run, int lags = 5);

/// Do prompts differ in alpha beyond chance? chi2 = sum over prompts of (A_p - n_p a)^2 / (n_p a (1 - a))
/// with (prompts - 1) degrees; factor = chi2 / degrees is 1 under the null hypothesis. Absent when alpha is 0
/// or 1.
struct Dispersion {
  double factor = 1;
  Test chi2;
};
std::optional<Dispersion> prompt_dispersion(RunRounds run);

}  // namespace speclab::theory
