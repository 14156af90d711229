#pragma once

#include <optional>
#include <string>

#include "core/backend/plan.h"
#include "core/decoding/loop/step_executor.h"

namespace speclab {

/// The part of a device plan that describes the target and the rule of a generation. None, with the reason,
/// when the host has to judge the drafts: the rule has no device form, logits depend on the text, or coins
/// are scripted.
std::optional<PlanShape> target_plan_shape(const ExecutorSetting& setting, const RunningSequence& sequence,
                                           std::string& reason);

/// SamplingParams as a device takes them.
PlanSampling device_sampling(const SamplingParams& sampling);

}  // namespace speclab
