#include "core/decoding/drafting/heads/states_drafter.h"

#include <utility>

namespace speclab {

StatesDrafter::StatesDrafter(const Resources& resources, std::vector<int> taps, bool all_states)
    : resources_(resources), taps_(std::move(taps)) {
  const int width = resources.target->config().hidden, layers = static_cast<int>(taps_.size());
  for (int i = 0; i < resources.batch; ++i)
    slots_.push_back({CommittedStates(width, all_states, layers), nullptr});
}

void StatesDrafter::observe_prompt(const Sequence& sequence, const PromptStates& states) {
  slot_of(sequence).states.take_prompt(states);
}

void StatesDrafter::begin(const Sequence& sequence) {
  Slot& slot = slot_of(sequence);
  if (!slot.runner) slot.runner = resources_.open_heads();
  start(sequence, slot);
}

void StatesDrafter::draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) {
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i]->depth_limit < 1) continue;
    draft_one(*sequences[i], slot_of(*sequences[i]), *drafts[i], sequences[i]->depth_limit);
    if (drafts[i]->tree.drafted() > 0) drafts[i]->source = "heads";
  }
}

void StatesDrafter::observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) {
  for (std::size_t i = 0; i < sequences.size(); ++i) slot_of(*sequences[i]).states.take_step(outcomes[i]);
}

std::span<const float> StatesDrafter::download(HeadRunner& runner, const HeadRows& rows) {
  host_.resize(static_cast<std::size_t>(rows.rows()) * static_cast<std::size_t>(rows.width()));
  runner.get(rows, host_.data());
  return host_;
}

}  // namespace speclab
