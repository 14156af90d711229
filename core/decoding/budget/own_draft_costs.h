#pragma once

#include <cstdint>
#include <memory>

#include "core/decoding/budget/step_costs.h"

namespace speclab {

/// The costs of steps in which the target drafts a chain for itself, with forwards that run a part of its
/// layers or see a part of its cache. A budget reads these costs like the costs of a draft model. They follow
/// from measured times of StepCosts: target(n) (called t(n) here), layer_ns and position_ns.
///
///     draft forward       = t(n) - layers that it leaves out * layer_ns
///                           + (positions that it sees - context) * position_ns * its share of the layers
///     verifying forward   = t(n) + (committed positions - context) * position_ns
///
/// Here `context` is StepCosts::context, the number of cached positions at which t(n) was measured.
/// position_ns is not multiplied by n, because all rows of a forward read the same keys and values. layer_ns,
/// the time of a layer with one row, is not multiplied by n either. So if a draft forward over several rows
/// leaves out layers, the formula overestimates its time. No budget reads such a time.
///
/// After an early exit the verifying forward runs the first layers for one row only: the last drafted token,
/// which no draft forward has fed (LayerSkip: Elhoushi et al. 2024). If s is the share of these layers in
/// t(1), the formula then has (1 - s) t(n) + s t(1) instead of t(n).
class OwnDraftCosts {
 public:
  /// One draft forward.
  struct Forward {
    int layers = 0;               ///< number of layers that it runs; 0 only if the target has no layers
    int all_layers = 0;           ///< number of layers of the target
    bool exits = false;           ///< the verifying forward goes on after these layers
    std::int64_t most_seen = -1;  ///< committed positions that it sees at most; negative: all
    int most_rows = 1;            ///< the most rows of a draft forward
  };
  /// For chains of at most `most_tokens` tokens. `measured` has layer_ns, see require_layer_costs().
  OwnDraftCosts(std::shared_ptr<const StepCosts> measured, const Forward& forward, int most_tokens);
  /// Computes the costs of a step with this number of committed positions. Does not allocate.
  void at(std::int64_t committed);
  /// The costs that at() computed last. Every call returns the same object, and at() overwrites it.
  std::shared_ptr<const StepCosts> table() const { return table_; }

 private:
  std::shared_ptr<const StepCosts> measured_;
  Forward forward_;
  std::shared_ptr<StepCosts> table_;
};

}  // namespace speclab
