#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/decoding/drafting/draft.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// The window of lookahead decoding: the last N - 1 iterates of a Jacobi iteration over W positions (Fu et
/// al. 2024, Section 3.2). Level j, column i holds a guess of the token at offset i + j from the pending
/// token. Level 0, column 0 is the pending token itself. In the token tree, level 0 is a chain below the
/// pending token, and the parent of a token of level j is the token of level j - 1 in the same column. So
/// every token sees one token at each offset before its own.
///
/// The window starts with level 0 only, W + N - 2 columns wide. Each of the first N - 2 steps adds the
/// predictions of the last level as a new level and drops the first column. After this warm-up every step
/// adds a level and drops the first level. With one level (N = 2) this is the state of plain Jacobi decoding.
class LookaheadWindow {
 public:
  /// Returns a first guess for a new place of the window. `draw` numbers the guesses of a step: 0, 1, 2, ...
  using Refill = std::function<Token(int draw)>;

  /// `width` = W >= 0 is the number of columns after warm-up, `levels` = N - 1 >= 1.
  LookaheadWindow(int width, int levels);

  void start(
      const Refill& initial);  ///< starts with level 0 only; `initial` gives the tokens from offset 1 on
  void start_full(const Refill& initial);  ///< starts with all levels at once, without a warm-up
  bool warm() const { return filled_ == static_cast<int>(levels_.size()); }
  int width() const { return width_; }    ///< current number of columns
  int filled() const { return filled_; }  ///< current number of levels
  Token at(int level, int column) const { return levels_[level][column]; }
  Token& at(int level, int column) { return levels_[level][column]; }
  /// Largest number of nodes that feed() adds.
  static int max_nodes(int width, int levels);

  /// Adds the window to the draft below node 0, no deeper than `limit`. Nodes of the last level are probes;
  /// nodes of the other levels are relays. If the caller has added level 0 before as candidates,
  /// level0[i] is the node at offset i and level0[0] = 0.
  void feed(Draft& draft, int limit, std::span<const int> level0 = {});
  /// After the forward: sets `predictions` to the predictions of the last level, column by column.
  /// For a column that was not fed, the prediction is a first guess from `refill`.
  void predict(const StepRows& rows, const Refill& refill, std::vector<Token>& predictions) const;
  /// Moves the window after the text grew by `steps` >= 1 tokens. During warm-up it adds a level and drops
  /// one column. Afterwards it replaces the oldest level and drops (steps - 1) columns, at most W. New
  /// columns at the far end get first guesses from `refill`, with draws numbered from `draw` on.
  void advance(std::span<const Token> predictions, int steps, const Refill& refill, int draw);

 private:
  int final_width_;
  int width_ = 0;
  int filled_ = 0;
  std::vector<std::vector<Token>> levels_;  // [N - 1][columns]
  std::vector<std::vector<int>> nodes_;     // [levels][columns] nodes of the last feed(); -1: not fed
};

/// Draws a token of `text` (not empty) as a first guess. `draw` numbers the guesses of a step, and each of
/// them has a coin of its own. If the coins are scripted (see Coins), takes the tokens in order instead. A
/// guess does not affect the distribution of the text, so the script need not choose it.
Token random_text_token(const Sequence& sequence, TokenSpan text, int draw);

}  // namespace speclab
