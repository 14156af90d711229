#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/options.h"
#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/drafting/draft_levels.h"
#include "core/decoding/drafting/tree_shape.h"

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

/// Lets a draft model draw a tree of a fixed shape, or the part of it that a budget chose, level by level.
/// Each node gets the distribution that its token was drawn from. Tokens are drawn with Sequence::draft_coin,
/// or with the coupled noise of their position.
class TreeGrowth {
 public:
  /// resources.draft must be set. Throws Error if a node of the shape has more children than the draft has
  /// tokens, unless the children are drawn independently.
  TreeGrowth(const TreeGrowthOptions& options, TreeShape shape, const Resources& resources);

  const TreeShape& shape() const { return shape_; }
  void begin(const Sequence& sequence);
  /// From now on, each draft of the sequence has only the part of the shape that the budget chose last. The
  /// budget must live as long as this object makes drafts of the sequence.
  void take_part(const Sequence& sequence, const ShapeBudget& part) {
    slots_[static_cast<std::size_t>(sequence.slot)].part = &part;
  }
  /// Adds the children of the fed nodes, and feeds those children that have children of their own. Call it as
  /// DraftLevels::Grow.
  void grow(DraftLevel& level);
  /// A node of the draft that the coming forward feeds, and the number that DraftLevel::feed() returned for
  /// it; -1 for the pending token.
  struct Fed {
    int node;
    int number;
  };
  /// Node `i` of the level that the coming forward feeds. At depth 0 that is the pending token alone.
  Fed fed(const DraftLevel& level, int i) const;
  int fed_count(const DraftLevel& level) const;

 private:
  struct Slot {
    const ShapeBudget* part = nullptr;  // null: the whole shape
    SamplingParams sampling;
    std::vector<int> fed;        // nodes of the draft that were fed in the forward in progress
    std::vector<int> in_shape;   // [nodes of the draft], the node of the shape; a draft may lack nodes
    std::vector<int> in_flight;  // [nodes of the draft], number of a fed node; -1 for the pending token
    std::vector<int> path;
    std::vector<Token> prefix;
    SiblingDraw siblings;
  };
  // The number of children of a node of the shape in this draft.
  int children_of(const Slot& s, int of_shape) const {
    return s.part != nullptr ? s.part->children(of_shape) : shape_.children(of_shape);
  }
  void add_children(Slot& s, DraftLevel& level, int row, int node, int count);

  TreeGrowthOptions options_;
  const ModelConfig& config_;  // of the draft
  TreeShape shape_;
  std::vector<Slot> slots_;  // [batch]
};

}  // namespace speclab
