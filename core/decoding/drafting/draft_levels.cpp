#include "core/decoding/drafting/draft_levels.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/decoding/rows/processors.h"

namespace speclab {

std::span<const float> DraftLevel::logits(int i, TokenSpan path) {
  const ModelConfig& config = model_->config();
  const auto columns = static_cast<std::size_t>(config.head_rows());
  const std::span<const float> row(rows_of_logits_.data() + static_cast<std::size_t>(i) * columns, columns);
  if (!sequence_->processors) return row;
  processed_.resize(columns);
  sequence_->processors->apply(row, config.head_ids, sequence_->tokens, path, processed_);
  // All tokens of a reduced vocabulary may be banned. Then there is nothing to draft.
  if (std::all_of(processed_.begin(), processed_.end(), [](float z) { return std::isinf(z) && z < 0; }))
    return {};
  return processed_;
}

int DraftLevel::feed(Token token, int parent) {
  next_.push_back(token);
  next_parents_.push_back(parent);
  return in_flight_++;
}

DraftLevels::DraftLevels(const Resources& resources) : resources_(resources) {
  slots_.resize(static_cast<std::size_t>(resources_.batch));
  for (DraftLevel& level : slots_) level.model_ = resources_.draft.get();
}

void DraftLevels::begin(const Sequence& sequence) {
  slots_[static_cast<std::size_t>(sequence.slot)].cache_.begin(sequence, resources_);
}

// The text that the draft's cache lacks, up to the pending token, is fed and committed at once. The drafted
// nodes that are fed stay in flight.
void DraftLevels::draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts, int depth,
                        const Grow& grow) {
  active_.clear();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    DraftLevel& level = slots_[static_cast<std::size_t>(sequences[i]->slot)];
    level.sequence_ = sequences[i];
    level.draft_ = drafts[i];
    level.limit_ = static_cast<int>(
        std::min<std::int64_t>({depth, sequences[i]->depth_limit, level.cache_.room(*sequences[i])}));
    if (level.limit_ <= 0) continue;
    level.depth_ = level.in_flight_ = 0;
    level.cache_.catch_up(*sequences[i], level.feed_);
    level.parents_.resize(level.feed_.size());
    std::iota(level.parents_.begin(), level.parents_.end(), -1);
    level.rows_.assign(1, static_cast<std::int32_t>(level.feed_.size()) - 1);
    active_.push_back(&level);
  }
  while (!active_.empty()) {
    feeds_.clear();
    for (DraftLevel* level : active_) {
      std::vector<float>& logits = level->rows_of_logits_;
      logits.resize(std::max(logits.size(), level->rows_.size() * static_cast<std::size_t>(columns())));
      feeds_.push_back(
          {&level->cache_.session(), level->feed_, level->parents_, level->rows_, logits.data()});
      feeds_.back().continues = level->depth_ > 0;
    }
    resources_.draft->forward(feeds_);
    std::erase_if(active_, [&](DraftLevel* level) { return !advance(*level, grow); });
  }
}

// Adds the level below the fed nodes. Returns false when the draft is complete.
bool DraftLevels::advance(DraftLevel& level, const Grow& grow) {
  if (level.depth_ == 0) level.cache_.keep(level.feed_);
  else level.cache_.add_in_flight(level.feed_);
  level.next_.clear();
  level.next_parents_.clear();
  grow(level);
  if (level.draft_->tree.drafted() > 0) level.draft_->source = "draft";
  ++level.depth_;
  if (level.next_.empty() || level.depth_ >= level.limit_) return false;
  level.feed_.assign(level.next_.begin(), level.next_.end());
  level.parents_.assign(level.next_parents_.begin(), level.next_parents_.end());
  level.rows_.resize(level.feed_.size());
  std::iota(level.rows_.begin(), level.rows_.end(), 0);
  return true;
}

}  // namespace speclab
