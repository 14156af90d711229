#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/decoding/drafting/draft.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// The window of lookahead decoding: the last N - 1 iterates of a Jacobi iteration over W positions (Fu et
/// al. 2024, Section 3.2). Level j, column i holds a guess of the token at offset i + j from the pending
/// token; level 0, column 0 is the pending token itself. As a tree: level 0 is a chain below the pending
/// token, and a token of level j has that of level j - 1 in its own column as its parent, so every token sees
/// one token at each offset before its own.
///
/// It starts with level 0 alone, W + N - 2 columns wide. Each of the first N - 2 steps adds the predictions
/// for the last level as a new one and drops the first column; from then on every step drops the first level
/// instead. With one level (N = 2) it is the state of plain Jacobi decoding.
class LookaheadWindow {
 public:
  /// Gives a token for a place that nothing is known about; called with 0, 1, 2, ... within a step.
  using Refill = std::function<Token(int draw)>;

  /// `width` = W >= 0 columns in the end, `levels` = N - 1 >= 1.
  LookaheadWindow(int width, int levels);

  void start(const Refill& initial);       ///< level 0 alone, offsets from 1
  void start_full(const Refill& initial);  ///< all levels at once, without a warm-up
  bool warm() const { return filled_ == static_cast<int>(levels_.size()); }
  int width() const { return width_; }    ///< columns now
  int filled() const { return filled_; }  ///< levels now
  Token at(int level, int column) const { return levels_[level][column]; }
  Token& at(int level, int column) { return levels_[level][column]; }
  /// Most nodes that feed() adds.
  static int max_nodes(int width, int levels);

  /// Hangs the window below node 0, as far as `limit` allows: level 0 as probes (or as candidates, which the
  /// caller added before, `level0[i]` being the node at offset i and level0[0] = 0), the others column by
  /// column; only the last level asks for logits.
  void feed(Draft& draft, int limit, std::span<const int> level0 = {});
  /// After the forward: what the last level's rows predict, column by column; those that were not fed are
  /// refilled.
  void predict(const StepRows& rows, const Refill& refill, std::vector<Token>& predictions) const;
  /// The text has moved on by `steps` >= 1 tokens: while warming up one column goes, then one level and steps
  /// - 1 columns; what comes in at the far end is refilled. Draws go on from `draw`.
  void advance(std::span<const Token> predictions, int steps, const Refill& refill, int draw);

 private:
  int final_width_;
  int width_ = 0;
  int filled_ = 0;
  std::vector<std::vector<Token>> levels_;  // [N - 1][columns]
  std::vector<std::vector<int>> nodes_;     // of the last feed, -1: not fed
};

/// A token of `text` (not empty) by a coin of its own at this step: a first guess where nothing better is
/// known. Under a script they come in order, because a guess is no branch of the text's law.
Token random_text_token(const Sequence& sequence, TokenSpan text, int draw);

}  // namespace speclab
