// Tree speculation: a small model drafts a tree of fixed shape, so the target has several guesses to choose
// from when the first one is wrong. `widths` says how many children a node has at each depth (expansion
// <k1, ..., km>). `sequences` are several chains of one length, and `tree` names a file with any shape
// (`speclab optimize tree` makes one for a machine and a pair of models). If all widths are 1, this is
// speculative sampling.
//
// The children of a node are drawn without replacement, drawn independently, or are the draft's best tokens.
// Each node gets the distribution that its token was drawn from. The rule "rejection" is exact for all three,
// because it passes the residual from child to child.
//
// Paper:       Miao et al. 2024, "SpecInfer" (expansion and independent sequences, Section 3; multi-step
//              speculative sampling, Algorithm 2); Chen et al. 2024, "Sequoia" (arXiv 2402.12374): draws
//              without replacement (Section 3.2), and the shape of the tree (Section 3.1).
// Draft cost:  one draft forward per depth over the nodes of the level that have children: as many forwards
//              as a chain of that depth.
// Loses when:  rows are not free. A tree of n nodes costs t(1 + n). Compared with the chain on its first
//              path, the tree gains only the probability that the target chooses a sibling: the draft's
//              second, third, ... best token.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_levels.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

/// How the children of a node are chosen.
enum class Children { without_replacement, independent, best };

/// What follows when draws without replacement have used up all tokens that have mass.
enum class UsedUp { best, uniform };

struct Options {
  std::vector<int> widths = {3, 2, 1, 1};
  int sequences = 0;
  int length = 4;
  std::string tree;
  Children children = Children::without_replacement;
  UsedUp used_up = UsedUp::best;
  DraftSampling draft;
  void fields(OptionVisitor& visit) {
    visit("widths", widths, Range<int>{1, TreeShape::kMostDrafted},
          "number of children of each node, one entry per depth; the first entry is for the pending token");
    visit("sequences", sequences, Range<int>{0, TreeShape::kMostDrafted},
          "in place of `widths`: this many chains of `length` tokens, drawn independently; 0: off");
    visit("length", length, Range<int>{1, TreeShape::kMostDrafted}, "tokens of each of the `sequences`");
    visit("tree", tree, "in place of `widths`: a tree file, as `speclab optimize tree` writes it");
    visit(
        "children", children,
        {{Children::without_replacement, "without_replacement"},
         {Children::independent, "independent"},
         {Children::best, "best"}},
        "without_replacement: each child is drawn from q without the earlier ones, and at temperature 0 the "
        "best tokens follow each other; independent: each child is drawn from q, and equal children stay; "
        "best: the draft's best tokens, which are not drawn (one-hot q)");
    visit("used_up", used_up, {{UsedUp::best, "best"}, {UsedUp::uniform, "uniform"}},
          "when q has no further token: best: the next best tokens, with one-hot q; uniform: draws from all "
          "other tokens with equal probability, as in Sequoia");
    draft.fields(visit);
  }
};

TreeShape shape_of(const Options& options, int columns) {
  const std::string name = "tree_speculation: ";
  if (!options.tree.empty()) {
    if (options.sequences > 0)
      throw Error({name + "tree, sequences", "both", "only one of them", "Leave one of them out."});
    TreeShape shape = TreeShape::read(options.tree);
    shape.require_children(columns);
    return shape;
  }
  if (options.sequences == 0) return TreeShape::of_widths(options.widths, name + "widths");
  std::vector<int> widths(static_cast<std::size_t>(options.length), 1);
  widths.front() = options.sequences;
  return TreeShape::of_widths(widths, name + "sequences, length");
}

class TreeSpeculation final : public Strategy {
 public:
  TreeSpeculation(const Options& options, const Resources& resources)
      : options_(options),
        config_(resources.draft->config()),
        shape_(shape_of(options, config_.head_rows())),
        levels_(resources) {
    if (options_.sequences > 0) options_.children = Children::independent;
    slots_.resize(static_cast<std::size_t>(resources.batch));
  }

  // A device can run these steps if all nodes of a depth have the same number of children, drawn without
  // replacement or best. It cannot draw with `used_up: uniform` above temperature 0. The vocabulary of the
  // draft may be reduced; it must have as many tokens as a node has children.
  std::optional<DevicePlan> device_plan(const SamplingParams& target) const override {
    const SamplingParams sampling = sampling_over(target);
    const bool other_draws = options_.children == Children::independent ||
                             (options_.used_up == UsedUp::uniform && sampling.temperature > 0);
    auto widths = shape_.widths();
    if (!widths || other_draws || *std::max_element(widths->begin(), widths->end()) > config_.head_rows())
      return std::nullopt;
    return DevicePlan{std::move(*widths), sampling};
  }

  void begin(const Sequence& sequence) override {
    slots_[static_cast<std::size_t>(sequence.slot)].sampling = sampling_over(sequence.sampling);
    levels_.begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    levels_.draft(sequences, drafts, shape_.depth(), [this](DraftLevel& level) { grow(level); });
  }

 private:
  struct Slot {
    SamplingParams sampling;
    std::vector<int> fed;        // nodes of the draft that were fed in the forward in progress
    std::vector<int> in_shape;   // [nodes of the draft], the node of the shape; a draft may lack nodes
    std::vector<int> in_flight;  // [nodes of the draft], number of a fed node; -1 for the pending token
    std::vector<int> path;
    std::vector<Token> prefix;
    SiblingDraw siblings;
  };

  SamplingParams sampling_over(const SamplingParams& target) const {
    if (options_.children == Children::best) return {};  // temperature 0: the best tokens
    return options_.draft.over(target);
  }

  // Adds the children of the fed nodes, and feeds those children that have children of their own.
  void grow(DraftLevel& level) {
    Slot& s = slots_[static_cast<std::size_t>(level.sequence().slot)];
    const TokenTree& tree = level.draft().tree;
    if (level.depth() == 0) {
      s.fed.assign(1, 0);
      s.in_shape.assign(1, 0);
      s.in_flight.assign(1, -1);
    }
    const int first = tree.size();
    for (std::size_t i = 0; i < s.fed.size(); ++i) {
      const int before = tree.size(), of_shape = s.in_shape[static_cast<std::size_t>(s.fed[i])];
      add_children(s, level, static_cast<int>(i), s.fed[i], shape_.children(of_shape));
      for (int node = before; node < tree.size(); ++node)
        s.in_shape.push_back(shape_.first_child(of_shape) + node - before);
    }
    s.fed.clear();
    for (int node = first; node < tree.size(); ++node) {
      const bool inner = shape_.children(s.in_shape[static_cast<std::size_t>(node)]) > 0;
      s.in_flight.push_back(
          inner ? level.feed(tree.token(node), s.in_flight[static_cast<std::size_t>(tree.parent(node))]) : 0);
      if (inner) s.fed.push_back(node);
    }
  }

  // Adds `count` children of a node, which is fed node `row`; fewer if the draft has fewer tokens.
  void add_children(Slot& s, DraftLevel& level, int row, int node, int count) {
    const Sequence& sequence = level.sequence();
    Draft& draft = level.draft();
    s.prefix.clear();
    if (sequence.processors) {
      draft.tree.path_to(node, s.path);
      for (const int on_path : s.path) s.prefix.push_back(draft.tree.token(on_path));
    }
    const std::span<const float> logits = level.logits(row, s.prefix);
    if (logits.empty()) return;
    const struct {
      const Sequence& sequence;
      const TokenTree& tree;
      std::int64_t position;
    } at{sequence, draft.tree, sequence.position() + level.depth() + 1};
    const auto draw =
        [&at](const Distribution& q) {  // captures only one pointer, so the function object does not allocate
          if (at.sequence.coupled) return q.sample_coupled(at.sequence.coins, at.position);
          return q.sample(at.sequence.coins, at.sequence.draft_coin(at.tree.size()));
        };
    if (options_.children != Children::independent) {
      s.siblings.add(draft, node, count, logits, s.sampling, config_.head_ids, config_.vocab, draw,
                     options_.used_up == UsedUp::uniform);
      return;
    }
    int index = Draft::kOneHot;
    draft.new_q(&index).assign_logits(logits, s.sampling, config_.head_ids, config_.vocab);
    for (int child = 0; child < count; ++child) {
      const Distribution& q = draft.q[static_cast<std::size_t>(index)];
      const Token token = draw(q);
      draft.add(token, node, index, q.one_hot() ? -1.0f : static_cast<float>(q.prob(token)));
    }
  }

  Options options_;
  const ModelConfig& config_;  // of the draft
  TreeShape shape_;
  DraftLevels levels_;
  std::vector<Slot> slots_;  // [batch]
};

const RegisterStrategy<Options, TreeSpeculation> registered{{
    .name = "tree_speculation",
    .summary = "a small model drafts a tree of fixed shape, the target verifies it in one forward",
    .paper = "Miao et al. 2024, SpecInfer (expansion); Chen et al. 2024, Sequoia (draws and shape)",
    .draft_source = "small model or layers of the target",
    .stop_rule = "shape of the tree",
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
