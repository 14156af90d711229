#pragma once

#include <string>

#include "core/theory/cost.h"

/// The cost of a target that is a mixture of experts.
namespace speclab::simulate {

/// Every feed-forward block of the target is a mixture of E experts, and each token uses k of them (Shazeer
/// et al. 2017, "Outrageously Large Neural Networks"; Jiang et al. 2024, "Mixtral of Experts"). The weights
/// outside the feed-forward blocks stay as they are. The router is left out, because its weights are few.
struct Experts {
  int experts = 1;  ///< E, of each layer
  int active = 1;   ///< k, of each token
  int width = 0;    ///< hidden units of an expert; 0: as many as the feed-forward block of the dense model
};

/// Throws Error (`where` names the device) unless 1 <= k <= E and the width is not negative.
void require_experts(const Experts& experts, const std::string& where);

/// Expected number of experts that n tokens use together in one layer: E (1 - (1 - k/E)^n). This is exact if
/// each token draws its set of k experts independently and all sets are equally likely. Tokens that follow
/// one another in a text often use the same experts; the real number is then lower.
double expected_experts(const Experts& experts, double tokens);

/// Operations and bytes of a forward of `batch` sequences. Every token pays the operations of its k experts.
/// The weights of an expert are read once if any token uses it (expected_experts()).
theory::ForwardCost experts_cost(const theory::DecoderShape& shape, const Experts& experts,
                                 const theory::ForwardSize& size, int batch);

}  // namespace speclab::simulate
