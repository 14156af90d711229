// Dynamic tree: a small model drafts a tree whose shape follows its confidence. At each level the nodes that
// are most likely to be reached are expanded to their best children. At the end the most likely nodes of all
// levels are kept. The probability to reach a node is estimated as the product of the draft's probabilities
// along its path.
//
// Paper:       Li et al. 2024, "EAGLE-2" (arXiv 2406.16858): expansion and reranking. The paper has a trained
//              head and a fixed number of nodes; here any draft model serves, and the number of nodes can
//              follow the cost of rows.
// Draft cost:  one draft forward per depth over at most `expand` nodes.
// Budget:      with "budget": "auto" a step verifies the most likely nodes, as many of them as give the most
//              expected tokens per time. A further level is drafted only if it can be worth its forward. How
//              often a token is accepted is learned for each range of the draft's probability. A draft model
//              that is not worth its time is only tried now and then.
// Loses when:  the draft's confidence is far from its accuracy. The children are not drawn, so their q is
//              one-hot: above temperature 0 one of the children is accepted with the probability that the
//              target gives to all of them together. This is less than for drawn children when draft and
//              target agree.
//
// No token is drawn at random: the tree follows from the text so far, the models and the table of times. So
// every lossless rule stays exact.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/budget/draft_switch.h"
#include "core/decoding/drafting/draft_levels.h"
#include "core/decoding/drafting/likely_tree.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/registry.h"
#include "core/theory/step_costs.h"

namespace speclab {
namespace {

struct DynamicTreeOptions {
  int depth = 6;
  int expand = 8;
  int branches = 8;
  int nodes = 48;
  std::vector<int> rows;
  std::vector<double> times;
  double c = 0;
  BudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit("depth", depth, Range<int>{1, TreeShape::kMostDrafted}, "largest number of levels of the tree");
    visit("expand", expand, Range<int>{1, TreeShape::kMostDrafted},
          "largest number of nodes of a level that get children; the most likely ones");
    visit("branches", branches, Range<int>{1, TreeShape::kMostDrafted},
          "children of a node, the draft's best tokens");
    visit("nodes", nodes, Range<int>{1, TreeShape::kMostDrafted},
          "largest number of nodes that are kept; the most likely ones");
    visit(
        "rows", rows, Range<int>{1, 1 << 20},
        "numbers of rows of a target forward, such as [1, 8, 32], whose times are in `times`. With these and "
        "budget fixed, nodes are kept only if they are worth their time. Empty: all `nodes` are kept");
    visit("times", times, Range<double>{0, 1e12, true},
          "the time of a target forward for each entry of `rows`, in any unit");
    visit("c", c, Range<double>{0, 1e6},
          "with `rows`: time of a draft forward / time of a target forward of one row; a level that is not "
          "worth a draft forward is not drafted");
    budget.fields(visit);
  }
};

/// t(n) of the options `rows` and `times`; t(n) = t(1) if they are empty.
theory::RowTimes row_times_of(const DynamicTreeOptions& options) {
  if (options.rows.size() != options.times.size()) {
    throw Error({"dynamic_tree: rows, times",
                 fmt::format("{} and {} entries", options.rows.size(), options.times.size()),
                 "as many times as rows", "Give one time for each number of rows."});
  }
  if (options.rows.empty()) return theory::RowTimes();
  std::map<int, double> times;
  for (std::size_t i = 0; i < options.rows.size(); ++i) times[options.rows[i]] = options.times[i];
  return theory::RowTimes(std::move(times)).monotone();
}

class DynamicTree final : public Strategy {
 public:
  DynamicTree(const DynamicTreeOptions& options, const Resources& resources)
      : options_(options),
        config_(resources.draft->config()),
        times_(row_times_of(options)),
        costs_(options.budget.automatic() ? resources.costs : nullptr),
        by_cost_(costs_ || !options.rows.empty()),
        levels_(resources) {
    if (costs_) require_draft_costs(costs_.get(), "dynamic_tree");
    if (costs_ && !options_.rows.empty()) {
      throw Error({"dynamic_tree: rows", "a table of times with budget \"auto\"", "only one table of times",
                   "Remove rows and times, or set budget to fixed."});
    }
    if ((options_.depth - 1) * options_.expand > TreeShape::kMostDrafted) {
      throw Error({"dynamic_tree: depth, expand",
                   fmt::format("{} levels of {} nodes", options_.depth - 1, options_.expand),
                   fmt::format("at most {} nodes that get children", TreeShape::kMostDrafted),
                   "Expand fewer nodes or draft fewer levels."});
    }
    slots_.resize(static_cast<std::size_t>(resources.batch));
  }

  // The fed nodes are rows in flight of the draft model, also those that are not kept.
  int max_nodes() const override {
    return 1 + std::max(options_.nodes, (options_.depth - 1) * options_.expand);
  }

  void begin(const Sequence& sequence) override {
    Slot& s = slot_of(sequence);
    s.shares.fill({});
    s.worth.begin();
    levels_.begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    drafting_.clear();
    drafts_.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& s = slot_of(*sequences[i]);
      s.tree.clear();
      s.spent = 0;
      if (costs_ && !is_worth_a_draft(s, *sequences[i])) continue;
      drafting_.push_back(sequences[i]);
      drafts_.push_back(drafts[i]);
    }
    levels_.draft(drafting_, drafts_, options_.depth, [this](DraftLevel& level) { grow(level); });
    for (std::size_t i = 0; i < drafting_.size(); ++i) keep_best(slot_of(*drafting_[i]), *drafts_[i]);
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    if (!costs_) return;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& s = slot_of(*sequences[i]);
      const Draft& draft = *outcomes[i].draft;
      learn(s, draft, outcomes[i].acceptance->path);
      if (s.decided) s.worth.observe(outcomes[i].emitted, costs_->target(draft.tree.size()) + s.spent);
    }
  }

 private:
  static constexpr std::size_t kShares = 8;  // ranges of the draft's probability

  struct Slot {
    LikelyTree tree;       // reach: the product of q or, with a budget, of the acceptance learned for q
    std::vector<int> fed;  // nodes that were fed in the forward in progress; -1: the pending token
    std::vector<int> children;
    int behind = 0;  // tokens that the draft's first forward reads besides the pending one
    std::vector<Token> best, prefix;
    Distribution q;
    // With a budget:
    std::array<RunningShare, kShares> shares{};  // acceptance by the draft's probability
    DraftSwitch worth{{}};
    bool decided = false;  // `worth` was asked in this step
    double spent = 0;      // time of the draft's forwards of this step by the table of costs
  };

  static std::size_t share_of(double q) {
    return std::min(static_cast<std::size_t>(std::sqrt(q) * kShares), kShares - 1);
  }

  // Whether the draft model runs in this step. The time of a step with a draft is estimated as the time
  // of a step with a chain of three tokens.
  bool is_worth_a_draft(Slot& s, const Sequence& sequence) {
    s.decided = std::min<std::int64_t>(sequence.depth_limit, levels_.room(sequence)) > 0;
    if (!s.decided) return false;
    s.behind = levels_.behind(sequence);
    return s.worth.decide(costs_->target(4) + costs_->draft(1 + s.behind) + 2 * costs_->draft(1),
                          costs_->target(1));
  }

  // Learns from the children of the pending token and of the accepted nodes.
  void learn(Slot& s, const Draft& draft, const std::vector<int>& path) const {
    if (draft.tree.drafted() == 0) return;
    for (RunningShare& share : s.shares) share.fade(.98);
    int node = 0;
    for (std::size_t depth = 0; depth <= path.size(); ++depth) {
      const int next = depth < path.size() ? path[depth] : -1;
      draft.tree.children(node, s.children);
      for (const int child : s.children)
        s.shares[share_of(draft.confidence[static_cast<std::size_t>(child)])].add(child == next);
      node = next;
    }
  }

  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }

  // Adds the children of the fed nodes, and feeds the most likely of them.
  void grow(DraftLevel& level) {
    Slot& s = slot_of(level.sequence());
    if (level.depth() == 0) {
      s.fed.assign(1, -1);
      if (costs_) s.spent = costs_->draft(1 + s.behind);
    }
    const int first = s.tree.size();
    for (std::size_t i = 0; i < s.fed.size(); ++i) add_children(s, level, static_cast<int>(i), s.fed[i]);
    if (level.depth() + 1 >= level.limit()) return;
    s.tree.sort_from(first);
    const std::span<const int> order = s.tree.order();
    s.fed.assign(order.begin(), order.begin() + std::min<std::ptrdiff_t>(std::ssize(order), options_.expand));
    if (!worth_a_level(s, level.depth() + 1)) return;
    if (costs_ && !s.fed.empty()) s.spent += costs_->draft(static_cast<int>(s.fed.size()));
    std::sort(s.fed.begin(), s.fed.end());
    for (const int node : s.fed) {
      LikelyTree::Node& fed = s.tree.at(node);
      fed.in_flight = level.feed(fed.token, fed.parent < 0 ? -1 : s.tree.at(fed.parent).in_flight);
    }
  }

  void add_children(Slot& s, DraftLevel& level, int row, int node) {
    s.prefix.clear();
    if (level.sequence().processors) s.tree.path_to(node, s.prefix);
    const std::span<const float> logits = level.logits(row, s.prefix);
    if (logits.empty()) return;
    s.q.assign_logits(logits, {.temperature = 1, .top_k = 0, .top_p = 1}, config_.head_ids, config_.vocab);
    s.q.top(options_.branches, s.best);
    for (const Token token : s.best) {
      const double q = s.q.prob(token);
      s.tree.add(token, node, static_cast<float>(q), costs_ ? s.shares[share_of(q)].over(q, 4) : q);
    }
  }

  // The time of a step with n nodes after `depth` forwards of the draft, in the unit of level_time().
  double step_time(const Slot& s, int n, int depth) const {
    return costs_ ? costs_->target(1 + n) + s.spent : times_.ratio(1 + n) + depth * options_.c;
  }
  double level_time(const Slot& s) const {
    return costs_ ? costs_->draft(static_cast<int>(s.fed.size())) : options_.c;
  }

  /// Returns the n with the highest rate, and this rate: the expected tokens of a step with the n most likely
  /// nodes, divided by its time. LikelyTree::Node::reach stands for the probability that the target accepts
  /// the path to a node.
  std::pair<int, double> best_count(const Slot& s, int depth) const {
    std::pair<int, double> best{0, 1 / step_time(s, 0, depth)};
    double tokens = 1;
    const std::span<const int> order = s.tree.order();
    const int most = std::min<int>(options_.nodes, static_cast<int>(order.size()));
    for (int n = 1; n <= most; ++n) {
      tokens += s.tree.at(order[static_cast<std::size_t>(n) - 1]).reach;
      const double rate = tokens / step_time(s, n, depth);
      if (costs_ ? rate >= best.second : rate > best.second) best = {n, rate};
    }
    return best;
  }

  // The next level adds at most one token to a step, and only if the step reaches one of the fed nodes. It
  // takes the time of a draft forward. In this time, steps with only the nodes so far emit (time * rate)
  // tokens. So the level is drafted only if the probability to reach a fed node is larger than that.
  bool worth_a_level(Slot& s, int depth) const {
    if (!by_cost_) return true;
    if (s.fed.empty()) return false;
    double reached = 0;
    for (const int node : s.fed) reached += s.tree.at(node).reach;
    s.tree.sort_from(0);
    return reached > level_time(s) * best_count(s, depth).second;
  }

  // Adds the most likely nodes to the draft. A node is never more likely than its parent, so the parent is
  // among them.
  void keep_best(Slot& s, Draft& draft) const {
    if (s.tree.size() == 0) return;
    s.tree.sort_from(0);
    int kept = std::min(options_.nodes, s.tree.size());
    if (by_cost_) kept = best_count(s, s.tree.depth(s.tree.size() - 1)).first;
    s.tree.keep(kept, draft);
    if (kept > 0) draft.source = "draft";
  }

  DynamicTreeOptions options_;
  const ModelConfig& config_;  // of the draft
  theory::RowTimes times_;
  std::shared_ptr<const StepCosts> costs_;  // null without a budget
  bool by_cost_;
  DraftLevels levels_;
  std::vector<Slot> slots_;  // [batch]
  std::vector<const Sequence*> drafting_;
  std::vector<Draft*> drafts_;
};

const RegisterStrategy<DynamicTreeOptions, DynamicTree> registered{{
    .name = "dynamic_tree",
    .summary = "a small model drafts a tree; the nodes that its confidence makes most likely are verified",
    .paper = "Li et al. 2024, EAGLE-2 (expansion and reranking)",
    .draft_source = "small model or layers of the target",
    .stop_rule = "budget: the time that a node costs; number of nodes",
    .verification = "tree",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
}};

}  // namespace
}  // namespace speclab
