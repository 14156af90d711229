#pragma once

#include <string>
#include <string_view>

#include "core/decoding/rules/accept.h"
#include "experiments/metrics/run_data.h"

namespace speclab {

/// How certain a prediction of a replay is. Every prediction names one of these.
enum class Certainty {
  exact,        ///< tau equals the tau of a real run of the same texts, token by token
  expectation,  ///< tau is an unbiased estimate of the mean over texts that are sampled anew
  fitted,       ///< tau comes from a law with parameters that were fitted to measured cases
};
std::string_view to_string(Certainty certainty);  ///< "exact", "expectation", "fitted"

/// What a prediction of this kind assumes, as sentences for people. Empty for exact predictions.
/// LawKind::assumptions has the further assumptions of each law.
std::string_view assumptions_of(Certainty certainty);

/// Whether the text of a lossless case depends on where its steps begin. It does above temperature 0 with
/// independent coins, because the bonus token has a coin of its own. Then a trace has another text than a
/// real run. Both texts are samples of the same law, and the replay is an expectation.
bool text_follows_steps(const CaseData& data);

/// Why a case with this rule cannot be replayed if its text depends on where its steps begin; "" if it can.
///
/// A replay goes through the text of the trace. At each position the trace drew a token from q and judged it.
/// A lossless rule that judges node by node looks only at the rows and coins of the node. Whatever it
/// decides, the emitted token has the law p. So the pairs (token, accepted) along the trace's text have the
/// law that they have in a real run, as long as a step tests them. The bonus token has the law p in both, and
/// it ends the step. So the replayed steps have the law of real steps. This holds for chains that a draft
/// model draws, because the draft model's row depends on the text alone.
///
/// A drafted token with a one-hot row is determined by the text before it. A rule with
/// AcceptanceRule::accepts_what_it_emits emits such a token exactly when it accepts it. So the token is
/// accepted exactly when it is the next token of the text. This holds for chains and for trees.
std::string why_not_expected(const AcceptanceRule& rule);
/// Whether the case's strategy drafts by earlier steps (StrategyInfo::follows_steps). Then a trace does not
/// tell what it would draft.
bool draft_follows_steps(const CaseData& data);

}  // namespace speclab
