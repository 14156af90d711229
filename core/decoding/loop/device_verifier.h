#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/decoding/drafting/draft.h"
#include "core/decoding/loop/planned_rounds.h"

namespace speclab {

/// Verifies on a device what the host has drafted: tokens, parents and laws go there, one entry of the ring
/// comes back, and neither rows of logits nor a verdict of the host are in between. The decisions have the
/// bits of accept(). The accepted path is moved behind the pending token in the target's cache. Of each
/// number of rows (a power of two, the rest is padding) the rounds are of one plan with graphs of its own,
/// made when a draft first has so many.
class DeviceVerifier {
 public:
  /// Of `shape` what describes the target and the rule is read. The session outlives this; no draft has more
  /// than `most_nodes` nodes, itself at most what the session has room for. Null: its backend does not plan.
  static std::unique_ptr<DeviceVerifier> make(const PlanShape& shape, Session& target, int most_nodes);

  bool is_of(const PlanShape& shape, const Session& target) const {
    return shape == shape_ && &target == target_;
  }
  /// `draft`, whose pending token is at `position` behind `previous`; it has no probes. The round is valid
  /// until the next call; its `end` and `emitted` say nothing: end tokens and limits are the caller's. Throws
  /// Error when the device has failed, or logits are no numbers.
  const PlanRound& verify(const Draft& draft, std::int64_t position, Token previous, const Coins& coins,
                          RoundQueue queue);
  /// The target's rows of the last verify(), [nodes, vocab].
  void download(std::span<float> rows) { last_->download(rows, {}); }

 private:
  DeviceVerifier(PlanShape shape, Session& target, int most_nodes)
      : shape_(std::move(shape)), target_(&target), most_nodes_(most_nodes) {}
  PlannedRounds* rounds_of(int nodes, bool laws);

  PlanShape shape_;
  Session* target_;
  int most_nodes_;
  std::map<std::pair<int, bool>, std::unique_ptr<PlannedRounds>>
      rounds_;  // by rows, and whether laws come with them
  PlannedRounds* last_ = nullptr;
  // Of the draft in progress:
  std::vector<PlanLaw> laws_;
  std::vector<std::int32_t> law_of_;  // of nodes 1, 2, ...
};

}  // namespace speclab
