#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/model/net/model.h"

namespace speclab {

/// A prompt as tokens, at least one.
using PromptTokens = std::vector<Token>;

/// How far the logits rows of a numerics class are from the rows of the class f32, at the same positions.
struct NumericsAgreement {
  std::string numerics;
  int prompts = 0, positions = 0;
  double kl_mean = 0;           ///< KL(p_f32 || p_class) at temperature 1 in nats, mean over positions
  double kl_max = 0;            ///< the largest of these KL divergences
  double top1 = 0;              ///< share of positions with the same most probable token
  double logit_difference = 0;  ///< largest |difference of a logit| / largest |logit| of its row
};

/// Compares the same model loaded twice. `exact` (class f32) continues each prompt greedily by `tokens`
/// tokens; then both models read that text. A text ends early at the end of the model's context.
NumericsAgreement compare_numerics(const Model& exact, const Model& other, const std::string& numerics,
                                   const std::vector<PromptTokens>& prompts, int tokens);

}  // namespace speclab
