#include "core/decoding/drafting/lookahead_window.h"

#include <algorithm>

#include "core/base/error.h"

namespace speclab {

LookaheadWindow::LookaheadWindow(int width, int levels)
    : final_width_(width),
      levels_(static_cast<std::size_t>(levels)),
      nodes_(static_cast<std::size_t>(levels)) {
  SPECLAB_CHECK(width >= 0 && levels >= 1, "a window of {} columns and {} levels", width, levels);
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    levels_[level].reserve(static_cast<std::size_t>(width + levels));
    nodes_[level].reserve(static_cast<std::size_t>(width + levels));
  }
}

int LookaheadWindow::max_nodes(int width, int levels) {
  if (width == 0) return 0;
  int most = 0;
  for (int filled = 1; filled <= levels; ++filled)
    most = std::max(most, filled * (width + levels - filled) - 1);
  return most;
}

void LookaheadWindow::start(const Refill& initial) {
  filled_ = 1;
  width_ = final_width_ == 0 ? 0 : final_width_ + static_cast<int>(levels_.size()) - 1;
  if (width_ == 0) filled_ = static_cast<int>(levels_.size());
  for (auto& level : levels_) level.assign(static_cast<std::size_t>(width_), 0);
  for (int column = 1; column < width_; ++column)
    levels_[0][static_cast<std::size_t>(column)] = initial(column - 1);
}

void LookaheadWindow::start_full(const Refill& initial) {
  filled_ = static_cast<int>(levels_.size());
  width_ = final_width_;
  int draw = 0;
  for (auto& level : levels_) {
    level.resize(static_cast<std::size_t>(width_));
    for (Token& token : level) token = initial(draw++);
  }
}

void LookaheadWindow::feed(Draft& draft, int limit, std::span<const int> level0) {
  for (int level = 0; level < filled_; ++level) {
    const NodeKind kind = level == filled_ - 1 ? NodeKind::probe : NodeKind::relay;
    std::vector<int>& nodes = nodes_[static_cast<std::size_t>(level)];
    nodes.assign(static_cast<std::size_t>(width_), -1);
    for (int column = 0; column < width_ && column + level <= limit; ++column) {
      const auto at = static_cast<std::size_t>(column);
      const Token token = levels_[static_cast<std::size_t>(level)][at];
      if (level > 0) {
        nodes[at] = draft.add_probe(token, nodes_[static_cast<std::size_t>(level) - 1][at], kind);
      } else if (column == 0) {
        nodes[at] = 0;
      } else {
        nodes[at] = at < level0.size() ? level0[at] : draft.add_probe(token, nodes[at - 1], kind);
      }
    }
  }
}

void LookaheadWindow::predict(const StepRows& rows, const Refill& refill,
                              std::vector<Token>& predictions) const {
  predictions.clear();
  if (width_ == 0) return;
  int draw = 0;
  for (const int node : nodes_[static_cast<std::size_t>(filled_) - 1]) {
    predictions.push_back(node >= 0 ? rows.best(node) : refill(draw++));
  }
}

void LookaheadWindow::advance(std::span<const Token> predictions, int steps, const Refill& refill, int draw) {
  if (width_ == 0) return;
  SPECLAB_CHECK(steps >= 1 && static_cast<int>(predictions.size()) == width_,
                "{} steps, {} predictions for {} columns", steps, predictions.size(), width_);
  if (!warm()) {
    levels_[static_cast<std::size_t>(filled_)].assign(predictions.begin(), predictions.end());
    ++filled_;
    --width_;
    for (int level = 0; level < filled_; ++level) {
      auto& tokens = levels_[static_cast<std::size_t>(level)];
      tokens.erase(tokens.begin());
    }
    return;
  }
  std::rotate(levels_.begin(), levels_.begin() + 1, levels_.end());
  levels_.back().assign(predictions.begin(), predictions.end());
  const int columns = std::min(steps - 1, width_);
  if (columns == 0) return;
  for (auto& tokens : levels_) {
    std::copy(tokens.begin() + columns, tokens.end(), tokens.begin());
    for (auto token = tokens.end() - columns; token != tokens.end(); ++token) *token = refill(draw++);
  }
}

Token random_text_token(const Sequence& sequence, TokenSpan text, int draw) {
  const auto size = text.size();
  if (sequence.coins.is_scripted()) return text[static_cast<std::size_t>(draw) % size];
  const double coin =
      sequence.coins.uniform({sequence.position(), Purpose::simulate, static_cast<std::uint32_t>(draw)});
  return text[static_cast<std::size_t>(coin * static_cast<double>(size))];
}

}  // namespace speclab
