#include "core/decoding/loop/executors/device_verifier.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/base/error.h"

namespace speclab {

std::unique_ptr<DeviceVerifier> DeviceVerifier::make(const PlanShape& shape, Session& target, int most_nodes,
                                                     std::vector<int> hidden) {
  std::unique_ptr<DeviceVerifier> made(
      new DeviceVerifier(shape, target, std::min(most_nodes, kMostPlanNodes), std::move(hidden)));
  return made->rounds_of(1, false) != nullptr ? std::move(made) : nullptr;
}

PlannedRounds* DeviceVerifier::rounds_of(int nodes, bool laws) {
  SPECLAB_CHECK(nodes <= most_nodes_, "{} nodes to verify, at most {}", nodes, most_nodes_);
  const int rows = std::min(static_cast<int>(std::bit_ceil(static_cast<unsigned>(nodes))), most_nodes_);
  std::unique_ptr<PlannedRounds>& rounds = rounds_[{rows, laws}];
  if (!rounds) {
    PlanShape shape = shape_;
    shape.given = rows;
    shape.given_laws = laws;
    rounds = PlannedRounds::make(shape, *target_, nullptr, hidden_);
  }
  return rounds.get();
}

const PlanRound& DeviceVerifier::verify(const Draft& draft, std::int64_t position, Token previous,
                                        const Coins& coins, RoundQueue queue) {
  const TokenTree& tree = draft.tree;
  SPECLAB_CHECK(tree.size() == 1 + tree.drafted(), "{} nodes, of which {} may be accepted", tree.size() - 1,
                tree.drafted());
  laws_.clear();
  law_of_.clear();
  for (int node = 1; node < tree.size(); ++node) {
    const Distribution* q = draft.q_at(node);
    const bool drawn = q != nullptr && !q->one_hot();
    law_of_.push_back(drawn ? static_cast<std::int32_t>(laws_.size()) : -1);
    if (drawn) laws_.push_back({q->weights().data(), q->sum()});
  }
  PlanStart start;
  start.position = position;
  start.previous = previous;
  start.pending = tree.token(0);
  start.max_tokens = std::numeric_limits<int>::max();
  start.key = coins.key();
  start.draft = {tree.tokens().subspan(1), tree.parents().subspan(1), law_of_, laws_};
  last_ = rounds_of(tree.size(), !laws_.empty());
  last_->start(start, queue, false);
  const PlanRound& round = last_->next(1);
  SPECLAB_CHECK(round.position == position && round.nodes == tree.size(),
                "a round at {} of {} nodes where {} are drafted at {}", round.position, round.nodes,
                tree.size(), position);
  return round;
}

}  // namespace speclab
