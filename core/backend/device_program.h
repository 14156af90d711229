#pragma once

#include <functional>
#include <memory>

#include "core/backend/graph.h"
#include "core/backend/plan.h"

namespace speclab {

/// Runs whole decoding steps ("rounds", core/backend/plan.h) on a device, without the host in between. A
/// backend offers one with Backend::device_program().
///
/// Per round the caller does, for depth = 1 .. shape.depth(): draft_rows(depth), the draft's forward of
/// plan.draft[depth - 1], draw(depth). Then target_rows(), the target's forward of plan.target, settle(). All
/// of these calls only queue work.
class DeviceProgram {
 public:
  virtual ~DeviceProgram() = default;

  /// Allocates the memory of rounds of this shape.
  virtual std::shared_ptr<Plan> make_plan(const PlanShape& shape) = 0;
  /// Starts a generation. If the host drafts (PlanShape::given), starts a single round.
  virtual void start(Plan& plan, const PlanStart& start) = 0;
  /// Lays out the rows of the draft's forward that decides the tokens at `depth`. Their logits belong in
  /// plan.draft_logits, from the row of node level_begin(depth - 1) on.
  virtual void draft_rows(Plan& plan, int depth) = 0;
  /// Draws the tokens at `depth` from the draft's logits.
  virtual void draw(Plan& plan, int depth) = 0;
  /// Lays out the rows of the target's forward.
  virtual void target_rows(Plan& plan) = 0;
  /// Verifies the draft with plan.target_logits, moves the accepted path to its place in both caches and
  /// writes the round into plan.ring. Launches everything queued so far, like Backend::submit().
  virtual void settle(Plan& plan) = 0;
  /// Writes the device's clock into PlanRound::stamp_ns[which], which < 3. settle() always writes the last
  /// one.
  virtual void stamp(Plan& plan, int which) = 0;
  /// Ends a round that is recorded as a loop. The loop runs until the sequence ends or kPlanLoop rounds are
  /// done.
  virtual void repeat(Plan& plan) = 0;

  /// Calls `operations` and records the kernels that they queue instead of running them. They may not upload
  /// or download. loop: replay() repeats them as long as repeat(), which must be among them, says so.
  virtual std::shared_ptr<Graph> record(bool loop, const std::function<void()>& operations) = 0;
  /// Queues the recorded kernels as one launch.
  virtual void replay(const Graph& graph) = 0;
};

}  // namespace speclab
