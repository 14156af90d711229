// Staged speculation: the draft model drafts with the help of a second stage, a draft of the draft. The
// second stage guesses which tokens the draft model will draw. The guesses are fed together with the node
// that the draft model needs next, in one forward. Where a guess is right, its row is there already. A chain
// of gamma tokens then costs the draft model fewer than gamma forwards.
//
// The second stage decides only which rows are computed together. Each token is drawn from the draft model's
// own row with the coin of its node, whatever was guessed. So the drafts are those of tree_speculation with
// the same widths and "budget": "fixed", bit for bit, at every temperature, and each node has the q of the
// draft model.
//
// With "budget": "auto" a step drafts the part of this tree that is worth its time, perhaps nothing, as
// tree_speculation does, and each forward gets as many guesses as are worth their rows. What the guesses save
// is learned as the ratio of the draft's time with them to its time without them. The part is chosen before a
// token is drawn, so the text keeps its distribution.
//
// Paper:       Spector and Re 2023, "Accelerating LLM Inference with Staged Speculative Decoding" (arXiv
//              2308.04623). The second stage there, a Katz trigram model, is drawn from and verified by
//              rejection; here a guess counts when it equals the token that the draft model draws.
// Draft cost:  one forward of the draft model for the pending token, and one for each level with a token that
//              must be fed and was not guessed. The guesses add rows to these forwards. Each guess of a
//              second model costs a forward of it; a guess of the n-gram model costs microseconds.
// Loses when:  the guesses are often wrong, or rows of the draft model are not free. With a budget there are
//              then no guesses.

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/drafting/ngrams/ngram_source.h"
#include "core/decoding/drafting/tree_growth.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

constexpr int kMostFed = 64;  // see DraftLevels::look_ahead()

struct StagedOptions {
  std::vector<int> widths = {1, 1, 1, 1, 1};
  TreeGrowthOptions growth;
  int ahead = 4;
  int branches = 1;
  int order = 3;
  int known = 1;
  BudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit("widths", widths, Range<int>{1, TreeShape::kMostDrafted},
          "number of children of each node, one entry per depth; [1, 1, 1, 1] is a chain of 4 tokens");
    growth.fields(visit);
    visit("ahead", ahead, Range<int>{0, DraftLevel::kMostGuesses},
          "tokens that the second stage guesses below a node; 0: no second stage");
    visit("branches", branches, Range<int>{1, kMostFed},
          "number of nodes of a level, from the first one on, below which the second stage guesses");
    visit("order", order, Range<int>{1, NgramCounts::kMostOrder},
          "largest n-gram of the second stage, a Katz model of the text so far; not used with a second draft "
          "model");
    visit("known", known, Range<int>{0, NgramCounts::kMostOrder - 1},
          "least number of tokens of the context that the n-gram model must have seen before; it guesses "
          "nothing "
          "otherwise");
    budget.fields(visit);
  }
};

/// Guesses by an n-gram model of the text (Katz 1987).
class NgramStage {
 public:
  NgramStage(const StagedOptions& options, const Resources& resources)
      : ngrams_({.order = options.order, .smoothing = NgramSmoothing::katz, .known = options.known},
                resources, "staged") {}
  void begin(const Sequence& sequence) { ngrams_.begin(sequence); }
  void start(const Sequence& sequence) { ngrams_.catch_up(sequence); }
  std::optional<Token> next(const Sequence& sequence, TokenSpan text) {
    const TokenSpan drafted = text.subspan(sequence.tokens.size());
    if (!ngrams_.enough(ngrams_.condition(sequence, drafted))) return std::nullopt;
    return ngrams_.best();
  }

 private:
  NgramSource ngrams_;
};

/// Guesses by a second, smaller model: its best token, or the coupled one, with one forward for each.
class ModelStage {
 public:
  /// `timed`: the table of costs has times of this model.
  ModelStage(Resources resources, bool timed) : resources_(std::move(resources)), timed_(timed) {
    caches_.resize(static_cast<std::size_t>(resources_.batch));
    logits_.resize(static_cast<std::size_t>(resources_.draft->config().head_rows()));
  }
  void begin(const Sequence& sequence) { cache(sequence).begin(sequence, resources_); }
  std::optional<Token> next(const Sequence& sequence, TokenSpan text) {
    DraftCache& of_text = cache(sequence);
    if (static_cast<int>(text.size()) > of_text.session().capacity()) return std::nullopt;
    of_text.catch_up(text, static_cast<std::size_t>(sequence.prompt_length), feed_);
    parents_.resize(feed_.size());
    std::iota(parents_.begin(), parents_.end(), -1);
    const auto row = static_cast<std::int32_t>(feed_.size()) - 1;
    const Feed feed{&of_text.session(), feed_, parents_, {&row, 1}, logits_.data()};
    resources_.draft->forward({&feed, 1});
    if (timed_) spent_ns_ += resources_.costs->draft(static_cast<int>(feed_.size()));
    of_text.keep(feed_);
    const ModelConfig& config = resources_.draft->config();
    q_.assign_logits(logits_, sequence.coupled ? sequence.sampling : SamplingParams{}, config.head_ids,
                     config.vocab);
    return sequence.coupled ? q_.sample_coupled(sequence.coins, static_cast<std::int64_t>(text.size()))
                            : q_.argmax();
  }
  /// Time of the forwards since the last call, by the table of costs; 0 if it is not timed.
  double take_time() { return std::exchange(spent_ns_, 0); }

 private:
  DraftCache& cache(const Sequence& sequence) { return caches_[static_cast<std::size_t>(sequence.slot)]; }
  Resources resources_;
  bool timed_;
  std::vector<DraftCache> caches_;  // [batch]
  std::vector<Token> feed_;
  std::vector<std::int32_t> parents_;
  std::vector<float> logits_;  // [head_rows]
  Distribution q_;
  double spent_ns_ = 0;
};

/// What one sequence has learned, for "budget": "auto".
class StagedBudget {
 public:
  /// `ahead`: largest number of guesses below a node; `second_ns`: times of the second model, empty without
  /// one.
  StagedBudget(const std::shared_ptr<const StepCosts>& costs, const TreeShape& shape, int ahead,
               std::vector<double> second_ns)
      : part_(costs, shape, {}), costs_(costs) {
    if (ahead == 0) return;
    const bool by_model = !second_ns.empty();
    // The draft model verifies a chain of guesses, as the target verifies a draft.
    StepCosts of_guesses{.target_ns = costs->draft_ns, .draft_ns = std::move(second_ns)};
    ahead_.emplace(std::make_shared<const StepCosts>(std::move(of_guesses)), TreeShape::chain(ahead),
                   ShapeBudget::Settings{.by_draft_model = by_model});
  }
  void begin() {
    part_.begin();
    if (ahead_) ahead_->begin();
    spent_ns_ = plain_ns_ = 0;
  }
  ShapeBudget& part() { return part_; }
  /// Chooses the part of the tree for the next step; 0: nothing.
  int choose(int depth, int behind) {
    const double first = kFirst * costs_->draft(1);
    part_.set_draft_factor((spent_ns_ + first) / (plain_ns_ + first));
    return part_.choose(depth, behind);
  }
  /// Chooses the number of guesses below a node.
  int guesses(int most) { return ahead_ && most > 0 ? ahead_->choose(most) : 0; }
  /// Tells how many of a chain of guesses were right.
  void guessed(int count, int right) { ahead_->observe_chain(count, right); }
  /// Tells the time of a draft, and its time without guesses.
  void drafted(double ns, double plain_ns) {
    spent_ns_ = kMemory * spent_ns_ + ns;
    plain_ns_ = kMemory * plain_ns_ + plain_ns;
  }

 private:
  // kMemory: each draft multiplies the times of the drafts before it by this. kFirst: weight of the first
  // assumption, that guesses save no time, in forwards of the draft model over one row.
  static constexpr double kMemory = .97, kFirst = 8;
  ShapeBudget part_;
  std::optional<ShapeBudget> ahead_;
  std::shared_ptr<const StepCosts> costs_;
  double spent_ns_ = 0, plain_ns_ = 0;
};

TreeShape shape_of(const StagedOptions& options) {
  TreeShape shape = TreeShape::of_widths(options.widths, "staged: widths");
  int fed = 0, nodes = 1;
  for (const int width : options.widths) fed += nodes, nodes *= width;
  if (fed > kMostFed) {
    throw Error({"staged: widths", fmt::format("{} nodes with children", fed),
                 fmt::format("at most {}", kMostFed), "Use fewer children or less depth."});
  }
  return shape;
}

class Staged final : public Strategy {
 public:
  Staged(const StagedOptions& options, const Resources& resources)
      : options_(options),
        growth_(options.growth, shape_of(options), resources.with_draft(0)),
        levels_(resources.with_draft(0)) {
    const bool timed = options_.budget.automatic();
    std::vector<double> second_ns;
    if (timed) {
      costs_ = resources.with_draft(0).costs;
      require_draft_costs(costs_.get(), "staged");
      if (options_.ahead > 0 && resources.drafts.size() > 1) {
        const auto second = resources.with_draft(1).costs;
        require_draft_costs(second.get(), "staged");
        second_ns = second->draft_ns;
      }
    }
    if (options_.ahead > 0) {
      if (resources.drafts.size() > 1) by_model_.emplace(resources.with_draft(1), timed);
      else by_text_.emplace(options_, resources);
      levels_.look_ahead([this](DraftLevel& level) { guess(level); });
    }
    slots_.resize(static_cast<std::size_t>(resources.batch));
    if (!timed) return;
    for (Slot& slot : slots_) slot.budget.emplace(costs_, growth_.shape(), options_.ahead, second_ns);
  }

  int max_nodes() const override { return growth_.shape().nodes(); }

  void begin(const Sequence& sequence) override {
    growth_.begin(sequence);
    levels_.begin(sequence);
    if (by_model_) by_model_->begin(sequence);
    if (by_text_) by_text_->begin(sequence);
    if (Slot& slot = slot_of(sequence); slot.budget) slot.budget->begin();
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    drafting_.clear();
    drafts_.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& sequence = *sequences[i];
      if (by_text_) by_text_->start(sequence);
      Slot& slot = slot_of(sequence);
      slot.made.clear();
      slot.guess_ns = 0;
      if (slot.budget) {
        const auto limit = std::min<std::int64_t>(sequence.depth_limit, levels_.room(sequence));
        if (limit <= 0 || slot.budget->choose(static_cast<int>(limit), levels_.behind(sequence)) == 0)
          continue;
        growth_.take_part(sequence, slot.budget->part());
      }
      drafting_.push_back(&sequence);
      drafts_.push_back(drafts[i]);
    }
    levels_.draft(drafting_, drafts_, growth_.shape().depth(),
                  [this](DraftLevel& level) { growth_.grow(level); });
    for (const Sequence* sequence : drafting_) {
      if (Slot& slot = slot_of(*sequence); slot.budget) learn(slot, levels_.last(*sequence));
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& slot = slot_of(*sequences[i]);
      const TokenTree& tree = outcomes[i].draft->tree;
      if (slot.budget && tree.drafted() > 0)
        slot.budget->part().observe_tree(tree, outcomes[i].acceptance->path);
    }
  }

 private:
  struct Slot {
    std::optional<StagedBudget> budget;
    std::vector<std::vector<int>> made;  // numbers of the guesses of this step, by chain
    double guess_ns = 0;                 // time of the second model in this step
  };
  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }

  // Guesses a chain below each of the first `branches` nodes of the level that is fed next.
  void guess(DraftLevel& level) {
    const Sequence& sequence = level.sequence();
    Slot& slot = slot_of(sequence);
    const int count = std::min(options_.branches, growth_.fed_count(level));
    for (int i = 0; i < count; ++i) {
      const TreeGrowth::Fed fed = growth_.fed(level, i);
      text_ = sequence.tokens;
      level.draft().tree.path_to(fed.node, path_);
      for (const int node : path_) text_.push_back(level.draft().tree.token(node));
      std::optional<int> parent = fed.number;
      int ahead = options_.ahead;
      if (slot.budget) {
        // Nodes of the last level of the chosen part are not fed.
        const int depth = std::min(level.limit(), slot.budget->part().chosen_depth());
        ahead = slot.budget->guesses(std::min(ahead, depth - 1 - level.depth()));
        slot.made.emplace_back();
      }
      for (int step = 0; step < ahead && level.may_guess_below(*parent); ++step) {
        const std::optional<Token> token =
            by_model_ ? by_model_->next(sequence, text_) : by_text_->next(sequence, text_);
        if (!token) break;
        parent = level.guess(*token, *parent);
        if (!parent) break;
        if (slot.budget) slot.made.back().push_back(*parent);
        text_.push_back(*token);
      }
    }
    if (by_model_) slot.guess_ns += by_model_->take_time();
  }

  void learn(Slot& slot, const DraftLevel& level) {
    for (const std::vector<int>& chain : slot.made) {
      int right = 0;
      while (right < static_cast<int>(chain.size()) &&
             level.was_right(chain[static_cast<std::size_t>(right)]))
        ++right;
      if (!chain.empty()) slot.budget->guessed(static_cast<int>(chain.size()), right);
    }
    double ns = slot.guess_ns, plain_ns = 0;
    for (const int rows : level.forward_rows()) ns += costs_->draft(rows);
    for (const int rows : level.rows_without_guesses()) plain_ns += costs_->draft(rows);
    slot.budget->drafted(ns, plain_ns);
  }

  StagedOptions options_;
  TreeGrowth growth_;
  DraftLevels levels_;
  std::optional<NgramStage> by_text_;
  std::optional<ModelStage> by_model_;
  std::shared_ptr<const StepCosts> costs_;  // null without a budget
  std::vector<Slot> slots_;                 // [batch]
  std::vector<const Sequence*> drafting_;
  std::vector<Draft*> drafts_;
  std::vector<Token> text_;
  std::vector<int> path_;
};

const RegisterStrategy<StagedOptions, Staged> registered{{
    .name = "staged",
    .summary = "a tree or chain from a small model that is itself sped up by a smaller model or by n-grams",
    .paper = "Spector and Re 2023, Staged Speculative Decoding",
    .draft_source = "small model, with a second model or an n-gram model of the text as its draft",
    .stop_rule = "budget; shape of the tree",
    .verification = "tree",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
    .most_drafts = 2,
}};

}  // namespace
}  // namespace speclab
