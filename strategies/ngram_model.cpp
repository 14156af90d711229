// N-gram model: drafts a chain from a smoothed n-gram model, which gives a distribution q over the whole
// vocabulary. Tokens are really drawn from q, and the rejection rule compares q with the target's p. The
// counts come from the text itself (prompt and output so far), from a file (`speclab ngram build`), or from
// whichever of the two knows the longer context.
//
// Paper:       Leviathan et al. 2023, Section 3.6 and Table 3 (bigram drafts); Katz 1987; Kneser and
//              Ney 1995; Chen and Goodman 1998. A trigram with Katz back-off drafts in Spector and Re 2023,
//              "Accelerating LLM Inference with Staged Speculative Decoding".
// Draft cost:  no draft model runs. With a vocabulary of 49152, drafting three tokens takes 10 to 45 us of
//              CPU time at temperature 0. With sampling it takes 80 us, because sampling needs several passes
//              over a row for each token.
// Loses when:  a few tokens of context predict little: acceptance falls fast with depth, and every drafted
//              token is a row to verify. With "budget": "auto" it then drafts less, down to nothing.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/drafting/ngrams/ngram_source.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

struct NgramModelOptions {
  NgramSourceOptions ngrams;
  BudgetOptions budget;
  DraftChainOptions chain;
  NgramModelOptions() { chain.gamma = 3; }
  void fields(OptionVisitor& visit) {
    ngrams.fields(visit);
    budget.fields(visit);
    chain.fields(visit);
  }
};

class NgramModel final : public Strategy {
 public:
  NgramModel(const NgramModelOptions& options, const Resources& resources)
      : options_(options), ngrams_(options.ngrams, resources, "ngram_model") {
    const Schedule schedule(options_.chain.schedule, options_.chain.gamma, resources.costs.get());
    if (schedule.controller() != nullptr) {
      throw Error({"ngram_model: schedule", std::string(options_.chain.schedule.info().name),
                   "a schedule without a controller",
                   "Controllers are trained for draft models. Use another schedule."});
    }
    for (int i = 0; i < resources.batch; ++i) {
      slots_.push_back(std::make_unique<Slot>(schedule));
      if (options_.budget.automatic()) {
        slots_.back()->budget.emplace(
            resources.costs, TreeShape::chain(std::max(options_.chain.gamma, schedule.largest())),
            ShapeBudget::Settings{.first_guess = .4, .by_draft_model = false, .trial_steps = 1});
      }
    }
  }

  void begin(const Sequence& sequence) override {
    Slot& slot = slot_of(sequence);
    slot.schedule.begin(sequence.turn);
    if (slot.budget) slot.budget->begin();
    ngrams_.begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) draft_one(*sequences[i], *drafts[i]);
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& slot = slot_of(*sequences[i]);
      ngrams_.catch_up(*sequences[i]);
      const int drafted = outcomes[i].draft->tree.drafted();
      const auto accepted = static_cast<int>(outcomes[i].acceptance->path.size());
      if (drafted > 0) slot.schedule.observe(drafted, accepted);
      if (drafted > 0 && slot.budget) slot.budget->observe_chain(drafted, accepted);
    }
  }

 private:
  struct Slot {
    explicit Slot(const Schedule& rule) : schedule(rule) {}
    Schedule schedule;
    std::optional<ShapeBudget> budget;
  };

  Slot& slot_of(const Sequence& sequence) { return *slots_[static_cast<std::size_t>(sequence.slot)]; }

  void draft_one(const Sequence& sequence, Draft& draft) {
    Slot& slot = slot_of(sequence);
    const SamplingParams sampling = options_.chain.draft.over(sequence.sampling);
    path_.clear();
    slot.schedule.start_draft();
    int limit = std::min(slot.schedule.limit(), sequence.depth_limit);
    for (int depth = 1; depth <= limit; ++depth) {
      const int known = ngrams_.condition(sequence, path_);
      if (!ngrams_.enough(known)) break;
      // The length is chosen before the first token is drawn. A longer known context is better evidence.
      if (depth == 1 && slot.budget) limit = slot.budget->choose(limit, 0, known);
      if (limit == 0) break;
      const auto node = ngrams_.add(sequence, path_, sampling, draft, depth - 1, [&](const Distribution& q) {
        return sequence.coupled ? q.sample_coupled(sequence.coins, sequence.position() + depth)
                                : q.sample(sequence.coins, sequence.draft_coin(depth));
      });
      if (!node) break;
      draft.source = "ngram";
      path_.push_back(draft.tree.token(*node));
      const auto at = static_cast<std::size_t>(*node);
      if (slot.schedule.needs_entropy()) {
        const Distribution* q = draft.q_at(*node);
        draft.entropy[at] =
            static_cast<float>(q != nullptr && !q->one_hot() ? q->entropy() : ngrams_.entropy());
      }
      if (slot.schedule.stop_after(draft.confidence[at], draft.entropy[at])) {
        draft.ended_by_schedule = true;
        break;
      }
    }
  }

  NgramModelOptions options_;
  NgramSource ngrams_;
  std::vector<std::unique_ptr<Slot>> slots_;  // [batch]
  std::vector<Token> path_;
};

const RegisterStrategy<NgramModelOptions, NgramModel> registered{{
    .name = "ngram_model",
    .summary = "a smoothed n-gram model of the text so far, or of a file, with its own q",
    .paper = "Leviathan et al. 2023, Section 3.6; Katz 1987; Chen and Goodman 1998",
    .draft_source = "n-gram counts of the text or of a file",
    .stop_rule = "budget; schedule; unknown context",
    .verification = "chain",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing; a file of counts may be built",
    .may_name_file = "file",
    .searched_as = SearchedAs::ngram_chain,
}};

}  // namespace
}  // namespace speclab
