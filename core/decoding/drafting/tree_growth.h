#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/drafting/draft_levels.h"
#include "core/decoding/drafting/trees_by_confidence.h"

namespace speclab {

/// How the children of a node are chosen.
enum class Children { without_replacement, independent, best };

/// What follows when draws without replacement have used up all tokens that have mass.
enum class UsedUp { best, uniform };

/// Options of TreeGrowth: how children are drawn.
struct TreeGrowthOptions {
  Children children = Children::without_replacement;
  UsedUp used_up = UsedUp::best;
  DraftSampling draft;
  void fields(OptionVisitor& visit);
  /// The draft's parameters when the target samples with `target`.
  SamplingParams sampling_over(const SamplingParams& target) const;
};

/// Lets a draft model draw a tree, level by level: a tree of a fixed shape, the part of it that a budget
/// chose, or one of several trees, which the confidence of the draft model chose (TreesByConfidence). Each
/// node gets the distribution that its token was drawn from. Tokens are drawn with Sequence::draft_coin, or
/// with the coupled noise of their position.
///
/// The confidence is the largest probability of the draft model's distribution after the pending token, at
/// the draft's temperature (1 at temperature 0), before top-k and top-p. It costs a pass over the row.
class TreeGrowth {
 public:
  /// resources.draft must be set. Throws Error if a node of a tree has more children than the draft has
  /// tokens, unless the children are drawn independently.
  TreeGrowth(const TreeGrowthOptions& options, TreesByConfidence trees, const Resources& resources);

  const TreesByConfidence& trees() const { return trees_; }
  /// The shape of all drafts. Call it only if there is one tree.
  const TreeShape& shape() const { return trees_.tree(0); }
  /// From now on, drafts have their Draft::root_confidence also if there is one tree.
  void record_confidence() { with_confidence_ = true; }
  void begin(const Sequence& sequence);
  /// From now on, each draft of the sequence has only the part of the shape that the budget chose last. The
  /// budget must live as long as this object makes drafts of the sequence. Call it only if there is one tree.
  void take_part(const Sequence& sequence, const ShapeBudget& part) {
    slots_[static_cast<std::size_t>(sequence.slot)].part = &part;
  }
  /// Adds the children of the fed nodes, and feeds those children that have children of their own. Call it as
  /// DraftLevels::Grow.
  void grow(DraftLevel& level);
  /// A node of the draft that the coming forward feeds.
  struct Fed {
    int node;
    int number;  ///< what DraftLevel::feed() returned for the node; -1 for the pending token
  };
  /// Node `i` of the level that the coming forward feeds. At depth 0 that is the pending token alone.
  Fed fed(const DraftLevel& level, int i) const;
  int fed_count(const DraftLevel& level) const;

 private:
  struct Slot {
    const ShapeBudget* part = nullptr;  // null: the whole shape
    SamplingParams sampling;
    int tree = 0;                // number of the tree of the draft in progress
    Distribution root;           // its largest probability is the confidence
    std::vector<int> fed;        // nodes of the draft that were fed in the forward in progress
    std::vector<int> in_shape;   // [nodes of the draft], their nodes in the shape
    std::vector<int> in_flight;  // [nodes of the draft], Fed::number; 0 for a node that was not fed
    std::vector<int> path;
    std::vector<Token> prefix;
    SiblingDraw siblings;
  };
  // The number of children of a node of the tree in this draft.
  int children_of(const Slot& s, int of_shape) const {
    return s.part != nullptr ? s.part->children(of_shape) : trees_.tree(s.tree).children(of_shape);
  }
  void choose_tree(Slot& s, DraftLevel& level);
  void add_children(Slot& s, DraftLevel& level, int row, int node, int count);

  TreeGrowthOptions options_;
  const ModelConfig& config_;  // of the draft
  TreesByConfidence trees_;
  bool with_confidence_;
  std::vector<Slot> slots_;  // [batch]
};

}  // namespace speclab
