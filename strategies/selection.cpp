// Selection among drafters: in each step one of several drafters drafts a chain. Each draft model is a
// drafter; one more drafter copies what followed an earlier occurrence of the text's ending. The strategy
// learns which one is best while the text is written. A drafter is worth the tokens that its steps emit,
// divided by their predicted time.
//
// `choose: bandit` learns only from the drafter that drafted (UCB). `choose: full_information` scores every
// drafter on every emitted token. Copies are compared with the text. For a draft model, the acceptance at
// each emitted token follows from its row there and, if tokens are sampled, from the target's row. No target
// forward is added, but every draft model reads all emitted tokens: one forward of each model that did not
// draft, in each step. The scores count that time.
//
// The choice of the drafter depends on earlier steps, and with `learner: exponential` on a coin of its own.
// With "budget": "auto" the number of drafted tokens follows from earlier steps too. No token that is drawn
// in a step decides who draws it or whether it is verified. Exact rules keep the text's distribution.
//
// With "budget": "auto" times come from the measured table of costs. With "fixed" there is no table: a target
// forward takes one unit of time, and a forward of draft model i takes c[i]. A lossy rule emits other tokens
// than the target; full_information then scores these, with the acceptance of the rule "rejection".
//
// Paper:       Hou et al. 2025, BanditSpec (arXiv 2505.15141); Liu et al. 2025, Not-a-Bandit (arXiv
//              2510.20064).
// Draft cost:  that of the drafter that drafts. With the bandit, a draft model that did not draft for some
//              steps reads the missed tokens in the first forward of its next draft; the reward counts that.
// Loses when:  one drafter is best for all texts: trials of the others, or their reading, cost time.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/drafting/selection/copy_drafter.h"
#include "core/decoding/drafting/selection/drafter_bandit.h"
#include "core/decoding/drafting/selection/drafter_scores.h"
#include "core/decoding/drafting/selection/model_scores.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

constexpr int kMostDrafts = 3;  // models
constexpr std::array<std::string_view, kMostDrafts> kModels = {"draft 1", "draft 2", "draft 3"};
constexpr const char* kKnownDrafters = "\"draft\" or \"text\"";

enum class Choice { bandit, full_information };

struct SelectionOptions {
  std::vector<std::string> sources = {"draft", "text"};
  Choice choose = Choice::bandit;
  double exploration = 2;
  DrafterLearner learner = DrafterLearner::exponential;
  double rate = .3;
  double memory = 1;
  int gamma = 4;
  int copies = 8;
  int least_match = 2;
  std::vector<double> c;
  DraftSampling draft;
  BudgetOptions budget;
  bool has(std::string_view source) const { return std::ranges::find(sources, source) != sources.end(); }
  void fields(OptionVisitor& visit) {
    visit("sources", sources,
          "the drafters: list of \"draft\" (the draft models, if there are any; each one is a drafter) and "
          "\"text\" (copies from prompt and output)");
    visit("choose", choose, {{Choice::bandit, "bandit"}, {Choice::full_information, "full_information"}},
          "bandit: learn from the drafter that drafted; full_information: score all drafters in each step, "
          "which costs a forward of each draft model that did not draft");
    visit("exploration", exploration, Range<double>{0, 100},
          "bandit: how strongly rarely used drafters are preferred; 2 is UCB1, 0 takes the best mean reward");
    visit("learner", learner,
          {{DrafterLearner::exponential, "exponential"}, {DrafterLearner::leader, "leader"}},
          "full_information: draw the drafter with weights that are exponential in the scores, or take the "
          "one with the best score");
    visit("rate", rate, Range<double>{0, 100},
          "learner exponential: the learning rate; sqrt(8 ln K / N) suits texts of N tokens and K drafters");
    visit("memory", memory, Range<double>{0, 1, true},
          "factor on what was learned before, at each step (bandit) or token; 1: nothing is forgotten");
    visit("gamma", gamma, Range<int>{1, 64}, "tokens that a draft model drafts per step");
    visit("copies", copies, Range<int>{1, 64}, "largest number of tokens to copy");
    visit("least_match", least_match, Range<int>{1, 64},
          "a copy follows an earlier occurrence of at least this many of the last tokens");
    visit("c", c, Range<double>{0, 100},
          "with budget fixed: time of each draft model's forward, in target forwards, [drafts]; empty: 0");
    draft.fields(visit);
    budget.fields(visit);
  }
};

/// Throws Error unless the list names known sources, each once.
void require_drafters(const std::vector<std::string>& sources) {
  static const std::vector<std::string> known{"draft", "text"};
  if (sources.empty()) throw Error({"selection: sources", "an empty list", kKnownDrafters, ""});
  for (const std::string& name : sources) {
    if (std::ranges::find(known, name) == known.end())
      throw Error({"selection: sources", "\"" + name + "\"", kKnownDrafters, suggest(name, known)});
    if (std::ranges::count(sources, name) > 1)
      throw Error({"selection: sources", "\"" + name + "\" twice", "each source once", ""});
  }
}

class Selection final : public Strategy {
 public:
  Selection(const SelectionOptions& options, const Resources& resources) : options_(options) {
    require_drafters(options_.sources);
    const std::size_t models = options_.has("draft") ? resources.drafts.size() : 0;
    if (models == 0 && !options_.has("text")) {
      throw Error({"selection: sources", "no draft model, and no other source", kKnownDrafters,
                   "Name a draft model, or add \"text\" to the sources."});
    }
    if (!options_.c.empty() && options_.c.size() != models) {
      throw Error({"selection: c", fmt::format("{} entries", options_.c.size()),
                   fmt::format("one for each of the {} draft models", models),
                   "Give one for each, or leave the list empty."});
    }
    const bool measured = options_.budget.automatic();
    std::vector<std::shared_ptr<const StepCosts>> tables;
    std::vector<int> longest;
    if (options_.has("text")) {  // the first drafter, because the first of equal ones is chosen
      copies_ = 1;
      tables.push_back(std::make_shared<const StepCosts>(
          StepCosts{.target_ns = measured ? resources.costs->target_ns : std::vector<double>{1}}));
      longest.push_back(options_.copies);
    }
    for (std::size_t i = 0; i < models; ++i) {
      const Resources one = resources.with_draft(i);
      if (measured) require_draft_costs(one.costs.get(), "selection");
      tables.push_back(measured
                           ? one.costs
                           : std::make_shared<const StepCosts>(StepCosts{
                                 .target_ns = {1}, .draft_ns = {options_.c.empty() ? 0 : options_.c[i]}}));
      longest.push_back(options_.gamma);
      models_.push_back(one.draft);
      chains_.push_back(std::make_unique<DraftChain>(
          DraftChainOptions{.gamma = options_.gamma, .draft = options_.draft, .schedule = {}}, one,
          options_.budget.rule));
    }
    costs_ = std::make_shared<const DrafterCosts>(tables);
    if (full_information())
      model_scores_.emplace(chains_, models_, options_.gamma, options_.draft, resources.batch);
    for (int i = 0; i < resources.batch; ++i) add_slot(resources, tables.front(), longest);
    awake_.resize(longest.size());
  }

  Reads reads() const override { return {.rows = full_information() && !chains_.empty()}; }

  void begin(const Sequence& sequence) override {
    Slot& slot = slot_of(sequence);
    for (const auto& chain : chains_) chain->begin(sequence);
    if (model_scores_) model_scores_->begin(sequence);
    if (slot.copies) slot.copies->begin(sequence.tokens);
    if (slot.copy_budget) slot.copy_budget->begin();
    if (slot.bandit) slot.bandit->begin();
    if (slot.scores) slot.scores->begin();
    slot.chosen = -1;
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    if (model_scores_) {
      model_scores_->read(sequences,
                          [this](const Sequence& of, std::size_t model, std::span<const double> acceptance) {
                            slot_of(of).scores->add(static_cast<int>(model) + copies_, acceptance);
                          });
    }
    for (const Sequence* sequence : sequences) choose(*sequence);
    for (std::size_t model = 0; model < chains_.size(); ++model) {
      drafting_.clear();
      parts_.clear();
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        if (model_of(slot_of(*sequences[i])) != static_cast<int>(model)) continue;
        drafting_.push_back(sequences[i]);
        parts_.push_back(drafts[i]);
      }
      chains_[model]->draft(drafting_, parts_);
      for (Draft* part : parts_) {
        if (part->tree.drafted() > 0) part->source = kModels[model];
      }
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& slot = slot_of(*sequences[i]);
      if (slot.chosen >= 0 && model_of(slot) < 0) add_copy(*sequences[i], slot, *drafts[i]);
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& sequence = *sequences[i];
      const Outcome& outcome = outcomes[i];
      Slot& slot = slot_of(sequence);
      const int drafted = outcome.draft->tree.drafted(), model = model_of(slot),
                accepted = static_cast<int>(outcome.acceptance->path.size());
      if (model >= 0) chains_[static_cast<std::size_t>(model)]->observe(sequence, drafted, accepted);
      else if (slot.chosen >= 0 && slot.copy_budget) slot.copy_budget->observe_chain(drafted, accepted);
      if (slot.chosen >= 0 && slot.bandit)
        slot.bandit->observe(slot.chosen, outcome.emitted,
                             costs_->step_ns(slot.chosen, drafted, slot.behind));
      if (slot.copies) {
        slot.copies->read(sequence.tokens,
                          [&](std::span<const double> acceptance) { slot.scores->add(0, acceptance); });
      }
      if (model_scores_ && !chains_.empty()) model_scores_->observe(sequence, outcome, model);
    }
  }

 private:
  struct Slot {
    std::optional<CopyDrafter> copies;
    std::optional<ShapeBudget> copy_budget;
    std::optional<DrafterBandit> bandit;  // or scores
    std::optional<DrafterScores> scores;
    int chosen = -1;  // the drafter of this step; -1: none. Copies are drafter 0, if they are a source
    int behind = 0;   // tokens that its model has missed
  };
  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }
  bool full_information() const { return options_.choose == Choice::full_information; }
  /// The draft model of this step; negative if none drafts.
  int model_of(const Slot& slot) const { return slot.chosen - copies_; }

  void add_slot(const Resources& resources, const std::shared_ptr<const StepCosts>& copy_costs,
                const std::vector<int>& longest) {
    Slot& slot = slots_.emplace_back();
    if (copies_ > 0) {
      slot.copies.emplace(CopyDrafter::Settings{.length = options_.copies,
                                                .least_match = options_.least_match,
                                                .capacity = resources.capacity,
                                                .scores = full_information()});
      if (options_.budget.automatic())
        slot.copy_budget.emplace(copy_costs, TreeShape::chain(options_.copies),
                                 ShapeBudget::Settings{.by_draft_model = false});
    }
    if (full_information())
      slot.scores.emplace(costs_, longest,
                          DrafterScores::Settings{.learner = options_.learner,
                                                  .rate = options_.rate,
                                                  .memory = options_.memory,
                                                  .any_length = options_.budget.automatic()});
    else
      slot.bandit.emplace(
          costs_->drafters(), costs_->best_rate(longest),
          DrafterBandit::Settings{.exploration = options_.exploration, .memory = options_.memory});
  }

  // Chooses the drafter of a step. Nothing has been drawn yet.
  void choose(const Sequence& sequence) {
    Slot& slot = slot_of(sequence);
    const bool room = sequence.depth_limit > 0;
    if (slot.copies) awake_[0] = room && !slot.copies->copy().empty();
    for (std::size_t model = 0; model < chains_.size(); ++model)
      awake_[model + static_cast<std::size_t>(copies_)] =
          room && chains_[model]->cache(sequence).room(sequence) > 0;
    slot.chosen = slot.bandit ? slot.bandit->choose(awake_)
                              : slot.scores->choose(awake_, sequence.coins, sequence.position());
    const int model = model_of(slot);
    slot.behind = model < 0 ? 0 : chains_[static_cast<std::size_t>(model)]->cache(sequence).behind(sequence);
  }

  static void add_copy(const Sequence& sequence, Slot& slot, Draft& draft) {
    const TokenSpan copy = slot.copies->copy();
    int length = std::min(static_cast<int>(copy.size()), sequence.depth_limit);
    if (slot.copy_budget)
      length = slot.copy_budget->choose(length, 0, evidence_of_match(slot.copies->match_length()));
    for (int node = 0; node < length; ++node) draft.add(copy[static_cast<std::size_t>(node)], node);
    if (length > 0) draft.source = "copies";
  }

  SelectionOptions options_;
  int copies_ = 0;  // 1 if copies are a drafter
  std::vector<std::shared_ptr<const Model>> models_;
  std::vector<std::unique_ptr<DraftChain>> chains_;  // [models]
  std::shared_ptr<const DrafterCosts> costs_;
  std::optional<ModelScores> model_scores_;  // with full information
  std::vector<Slot> slots_;                  // [batch]
  // Scratch:
  std::vector<char> awake_;  // [drafters]
  std::vector<const Sequence*> drafting_;
  std::vector<Draft*> parts_;
};

const RegisterStrategy<SelectionOptions, Selection> registered{{
    .name = "selection",
    .summary =
        "one of several drafters in each step, draft models or copies; which one, it learns from the text",
    .paper = "Hou et al. 2025, BanditSpec; Liu et al. 2025, Not-a-Bandit",
    .draft_source = "one of several small models, or copies from the text",
    .stop_rule = "budget; length",
    .verification = "chain",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "small models with the target's vocabulary; nothing for copies",
    .most_drafts = kMostDrafts,
    .follows_steps = true,
}};

}  // namespace
}  // namespace speclab
