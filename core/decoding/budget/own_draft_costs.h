#pragma once

#include <cstdint>
#include <memory>

#include "core/decoding/budget/step_costs.h"

namespace speclab {

/// The costs of steps in which the target drafts a chain for itself, with forwards over one row that run a
/// part of its layers or see a part of its cache. A budget reads them like those of a draft model. They
/// follow from three measured numbers: t(n), the time of a layer and the time of a cached position.
///
///     draft forward       = t(1) - layers that it leaves out * layer_ns
///                           + (positions that it sees - context) * position_ns * its share of the layers
///     verifying forward   = t(n) + (committed positions - context) * position_ns
///
/// After an early exit the verifying forward runs the first layers for one row only, the last drafted token
/// (LayerSkip: Elhoushi et al. 2024). Their share of its time is then that of a forward over one row. The
/// time of a position is that of a forward over one row; further rows read the same keys and values.
class OwnDraftCosts {
 public:
  /// One draft forward.
  struct Forward {
    int layers = 0;               ///< number of layers that it runs
    int all_layers = 0;           ///< number of layers of the target
    bool exits = false;           ///< the verifying forward goes on after these layers
    std::int64_t most_seen = -1;  ///< committed positions that it sees at most; negative: all
  };
  /// For chains of at most `most_tokens` tokens. `measured` has layer_ns, see require_layer_costs().
  OwnDraftCosts(std::shared_ptr<const StepCosts> measured, const Forward& forward, int most_tokens);
  /// Computes the costs of a step with this number of committed positions. Does not allocate.
  void at(std::int64_t committed);
  /// The costs that at() computed last. The object stays the same.
  std::shared_ptr<const StepCosts> table() const { return table_; }

 private:
  std::shared_ptr<const StepCosts> measured_;
  Forward forward_;
  std::shared_ptr<StepCosts> table_;
};

}  // namespace speclab
