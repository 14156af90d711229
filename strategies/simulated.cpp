// Simulated acceptance: proposes the token that autoregressive decoding emitted at this position, or else a
// wrong token. In this way the experiment chooses the acceptance: not only its mean, but the law of the
// number of right tokens in each step (option `law`). The ordinary verifier decides, so the text is right and
// all costs are real. With a draft model, the model's forwards run on the proposed tokens, and its own tokens
// are thrown away.
//
//   iid               each token is right with probability alpha, independently of all others
//   minimum_variance  floor(mean) or ceil(mean) right tokens in each step, so that the mean is exact
//   histogram         n right tokens with the given share, independently in each step
//   switching         easy and hard stretches: a two-state Markov chain over the steps
//   random_effect     each prompt draws its own alpha from a beta law
//
// Paper:       the i.i.d. acceptance model of Leviathan et al. 2023, Section 3.1. minimum_variance is the
//              schedule of vLLM's `synthetic_acceptance_length`, which counts the bonus token: mean_accepted
//              + 1 (vllm/config/speculative.py, github.com/vllm-project/vllm, pull request 40662).
// Draft cost:  that of the draft model, or nothing.
// Loses when:  the text differs from the reference text, as with independent sampling at T > 0. At T = 0
//              and with coupled sampling, the tested tokens follow the law. The end of a text and the limit
//              on its length make the last drafts shorter, so the last steps accept less.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/registry.h"
#include "core/theory/chain.h"
#include "core/theory/processes/acceptance_process.h"
#include "core/theory/processes/prompt_process.h"

namespace speclab {
namespace {

enum class AcceptanceLaw { iid, minimum_variance, histogram, switching, random_effect };

struct SimulatedOptions {
  int gamma = 4;
  double alpha = .8;
  std::vector<double> alpha_at;
  std::vector<int> trace;
  AcceptanceLaw law = AcceptanceLaw::iid;
  double mean_accepted = -1;
  std::vector<double> shares;
  double hard_alpha = .4;
  double stay = .9;
  double correlation = .1;
  void fields(OptionVisitor& visit) {
    visit("gamma", gamma, Range<int>{1, 64}, "tokens proposed per step");
    visit("alpha", alpha, Range<double>{0, 1},
          "probability of the right token at every position of the draft");
    visit("alpha_at", alpha_at, Range<double>{0, 1},
          "instead of alpha: one probability per position of the draft; the last one also holds for later "
          "positions");
    visit("trace", trace, Range<int>{0, 64},
          "instead of alpha: number of right tokens per step; the list repeats");
    visit("law", law,
          {{AcceptanceLaw::iid, "iid"},
           {AcceptanceLaw::minimum_variance, "minimum_variance"},
           {AcceptanceLaw::histogram, "histogram"},
           {AcceptanceLaw::switching, "switching"},
           {AcceptanceLaw::random_effect, "random_effect"}},
          "law of the number of right tokens per step. iid: each token with probability alpha; "
          "minimum_variance: the whole numbers next to mean_accepted; histogram: the shares; switching: "
          "alpha in easy and hard_alpha in hard stretches; random_effect: each prompt has its own alpha");
    visit(
        "mean_accepted", mean_accepted, Range<double>{-1, 64},
        "minimum_variance: mean number of right tokens per step, without the bonus token; -1: the mean that "
        "iid has at alpha and gamma");
    visit("shares", shares, Range<double>{0, 1e9},
          "histogram: how often a step has 0, 1, ..., gamma right tokens, on any scale");
    visit("hard_alpha", hard_alpha, Range<double>{0, 1}, "switching: alpha of the hard stretches");
    visit("stay", stay, Range<double>{0, 1},
          "switching: probability that the next step is as easy or hard as this one");
    visit("correlation", correlation, Range<double>{1e-4, .9999},
          "random_effect: variance of alpha between prompts / (alpha (1 - alpha))");
  }
};

Error wrong_option(const char* option, std::string got, std::string expected, std::string advice) {
  return Error(
      {fmt::format("simulated: {}", option), std::move(got), std::move(expected), std::move(advice)});
}

/// Throws Error for options that contradict each other.
void require(const SimulatedOptions& options) {
  const bool iid = options.law == AcceptanceLaw::iid;
  if (!options.alpha_at.empty() && !options.trace.empty())
    throw wrong_option("trace", "trace and alpha_at", "only one of the two", "Leave one out.");
  if (!iid && !(options.alpha_at.empty() && options.trace.empty()))
    throw wrong_option("law", "a law besides alpha_at or trace", "\"iid\"", "Leave out alpha_at and trace.");
  if (options.mean_accepted >= 0 && options.law != AcceptanceLaw::minimum_variance)
    throw wrong_option("mean_accepted", fmt::format("{}", options.mean_accepted),
                       "-1 unless the law is minimum_variance", "Leave it out, or set the law.");
  if (options.mean_accepted > options.gamma)
    throw wrong_option("mean_accepted", fmt::format("{}", options.mean_accepted),
                       fmt::format("at most gamma = {}", options.gamma), "Take a larger gamma.");
  if (options.shares.empty() != (options.law != AcceptanceLaw::histogram))
    throw wrong_option("shares", fmt::format("{} shares", options.shares.size()),
                       "shares with the law histogram, and only with it", "");
  if (options.shares.size() > static_cast<std::size_t>(options.gamma) + 1)
    throw wrong_option("shares", fmt::format("{} shares", options.shares.size()),
                       fmt::format("at most gamma + 1 = {}", options.gamma + 1), "Take a larger gamma.");
}

/// The law of the steps of a prompt, or the law that a prompt draws it from.
theory::PromptProcess process_of(const SimulatedOptions& options) {
  require(options);
  if (!options.alpha_at.empty()) return theory::positional_process(options.alpha_at);
  switch (options.law) {
    case AcceptanceLaw::iid: break;
    case AcceptanceLaw::minimum_variance:
      return theory::minimum_variance_process(
          options.mean_accepted >= 0 ? options.mean_accepted
                                     : theory::expected_tokens(options.alpha, options.gamma) - 1);
    case AcceptanceLaw::histogram: return theory::lengths_process(options.shares);
    case AcceptanceLaw::switching:
      return theory::switching_process({options.alpha, options.hard_alpha}, options.stay);
    case AcceptanceLaw::random_effect: return theory::PromptProcess::beta(options.alpha, options.correlation);
  }
  return theory::iid_process(options.alpha);
}

class Simulated final : public Strategy {
 public:
  Simulated(const SimulatedOptions& options, const Resources& resources)
      : options_(options),
        process_(process_of(options)),
        vocab_(resources.target->config().vocab),
        slots_(static_cast<std::size_t>(resources.batch)) {
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
    State& state = slots_[static_cast<std::size_t>(sequence.slot)];
    state = State();
    const bool differs = options_.law == AcceptanceLaw::random_effect;
    state.process = process_.draw(
        differs ? sequence.coins.uniform({sequence.position(), Purpose::simulate, kEffectCoin}) : 0);
    state.mood = mood(sequence, theory::stationary_law(state.process), kFirstMoodCoin);
    if (chain_) chain_->begin(sequence);
  }

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (const Sequence* sequence : sequences) {
      State& state = slots_[static_cast<std::size_t>(sequence->slot)];
      state.wrong = false;
      if (state.step > 0) state.mood = mood(*sequence, state.process.transition[state.mood], kMoodCoin);
    }
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
      ++slots_[static_cast<std::size_t>(sequences[i]->slot)].step;
    }
  }

 private:
  /// Numbers of further coins of a position. The coin of depth d (1 to 64) has the number d.
  static constexpr std::uint32_t kMoodCoin = 100, kFirstMoodCoin = 101, kEffectCoin = 102;

  struct State {
    std::size_t step = 0;
    bool wrong = false;  // an earlier token of this draft is wrong, so the rest will not be tested
    theory::AcceptanceProcess process;
    std::size_t mood = 0;  // state of the process: easy or hard
  };

  static std::size_t mood(const Sequence& sequence, const std::vector<double>& law, std::uint32_t coin) {
    if (law.size() == 1) return 0;
    return sequence.coins.categorical(law, {sequence.position(), Purpose::simulate, coin});
  }

  bool right(const Sequence& sequence, const State& state, int depth) const {
    if (!options_.trace.empty()) return depth <= options_.trace[state.step % options_.trace.size()];
    const double alpha = theory::acceptance_at(state.process, state.mood, depth - 1);
    const auto draw = static_cast<std::uint32_t>(depth);
    return sequence.coins.bernoulli(alpha, {sequence.position(), Purpose::simulate, draw});
  }

  Token propose(const Sequence& sequence, int depth) {
    State& state = slots_[static_cast<std::size_t>(sequence.slot)];
    const auto index = static_cast<std::size_t>(sequence.position() + depth - sequence.prompt_length);
    const Token expected = index < sequence.reference.size() ? sequence.reference[index] : 0;
    if (!state.wrong && !right(sequence, state, depth)) state.wrong = true;
    return state.wrong ? (expected + 1) % vocab_ : expected;
  }

  SimulatedOptions options_;
  theory::PromptProcess process_;
  int vocab_;
  std::unique_ptr<DraftChain> chain_;
  DraftChain::Substitute propose_;
  std::vector<State> slots_;  // [batch]
};

const RegisterStrategy<SimulatedOptions, Simulated> registered{{
    .name = "simulated",
    .summary = "proposes right and wrong tokens of the reference text by a given law; costs are real",
    .paper = "i.i.d. acceptance: Leviathan et al. 2023, Section 3.1; minimum_variance: vLLM's synthetic "
             "acceptance",
    .draft_source = "the reference text with random errors",
    .stop_rule = "constant gamma",
    .verification = "chain",
    .criterion = "any rule; one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "nothing",
    .needs_reference = true,
    .follows_steps = true,
}};

}  // namespace
}  // namespace speclab
