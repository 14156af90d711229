// Hydra: heads on the target's hidden state guess the next tokens one after the other. Head i also reads the
// embeddings of the pending token and of the tokens that were drafted before its own. So each node of the
// tree has its own guesses for its children.
//
// Paper:       Ankner et al. 2024, "Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding" (arXiv
//              2402.05109). Hydra++ adds prefix attention: a decoder layer over the target's states of all
//              committed positions. Its K/V come from those states only, never from drafted tokens.
// Draft cost:  the layers of one head for each depth, over the nodes of that depth that have children; with
//              prefix attention also a decoder layer over the newly committed positions.
// Loses when:  the target is small. The heads run one after the other, and each one has an output layer over
//              the vocabulary, which is a large part of a small target.
//
// With "budget": "auto" a part of the tree is verified. The heads run in any case, so the budget does not
// count their time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_strategy.h"
#include "core/decoding/drafting/heads/states_drafter.h"
#include "core/decoding/registry.h"
#include "core/model/heads/hydra_heads.h"
#include "core/model/net/session.h"

namespace speclab {
namespace {

constexpr int kOutput[] = {kFinalNorm};  // of the prefix layer, which has no final norm

class Hydra final : public StatesDrafter {
 public:
  Hydra(const HeadStrategyOptions& options, const Resources& resources)
      : Hydra(options, resources, read_head_card(options.head, HeadKind::kHydra, *resources.target)) {}

 private:
  Hydra(const HeadStrategyOptions& options, const Resources& resources, const HeadCard& card)
      : StatesDrafter(resources, card.tap, card.prefix_attention),
        heads_(card, resources.target),
        shape_(options.tree.shape(card, heads_.count(), heads_.rows(), "hydra")),
        children_(options.children, heads_.ids(), resources.target->config().vocab),
        prefixes_(static_cast<std::size_t>(resources.batch)),
        embedded_(static_cast<std::size_t>(heads_.count())) {
    require_uncut_draws(options.children, options.budget, "hydra");
    set_nodes(shape_.nodes());
  }

  void start(const Sequence& sequence, Slot& slot) override {
    if (heads_.prefix_layer() == nullptr) return;
    Prefix& prefix = prefix_of(sequence);
    if (!prefix.session) prefix.session = resources().open_session(*heads_.prefix_layer());
    prefix.session->rewind(0);
    extend(prefix, slot);
  }

  void draft_one(const Sequence& sequence, Slot& slot, Draft& draft, int depth) override {
    HeadRunner& runner = *slot.runner;
    if (heads_.prefix_layer() == nullptr) {
      runner.put(slot.states.newest(), 1, hidden(), state_);
    } else {
      Prefix& prefix = prefix_of(sequence);
      extend(prefix, slot);
      runner.put(prefix.newest.data(), 1, hidden(), state_);
      heads_.finish_prefix(runner, state_);
    }
    level_ = HeadChildren::root();
    const int levels = std::min(depth, shape_.depth());
    for (int head = 0; head < levels && !level_.empty(); ++head) {
      read_inputs(runner, draft, head);
      heads_.logits(runner, head, inputs_, logits_);
      children_.grow(sequence, draft, shape_, download(runner, logits_), logits_.rows(), level_);
    }
  }

  /// The prefix attention of one sequence: position p of the session holds the target's state of position p.
  struct Prefix {
    std::unique_ptr<Session> session;
    std::vector<float> newest;  // output of the layer at the last committed position, [hidden]
  };
  Prefix& prefix_of(const Sequence& sequence) { return prefixes_[static_cast<std::size_t>(sequence.slot)]; }

  // Feeds the states of the positions that were committed since the last call.
  void extend(Prefix& prefix, Slot& slot) const {
    if (slot.states.count() == 0) return;
    const auto width = static_cast<std::size_t>(hidden());
    const PromptTaps taps{kOutput, [&](const PromptStates& chunk) {
                            const float* last =
                                chunk.layers[0] + static_cast<std::size_t>(chunk.count - 1) * width;
                            prefix.newest.assign(last, last + width);
                          }};
    prefix.session->prefill_embeddings(slot.states.data(), slot.states.count(), Memory::kHost, nullptr,
                                       &taps);
    slot.states.clear();
  }

  // Sets inputs_ for the nodes of the level, which are at depth `depth`: the state, and the embeddings of the
  // tokens from the pending one down to the node.
  void read_inputs(HeadRunner& runner, const Draft& draft, int depth) {
    const std::size_t nodes = level_.size(), tokens = static_cast<std::size_t>(depth) + 1;
    rows_.assign(nodes, 0);
    runner.select(state_, rows_, states_);
    inputs_.assign(1, &states_);
    for (std::size_t i = 0; i < tokens; ++i) {
      tokens_.clear();
      for (const HeadNode& at : level_) {
        int node = at.node;
        for (std::size_t above = i + 1; above < tokens; ++above) node = draft.tree.parent(node);
        tokens_.push_back(draft.tree.token(node));
      }
      runner.embed(tokens_, embedded_[i]);
      inputs_.push_back(&embedded_[i]);
    }
  }

  HydraHeads heads_;
  TreeShape shape_;
  HeadChildren children_;
  std::vector<Prefix> prefixes_;  // [batch]
  std::vector<HeadNode> level_;
  std::vector<std::int32_t> rows_;
  std::vector<Token> tokens_;
  HeadRows state_, states_, logits_;
  std::vector<HeadRows> embedded_;  // by depth of the token
  std::vector<const HeadRows*> inputs_;
};

const RegisterStrategy<HeadStrategyOptions, Hydra> registered{head_strategy_info({
    .name = "hydra",
    .summary = "heads on the target's state guess the next tokens one after the other, and each head reads "
               "the tokens drafted before its own; a tree of fixed shape",
    .paper = "Ankner et al. 2024, Hydra",
    .draft_source = "trained heads on the target's state",
    .criterion = "any rule; one-hot q, or the q of drawn children",
    .trained = "heads for this target",
})};

}  // namespace
}  // namespace speclab
