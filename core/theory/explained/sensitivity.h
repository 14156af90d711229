#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/theory/predictions.h"
#include "core/theory/step_costs.h"
#include "core/theory/tree_search.h"

/// Says what a case would gain if one of its quantities were better: the acceptance, the cost of the draft,
/// the cost of additional rows, or the cost of everything else. Each what-if changes one quantity of the
/// calibrated step and leaves the others, the drafts among them, as they are.
namespace speclab::theory {

/// By how much the acceptance grows in the what-if "alpha + .05".
inline constexpr double kMoreAlpha = 0.05;

/// How the tokens of a step grow if the acceptance grows by kMoreAlpha. A law gives E[tau] at both
/// acceptances. Only the ratio of these two numbers is used, so the what-if keeps the measured distance from
/// the law.
struct TokenGain {
  double factor = 1;        ///< E[tau] at the larger acceptance / E[tau] at the measured one, at least 1
  double most = 1;          ///< mean over steps of the tokens emitted if the deepest path is accepted
  std::string tokens;       ///< tau' of the what-if as a formula
  std::string assumptions;  ///< of the law
};

/// The gain of chains, by Eq. 1 of Leviathan et al. 2023 at alpha and at min(1, alpha + .05). Both E[tau] are
/// means over the draft lengths that occurred. Throws Error for alpha outside [0, 1] and without steps.
TokenGain chain_gain(double alpha, const DraftLengths& lengths);

/// The gain of trees, by the mean of tree_expected_tokens over the drafted trees of all steps. The
/// probability that one of a node's children is accepted grows by .05, to at most 1. It is divided among the
/// children as before; if it was 0, equally. If all drafts are chains and every token has the same
/// probability p, this is chain_gain() at alpha = p. Throws Error without trees, and for a parent that does
/// not come before its child.
TokenGain tree_gain(std::span<const RankedTree> trees, const RankAcceptance& acceptance);

/// What the what-ifs of a case start from. All times are in one unit.
struct SensitivityInput {
  double tau = 0;                 ///< measured tokens per step
  StepTimes step;                 ///< calibrated_step() or calibrated_rows_step()
  double one_row = 0;             ///< t(1), time of a target forward over one row
  double accept_row = 0;          ///< Calibration::accept_row
  std::optional<TokenGain> gain;  ///< absent if no drafted token was tested
};

/// Computes the speedup of the calibrated step and that of each what-if, in this order:
/// - measured_costs, the case's own prediction: tau t_ar / (draft + target + accept + other)
/// - what_if_more_alpha: tau' replaces tau (TokenGain). tau' is at most max(tau, TokenGain::most). The
///   rule reads tau' rows. Left out without a gain.
/// - what_if_half_c: drafting takes half of its time
/// - what_if_flat_t: t(n) = t(1), so the target's forward takes t(1)
/// - what_if_no_overhead: nothing but drafting and the target's forward takes time, in the case and in its
///   reference: tau t(1) / (draft + target)
/// For i.i.d. acceptance, gamma drafted tokens in every step, draft time gamma c t(1), and no other costs,
/// the first three what-ifs are Theorem 3.8 of Leviathan et al. 2023 (walltime_improvement) at alpha + .05,
/// at c / 2, and with t_verify = 1. The kind is "prediction" for measured_costs and "what_if" for the others.
/// Throws Error like measured_cost_speedup(), and for t(1) <= 0.
std::vector<Prediction> sensitivity(const SensitivityInput& input);

/// Returns a table of the result of sensitivity() for people, without a trailing newline.
std::string sensitivity_text(std::span<const Prediction> what_ifs);

}  // namespace speclab::theory
