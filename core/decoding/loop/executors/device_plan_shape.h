#pragma once

#include <optional>
#include <string>

#include "core/backend/plan.h"
#include "core/decoding/loop/executors/step_executor.h"

namespace speclab {

/// Describes the target and the rule of a generation for a device program. Returns none and sets `reason` if
/// the host has to judge the drafts: the rule has no device form or uses several streams of noise, logits
/// processors are active, coins are scripted or watched, or drafts are verified as a batch of sequences or
/// divided over devices.
std::optional<PlanShape> target_plan_shape(const ExecutorSetting& setting, const RunningSequence& sequence,
                                           std::string& reason);

/// Converts SamplingParams to the form that a device reads.
PlanSampling device_sampling(const SamplingParams& sampling);

}  // namespace speclab
