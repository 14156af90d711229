// Simulated acceptance: with probability alpha, proposes the token that autoregressive decoding emitted at
// this position; otherwise proposes a wrong token. In this way the experiment chooses the acceptance. The
// ordinary verifier decides, so the text is right and all costs are real. With a draft model, the model's
// forwards run on the proposed tokens, and its own tokens are thrown away.
//
// Paper:       the i.i.d. acceptance model of Leviathan et al. 2023, Section 3.1.
// Draft cost:  that of the draft model, or nothing.
// Loses when:  the text differs from the reference text, as with independent sampling at T > 0. At T = 0
//              and with coupled sampling, each tested token is accepted with probability alpha.

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

struct Options {
  int gamma = 4;
  double alpha = .8;
  std::vector<double> alpha_at;
  std::vector<int> trace;
  void fields(OptionVisitor& visit) {
    visit("gamma", gamma, Range<int>{1, 64}, "tokens proposed per step");
    visit("alpha", alpha, Range<double>{0, 1},
          "probability of the right token at every position of the draft");
    visit("alpha_at", alpha_at, Range<double>{0, 1},
          "instead of alpha: one probability per position of the draft; the last one also holds for later "
          "positions");
    visit("trace", trace, Range<int>{0, 64},
          "instead of alpha: number of right tokens per step; the list repeats");
  }
};

class Simulated final : public Strategy {
 public:
  Simulated(const Options& options, const Resources& resources)
      : options_(options),
        vocab_(resources.target->config().vocab),
        slots_(static_cast<std::size_t>(resources.batch)) {
    if (!options_.alpha_at.empty() && !options_.trace.empty()) {
      throw Error({"simulated: trace", "trace and alpha_at", "only one of the two", "Leave one out."});
    }
    if (resources.draft) {
      DraftChainOptions chain;
      chain.gamma = options_.gamma;
      chain_ = std::make_unique<DraftChain>(chain, resources);
    }
    propose_ = [this](const Sequence& sequence, int depth) { return propose(sequence, depth); };
  }

  void begin(const Sequence& sequence) override {
    if (sequence.reference.empty()) {
      throw Error({"strategy simulated", "no reference text",
                   "the text that autoregressive decoding emits for this prompt",
                   "Run it in an experiment that has the autoregressive case."});
    }
    slots_[sequence.slot] = State();
    if (chain_) chain_->begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (const Sequence* sequence : sequences) slots_[sequence->slot].wrong = false;
    if (chain_) {
      chain_->draft(sequences, drafts, propose_);
    } else {
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const int limit = std::min(options_.gamma, sequences[i]->depth_limit);
        for (int depth = 1; depth <= limit; ++depth) drafts[i]->add(propose(*sequences[i], depth), depth - 1);
      }
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (drafts[i]->tree.drafted() > 0) drafts[i]->source = "simulated";
      ++slots_[sequences[i]->slot].step;
    }
  }

 private:
  struct State {
    std::size_t step = 0;
    bool wrong = false;  // an earlier token of this draft is wrong, so the rest will not be tested
  };

  bool right(const Sequence& sequence, const State& state, int depth) const {
    if (!options_.trace.empty()) return depth <= options_.trace[state.step % options_.trace.size()];
    double alpha = options_.alpha;
    if (!options_.alpha_at.empty())
      alpha = options_.alpha_at[std::min(static_cast<std::size_t>(depth) - 1, options_.alpha_at.size() - 1)];
    const auto draw = static_cast<std::uint32_t>(depth);
    return sequence.coins.bernoulli(alpha, {sequence.position(), Purpose::simulate, draw});
  }

  Token propose(const Sequence& sequence, int depth) {
    State& state = slots_[sequence.slot];
    const auto index = static_cast<std::size_t>(sequence.position() + depth - sequence.prompt_length);
    const Token expected = index < sequence.reference.size() ? sequence.reference[index] : 0;
    if (!state.wrong && !right(sequence, state, depth)) state.wrong = true;
    return state.wrong ? (expected + 1) % vocab_ : expected;
  }

  Options options_;
  int vocab_;
  std::unique_ptr<DraftChain> chain_;
  DraftChain::Substitute propose_;
  std::vector<State> slots_;  // [batch]
};

const RegisterStrategy<Options, Simulated> registered{{
    .name = "simulated",
    .summary = "proposes the reference text's token with a given probability; costs are real",
    .paper = "i.i.d. acceptance: Leviathan et al. 2023, Section 3.1",
    .draft_source = "the reference text with random errors",
    .stop_rule = "constant gamma",
    .verification = "chain",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
    .needs_reference = true,
}};

}  // namespace
}  // namespace speclab
