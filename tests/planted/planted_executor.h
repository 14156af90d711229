#pragma once

#include <memory>

#include "core/decoding/loop/executors/step_executor.h"

namespace speclab::planted {

/// Wraps an executor so that its steps have the fault of current_plant(). Steps of the autoregressive case
/// have no fault: a delay there would slow down the reference as much as the strategies, and no speedup would
/// change. For these steps, and for a null executor, returns the executor itself.
///
/// Faults are planted only in steps that the host runs. `on_device` (ExecutorKind): the wrapped executor
/// refuses every generation, so the loop chooses the executor of the host.
///
/// A replaced token (Fault::acceptance) is drawn with coins of its own, which depend on Plant::seed, the
/// request's coins, the position and the node. So all repeats of a text have the same drafts. The rule judges
/// the token as a copied one (Draft::kOneHot). So a lossless rule stays lossless, and at temperature 0 the
/// text stays the same. Throws Error for a strategy that leaves rows in flight for the verifying forward
/// (TargetUse::exits), because these rows belong to the tokens that it drafted.
std::unique_ptr<StepExecutor> with_plant(std::unique_ptr<StepExecutor> executor, bool on_device,
                                         const ExecutorSetting& setting);

}  // namespace speclab::planted
