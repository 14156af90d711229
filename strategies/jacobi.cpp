// Jacobi decoding: guesses all tokens of a block at once. One target forward predicts the token at every
// position of the block, given the guesses before it. Every forward makes the correct prefix at least one
// token longer. With `keep_tail`, the predictions after the first wrong guess are the guesses of the next
// step; otherwise the next step starts with new guesses.
//
// Paper:       Santilli et al. 2023, "Accelerating Transformer Inference for Translation via Parallel
//              Decoding", Algorithms 1 (parallel: the whole text at once) and 2 (blocks: one block after the
//              other). The sliding window is that of lookahead decoding with N = 2 (Fu et al. 2024).
// Draft cost:  none besides the target's rows of the block.
// Loses when:  nearly always. A wrong token changes all predictions after it, and correct tokens often appear
//              at the wrong positions. With "budget": "auto" a step guesses fewer tokens of the block, mostly
//              none. With keep_tail, guesses that were not verified stay the guesses of the next step.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/decoding/budget/shape_budget.h"
#include "core/decoding/drafting/lookahead_window.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

enum class Scheme { blocks, parallel, sliding };
enum class InitialGuess { random, prompt, repeat };

struct JacobiOptions {
  Scheme scheme = Scheme::blocks;
  int block = 16;
  bool keep_tail = true;
  InitialGuess initial = InitialGuess::random;
  int parallel_tokens = 0;
  BudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit("scheme", scheme,
          {{Scheme::blocks, "blocks"}, {Scheme::parallel, "parallel"}, {Scheme::sliding, "sliding"}},
          "what is guessed: one block after the other, all remaining text at once (parallel), or a sliding "
          "window of constant length after the text so far");
    visit("block", block, Range<int>{1, 512},
          "tokens of a block or window, including the pending token; parallel ignores it and guesses all "
          "remaining tokens, at most 511");
    visit("keep_tail", keep_tail,
          "true: keep the predictions after the first wrong guess as the next guesses; false: start with new "
          "guesses");
    visit("initial", initial,
          {{InitialGuess::random, "random"},
           {InitialGuess::prompt, "prompt"},
           {InitialGuess::repeat, "repeat"}},
          "first guesses: random tokens of the text so far, its first tokens in order, or its last token "
          "repeated");
    visit("parallel_tokens", parallel_tokens, Range<int>{0, 1 << 20},
          "after this many emitted tokens, decoding continues without drafts; 0: never");
    budget.fields(visit);
  }
};

class Jacobi final : public Strategy {
 public:
  Jacobi(const JacobiOptions& options, const Resources& resources)
      : options_(options), slots_(static_cast<std::size_t>(resources.batch)) {
    whole_ = options.scheme == Scheme::parallel;
    for (Slot& slot : slots_) {
      slot.guess.reserve(kMostRows);
      slot.next.reserve(kMostRows);
      const int most = (whole_ ? kMostRows : options_.block) - 1;
      if (options_.budget.automatic() && most > 0)
        slot.budget.emplace(resources.costs, TreeShape::chain(most), kTrials);
    }
  }

  Reads reads() const override { return {.rows = true}; }
  int max_nodes() const override { return whole_ ? kMostRows : options_.block; }

  void begin(const Sequence& sequence) override {
    Slot& slot = slots_[static_cast<std::size_t>(sequence.slot)];
    slot.guess.clear();
    slot.left = 0;
    if (slot.budget) slot.budget->begin();
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Sequence& sequence = *sequences[i];
      Slot& slot = slots_[static_cast<std::size_t>(sequence.slot)];
      const auto emitted = static_cast<int>(sequence.tokens.size()) - sequence.prompt_length;
      if (options_.parallel_tokens > 0 && emitted >= options_.parallel_tokens) continue;
      if (slot.left == 0) {  // a new block
        slot.left = options_.block;
        if (options_.scheme == Scheme::blocks) slot.guess.clear();
      }
      int length = std::min(whole_ ? kMostRows - 1 : slot.left - 1, sequence.depth_limit);
      if (length > 0 && slot.budget) length = slot.budget->choose(length);
      int draw = 0;
      while (static_cast<int>(slot.guess.size()) < length) slot.guess.push_back(anything(sequence, draw++));
      for (int node = 0; node < length; ++node)
        drafts[i]->add(slot.guess[static_cast<std::size_t>(node)], node);
      if (length > 0) drafts[i]->source = "jacobi";
    }
  }

  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const Outcome& outcome = outcomes[i];
      Slot& slot = slots_[static_cast<std::size_t>(sequences[i]->slot)];
      slot.next.clear();
      // The row of node k predicts the token at offset k + 1.
      for (int node = outcome.emitted; options_.keep_tail && node < outcome.draft->tree.size(); ++node)
        slot.next.push_back(outcome.rows.best(node));
      // Guesses for later offsets were not verified because of the budget. They stay guesses.
      if (options_.keep_tail && slot.budget) {
        const auto later = static_cast<std::size_t>(outcome.draft->tree.size());
        for (std::size_t i = later; i < slot.guess.size(); ++i) slot.next.push_back(slot.guess[i]);
      }
      slot.guess.swap(slot.next);
      if (slot.budget)
        slot.budget->observe_chain(outcome.draft->tree.drafted(),
                                   static_cast<int>(outcome.acceptance->path.size()));
      if (options_.scheme == Scheme::blocks) slot.left = std::max(0, slot.left - outcome.emitted);
    }
  }

 private:
  static constexpr int kMostRows = 512;
  // The first guesses of a trial are old or random, so a trial takes several steps.
  static constexpr ShapeBudget::Settings kTrials{
      .first_guess = .3, .by_draft_model = false, .trial_steps = 4};

  struct Slot {
    std::optional<ShapeBudget> budget;
    std::vector<Token> guess;  // guesses for the tokens after the pending one
    std::vector<Token> next;
    int left = 0;  // tokens of the block from the pending one on; 0: a new block begins
  };

  Token anything(const Sequence& sequence, int draw) const {
    const std::vector<Token>& text = sequence.tokens;
    if (options_.initial == InitialGuess::repeat) return text.back();
    if (options_.initial == InitialGuess::prompt) return text[static_cast<std::size_t>(draw) % text.size()];
    return random_text_token(sequence, text, draw);
  }

  JacobiOptions options_;
  bool whole_ = false;
  std::vector<Slot> slots_;  // [batch]
};

const RegisterStrategy<JacobiOptions, Jacobi> registered{{
    .name = "jacobi",
    .summary = "fixed-point iteration on many tokens at once; the target's predictions are the next guesses",
    .paper = "Santilli et al. 2023; Song et al. 2021 (Jacobi and Gauss-Seidel-Jacobi iterations)",
    .draft_source = "the target's rows of the previous step",
    .stop_rule = "budget; end of the block",
    .verification = "chain",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
    .guesses_whole_blocks = true,
    .follows_steps = true,
    .law = StrategyLaw::block,
}};

}  // namespace
}  // namespace speclab
