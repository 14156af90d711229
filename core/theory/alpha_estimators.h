#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/measure/rounds.h"
#include "core/measure/stats.h"

/// Estimates acceptance from the rounds (steps) of a run of chain drafts, and tests the i.i.d. assumption of
/// Leviathan et al. 2023. Rounds of one prompt depend on each other, so an Estimate has a bootstrap interval
/// over prompts. Proportions also have the textbook (Wilson) interval. An acceptance test is one decision of
/// the rule about a drafted token.
namespace speclab::theory {

/// The rounds of a run, [prompts][rounds]. If a run has several repeats, pass only one of them: repeats reuse
/// the coins and add no data.
using RunRounds = std::span<const PromptRounds>;

/// An estimate from sums over a run, with intervals. The functions that return an Estimate return nothing
/// when there are no terms.
struct Estimate {
  double value = 0;
  double terms = 0;  ///< number of acceptance tests, positions, drafted tokens or steps behind the value
  std::optional<stats::Interval> wilson;  ///< only for proportions; assumes independent acceptance tests
  std::optional<stats::Interval> ci;      ///< bootstrap over prompts: the interval to report
};

/// The maximum-likelihood estimate of alpha: A / (A + R) with A = accepted tokens and R = rejections. The
/// number of accepted tokens of a step is taken as geometric and censored at the step's gamma; gammas may
/// differ between steps. The standard error is about sqrt(alpha (1 - alpha) / (A + R)).
std::optional<Estimate> alpha_mle(RunRounds run, const stats::BootstrapOptions& options = {});

/// alpha_min is the mean of the rule's expected acceptance at tested positions. It estimates the same number
/// as alpha_mle with less noise (Rao-Blackwell).
std::optional<Estimate> alpha_min(RunRounds run, const stats::BootstrapOptions& options = {});

/// Teacher-forced alpha: the mean of the rule's expected acceptance over every position of texts that the
/// target wrote. `expected` is [prompts][positions]. This is Leviathan's alpha = E[beta] over the target's
/// prefixes. alpha_mle sees only tested positions, and these are not a fair sample of all positions.
std::optional<Estimate> alpha_teacher_forced(std::span<const std::vector<double>> expected,
                                             const stats::BootstrapOptions& options = {});

/// Tests whether alpha_mle and alpha_min agree. This is a strong check of the rule, the rows and the
/// bookkeeping. For each acceptance test let a be 1 if the token is accepted and 0 otherwise, and e the
/// expected acceptance. Whatever the prefixes are, the sum of (a - e) over all acceptance tests has mean 0,
/// and its variance is the sum of e (1 - e). So z, this sum divided by its standard deviation, is
/// approximately distributed like N(0, 1).
struct Agreement {
  double difference = 0;  ///< alpha_mle - alpha_min
  double z = 0;           ///< infinite if the two differ although no acceptance test was random
  double p_value = 1;     ///< two-sided
};
std::optional<Agreement> estimators_agree(RunRounds run);

/// Accepted / drafted tokens. llama.cpp and vLLM call it acceptance rate. As an estimate of alpha it is too
/// low, because drafted tokens after a rejection count as not accepted. Its expectation is alpha (1 -
/// alpha^gamma) / (gamma (1 - alpha)).
std::optional<Estimate> draft_utilization(RunRounds run, const stats::BootstrapOptions& options = {});
double expected_draft_utilization(double alpha, int gamma);

/// Returns the alpha of Eq. 1 for a draft utilization that was measured with one gamma >= 1. Use it to
/// convert the acceptance rates of other engines.
double alpha_from_utilization(double utilization, int gamma);

/// Measured tau / predicted tau. The prediction is the mean over steps of Eq. 1 at alpha_mle and the step's
/// own gamma. The ratio is 1 for i.i.d. acceptance, above 1 when acceptance falls along the draft, and below
/// 1 when it rises. Acceptance rises along the draft when a run has easy and hard rounds, because only easy
/// rounds get far. (If Eq. 1 took the teacher-forced alpha instead, which is the mean over prefixes, the
/// ratio of such runs would be above 1 by Jensen's inequality. The two alphas differ because easy rounds are
/// tested more often.) Absent if no token was tested.
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

/// Entry [n] is the number of steps with n accepted tokens.
std::vector<std::int64_t> accepted_histogram(RunRounds run);

/// Entry [g] is the number of steps with g drafted tokens. mixture_expected_tokens takes it as input.
std::vector<double> draft_length_counts(RunRounds run);

/// The result of a chi-squared test.
struct Test {
  double statistic = 0;
  double degrees = 0;  ///< degrees of freedom of the chi-squared law under the null hypothesis
  double p_value = 1;
};

/// Tests whether alpha is the same at every position: G2 = 2 sum_i [A_i ln(a_i / a) + R_i ln((1 - a_i) / (1 -
/// a))] ~ chi2 with (positions - 1) degrees. Position i has A_i acceptances, R_i rejections and a_i = A_i /
/// (A_i + R_i); a is the same ratio over all positions. The test assumes that all acceptance tests are
/// independent. Absent with fewer than two tested positions.
std::optional<Test> iid_position_test(RunRounds run);

/// Tests whether neighbouring steps of a prompt resemble each other. It computes the autocorrelation of the
/// number of accepted tokens per step, pooled over prompts. The mean of each prompt is subtracted first, so
/// that differences between easy and hard prompts do not look like correlation. This subtraction adds a bias
/// of -1/n for a prompt of n steps, and this bias is removed. Use the test for runs with one gamma, because a
/// schedule by itself correlates the numbers of accepted tokens. Absent if no prompt has more than `lags`
/// steps, or if within each prompt all steps accept the same number of tokens.
struct SerialCorrelation {
  double lag1 = 0;
  /// N (N + 2) sum_k rho_k^2 / m_k ~ chi2 with `lags` degrees, where N is the number of steps, rho_k the
  /// autocorrelation at lag k, and m_k the number of pairs of steps at lag k (Ljung and Box 1978).
  Test ljung_box;
};
std::optional<SerialCorrelation> serial_correlation(RunRounds run, int lags = 5);

/// Tests whether alpha is the same along a text. It compares the first, the middle and the last third of the
/// steps of each prompt. Only comparisons within a prompt count, so easy and hard prompts do not look like a
/// drift. Prompt p has n_pt tested tokens in third t, and a_pt of them are accepted; n_p and a_p are the sums
/// over the thirds. D_t = sum_p (a_pt - n_pt a_p / n_p) is the number of accepted tokens that third t has
/// above its expected share, summed over prompts. If within each prompt the acceptances are spread at random,
/// D has mean 0 and the covariance of hypergeometric draws, sum_p n_p / (n_p - 1) (a_p / n_p) (1 - a_p / n_p)
/// n_pt ([t = u] - n_pu / n_p). Then D' (covariance)^-1 D of two thirds is ~ chi2 with 2 degrees (the test of
/// Cochran, Mantel and Haenszel, prompts as strata). The test finds a drift that most prompts share. Drifts
/// that go up in one prompt and down in another cancel. Only prompts with both accepted and rejected tokens
/// tell something about a drift. Absent if, for some third, no such prompt has tested tokens both in this
/// third and in another one.
struct AlphaDrift {
  std::array<double, 3> alpha = {};  ///< accepted / tested tokens in each third, over all prompts
  Test chi2;
};
std::optional<AlphaDrift> alpha_drift(RunRounds run);

/// Tests whether prompts differ in alpha by more than chance: chi2 = sum over prompts of (A_p - n_p a)^2 /
/// (n_p a (1 - a)) with (prompts - 1) degrees. Prompt p has n_p tested tokens, A_p of them accepted; a is
/// alpha over all prompts. factor = chi2 / degrees is about 1 under the null hypothesis. Absent when alpha is
/// 0 or 1, and with fewer than two prompts that have tested tokens.
struct Dispersion {
  double factor = 1;
  Test chi2;
};
std::optional<Dispersion> prompt_dispersion(RunRounds run);

}  // namespace speclab::theory
