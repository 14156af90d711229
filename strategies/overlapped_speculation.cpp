// Overlapped speculation: while the target verifies the chain that a small model drafted, the small model
// drafts the next chain on a thread of its own. It goes on as if all of the current chain were accepted, and
// guesses the token that the verification adds. If both come true, the next step takes this draft; otherwise
// it is dropped and drafted anew. Drafts and texts are bit for bit those of speculative_sampling with the
// same options; only the times differ.
//
// Paper:       Liu et al. 2024, "Parallel Speculative Decoding with Adaptive Draft Length" (PEARL), the
//              post-verify. The paper's pre-verify, which verifies the first token of a draft while the
//              others are drafted, is not done: it would change the steps.
// Draft cost:  if the draft ahead is dropped, gamma forwards of the draft, one after the other. Beside every
//              verification gamma + 1 forwards, which cost time only if the verification ends before them.
// Loses when:  the target is much slower with one thread less, or most drafts are not accepted as a whole.
//              Long chains are rarely right to their end, and short ones leave the draft model idle.

#include "core/decoding/ahead/ahead_chain.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

// A draft ahead is made before the verdict on the current draft is known. So the length of a draft cannot
// follow from that verdict: there are no schedules and no budgets.
struct OverlappedSpeculationOptions {
  int gamma = 4;
  DraftSampling draft;
  void fields(OptionVisitor& visit) {
    visit("gamma", gamma, Range<int>{1, 64}, "tokens drafted per step");
    draft.fields(visit);
  }
  DraftChainOptions chain_options() const { return {.gamma = gamma, .draft = draft, .schedule = {}}; }
};

class OverlappedSpeculation final : public Strategy {
 public:
  OverlappedSpeculation(const OverlappedSpeculationOptions& options, const Resources& resources)
      : chain_(options.chain_options(), resources) {}

  void begin(const Sequence& sequence) override { chain_.begin(sequence); }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    chain_.draft(sequences, drafts);
  }
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    chain_.observe(sequences, outcomes);
  }
  void halt() override { chain_.halt(); }

 private:
  AheadChain chain_;
};

const RegisterStrategy<OverlappedSpeculationOptions, OverlappedSpeculation> registered{{
    .name = "overlapped_speculation",
    .summary = "speculative_sampling whose next draft is made while the target verifies",
    .paper = "Liu et al. 2024, PEARL (post-verify)",
    .draft_source = "small model or layers of the target, on a thread of its own",
    .stop_rule = "gamma tokens",
    .verification = "chain",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
    .drafts_model_chains = true,
    .drafts_ahead = true,
}};

}  // namespace
}  // namespace speclab
