#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/device_program.h"
#include "core/model/net/session.h"
#include "core/decoding/rules/accept.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// Fills `out` with the verdict of a finished round, except Tested::expected and Tested::rank.
void read_verdict(const PlanRound& round, Acceptance& out);

/// How the host queues rounds on the device.
enum class RoundQueue {
  kLaunches,  ///< kernel by kernel
  kGraph,     ///< each round is one launch of a graph (core/backend/graph.h)
  kLoop,      ///< one launch of a graph that repeats the round, kPlanLoop times or until the text ends
};

/// Runs the steps of one sequence on a device, as rounds of a device program (core/backend/device_program.h).
/// By default, the host queues rounds until at least kAhead of them are queued and not read. The host reads
/// finished rounds and waits only when there is none.
class PlannedRounds {
 public:
  static constexpr int kAhead = 4;  ///< default of next()

  /// Returns null if the backend has no device programs. The sessions outlive this object. `draft` may be
  /// null if the shape drafts nothing. Each round also keeps the target's hidden states of the layers
  /// `hidden` (Tap::layer); the bits of everything else do not depend on them.
  static std::unique_ptr<PlannedRounds> make(const PlanShape& shape, Session& target, Session* draft,
                                             std::span<const int> hidden = {});

  bool is_of(const PlanShape& shape, const Session& target, const Session* draft) const {
    return shape == plan_->shape && &target == target_ && draft == draft_;
  }
  const PlanShape& shape() const { return plan_->shape; }
  std::span<const std::int32_t> parents() const {
    return plan_->parents;
  }  ///< parent of each node of a round
  /// Starts a generation; next() queues its rounds. If the host drafts, call start() for each round, and
  /// next(1) for its result. With `stamps`, every round fills PlanRound::stamp_ns.
  void start(PlanStart start, RoundQueue queue, bool stamps);
  /// How the rounds of this generation are queued. If the device cannot run loops, kLoop became kGraph.
  RoundQueue queued_as() const { return mode_; }
  const std::string& loop_problem() const { return loop_problem_; }  ///< why kLoop became kGraph; or ""
  /// Returns the next finished round; valid until the next call. Before it waits, it
  /// queues rounds until `ahead` of them are queued and not read.
  /// Do not call it after a round that ended the text. Throws Error if the device failed or logits are
  /// invalid (PlanRound::bad_entry).
  /// If the round does not come in time, tells the backend that the device does not answer
  /// (Backend::give_up) and throws Error. The limit is 60 s, or what SPECLAB_DEVICE_WAIT_SECONDS in the
  /// environment says. While the device has nothing to do, the limit is at most 5 s.
  const PlanRound& next(int ahead = kAhead);
  /// Copies the logits of the last queued round to the host: rows of the target and rows of the draft.
  void download(std::span<float> target, std::span<float> draft);
  /// The hidden states of the last queued round, in the backend's memory: [layers, PlanShape::nodes(),
  /// width], layers in the order in which make() got them. Null without layers.
  const float* states() const { return states_.data(); }

  /// The smallest tier. Each graph has a tier, a power of two, and runs rounds at positions below its tier.
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
  void tap(std::span<const int> layers);
  void queue();
  void queue_round();
  const PlanRound& read(const PlanRound& round);
  [[noreturn]] void give_up(double seconds, bool idle);

  DeviceProgram* program_;
  std::shared_ptr<Plan> plan_;
  Session* target_;
  Session* draft_;
  Buffer<float> states_;
  std::vector<Tap> taps_;                ///< of the target's forward; they write to states_
  std::int64_t position_ = 0;            ///< position of the pending token after the last round that was read
  std::uint32_t queued_ = 0, read_ = 0;  ///< number of the last queued and the last read round
  RoundQueue mode_ = RoundQueue::kLaunches;
  std::string loop_problem_;
  bool stamps_ = false;
  std::map<GraphKey, std::shared_ptr<Graph>> graphs_;
};

}  // namespace speclab
