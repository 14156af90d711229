// MLP speculator: a chain of small layers on the target's hidden state. Each layer reads the state of the
// layer before it and the token drafted before its own, like a recurrent network with its own weights for
// each step. The drafts form a tree of fixed shape, by default a chain.
//
// Paper:       Wertheimer et al. 2024, "Accelerating Production LLMs with Combined Token/Embedding
//              Speculators" (arXiv 2404.19124). They verify the few best of all candidate chains; here the
//              shape of the tree is fixed.
// Draft cost:  for each depth one small layer and an output layer, over the nodes of that depth that have
//              children. No cache.
// Loses when:  the target is small, because of the output layers, or when the text depends on more than the
//              last position's state.
//
// With "budget": "auto" a part of the tree is verified. The layers run in any case, so the budget does not
// count their time.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_strategy.h"
#include "core/decoding/drafting/heads/states_drafter.h"
#include "core/decoding/registry.h"
#include "core/model/heads/mlp_speculator_heads.h"

namespace speclab {
namespace {

class MlpSpeculator final : public StatesDrafter {
 public:
  MlpSpeculator(const HeadStrategyOptions& options, const Resources& resources)
      : MlpSpeculator(options, resources,
                      read_head_card(options.head, HeadKind::kMlpSpeculator, *resources.target)) {}

 private:
  MlpSpeculator(const HeadStrategyOptions& options, const Resources& resources, const HeadCard& card)
      : StatesDrafter(resources, card.tap, false),
        heads_(card, *resources.target),
        shape_(options.tree.shape(card, heads_.count(), heads_.rows(), "mlp_speculator")),
        children_(options.children, heads_.ids(), resources.target->config().vocab) {
    require_uncut_draws(options.children, options.budget, "mlp_speculator");
    set_nodes(shape_.nodes());
  }

  void draft_one(const Sequence& sequence, Slot& slot, Draft& draft, int depth) override {
    HeadRunner& runner = *slot.runner;
    runner.put(slot.states.newest(), 1, hidden(), state_);
    heads_.prepare(runner, state_);
    level_ = HeadChildren::root();
    const int levels = std::min(depth, shape_.depth());
    for (int layer = 0; layer < levels && !level_.empty(); ++layer) {
      tokens_.clear();
      rows_.clear();
      for (const HeadNode& at : level_) {
        tokens_.push_back(draft.tree.token(at.node));
        rows_.push_back(at.row);
      }
      runner.select(state_, rows_, above_);
      heads_.advance(runner, layer, above_, tokens_, state_);
      heads_.logits(runner, layer, state_, logits_);
      children_.grow(sequence, draft, shape_, download(runner, logits_), logits_.rows(), level_);
    }
  }

  MlpSpeculatorHeads heads_;
  TreeShape shape_;
  HeadChildren children_;
  std::vector<HeadNode> level_;
  std::vector<std::int32_t> rows_;
  std::vector<Token> tokens_;
  HeadRows state_, above_, logits_;  // state_: of the nodes of the level
};

const RegisterStrategy<HeadStrategyOptions, MlpSpeculator> registered{head_strategy_info({
    .name = "mlp_speculator",
    .summary = "a chain of small layers on the target's state, each of which reads the token drafted before "
               "its own; a tree of fixed shape",
    .paper = "Wertheimer et al. 2024, Combined Token/Embedding Speculators",
    .draft_source = "trained layers on the target's state",
    .criterion = "any rule; one-hot q, or the q of drawn children",
    .trained = "a speculator for this target",
})};

}  // namespace
}  // namespace speclab
