// Blockwise parallel decoding: further heads on the target's state guess the next tokens of a block, all from
// one state. Each head is a small layer before the target's own output layer. The first head of the paper is
// the target itself here. So with k heads in the sense of the paper, k - 1 are trained.
//
//   merged     the forward that verifies a block also gives the state from which the next block is guessed.
//              A step is one forward of the target over k rows. If the heads are always right, m tokens take
//              m / k + 1 forwards; the prefill is the one forward more.
//   two_phase  a forward of the pending token alone gives the state for the block; its own row is the first
//              guess. A second forward verifies the block. If the heads are always right, m tokens take 2 m /
//              k forwards. In the paper, a step ends before the first wrong guess, and the next step predicts
//              that token again. Here the verifying forward adds it at once, as in every step of this
//              program, so a step with a wrong guess has one token more than in the paper. The verifying
//              forward also gives the token that the last head would guess, so the last head does not run.
//
// Paper:       Stern et al. 2018, "Blockwise Parallel Decoding for Deep Autoregressive Models" (arXiv
//              1811.03115), Sections 3 (two phases), 4 (merged) and 5 (criteria). The criteria are rules:
//              "exact"; "top_beta" for the top-k selection; "distance" for ordered vocabularies;
//              "minimum_block". The heads' own layout is described in core/model/heads/blockwise_heads.h.
// Draft cost:  one small layer, and for each head one more small layer and the target's output layer. With
//              two_phase, the target also runs a forward with one row.
// Loses when:  the text branches, as for medusa: a head does not know the guesses of the heads before it. The
//              output layer runs once for each head, which is a large part of a small target. two_phase is
//              slower than merged by nearly a forward in each step, and is there to compare.
//
// With "budget": "auto" a part of the block is verified. The heads run in any case, so the budget does not
// count their time.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_strategy.h"
#include "core/decoding/drafting/heads/states_drafter.h"
#include "core/decoding/registry.h"
#include "core/model/heads/blockwise_heads.h"
#include "core/model/net/session.h"

namespace speclab {
namespace {

enum class Phases { merged, two_phase };

struct BlockwiseOptions : HeadStrategyOptions {
  Phases phases = Phases::merged;
  void fields(OptionVisitor& visit) {
    HeadStrategyOptions::fields(visit);
    visit("phases", phases, {{Phases::merged, "merged"}, {Phases::two_phase, "two_phase"}},
          "merged: the forward that verifies a block also gives the state for the next one; two_phase: a "
          "forward of its own gives that state, as in the first form of the paper; needs \"budget\": "
          "\"fixed\"");
  }
};

class Blockwise final : public StatesDrafter {
 public:
  Blockwise(const BlockwiseOptions& options, const Resources& resources)
      : Blockwise(options, resources, read_head_card(options.head, HeadKind::kBlockwise, *resources.target)) {
  }

  TargetUse target_use() const override { return {.drafts = two_phase_, .exits = {}}; }

 private:
  Blockwise(const BlockwiseOptions& options, const Resources& resources, const HeadCard& card)
      : StatesDrafter(resources, card.tap, false),
        tap_(card.tap),
        two_phase_(options.phases == Phases::two_phase),
        heads_(card, *resources.target),
        shape_(options.tree.shape(card, heads_.count(), resources.target->config().head_rows(), "blockwise")),
        children_(options.children, resources.target->config().head_ids, resources.target->config().vocab) {
    require_uncut_draws(options.children, options.budget, "blockwise");
    if (two_phase_ && options.budget.automatic()) {
      throw Error({"blockwise: phases, budget", "\"two_phase\" with \"auto\"",
                   "\"fixed\", because a budget does not know the time of the forward before the draft",
                   "Set budget to fixed, or phases to merged."});
    }
    set_nodes(shape_.nodes());
  }

  void draft_one(const Sequence& sequence, Slot& slot, Draft& draft, int depth) override {
    HeadRunner& runner = *slot.runner;
    level_ = HeadChildren::root();
    const int levels = std::min(depth, shape_.depth());
    if (two_phase_) {
      predict(sequence);
      runner.put(predicted_.data(), 1, hidden(), state_);
      children_.grow(sequence, draft, shape_, row_, 1, level_);
    } else {
      runner.put(slot.states.newest(), 1, hidden(), state_);
    }
    const int first = two_phase_ ? 1 : 0;  // level of the first head; level 0 has the children of the root
    if (first >= levels || level_.empty()) return;
    heads_.prepare(runner, state_, inner_);
    for (int level = first; level < levels && !level_.empty(); ++level) {
      heads_.logits(runner, level - first, state_, inner_, logits_);
      children_.grow(sequence, draft, shape_, download(runner, logits_), 1, level_);
    }
  }

  // The first phase: feeds the pending token alone. The verifying forward drops its row.
  void predict(const Sequence& sequence) {
    const ModelConfig& config = resources().target->config();
    predicted_.resize(static_cast<std::size_t>(config.hidden));
    row_.resize(static_cast<std::size_t>(config.head_rows()));
    const Token pending = sequence.tokens.back();
    const std::int32_t root = -1, wanted = 0;
    const Tap tap{.layer = tap_, .out = predicted_.data(), .nodes = {}};
    resources().target_session(sequence).forward({&pending, 1}, {&root, 1}, {&wanted, 1}, row_.data(),
                                                 {&tap, 1});
  }

  int tap_;
  bool two_phase_;
  BlockwiseHeads heads_;
  TreeShape shape_;
  HeadChildren children_;
  std::vector<HeadNode> level_;
  std::vector<float> predicted_, row_;  // state and logits of the pending token
  HeadRows state_, inner_, logits_;
};

const RegisterStrategy<BlockwiseOptions, Blockwise> registered{head_strategy_info({
    .name = "blockwise",
    .summary = "small layers before the target's own output layer guess the tokens of the next block, all "
               "from one state of the target",
    .paper = "Stern et al. 2018, Blockwise Parallel Decoding",
    .draft_source = "trained heads on the target's state",
    .criterion = "any rule; exact, top_beta, distance and minimum_block are those of the paper",
    .trained = "heads for this target",
})};

}  // namespace
}  // namespace speclab
