#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/measure/rounds.h"
#include "core/measure/stats.h"

/// Estimates acceptance from the rounds (steps) of a run of chain drafts, and tests the i.i.d. assumption of
/// Leviathan et al. 2023. Rounds of one prompt depend on each other, so every estimate carries a bootstrap
/// interval over prompts beside the textbook interval.
namespace speclab::theory {

/// A run, one entry per prompt. Give only one of several repeats: repeats reuse the coins and add no data.
using RunRounds = std::span<const PromptRounds>;  // [prompts][rounds]

/// A ratio of sums over a run: its value, its number of terms, and its intervals. Functions return none when
/// there are no terms.
struct Estimate {
  double value = 0;
  double terms = 0;                       ///< denominator: tests, drafted tokens, steps
  std::optional<stats::Interval> wilson;  ///< only for proportions; takes all tests as independent
  std::optional<stats::Interval> ci;      ///< bootstrap over prompts: the interval to report
};

/// alpha by maximum likelihood, for a geometric law that is censored at any mixture of gammas: A / (A + R)
/// with A = accepted tests and R = rejections. Standard error about sqrt(alpha (1 - alpha) / (A + R)).
std::optional<Estimate> alpha_mle(RunRounds run, const stats::BootstrapOptions& options = {});

/// alpha_min: mean of the rule's expected acceptance at tested positions. It estimates the same number as
/// alpha_mle with less noise (Rao-Blackwell).
std::optional<Estimate> alpha_min(RunRounds run, const stats::BootstrapOptions& options = {});

/// alpha teacher-forced: mean of the rule's expected acceptance over every position of text that the target
/// wrote, [prompts] [positions]. This is Leviathan's alpha = E[beta] over the target's prefixes. alpha_mle
/// sees only tested positions, which are another population.
std::optional<Estimate> alpha_teacher_forced(std::span<const std::vector<double>> expected,
                                             const stats::BootstrapOptions& options = {});

/// Tests whether alpha_mle and alpha_min agree: a strong check of rule, rows and bookkeeping.
/// For any prefixes, the sum over tests of (accepted - expected) has mean 0 and variance sum
/// expected (1 - expected). z ~ N(0, 1).
struct Agreement {
  double difference = 0;  ///< alpha_mle - alpha_min
  double z = 0;           ///< infinite when there is a difference although no test was random
  double p_value = 1;     ///< two-sided
};
std::optional<Agreement> estimators_agree(RunRounds run);

/// Accepted / drafted; llama.cpp and vLLM call it acceptance rate. As an estimate of alpha it is too low,
/// because drafted tokens after a rejection count as not accepted. Its expectation is alpha (1 - alpha^gamma)
/// / (gamma (1 - alpha)).
std::optional<Estimate> draft_utilization(RunRounds run, const stats::BootstrapOptions& options = {});
double expected_draft_utilization(double alpha, int gamma);

/// Converts a draft utilization at one gamma >= 1 to the alpha of Eq. 1, for
/// acceptance rates of other engines.
double alpha_from_utilization(double utilization, int gamma);

/// tau: emitted tokens per step over all steps, also those without a draft.
std::optional<Estimate> tokens_per_step(RunRounds run, const stats::BootstrapOptions& options = {});

/// Measured tau / mean over steps of Eq. 1 at alpha_mle and the step's own gamma. It is 1 for i.i.d.
/// acceptance, above 1 when acceptance falls along the draft, and below 1 when it rises. Acceptance rises
/// when easy and hard rounds alternate, because only easy rounds get far. (Compared with alpha
/// teacher-forced, the mean over prefixes, such runs are above 1 by Jensen's inequality. The two alphas
/// differ because easy rounds are tested more often.) Absent without tests.
std::optional<Estimate> tokens_over_eq1(RunRounds run, const stats::BootstrapOptions& options = {});

/// Acceptance by position in the draft. Entry [i] belongs to drafted token i + 1; the last entry is the last
/// position that was tested.
struct PositionAcceptance {
  double accepted = 0, rejected = 0;
  double acceptance = 0;                  ///< P(accept | tested), the record's acceptance_at
  double joint = 0;                       ///< running product of acceptance, the record's joint_at
  std::optional<stats::Interval> wilson;  ///< interval of `acceptance`
};
std::vector<PositionAcceptance> acceptance_by_position(RunRounds run);

/// Number of steps by accepted tokens, [0 .. longest].
std::vector<std::int64_t> accepted_histogram(RunRounds run);

/// Number of steps by draft length, [0 .. longest]; the input of mixture_expected_tokens.
std::vector<double> draft_length_counts(RunRounds run);

struct Test {
  double statistic = 0;
  double degrees = 0;  ///< degrees of freedom of the chi-squared law under the null hypothesis
  double p_value = 1;
};

/// Tests whether alpha is the same at every position: G2 = 2 sum_i [A_i ln(a_i / a) + R_i ln((1 -
/// a_i) / (1 - a))] ~ chi2 with (positions - 1) degrees. Takes all tests as independent. Absent with
/// fewer than two tested positions.
std::optional<Test> iid_position_test(RunRounds run);

/// Tests whether neighbouring steps of a prompt resemble each other: autocorrelation of the accepted count,
/// pooled over prompts. Each prompt is centred on its own mean, so that easy and hard prompts are not
/// mistaken for correlation; the bias -1/n of the centring is removed. Meant for runs with one gamma, because
/// a schedule alone correlates the counts.
struct SerialCorrelation {
  double lag1 = 0;
  Test ljung_box;  ///< N (N + 2) sum_k rho_k^2 / (pairs at lag k) ~ chi2 with `lags` degrees (Ljung and Box
                   ///< 1978)
};
std::optional<SerialCorrelation> serial_correlation(RunRounds run, int lags = 5);

/// Tests whether prompts differ in alpha beyond chance: chi2 = sum over prompts of (A_p - n_p a)^2 /
/// (n_p a (1 - a)) with (prompts - 1) degrees. factor = chi2 / degrees is 1 under the null
/// hypothesis. Absent when alpha is 0 or 1.
struct Dispersion {
  double factor = 1;
  Test chi2;
};
std::optional<Dispersion> prompt_dispersion(RunRounds run);

}  // namespace speclab::theory
