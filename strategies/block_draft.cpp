// Block draft: a small trained module guesses all tokens of a block in one forward. It reads the target's
// hidden states of all committed positions, the pending token, and a mask at every place to guess. So the
// layers run once for any number of tokens. The guesses do not know each other: given the
// text, the distribution of a drawn chain is the product of the distributions at its places. Each drawn
// token hands over the distribution of its place as its q.
//
// Paper:       "DFlash: Block Diffusion for Flash Speculative Decoding" (arXiv 2602.06036). Its published
//              drafts are read; they have one denoising step, which takes the best token of each place.
//
//              With the mask queries that a card of this project may have, a chain is the draft of SpecDec
//              (Xia et al. 2023, arXiv 2203.16487): a trained vector stands at each place instead of the
//              mask, so each place has an attention query of its own. The rule `specdec` is the paper's
//              relaxed verification, and `exact` its strict one. The paper's drafter is an encoder-decoder
//              model of its own. It reads the source through its encoder, and the text so far through its
//              decoder. Here the targets have no encoder, and both are replaced by the target's states of the
//              text. Their keys and values stay between steps, and only those of new positions are computed.
// Draft cost:  one forward of the module over the block, with attention to the whole text, and the output
//              head for each drafted level. After a step the module computes the K/V of the newly committed
//              positions, from the target's true states only.
// Loses when:  the text branches. A token that is right after one guess is drafted after another one.
//
// With "budget": "auto" a part of the tree is verified. The module runs in any case, and the budget does
// not count its time.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_strategy.h"
#include "core/decoding/registry.h"
#include "core/model/heads/block_head.h"
#include "core/model/heads/head_runner.h"

namespace speclab {
namespace {

class BlockDraft final : public Strategy {
 public:
  BlockDraft(const HeadStrategyOptions& options, const Resources& resources)
      : BlockDraft(options, resources,
                   read_head_card(options.head, HeadKind::kBlockDraft, *resources.target)) {}

  Reads reads() const override {
    return {.rows = false,
            .hidden = {head_.taps().begin(), head_.taps().end()},
            .nodes = Reads::Nodes::kCommitted,
            .prompt = true};
  }
  int max_nodes() const override { return shape_.nodes() > kUsualNodes ? shape_.nodes() : 0; }
  void observe_prompt(const Sequence& sequence, const PromptStates& states) override {
    Slot& slot = slot_of(sequence);
    if (!slot.runner) slot.runner = resources_.open_heads();
    if (states.begin == 0) {
      slot.context.clear();
      slot.forget_new();
    }
    head_.extend(*slot.runner, slot.context, states.layers, states.count);
  }
  void begin(const Sequence&) override {}
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i]->depth_limit > 0) draft_one(*sequences[i], *drafts[i]);
    }
  }
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) slot_of(*sequences[i]).take(outcomes[i]);
  }

 private:
  static constexpr int kUsualNodes = 128;  // see Strategy::max_nodes()
  struct Slot {
    std::unique_ptr<HeadRunner> runner;  // from the first prompt on
    BlockHead::Context context;
    std::vector<std::vector<float>> states;  // [taps]: of positions that are not in the context yet
    int count = 0;                           // number of these positions

    void forget_new() {
      for (std::vector<float>& of_tap : states) of_tap.clear();
      count = 0;
    }
    // Takes the states of the positions that the step committed: the pending token, and all emitted tokens
    // but the last one, which is pending now.
    void take(const Outcome& outcome) {
      for (int k = 0; k < outcome.emitted; ++k, ++count) {
        const int node = k == 0 ? 0 : outcome.acceptance->path[static_cast<std::size_t>(k) - 1];
        for (std::size_t tap = 0; tap < states.size(); ++tap) {
          const std::span<const float> state = outcome.states.of(tap, node);
          states[tap].insert(states[tap].end(), state.begin(), state.end());
        }
      }
    }
  };

  BlockDraft(const HeadStrategyOptions& options, const Resources& resources, const HeadCard& card)
      : resources_(resources),
        head_(card, resources.target, resources.capacity),
        shape_(options.tree.shape(card, head_.count(), head_.rows(), "block_draft")),
        children_(options.children, head_.ids(), resources.target->config().vocab),
        slots_(static_cast<std::size_t>(resources.batch)) {
    require_uncut_draws(options.children, options.budget, "block_draft");
    for (Slot& slot : slots_) {
      slot.context = head_.open();
      slot.states.resize(head_.taps().size());
    }
  }

  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }

  void draft_one(const Sequence& sequence, Draft& draft) {
    Slot& slot = slot_of(sequence);
    if (slot.count > 0) {
      new_states_.clear();
      for (const std::vector<float>& of_tap : slot.states) new_states_.push_back(of_tap.data());
      head_.extend(*slot.runner, slot.context, new_states_, slot.count);
      slot.forget_new();
    }
    SPECLAB_CHECK(slot.context.length() == sequence.position(),
                  "a context of {} positions before position {}", slot.context.length(), sequence.position());
    const int levels = std::min(sequence.depth_limit, shape_.depth());
    head_.logits(*slot.runner, slot.context, sequence.tokens.back(), levels, rows_);
    const auto width = static_cast<std::size_t>(rows_.width());
    logits_.resize(static_cast<std::size_t>(rows_.rows()) * width);
    slot.runner->get(rows_, logits_.data());
    level_ = HeadChildren::root();
    for (int level = 0; level < levels && !level_.empty(); ++level) {
      children_.grow(sequence, draft, shape_,
                     std::span<const float>(logits_).subspan(static_cast<std::size_t>(level) * width, width),
                     1, level_);
    }
    if (draft.tree.drafted() > 0) draft.source = "heads";
  }

  Resources resources_;
  BlockHead head_;
  TreeShape shape_;
  HeadChildren children_;
  std::vector<Slot> slots_;  // [batch]
  HeadRows rows_;
  std::vector<float> logits_;  // [levels, rows of the head]
  std::vector<const float*> new_states_;
  std::vector<HeadNode> level_;
};

const RegisterStrategy<HeadStrategyOptions, BlockDraft> registered{head_strategy_info({
    .name = "block_draft",
    .summary =
        "a small module on the target's states guesses all tokens of a block in one forward, at masked "
        "places; a tree of fixed shape, by default a chain",
    .paper = "DFlash (arXiv 2602.06036); with mask queries SpecDec (Xia et al. 2023)",
    .draft_source = "a trained module on the target's states",
    .criterion = "any rule; one-hot q, or the q of drawn children; the rule specdec is SpecDec's own",
    .trained = "a module for this target",
})};

}  // namespace
}  // namespace speclab
