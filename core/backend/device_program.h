#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/backend/graph.h"
#include "core/backend/plan.h"

namespace speclab {

/// Runs whole decoding steps ("rounds", core/backend/plan.h) on a device, without the host in between. A
/// backend offers a DeviceProgram with Backend::device_program().
///
/// To queue a round, the caller makes these calls. For each depth from 1 to shape.depth(): draft_rows(depth),
/// the draft model's forward of plan.draft[depth - 1], and draw(depth). After that: target_rows(), the
/// target's forward of plan.target, and settle(). None of these calls waits for the device.
class DeviceProgram {
 public:
  virtual ~DeviceProgram() = default;

  /// Allocates the memory of rounds of this shape.
  virtual std::shared_ptr<Plan> make_plan(const PlanShape& shape) = 0;
  /// Starts a generation. If the host drafts (PlanShape::given), starts a single round.
  virtual void start(Plan& plan, const PlanStart& start) = 0;
  /// Fills in the rows (tokens, positions and slots) of the draft model's forward for `depth`. The caller
  /// then runs that forward. The forward must write its logits to plan.draft_logits, from the row of node
  /// level_begin(depth - 1) on. draw(depth) samples from these logits.
  virtual void draft_rows(Plan& plan, int depth) = 0;
  /// Samples the tokens at `depth` from the draft's logits.
  virtual void draw(Plan& plan, int depth) = 0;
  /// Fills in the rows of the target's forward: tokens, positions and slots.
  virtual void target_rows(Plan& plan) = 0;
  /// Verifies the draft with plan.target_logits, moves the accepted path to its place in both caches and
  /// writes the round into plan.ring. Launches everything queued so far, like Backend::submit().
  virtual void settle(Plan& plan) = 0;
  /// Writes the device's clock into PlanRound::stamp_ns[which], where `which` is 0, 1 or 2. settle() always
  /// writes stamp_ns[3].
  virtual void stamp(Plan& plan, int which) = 0;
  /// Ends a round that is recorded as a loop. The loop stops when the sequence has ended, or after a round
  /// whose number is a multiple of kPlanLoop.
  virtual void repeat(Plan& plan) = 0;

  /// Calls `operations` and records the kernels that it queues, without running them. `operations` must not
  /// upload or download. If `loop` is true, `operations` must end with repeat(), and replay() runs the
  /// kernels again and again until repeat() stops the loop.
  virtual std::shared_ptr<Graph> record(bool loop, const std::function<void()>& operations) = 0;
  /// Why a recorded loop cannot run on this device; "" if it can. The first call runs a tiny loop to find
  /// out.
  virtual std::string loop_problem() = 0;
  /// Queues the recorded kernels as one launch.
  virtual void replay(const Graph& graph) = 0;
  /// True if the model should also record and replay the forwards outside of rounds, which the host asks for
  /// one by one.
  virtual bool records_forwards() const { return false; }
};

}  // namespace speclab
