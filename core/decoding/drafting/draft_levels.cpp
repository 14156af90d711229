#include "core/decoding/drafting/draft_levels.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/decoding/rows/processors.h"

namespace speclab {

std::span<const float> DraftLevel::logits(int i, TokenSpan path) {
  const ModelConfig& config = model_->config();
  const auto columns = static_cast<std::size_t>(config.head_rows());
  const auto at = static_cast<std::size_t>(row_of_[static_cast<std::size_t>(i)]);
  const std::span<const float> row(rows_of_logits_.data() + at * columns, columns);
  if (!sequence_->processors) return row;
  processed_.resize(columns);
  sequence_->processors->apply(row, config.head_ids, sequence_->tokens, path, processed_);
  // All tokens of a reduced vocabulary may be banned. Then there is nothing to draft.
  if (std::all_of(processed_.begin(), processed_.end(), [](float z) { return std::isinf(z) && z < 0; }))
    return {};
  return processed_;
}

int DraftLevel::find(Token token, int parent) const {
  for (int number = 0; number < static_cast<int>(flying_.size()); ++number) {
    const Flying& node = flying_[static_cast<std::size_t>(number)];
    if (node.token == token && node.parent == parent) return number;
  }
  return -1;
}

int DraftLevel::add(Token token, int parent, int depth) {
  flying_.push_back({token, parent, depth, -1, false});
  return static_cast<int>(flying_.size()) - 1;
}

int DraftLevel::feed(Token token, int parent) {
  const int guessed = guesses_ > 0 ? find(token, parent) : -1;
  next_.push_back(guessed >= 0 ? guessed : add(token, parent, depth_ + 1));
  flying_[static_cast<std::size_t>(next_.back())].wanted = true;
  return next_.back();
}

// Nodes of the last level are not fed.
bool DraftLevel::may_guess_below(int parent) const {
  const int depth = parent < 0 ? 1 : flying_[static_cast<std::size_t>(parent)].depth + 1;
  return depth < limit_ && guesses_ < kMostGuesses;
}

std::optional<int> DraftLevel::guess(Token token, int parent) {
  if (!may_guess_below(parent)) return std::nullopt;
  if (const int known = find(token, parent); known >= 0) return known;
  ++guesses_;
  return add(token, parent, parent < 0 ? 1 : flying_[static_cast<std::size_t>(parent)].depth + 1);
}

DraftLevels::DraftLevels(const Resources& resources) : resources_(resources) {
  slots_.resize(static_cast<std::size_t>(resources_.batch));
  for (DraftLevel& level : slots_) level.model_ = resources_.draft.get();
}

void DraftLevels::begin(const Sequence& sequence) {
  slots_[static_cast<std::size_t>(sequence.slot)].cache_.begin(sequence, resources_);
}

// The first forward is fed with the text that the draft's cache lacks, up to the pending token. Without
// guesses this text is committed at once, and only the drafted nodes that are fed stay in flight. With
// guesses the text stays in flight too, because a commit would drop the guesses that were fed with it.
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
    level.depth_ = level.fed_ = level.guesses_ = level.rows_used_ = 0;
    level.flying_.clear();
    level.next_.clear();
    level.forward_rows_.clear();
    level.cache_.catch_up(*sequences[i], level.feed_);
    level.plain_rows_.assign(1, static_cast<int>(level.feed_.size()));
    level.base_ = guess_ ? static_cast<int>(level.feed_.size()) : 0;
    level.parents_.resize(level.feed_.size());
    std::iota(level.parents_.begin(), level.parents_.end(), -1);
    level.rows_.assign(1, static_cast<std::int32_t>(level.feed_.size()) - 1);
    level.row_of_.assign(1, 0);
    if (guess_) guess_(level);
    prepare(level);
    active_.push_back(&level);
  }
  while (!active_.empty()) {
    feeds_.clear();
    for (DraftLevel* level : active_) {
      std::vector<float>& logits = level->rows_of_logits_;
      const auto before = static_cast<std::size_t>(level->rows_used_),
                 width = static_cast<std::size_t>(columns());
      logits.resize(std::max(logits.size(), (before + level->rows_.size()) * width));
      feeds_.push_back({&level->cache_.session(), level->feed_, level->parents_, level->rows_,
                        logits.data() + before * width});
      feeds_.back().continues = level->depth_ > 0;
      level->forward_rows_.push_back(static_cast<int>(level->feed_.size()));
    }
    resources_.draft->forward(feeds_);
    std::erase_if(active_, [&](DraftLevel* level) { return !advance(*level, grow); });
  }
}

// Adds the nodes that no forward has fed yet to the coming forward.
void DraftLevels::prepare(DraftLevel& level) {
  for (; level.fed_ < static_cast<int>(level.flying_.size()); ++level.fed_) {
    DraftLevel::Flying& node = level.flying_[static_cast<std::size_t>(level.fed_)];
    node.row = level.rows_used_ + static_cast<int>(level.rows_.size());
    level.rows_.push_back(static_cast<std::int32_t>(level.feed_.size()));
    level.feed_.push_back(node.token);
    level.parents_.push_back(level.base_ + node.parent);
  }
}

// Adds levels below the fed nodes, until a node needs a forward. Returns false when the draft is complete.
bool DraftLevels::advance(DraftLevel& level, const Grow& grow) {
  if (level.depth_ == 0 && !guess_) level.cache_.keep(level.feed_);
  else level.cache_.add_in_flight(level.feed_);
  if (guess_) level.rows_used_ += static_cast<int>(level.rows_.size());
  for (;;) {
    level.next_.clear();
    grow(level);
    if (level.draft_->tree.drafted() > 0) level.draft_->source = "draft";
    ++level.depth_;
    if (level.next_.empty() || level.depth_ >= level.limit_) return false;
    level.plain_rows_.push_back(static_cast<int>(level.next_.size()));
    const bool forward = level.fed_ < static_cast<int>(level.flying_.size());
    level.feed_.clear();
    level.parents_.clear();
    level.rows_.clear();
    if (forward && guess_) guess_(level);
    prepare(level);
    level.row_of_.clear();
    for (const int number : level.next_)
      level.row_of_.push_back(level.flying_[static_cast<std::size_t>(number)].row);
    if (forward) return true;
  }
}

}  // namespace speclab
