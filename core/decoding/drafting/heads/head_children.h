#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/budget/budget_options.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// How the children of a node are chosen from the logits of a head.
enum class HeadDraw : std::uint8_t { best, without_replacement };

/// Options of HeadChildren.
struct HeadChildrenOptions {
  HeadDraw children = HeadDraw::best;
  DraftSampling draft{};
  void fields(OptionVisitor& visit);
};

/// Throws Error, which names `strategy`, if children are drawn and a budget cuts drafts after they were made.
void require_uncut_draws(const HeadChildrenOptions& options, const CutBudgetOptions& budget,
                         const std::string& strategy);

/// A drafted node that gets children.
struct HeadNode {
  int node = 0;      ///< in the draft
  int of_shape = 0;  ///< in the shape
  int row = 0;       ///< its parent's place in the level above
};

/// Turns logits of a head into the children of drafted nodes, level by level. The best tokens of a row are
/// one-hot: they were not drawn. Tokens that are drawn without replacement get the distribution that they
/// were drawn from. So with both, every lossless rule stays exact, whatever the head says.
class HeadChildren {
 public:
  /// `ids`: the tokens of the head's rows, ascending; empty: all. They must outlive this object. `vocab` is
  /// the size of the target's vocabulary.
  HeadChildren(const HeadChildrenOptions& options, std::span<const Token> ids, int vocab)
      : options_(options), ids_(ids), vocab_(vocab) {}

  /// The first level: the pending token.
  static std::vector<HeadNode> root() { return {HeadNode{}}; }
  /// Adds the children that the shape has below the nodes of `level`. logits: [rows, width]. Row i belongs to
  /// level[i]; or one row belongs to all nodes, and then logits processors see the text without the drafted
  /// tokens. Otherwise they also see the tokens down to the node. Afterwards `level` holds the new nodes
  /// that have children in the shape. Fewer children are added if too few tokens of a row have mass.
  void grow(const Sequence& sequence, Draft& draft, const TreeShape& shape, std::span<const float> logits,
            int rows, std::vector<HeadNode>& level);
  /// Returns the best tokens of one row, best first, at most `most`. `path` has the tokens from depth 1 to
  /// the node that the row belongs to, for logits processors. Only with HeadDraw::best. The result is valid
  /// until the next call.
  std::span<const Token> best(const Sequence& sequence, std::span<const float> logits, TokenSpan path,
                              int most);
  /// The probability of a token in the row of the last best(), at temperature 1.
  double share(Token token) const { return soft_.prob(token); }

 private:
  bool take_row(const Sequence& sequence, std::span<const float> logits, TokenSpan path, int most);
  void add(const Sequence& sequence, Draft& draft, int parent, int count);

  HeadChildrenOptions options_;
  std::span<const Token> ids_;
  int vocab_;
  std::span<const float> row_;  // the row that children come from
  std::vector<float> processed_;
  Distribution soft_;  // of that row, at temperature 1
  std::vector<Token> best_, path_;
  std::vector<int> nodes_;
  std::vector<HeadNode> next_;
  SiblingDraw siblings_;
};

}  // namespace speclab
