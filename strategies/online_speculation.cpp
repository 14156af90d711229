// Online speculative decoding: a small model drafts a chain, as in speculative_sampling, and learns from its
// mistakes while the text is decoded. Each rejected token shows the target's row at a place where the draft
// was wrong. The draft's output head is corrected there, so that its q comes closer to the target's p.
//
// Paper:       Liu et al. 2023, "Online Speculative Decoding" (arXiv 2310.07177). The paper trains all
//              weights of the draft model by backpropagation, on a second device or between requests. Here
//              only a linear correction of the logits is trained, on the CPU and in the step itself. Its
//              gradient is known in closed form (core/decoding/drafting/online).
// Draft cost:  as speculative_sampling, and for each drafted token a matrix product with the rows of the
//              corrected tokens. Every `update_every` steps with a draft, an update makes a few passes over a
//              row for each rejected position. All of this belongs to the phase `draft` of a step.
// Loses when:  texts are short, or each one is about something else: the draft then corrects itself for what
//              does not come again.
//
// The correction changes in observe() only, after the target has judged the draft. So each token comes with
// the q that it was drawn from, and every lossless rule stays exact.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/drafting/online/online_learner.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

struct OnlineSpeculationOptions {
  DraftChainOptions chain;
  OnlineOptions online;
  bool keep = false;
  BudgetOptions budget;
  bool carries_memory() const { return keep; }
  void fields(OptionVisitor& visit) {
    chain.fields(visit);
    online.fields(visit);
    visit("keep", keep,
          "what was learned stays for the next prompt; prompts are then decoded in the order of their file");
    budget.fields(visit);
  }
};

class OnlineSpeculation final : public Strategy {
 public:
  OnlineSpeculation(const OnlineSpeculationOptions& options, const Resources& resources)
      : keep_(options.keep),
        chain_(options.chain, resources, options.budget.rule),
        begun_(static_cast<std::size_t>(resources.batch)) {
    for (int i = 0; i < resources.batch; ++i)
      learners_.emplace_back(options.online, resources.draft->config());
    chain_.correct_rows(
        [this](const Sequence& sequence, int depth, std::span<const float> state, std::span<float> logits) {
          learner_of(sequence).correct(depth, state, logits);
        });
  }

  // The draft learns from the target's rows at the places where its tokens were rejected.
  Reads reads() const override { return {.rows = true}; }

  // Forgets what was learned, except in a later turn of the same conversation or with `keep`. A turn above 0
  // alone does not show that: the loop does not call begin() for a turn whose first token ends it, so turn 0
  // may be missing. In the same conversation the text continues the text that the turn before began with.
  void begin(const Sequence& sequence) override {
    std::vector<Token>& begun = begun_[static_cast<std::size_t>(sequence.slot)];
    const TokenSpan text = sequence.tokens;
    const bool continues = sequence.turn > 0 && text.size() >= begun.size() &&
                           std::equal(begun.begin(), begun.end(), text.begin());
    if (!keep_ && !continues) learner_of(sequence).forget();
    begun.assign(text.begin(), text.end());
    chain_.begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    chain_.draft(sequences, drafts);
  }

  // Node 0 of a chain is the pending token, and node i is drafted token i (from 1). So row number `accepted`
  // is the row after the accepted tokens.
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const int drafted = outcomes[i].draft->tree.drafted();
      const auto accepted = static_cast<int>(outcomes[i].acceptance->path.size());
      chain_.observe(*sequences[i], drafted, accepted);
      if (drafted > 0) learner_of(*sequences[i]).observe(drafted, accepted, outcomes[i].rows.row(accepted));
    }
  }

 private:
  OnlineLearner& learner_of(const Sequence& sequence) {
    return learners_[static_cast<std::size_t>(sequence.slot)];
  }

  bool keep_;
  std::vector<OnlineLearner> learners_;  // [batch]
  DraftChain chain_;
  std::vector<std::vector<Token>> begun_;  // [batch] the text when begin() was last called
};

const RegisterStrategy<OnlineSpeculationOptions, OnlineSpeculation> registered{{
    .name = "online_speculation",
    .summary =
        "a small model drafts a chain and corrects its output head where the target rejects its tokens",
    .paper = "Liu et al. 2023, Online Speculative Decoding",
    .draft_source = "small model, or layers of the target, with a correction that is learned online",
    .stop_rule = "budget; a schedule: speclab list schedules",
    .verification = "chain",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary, which is trained further while it drafts",
    .needs_draft = true,
    .follows_steps = true,
}};

}  // namespace
}  // namespace speclab
