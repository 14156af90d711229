// Medusa: further output heads on the target's hidden state guess the tokens at the next positions, all from
// the same state and independently of each other. The guesses are arranged as a tree of fixed shape: a node
// at depth d gets its token from the row of head d, whatever its parent is.
//
// Paper:       Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
//              Heads" (arXiv 2401.10774). Medusa-1 trains the heads alone, Medusa-2 also the target; both
//              decode in the same way. Their acceptance is the rule "typical_longest", which is lossy. Under
//              the rules "exact" and "rejection" the text is the target's own.
// Draft cost:  one matrix product per head and block, and an output layer per head. No cache.
// Loses when:  the text branches. A head does not know which tokens the heads before it guessed, so deep
//              nodes are often right for another parent. Rows are needed for many such nodes.
//
// With "budget": "auto" a part of the tree is verified. The heads run in any case, so the budget does not
// count their time.

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_strategy.h"
#include "core/decoding/drafting/heads/states_drafter.h"
#include "core/decoding/registry.h"
#include "core/model/heads/medusa_heads.h"

namespace speclab {
namespace {

class Medusa final : public StatesDrafter {
 public:
  Medusa(const HeadStrategyOptions& options, const Resources& resources)
      : Medusa(options, resources, read_head_card(options.head, HeadKind::kMedusa, *resources.target)) {}

 private:
  Medusa(const HeadStrategyOptions& options, const Resources& resources, const HeadCard& card)
      : StatesDrafter(resources, card.tap, false),
        heads_(card, *resources.target),
        shape_(options.tree.shape(card, heads_.count(), heads_.rows(), "medusa")),
        children_(options.children, heads_.ids(), resources.target->config().vocab) {
    require_uncut_draws(options.children, options.budget, "medusa");
    set_nodes(shape_.nodes());
  }

  void draft_one(const Sequence& sequence, Slot& slot, Draft& draft, int depth) override {
    HeadRunner& runner = *slot.runner;
    runner.put(slot.states.newest(), 1, hidden(), state_);
    level_ = HeadChildren::root();
    const int levels = std::min(depth, shape_.depth());
    for (int head = 0; head < levels && !level_.empty(); ++head) {
      heads_.logits(runner, head, state_, logits_);
      children_.grow(sequence, draft, shape_, download(runner, logits_), 1, level_);
    }
  }

  MedusaHeads heads_;
  TreeShape shape_;
  HeadChildren children_;
  std::vector<HeadNode> level_;
  HeadRows state_, logits_;
};

const RegisterStrategy<HeadStrategyOptions, Medusa> registered{head_strategy_info({
    .name = "medusa",
    .summary = "further heads on the target's state guess the next tokens independently; their best tokens "
               "form a tree of fixed shape",
    .paper = "Cai et al. 2024, Medusa",
    .draft_source = "trained heads on the target's state",
    .criterion = "any rule; typical_longest is that of the paper",
    .trained = "heads for this target",
})};

}  // namespace
}  // namespace speclab
