#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/decoding/drafting/draft.h"
#include "core/decoding/loop/executors/planned_rounds.h"
#include "core/decoding/loop/step_states.h"

namespace speclab {

/// Verifies the host's drafts on the device. The host uploads tokens, parents and the laws q that tokens were
/// drawn from, and downloads the verdict; rows of logits stay on the device. Hidden states stay there too,
/// until Session::fetch_states() fetches some of them. The decisions have the same bits as accept(). The
/// device also moves the accepted path behind the pending token in the target's KV cache. Drafts are padded
/// to a power of two rows, or to the size of the largest draft if that is less. Each size has two device
/// programs, for drafts with and without laws q. Each program has graphs of its own (core/backend/graph.h)
/// and is made when it is first needed.
class DeviceVerifier {
 public:
  /// Returns null if the backend has no device programs. Reads the parts of `shape` that describe the target
  /// and the rule. The session outlives this object and has room for `most_nodes` rows, the size of the
  /// largest draft. `hidden`: the layers whose hidden states each verify() keeps (Tap::layer).
  static std::unique_ptr<DeviceVerifier> make(const PlanShape& shape, Session& target, int most_nodes,
                                              std::vector<int> hidden = {});

  bool is_of(const PlanShape& shape, const Session& target, std::span<const int> hidden = {}) const {
    return shape == shape_ && &target == target_ && std::ranges::equal(hidden, hidden_);
  }
  /// Verifies `draft`, which has no probes or relays. Its pending token is at `position`, and `previous` is
  /// the token before it. The result is valid until the next call; ignore its `end` and `emitted`, because
  /// the caller handles end tokens and limits. Throws Error if the device failed or logits are NaN.
  const PlanRound& verify(const Draft& draft, std::int64_t position, Token previous, const Coins& coins,
                          RoundQueue queue);
  /// Copies the target's rows of the last verify() to the host, [nodes, vocab].
  void download(std::span<float> rows) { last_->download(rows, {}); }
  /// The hidden states of the last verify(), which stay in the backend's memory until the next verify().
  StatesThere states() const { return {last_->states(), last_->shape().nodes()}; }

 private:
  DeviceVerifier(PlanShape shape, Session& target, int most_nodes, std::vector<int> hidden)
      : shape_(std::move(shape)), target_(&target), most_nodes_(most_nodes), hidden_(std::move(hidden)) {}
  PlannedRounds* rounds_of(int nodes, bool laws);

  PlanShape shape_;
  Session* target_;
  int most_nodes_;
  std::vector<int> hidden_;
  std::map<std::pair<int, bool>, std::unique_ptr<PlannedRounds>>
      rounds_;  // by number of rows, and by whether some tokens were drawn from a law q
  PlannedRounds* last_ = nullptr;
  // The draft that is being verified:
  std::vector<PlanLaw> laws_;
  std::vector<std::int32_t> law_of_;  // index into laws_, for nodes 1, 2, ...
};

}  // namespace speclab
