#pragma once

/// For which batches speculative decoding pays, as a closed form.
namespace speclab::simulate {

/// Costs of a step while autoregressive decoding is still limited by memory, and verification already by
/// arithmetic. This is the case around the batch at which speculation stops paying. All times are in one
/// unit. All sequences of a batch take their steps together. With b sequences:
///   autoregressive step: floor + weights + b cache
///   speculative step:    floor + b (rows x row) + draft + b draft_sequence
struct BatchCosts {
  double floor = 0;           ///< of a target forward: launches, latencies
  double weights = 0;         ///< time to read the target's weights
  double cache = 0;           ///< time to read the KV cache of one sequence
  double row = 0;             ///< arithmetic of one row of the target
  double draft = 0;           ///< drafting of a step: the part that does not depend on the batch
  double draft_sequence = 0;  ///< drafting of a step: the part that each sequence adds
};

/// Speculation pays for the batches above `from` and below `to`.
struct BatchRange {
  double from = 0, to = 0;
};

/// The batches for which a speculative step of `rows` rows (gamma + 1 for a chain) and tau emitted tokens per
/// sequence takes less time per token than autoregressive decoding. Both take equally long at
///   b = (tau (floor + weights) - floor - draft) / (rows row + draft_sequence - tau cache)
/// If the denominator is positive, speculation pays below b (at no batch if b <= 0). If the denominator is
/// negative, the reads of the caches grow faster than the arithmetic, and speculation pays above b, or at
/// every batch if b <= 0 (long contexts; Sadhukhan et al. 2024, "MagicDec"). An empty range is {0, 0}; `to`
/// may be infinite. Throws Error for negative costs, and for tau or rows outside [1, kMaxGamma + 1].
BatchRange paying_batches(const BatchCosts& costs, double tau, double rows);

}  // namespace speclab::simulate
