// N-gram model: drafts a chain from a smoothed n-gram model, which gives a distribution q over the whole
// vocabulary. Tokens are really drawn from q, and the rejection rule compares it with the target's p. The
// counts come from the text itself (prompt and output so far), from a file (`speclab ngram build`), or from
// whichever of the two knows the longer context.
//
// Paper:       Leviathan et al. 2023, Section 3.6 and Table 3 (bigram drafts); Katz 1987; Kneser and
//              Ney 1995; Chen and Goodman 1998. A trigram with Katz back-off drafts in Spector and Re 2023,
//              "Accelerating LLM Inference with Staged Speculative Decoding".
// Draft cost:  no draft model runs. With a vocabulary of 49152 and three drafted tokens, a step takes 10 to
//              45 us of CPU time at temperature 0. With sampling it takes 80 us, because sampling needs
//              several passes over a row for each token.
// Loses when:  a few tokens of context predict little: acceptance falls fast with depth, and every drafted
//              token is a row to verify. With "budget": "auto" it then drafts less, down to nothing.

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/drafting/ngram_estimate.h"
#include "core/decoding/rows/processors.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

enum class Counts { online, file, both };

struct Options {
  int order = 3;
  NgramSmoothing smoothing = NgramSmoothing::modified_kneser_ney;
  Counts counts = Counts::online;
  std::string file;
  int known = 1;
  BudgetOptions budget;
  DraftChainOptions chain;
  Options() { chain.gamma = 3; }
  void fields(OptionVisitor& visit) {
    visit("order", order, Range<int>{1, NgramCounts::kMostOrder},
          "longest n-gram: 1 unigram, 2 bigram, 3 trigram; a file of a lower order gives n-grams of its own "
          "order");
    visit("smoothing", smoothing,
          {{NgramSmoothing::katz, "katz"},
           {NgramSmoothing::kneser_ney, "kneser_ney"},
           {NgramSmoothing::modified_kneser_ney, "modified_kneser_ney"}},
          "how counts become probabilities");
    visit("counts", counts, {{Counts::online, "online"}, {Counts::file, "file"}, {Counts::both, "both"}},
          "counts of prompt and output, of the file, or of whichever knows the longer context (the text if "
          "both are equal)");
    visit("file", file, "file made by `speclab ngram build`");
    visit("known", known, Range<int>{0, NgramCounts::kMostOrder - 1},
          "draft only after a sequence of this many tokens that occurred before; at most order - 1");
    budget.fields(visit);
    chain.fields(visit);
  }
};

class NgramModel final : public Strategy {
 public:
  NgramModel(const Options& options, const Resources& resources)
      : options_(options), vocab_(resources.target->config().vocab) {
    if (options_.counts != Counts::online) {
      if (options_.file.empty()) {
        throw Error({"ngram_model: file", "none",
                     std::string("an n-gram model, because of \"counts\": \"") +
                         (options_.counts == Counts::file ? "file" : "both") + "\"",
                     "Build one with `speclab ngram build`, or set counts to online."});
      }
      file_.emplace(NgramFile::open(options_.file));
      file_->require(vocab_, resources.target->tokenizer_sha256());
      by_file_.emplace(vocab_, std::min(options_.order, file_->order()), options_.smoothing);
      by_file_->freeze(*file_);
    }
    if (options_.counts != Counts::file) by_text_.emplace(vocab_, options_.order, options_.smoothing);
    const Schedule schedule(options_.chain.schedule, options_.chain.gamma);
    for (int i = 0; i < resources.batch; ++i) {
      slots_.push_back(std::make_unique<Slot>(vocab_, options_.order, schedule));
      if (by_text_) slots_.back()->counts.reserve(static_cast<std::size_t>(resources.capacity) + 1);
      if (options_.budget.automatic()) {
        slots_.back()->budget.emplace(
            resources.costs, TreeShape::chain(std::max(options_.chain.gamma, schedule.largest())),
            ShapeBudget::Settings{.first_guess = .4, .by_draft_model = false, .trial_steps = 1});
      }
    }
    row_.resize(static_cast<std::size_t>(vocab_));
    processed_.resize(row_.size());
  }

  void begin(const Sequence& sequence) override {
    Slot& slot = slot_of(sequence);
    slot.schedule.begin(sequence.turn);
    if (slot.budget) slot.budget->begin();
    slot.counts.clear();
    catch_up(slot, sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) draft_one(*sequences[i], *drafts[i]);
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& slot = slot_of(*sequences[i]);
      catch_up(slot, *sequences[i]);
      const int drafted = outcomes[i].draft->tree.drafted();
      const auto accepted = static_cast<int>(outcomes[i].acceptance->path.size());
      if (drafted > 0) slot.schedule.observe(drafted, accepted);
      if (drafted > 0 && slot.budget) slot.budget->observe_chain(drafted, accepted);
    }
  }

 private:
  struct Slot {
    Slot(int vocab, int order, const Schedule& rule) : counts(vocab, order), schedule(rule) {}
    NgramCounts counts;
    Schedule schedule;
    std::optional<ShapeBudget> budget;
  };

  Slot& slot_of(const Sequence& sequence) { return *slots_[static_cast<std::size_t>(sequence.slot)]; }

  void catch_up(Slot& slot, const Sequence& sequence) const {
    if (!by_text_) return;
    for (std::size_t at = slot.counts.tokens(); at < sequence.tokens.size(); ++at)
      slot.counts.append(sequence.tokens[at]);
  }

  void draft_one(const Sequence& sequence, Draft& draft) {
    Slot& slot = slot_of(sequence);
    const TokenSpan text = sequence.tokens;
    const TokenSpan ending =
        text.last(std::min(text.size(), static_cast<std::size_t>(NgramCounts::kMostOrder)));
    context_.assign(ending.begin(), ending.end());
    path_.clear();
    slot.schedule.start_draft();
    int limit = std::min(slot.schedule.limit(), sequence.depth_limit);
    for (int depth = 1; depth <= limit; ++depth) {
      int known = -1;
      if (by_text_) {
        by_text_->condition(slot.counts, context_);
        known = by_text_->known();
      }
      bool from_file = false;
      if (by_file_) {
        by_file_->condition(*file_, context_);
        from_file = by_file_->known() > known;
        known = std::max(known, by_file_->known());
      }
      // This decision depends on the context and not on the token that would be drawn. So the law stays
      // exact.
      if (known < std::min(options_.known, options_.order - 1)) break;
      // The length is chosen before the first token is drawn. A longer known context is better evidence.
      if (depth == 1 && slot.budget) limit = slot.budget->choose(limit, 0, known);
      if (limit == 0) break;
      const bool drawn =
          from_file ? extend(*by_file_, sequence, depth, draft) : extend(*by_text_, sequence, depth, draft);
      if (!drawn) break;
      draft.source = "ngram";
      path_.push_back(draft.tree.token(depth));
      context_.push_back(path_.back());
      if (slot.schedule.stop_after(draft.confidence[static_cast<std::size_t>(depth)])) {
        draft.ended_by_schedule = true;
        break;
      }
    }
  }

  // Draws node `depth` from `law`. Returns false when all tokens are banned.
  template <class Counts>
  bool extend(const NgramEstimate<Counts>& law, const Sequence& sequence, int depth, Draft& draft) {
    const SamplingParams sampling = options_.chain.draft.over(sequence.sampling);
    if (sampling.temperature <= 0 &&
        sequence.processors == nullptr) {  // the best token is known without computing the row
      const Token token = law.best();
      draft.add(token, depth - 1, Draft::kOneHot, static_cast<float>(law.prob(token)));
      return true;
    }
    law.log_probabilities(row_);
    std::span<const float> row = row_;
    if (sequence.processors != nullptr) {
      sequence.processors->apply(row_, {}, sequence.tokens, path_, processed_);
      row = processed_;
    }
    // Katz may give all mass to tokens that are banned.
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    if (sequence.processors != nullptr &&
        std::all_of(row.begin(), row.end(), [](float log) { return log == kNever; }))
      return false;
    int q_index = Draft::kOneHot;
    Distribution& q = draft.new_q(&q_index);
    q.assign_logits(row, sampling, {}, vocab_);
    const Token token = sequence.coupled ? q.sample_coupled(sequence.coins, sequence.position() + depth)
                                         : q.sample(sequence.coins, sequence.draft_coin(depth));
    draft.add(token, depth - 1, q_index, static_cast<float>(q.one_hot() ? law.prob(token) : q.prob(token)));
    return true;
  }

  Options options_;
  int vocab_;
  std::optional<NgramFile> file_;
  std::optional<NgramEstimate<NgramCounts>> by_text_;
  std::optional<NgramEstimate<NgramFile>> by_file_;
  std::vector<std::unique_ptr<Slot>> slots_;  // [batch]
  std::vector<Token> context_, path_;
  std::vector<float> row_, processed_;  // [vocab]
};

const RegisterStrategy<Options, NgramModel> registered{{
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
}};

}  // namespace
}  // namespace speclab
