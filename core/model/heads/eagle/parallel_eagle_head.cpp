#include "core/model/heads/eagle/parallel_eagle_head.h"

#include <cstddef>
#include <numeric>

#include "core/base/error.h"

namespace speclab {

ParallelEagleHead::ParallelEagleHead(const HeadCard& card, const std::shared_ptr<const Model>& target)
    : head_(card, target),
      count_(card.eagle.parallel),
      mask_(card.eagle.mask),
      mask_states_(HeadFile::open(card.weights).row("mask_hidden", head_.state_width())) {}

// Runs the layers over the pairs and the masks after them, and commits the pairs. The rows of predicted_ are
// those of the last pair and of the masks.
void ParallelEagleHead::run(HeadRunner& runner, Session& session, const float* states, TokenSpan after,
                            int masks) {
  const std::size_t pairs = after.size(), all = pairs + static_cast<std::size_t>(masks);
  SPECLAB_CHECK(pairs > 0, "no pair before {} masks", masks);
  inputs_.assign(states, states + pairs * mask_states_.size());
  tokens_.assign(after.begin(), after.end());
  for (int i = 0; i < masks; ++i) inputs_.insert(inputs_.end(), mask_states_.begin(), mask_states_.end());
  tokens_.resize(all, mask_);
  parents_.resize(all);
  std::iota(parents_.begin(), parents_.end(), -1);
  path_.resize(pairs);
  std::iota(path_.begin(), path_.end(), 0);
  wanted_.resize(static_cast<std::size_t>(masks) + 1);
  std::iota(wanted_.begin(), wanted_.end(), static_cast<std::int32_t>(pairs) - 1);
  runner.put(inputs_.data(), static_cast<int>(all), head_.state_width(), states_);
  head_.features(runner, states_, features_);
  head_.forward(runner, {session, tokens_, features_, parents_, false, wanted_}, predicted_);
  session.commit(path_);
}

void ParallelEagleHead::read(HeadRunner& runner, Session& session, const float* states, TokenSpan after) {
  run(runner, session, states, after, 0);
}

void ParallelEagleHead::draft(HeadRunner& runner, Session& session, const float* states, TokenSpan after,
                              int wanted, HeadRows& to) {
  SPECLAB_CHECK(wanted >= 1 && wanted <= count_, "{} tokens from a head of {}", wanted, count_);
  run(runner, session, states, after, wanted - 1);
  head_.logits(runner, predicted_, to);
}

}  // namespace speclab
