#pragma once

#include <functional>
#include <span>

#include "core/decoding/loop/judged_step.h"
#include "core/decoding/loop/loop_options.h"
#include "core/decoding/loop/running_sequence.h"

namespace speclab {

/// Fills RunningSequence::step with what the current step did, except its times. Runs inside the clock.
void record_step(RunningSequence& sequence);

/// Adds to the record of step `index` what costs passes over the vocabulary: the probes of the first steps,
/// and, if `options` ask for them, row hashes, expected acceptance, ranks, distances, KL divergences and
/// row details. Needs the rows of the step on the host. Runs outside the clock.
void look_closer(RunningSequence& sequence, int index, const LoopOptions& options);

/// The entropy in nats of a row of logits at temperature 1, without top-k and top-p. So entropies can be
/// compared between texts that were decoded at different temperatures.
float row_entropy(std::span<const float> logits);

/// Calls `on_judged` (LoopOptions) with the current step, which has been emitted. Needs the rows of the step
/// on the host. Runs outside the clock.
void show_judged_step(RunningSequence& sequence, const std::function<void(const JudgedStep&)>& on_judged);

}  // namespace speclab
