// Speculative sampling: a small model drafts gamma tokens one after the other, the target scores all of them
// in one forward, and the acceptance rule keeps a prefix of them and adds one token from the target. With the
// rejection rule, texts have exactly the target's distribution; at temperature 0 this is the greedy text.
//
// Paper:       Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding",
//              Algorithm 1; Chen et al. 2023, "Accelerating Large Language Model Decoding with Speculative
//              Sampling", Algorithm 2.
// Draft cost:  gamma forwards of the draft, one after the other. Each takes as long as c target forwards
//              over one row.
// Loses when:  tau < gamma * c + t(gamma + 1), where t(n) is the time of a target forward over n rows / over
//              one row. With "budget": "auto" the strategy then drafts less, down to nothing.
//
// This file is the tutorial. A strategy answers one question, "what do you draft?". The decode loop does the
// rest: it puts the pending token (the newest token of the text) at node 0 of a draft, runs the target over
// the tree, applies the rule, commits the accepted path, counts and times (core/decoding/loop/decode_loop.h).

#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

// Options are declared once, here. Names, ranges and help serve the config reader, `speclab
// describe` and the record. The options here (gamma, draft_temperature, schedule, ...) belong to
// DraftChain, which this strategy uses.
struct SpeculativeSamplingOptions {
  DraftChainOptions chain;
  BudgetOptions budget;
  void fields(OptionVisitor& visit) {
    chain.fields(visit);
    budget.fields(visit);
  }
};

class SpeculativeSampling final : public Strategy {
 public:
  // `resources` holds the models. `needs_draft` below guarantees that there is a draft model.
  SpeculativeSampling(const SpeculativeSamplingOptions& options, const Resources& resources)
      : chain_(options.chain, resources, options.budget.rule) {}

  // With a constant schedule and no budget all steps have the same form, so a device can run them without the
  // host.
  std::optional<DevicePlan> device_plan(const SamplingParams& target) const override {
    return chain_.device_plan(target);
  }

  // Starts a sequence in its slot: the draft model reads the prompt. Timed as prefill.
  void begin(const Sequence& sequence) override { chain_.begin(sequence); }

  // Drafts. Each draft already holds the pending token as node 0. The chain adds x_1 as its child, x_2 as the
  // child of x_1, and so on, each with the distribution q that it was drawn from. This q makes the rejection
  // rule exact. With a budget the chain may be shorter than gamma. Adding nothing is autoregressive decoding.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    chain_.draft(sequences, drafts);
  }

  // Called after acceptance. The chain's cache follows the text by itself. Schedule and budget adapt to the
  // number of accepted tokens.
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      chain_.observe(*sequences[i], outcomes[i].draft->tree.drafted(),
                     static_cast<int>(outcomes[i].acceptance->path.size()));
    }
  }

 private:
  DraftChain chain_;
};

// Registration makes the strategy known to the command line, the configs and the conformance tests. The name
// must be that of the file.
const RegisterStrategy<SpeculativeSamplingOptions, SpeculativeSampling> registered{{
    .name = "speculative_sampling",
    .summary = "a small model drafts a chain, the target verifies it in one forward",
    .paper = "Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2",
    .draft_source = "small model or layers of the target",
    .stop_rule = "budget; a schedule: speclab list schedules",
    .verification = "chain",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
    .drafts_model_chains = true,
    .searched_as = SearchedAs::model_chain,
}};

}  // namespace
}  // namespace speclab
