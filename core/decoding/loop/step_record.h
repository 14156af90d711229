#pragma once

#include "core/decoding/loop/loop_options.h"
#include "core/decoding/loop/running_sequence.h"

namespace speclab {

/// Fills RunningSequence::step with what the current step did, but for its times. Inside the clock.
void record_step(RunningSequence& sequence);

/// Adds what costs passes over the vocabulary to the step `index` of the record: row hashes, expected
/// acceptance, ranks, distances, probes. Needs the rows of the step on the host. Outside the clock.
void look_closer(RunningSequence& sequence, int index, const LoopOptions& options);

}  // namespace speclab
