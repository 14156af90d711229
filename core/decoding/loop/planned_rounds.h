#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "core/backend/device_program.h"
#include "core/model/net/session.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// Fills `out` with the verdict of a finished round; Tested::expected and rank stay unknown.
void read_verdict(const PlanRound& round, Acceptance& out);

/// How rounds are queued.
enum class RoundQueue {
  kLaunches,  ///< kernel by kernel
  kGraph,     ///< each round one launch of a graph
  kLoop,      ///< one launch of a graph that repeats the round, kPlanLoop times or until the text ends
};

/// Rounds of one sequence on a device that plans (core/backend/plan.h): some are always queued ahead, the
/// host reads those that are done. It waits for the device only when there is none to read.
class PlannedRounds {
 public:
  static constexpr int kAhead = 4;  ///< rounds that are queued and not read

  /// The sessions outlive this; draft may be null when the shape drafts nothing. Null: their backend does not
  /// plan.
  static std::unique_ptr<PlannedRounds> make(const PlanShape& shape, Session& target, Session* draft);

  bool is_of(const PlanShape& shape, const Session& target, const Session* draft) const {
    return shape == plan_->shape && &target == target_ && draft == draft_;
  }
  const PlanShape& shape() const { return plan_->shape; }
  std::span<const std::int32_t> parents() const { return plan_->parents; }  ///< of the nodes of a round
  /// Starts a generation. If the host drafts, starts a single round; read its result with next(1). With
  /// `stamps` every round fills PlanRound::stamp_ns.
  void start(PlanStart start, RoundQueue queue, bool stamps);
  /// The next round. At least `ahead` are queued and not read before this waits. Valid until the next call.
  /// After a round with an end there is none. Throws Error when the device has failed, or logits are no
  /// numbers.
  const PlanRound& next(int ahead = kAhead);
  /// Logits of the last round that was queued: rows of the target, rows of the draft.
  void download(std::span<float> target, std::span<float> draft);

  /// A graph has room for positions up to its tier, a power of two, this at least.
  static constexpr int kTier = 256;
  struct GraphKey {
    std::int64_t tier;
    bool loop, stamps;
    auto operator<=>(const GraphKey&) const = default;
  };
  const std::map<GraphKey, std::shared_ptr<Graph>>& graphs() const { return graphs_; }

 private:
  PlannedRounds(DeviceProgram& program, std::shared_ptr<Plan> plan, Session& target, Session* draft)
      : program_(&program), plan_(std::move(plan)), target_(&target), draft_(draft) {}
  void queue();
  void queue_round();

  DeviceProgram* program_;
  std::shared_ptr<Plan> plan_;
  Session* target_;
  Session* draft_;
  std::int64_t position_ = 0;            ///< of the pending token, after the last round that was read
  std::uint32_t queued_ = 0, read_ = 0;  ///< numbers of the last ones; of those of a loop, at most
  RoundQueue mode_ = RoundQueue::kLaunches;
  bool stamps_ = false;
  std::map<GraphKey, std::shared_ptr<Graph>> graphs_;  ///< what they use is the plan's, the sessions' or kept
};

}  // namespace speclab
