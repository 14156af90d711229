// Falcon: a head drafts k tokens in one forward, and further blocks of k tokens on its own outputs. It reads
// the target's hidden states of the newest k committed positions, and the tokens after them. Inside a block
// the guesses do not know each other. A block below reads the tokens that were drafted above it. So a draft
// with m levels of blocks takes m forwards, where EAGLE takes one for each level of tokens.
//
// Paper:       Gao et al. 2024, "Falcon: Faster and Parallel Inference of Large Language Models through
//              Enhanced Semi-Autoregressive Drafting and Custom-Designed Decoding Tree" (arXiv 2412.12639),
//              whose training (CSGD) does not change how a head drafts. The tree is that of the paper: its
//              nodes are tokens, and a block stands below each node whose depth is a multiple of k.
// Draft cost:  for each newly committed position one step of an LSTM, which is sequential; one forward of the
//              decoder layer for each level of blocks, over the k positions of each block; and the output
//              head for each drafted level.
// Loses when:  blocks are long. The last token of a block rests on states of k positions before it.
//
// The K/V of committed positions, and the states of the LSTM after them, come from the target's states alone.
// Nothing is drafted while fewer than k positions are committed.
//
// With "budget": "auto" a part of the tree is verified. The head runs in any case, so the budget does not
// count its time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_strategy.h"
#include "core/decoding/drafting/heads/states_drafter.h"
#include "core/decoding/registry.h"
#include "core/model/heads/falcon/falcon_head.h"

namespace speclab {
namespace {

class Falcon final : public StatesDrafter {
 public:
  Falcon(const HeadStrategyOptions& options, const Resources& resources)
      : Falcon(options, resources, read_head_card(options.head, HeadKind::kFalcon, *resources.target)) {}

 private:
  static constexpr int kMostLevels = 64, kUsualBlocks = 2;

  Falcon(const HeadStrategyOptions& options, const Resources& resources, const HeadCard& card)
      : StatesDrafter(resources, kFinalNorm, true),
        shape_(shape_of(options.tree, card)),
        head_(card, resources.target, resources.capacity, blocks_of(shape_, card.falcon.block)),
        children_(options.children, head_.ids(), resources.target->config().vocab),
        contexts_(static_cast<std::size_t>(resources.batch)) {
    shape_.require_children(head_.rows());
    require_uncut_draws(options.children, options.budget, "falcon");
    set_nodes(shape_.nodes());
  }

  static TreeShape shape_of(const HeadTreeOptions& options, const HeadCard& card) {
    if (options.any() || !card.tree.empty())
      return options.shape(card, kMostLevels, TreeShape::kMostDrafted, "falcon");
    return TreeShape::chain(kUsualBlocks * card.falcon.block);
  }

  // The largest number of blocks of a draft: the first one, and one below each node that has children and
  // whose depth is a multiple of `block`.
  static int blocks_of(const TreeShape& shape, int block) {
    std::vector<int> depths(static_cast<std::size_t>(shape.nodes()));
    int blocks = 0;
    for (int node = 0; node < shape.nodes(); ++node) {
      const int depth = depths[static_cast<std::size_t>(node)], children = shape.children(node);
      if (children > 0 && depth % block == 0) ++blocks;
      for (int child = 0; child < children; ++child)
        depths[static_cast<std::size_t>(shape.first_child(node) + child)] = depth + 1;
    }
    return blocks;
  }

  FalconHead::Context& context_of(const Sequence& sequence) {
    return contexts_[static_cast<std::size_t>(sequence.slot)];
  }

  void start(const Sequence& sequence, Slot& slot) override {
    head_.clear(*slot.runner, context_of(sequence));
    read_committed(sequence, slot);
  }

  // Reads the positions that were committed since the last call, with their true states.
  void read_committed(const Sequence& sequence, Slot& slot) {
    FalconHead::Context& context = context_of(sequence);
    const int count = slot.states.count();
    SPECLAB_CHECK(context.length() + count == sequence.position(), "{} + {} states before position {}",
                  context.length(), count, sequence.position());
    const TokenSpan after =
        TokenSpan(sequence.tokens)
            .subspan(static_cast<std::size_t>(context.length()) + 1, static_cast<std::size_t>(count));
    head_.extend(*slot.runner, context, slot.states.data(), after);
    slot.states.clear();
  }

  void draft_one(const Sequence& sequence, Slot& slot, Draft& draft, int depth_limit) override {
    read_committed(sequence, slot);
    HeadRunner& runner = *slot.runner;
    FalconHead::Context& context = context_of(sequence);
    const int block = head_.block(), levels = std::min(depth_limit, shape_.depth());
    if (context.length() < block) return;
    head_.first(runner, context, now_);
    level_ = HeadChildren::root();
    block_of_.assign(1, 0);
    for (int depth = 0; depth < levels && !level_.empty(); ++depth) {
      const int row = depth % block;
      if (depth > 0 && row == 0) add_blocks(runner, context, draft, block);
      rows_.clear();
      for (const std::int32_t of : block_of_) rows_.push_back(of * block + row);
      runner.select(now_.outputs, rows_, outputs_);
      head_.logits(runner, outputs_, logits_);
      children_.grow(sequence, draft, shape_, download(runner, logits_), logits_.rows(), level_);
      std::swap(above_, block_of_);
      block_of_.clear();
      for (const HeadNode& at : level_) block_of_.push_back(above_[static_cast<std::size_t>(at.row)]);
    }
  }

  // Adds a block below each node of level_. For it the head reads the last `block` tokens of the node's path.
  void add_blocks(HeadRunner& runner, FalconHead::Context& context, const Draft& draft, int block) {
    tokens_.clear();
    for (const HeadNode& at : level_) {
      draft.tree.path_to(at.node, path_);
      for (std::size_t i = path_.size() - static_cast<std::size_t>(block); i < path_.size(); ++i)
        tokens_.push_back(draft.tree.token(path_[i]));
    }
    head_.next(runner, context, now_, block_of_, tokens_, next_);
    std::swap(now_, next_);
    std::iota(block_of_.begin(), block_of_.end(), 0);
  }

  TreeShape shape_;
  FalconHead head_;
  HeadChildren children_;
  std::vector<FalconHead::Context> contexts_;  // [batch]
  FalconHead::Level now_, next_;
  std::vector<HeadNode> level_;
  std::vector<std::int32_t> block_of_, above_, rows_;  // block_of_: of each node of level_, its block in now_
  std::vector<Token> tokens_;
  std::vector<int> path_;
  HeadRows outputs_, logits_;
};

const RegisterStrategy<HeadStrategyOptions, Falcon> registered{head_strategy_info({
    .name = "falcon",
    .summary = "a trained head with an LSTM on the target's states guesses a block of tokens in one forward, "
               "and further blocks on its own outputs; a tree of fixed shape, by default a chain",
    .paper = "Gao et al. 2024, Falcon",
    .draft_source = "trained layers on the target's states",
    .criterion = "any rule; one-hot q, or the q of drawn children",
    .trained = "a head for this target",
})};

}  // namespace
}  // namespace speclab
