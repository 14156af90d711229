// Tree speculation: a small model drafts a tree of fixed shape, so the target has several guesses to choose
// from when the first one is wrong. `widths` says how many children a node has at each depth (expansion
// <k1, ..., km>). `sequences` are several chains of one length, and `tree` names a file with any shape
// (`speclab optimize tree` makes one for a machine and a pair of models). If all widths are 1, this is
// speculative sampling.
//
// With "budget": "auto" a step drafts the part of this tree that is worth its time, perhaps nothing. The part
// is chosen before a token is drawn, so the text keeps its distribution.
//
// A tree file may also hold several trees. Each step then drafts one of them. The choice depends on the draft
// model's confidence, its largest probability after the pending token. The confidence, too, is known before a
// token is drawn.
//
// The children of a node are drawn without replacement, drawn independently, or are the draft's best tokens.
// Each node gets the distribution that its token was drawn from. The rule "rejection" is exact for all three,
// because it passes the residual from child to child.
//
// Paper:       Miao et al. 2024, "SpecInfer" (expansion and independent sequences, Section 3; multi-step
//              speculative sampling, Algorithm 2); Chen et al. 2024, "Sequoia" (arXiv 2402.12374): draws
//              without replacement (Section 3.2), and the shape of the tree (Section 3.1). The choice of a
//              tree by confidence extends that section.
// Draft cost:  one draft forward per depth over the nodes of the level that have children: as many forwards
//              as for the deepest path alone.
// Loses when:  rows are not free: a tree of n drafted tokens needs a target forward over 1 + n rows. Compared
//              with the chain on its first path, the tree gains only the probability that the target chooses
//              a sibling: the draft's second, third, ... best token.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/drafting/draft_levels.h"
#include "core/decoding/drafting/tree_growth.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/drafting/trees_by_confidence.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

struct TreeSpeculationOptions {
  std::vector<int> widths = {3, 2, 1, 1};
  int sequences = 0;
  int length = 4;
  std::string tree;
  bool root_confidence = false;
  TreeGrowthOptions growth;
  BudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit("widths", widths, Range<int>{1, TreeShape::kMostDrafted},
          "number of children of each node, one entry per depth; the first entry is for the pending token");
    visit("sequences", sequences, Range<int>{0, TreeShape::kMostDrafted},
          "instead of `widths`: this many chains of `length` tokens, drawn independently; 0: off");
    visit("length", length, Range<int>{1, TreeShape::kMostDrafted}, "tokens of each of the `sequences`");
    visit("tree", tree,
          "instead of `widths`: a tree file, as `speclab optimize tree` writes it. A file with several trees "
          "needs \"budget\": \"fixed\"");
    visit("root_confidence", root_confidence,
          "also compute the draft model's largest probability after the pending token, for the record; "
          "`speclab optimize tree --by-confidence` needs it. A file with several trees always computes it");
    budget.fields(visit);
    growth.fields(visit);
  }
};

TreesByConfidence trees_of(const TreeSpeculationOptions& options) {
  const std::string name = "tree_speculation: ";
  if (!options.tree.empty()) {
    if (options.sequences > 0)
      throw Error({name + "tree, sequences", "both", "only one of them", "Leave one of them out."});
    TreesByConfidence trees = TreesByConfidence::read(options.tree);
    // A budget chooses before the draft model runs, so it cannot know the confidence.
    if (trees.several() && options.budget.automatic()) {
      throw Error({name + "budget", fmt::format("auto, and {} trees in {}", trees.count(), options.tree),
                   "fixed, because the confidence of the draft model chooses the tree",
                   "Set budget to fixed, or use a file with one tree."});
    }
    return trees;
  }
  if (options.sequences == 0) return TreeShape::of_widths(options.widths, name + "widths");
  std::vector<int> widths(static_cast<std::size_t>(options.length), 1);
  widths.front() = options.sequences;
  return TreeShape::of_widths(widths, name + "sequences, length");
}

class TreeSpeculation final : public Strategy {
 public:
  TreeSpeculation(const TreeSpeculationOptions& options, const Resources& resources)
      : options_(growth_of(options)), growth_(options_, trees_of(options), resources), levels_(resources) {
    slots_.resize(static_cast<std::size_t>(resources.batch));
    same_steps_ = !options.budget.automatic() && !options.root_confidence && !growth_.trees().several();
    if (options.root_confidence) growth_.record_confidence();
    if (!options.budget.automatic()) return;
    require_draft_costs(resources.costs.get(), "tree_speculation");
    for (Slot& slot : slots_) slot.budget.emplace(resources.costs, growth_.shape(), ShapeBudget::Settings{});
  }

  // A device can run these steps if they all have the same form: there is one tree and no budget, and all
  // nodes of a depth have the same number of children, drawn without replacement or best. It cannot draw with
  // `used_up: uniform` above temperature 0, and it computes no confidence of the root.
  std::optional<DevicePlan> device_plan(const SamplingParams& target) const override {
    const SamplingParams sampling = options_.sampling_over(target);
    const bool other_draws = options_.children == Children::independent ||
                             (options_.used_up == UsedUp::uniform && sampling.temperature > 0);
    auto widths = growth_.trees().tree(0).widths();
    if (!widths || other_draws || !same_steps_) return std::nullopt;
    return DevicePlan{std::move(*widths), sampling};
  }

  int max_nodes() const override { return growth_.trees().nodes(); }

  void begin(const Sequence& sequence) override {
    growth_.begin(sequence);
    Slot& s = slot_of(sequence);
    if (s.budget) s.budget->begin();
    levels_.begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    drafting_.clear();
    drafts_.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& sequence = *sequences[i];
      Slot& s = slot_of(sequence);
      if (s.budget) {
        const auto limit = std::min<std::int64_t>(sequence.depth_limit, levels_.room(sequence));
        if (limit <= 0 || s.budget->choose(static_cast<int>(limit), levels_.behind(sequence)) == 0) continue;
        growth_.take_part(sequence, *s.budget);
      }
      drafting_.push_back(&sequence);
      drafts_.push_back(drafts[i]);
    }
    levels_.draft(drafting_, drafts_, growth_.trees().depth(),
                  [this](DraftLevel& level) { growth_.grow(level); });
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& s = slot_of(*sequences[i]);
      const TokenTree& tree = outcomes[i].draft->tree;
      if (s.budget && tree.drafted() > 0) s.budget->observe_tree(tree, outcomes[i].acceptance->path);
    }
  }

 private:
  struct Slot {
    std::optional<ShapeBudget> budget;
  };
  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }

  static TreeGrowthOptions growth_of(const TreeSpeculationOptions& options) {
    TreeGrowthOptions growth = options.growth;
    if (options.sequences > 0) growth.children = Children::independent;
    return growth;
  }

  TreeGrowthOptions options_;
  TreeGrowth growth_;
  DraftLevels levels_;
  bool same_steps_ = true;
  std::vector<Slot> slots_;  // [batch]
  std::vector<const Sequence*> drafting_;
  std::vector<Draft*> drafts_;
};

const RegisterStrategy<TreeSpeculationOptions, TreeSpeculation> registered{{
    .name = "tree_speculation",
    .summary =
        "a small model drafts a tree of fixed shape, or of one of several shapes by its confidence; the "
        "target verifies it in one forward",
    .paper = "Miao et al. 2024, SpecInfer (expansion); Chen et al. 2024, Sequoia (draws and shape)",
    .draft_source = "small model or layers of the target",
    .stop_rule = "budget; shape of the tree, which may depend on the draft's confidence",
    .verification = "tree",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
    .may_name_file = "tree",
    .former_name = "draft_tree",
    .drafts_any_shape = true,
}};

}  // namespace
}  // namespace speclab
