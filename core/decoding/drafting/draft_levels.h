#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/strategy.h"

namespace speclab {

class DraftLevels;

/// One level of a tree that a draft model drafts for one sequence. The fed nodes are the nodes whose children
/// come next. At depth 0 the only fed node is the pending token.
class DraftLevel {
 public:
  const Sequence& sequence() const { return *sequence_; }
  Draft& draft() const { return *draft_; }
  int depth() const { return depth_; }  ///< depth of the fed nodes
  int limit() const { return limit_; }  ///< largest depth of a node in this step
  /// The draft's logits after fed node i, [head_rows], with the sequence's logits processors applied. `path`
  /// holds the tokens from depth 1 to that node; only processors read it. The result is empty if the
  /// processors ban every token. It is valid until the next call.
  std::span<const float> logits(int i, TokenSpan path);
  /// Feeds a node of the next level. `parent` is the number that feed() returned for its parent, or -1 for
  /// the pending token. Returns the number of this node. The nodes of a level are fed in the order of the
  /// calls: at the next depth logits(0) belongs to the first. If no node of a level is fed, the draft ends.
  int feed(Token token, int parent);
  /// Adds a node to the coming forward, because a later level may feed it. Call it only in the function that
  /// was given to DraftLevels::look_ahead(). `parent` is as in feed(); the number returned may be the parent
  /// of a further guess. Returns nothing when the node would be too deep, or when this step has guessed
  /// kMostGuesses nodes.
  std::optional<int> guess(Token token, int parent);
  /// Whether guess() below this parent can return a number.
  bool may_guess_below(int parent) const;
  static constexpr int kMostGuesses = 31;
  /// Whether the caller has fed the node that guess() returned this number for.
  bool was_right(int guess) const { return flying_[static_cast<std::size_t>(guess)].wanted; }
  /// Number of rows of each forward of this step.
  std::span<const int> forward_rows() const { return forward_rows_; }
  /// Number of rows of each forward that this step would have made without guesses.
  std::span<const int> rows_without_guesses() const { return plain_rows_; }

 private:
  friend class DraftLevels;
  struct Flying {
    Token token;
    int parent;
    int depth;
    int row;              // in rows_of_logits_
    bool wanted = false;  // feed() was called for it
  };
  int find(Token token, int parent) const;  // number of a node in flight, or -1
  int add(Token token, int parent, int depth);
  const Sequence* sequence_ = nullptr;
  Draft* draft_ = nullptr;
  const Model* model_ = nullptr;
  int depth_ = 0, limit_ = 0;
  DraftCache cache_;
  std::vector<Flying> flying_;  // nodes fed in this step, by number, without the pending token
  std::vector<int> row_of_;     // [nodes of the level], row of logits of each
  std::vector<int> next_;       // [nodes of the next level], numbers
  int fed_ = 0;                 // number of nodes of `flying_` that a forward has fed
  int base_ = 0;                // rows in flight before flying_[0]: tokens of the text; 0 without guesses
  int guesses_ = 0;
  int rows_used_ = 0;  // rows of logits of the earlier forwards of this step that are still needed
  std::vector<int> forward_rows_, plain_rows_;
  std::vector<Token> feed_;
  std::vector<std::int32_t> parents_, rows_;
  std::vector<float> rows_of_logits_;  // [rows, head_rows]
  std::vector<float> processed_;       // [head_rows], when there are processors
};

/// Runs a draft model level by level, for all sequences together: one forward for each level. The caller
/// decides which tokens a level adds. The draft's KV cache follows the text by itself.
class DraftLevels {
 public:
  explicit DraftLevels(const Resources& resources);
  void begin(const Sequence& sequence);
  /// Adds the nodes below the fed ones to level.draft() and feeds those that get children of their own. In a
  /// step it may feed at most max(128, Strategy::max_nodes()) - 1 nodes of a sequence, because the draft's
  /// session has room for max(128, max_nodes()) rows in flight. The function object should hold at most one
  /// pointer, so that it allocates nothing.
  using Grow = std::function<void(DraftLevel& level)>;
  /// Makes draft() call `guess` before each forward. `guess` may add nodes with DraftLevel::guess(). If a
  /// guess is right, that is, if the caller feeds the guessed node later, its row is there already. A level
  /// whose nodes were all guessed costs no forward. The rows, and so the drafts, are the same with and
  /// without guesses. With guesses, a Grow may feed at most 64 nodes of a sequence in a step.
  void look_ahead(Grow guess) { guess_ = std::move(guess); }
  /// Drafts at most `depth` levels for each sequence, fewer near the end of the text or of the context.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts, int depth,
             const Grow& grow);
  /// Length of the longest path that fits into the draft's context.
  std::int64_t room(const Sequence& sequence) const { return cache_of(sequence).room(sequence); }
  /// DraftCache::behind() of the draft model's cache of this sequence.
  int behind(const Sequence& sequence) const { return cache_of(sequence).behind(sequence); }
  /// What a sequence drafted last.
  const DraftLevel& last(const Sequence& sequence) const {
    return slots_[static_cast<std::size_t>(sequence.slot)];
  }
  /// Number of tokens that the draft can draw; its vocabulary may be reduced.
  int columns() const { return resources_.draft->config().head_rows(); }

 private:
  void prepare(DraftLevel& level);
  const DraftCache& cache_of(const Sequence& sequence) const {
    return slots_[static_cast<std::size_t>(sequence.slot)].cache_;
  }
  bool advance(DraftLevel& level, const Grow& grow);

  Resources resources_;
  Grow guess_;                       // empty: no guesses
  std::vector<DraftLevel> slots_;    // [batch]
  std::vector<DraftLevel*> active_;  // reused by draft()
  std::vector<Feed> feeds_;
};

}  // namespace speclab
