#pragma once

#include <cstdint>
#include <span>

namespace speclab {

/// How far the draft's distribution q is from the target's p. Training makes this number smaller
/// (DistillSpec: Zhou et al. 2024, arXiv 2310.08461). scripts/train uses the same names.
enum class DistillObjective : std::uint8_t {
  forward_kl,       ///< sum p log(p / q)
  reverse_kl,       ///< sum q log(q / p); a p below 1e-30 counts as 1e-30
  jsd,              ///< the mean of KL(p, m) and KL(q, m) with m = (p + q) / 2 (Jensen-Shannon divergence)
  total_variation,  ///< sum |p - q| / 2, which is 1 minus the acceptance of the rule "rejection"
};

/// Computes the gradient of the objective with respect to the logits whose softmax is q, in closed form. If g
/// is the derivative with respect to q, entry i is q_i (g_i - sum_j q_j g_j); for forward_kl this is q - p.
/// The entries sum to 0. p, q and `gradient` have the same size; p and q sum to 1. The bits are the same on
/// every machine.
void distillation_gradient(DistillObjective objective, std::span<const float> p, std::span<const float> q,
                           std::span<float> gradient);

}  // namespace speclab
