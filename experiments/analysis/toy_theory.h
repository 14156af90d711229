#pragma once

#include <vector>

#include "core/theory/predictions.h"
#include "experiments/metrics/run_data.h"

/// Exact predictions for cases on toys (core/model/toy): target and draft are Markov chains, so the expected
/// number of steps of a text follows from their tables (core/theory/toys/toy_chain.h).
namespace speclab {

/// The predictions of a case, given the first token of each of its texts:
///   toy_exact (tau): tokens / expected number of steps, over all texts of repeat 0;
///   toy_exact_alpha (alpha): expected accepted tokens / expected acceptance tests; not for the rule block.
/// The result is empty unless target and draft are toys, the strategy drafts chains of its draft model alone
/// (StrategyInfo::drafts_model_chains), every step has the same draft length (except where max_tokens cuts
/// it), and the rule has a closed form. It is also empty with logits processors, stop texts, several streams,
/// or a limit on the tokens that a step emits, if a text ends before max_tokens, and for block verification
/// of a chain that is too large to enumerate. Options of single prompts are not known here: a prompt must not
/// change sampling or rule.
std::vector<theory::Prediction> toy_predictions(const CaseData& data);

}  // namespace speclab
