#include "tests/decoding/rules/independent_tree.h"

#include <deque>
#include <memory>
#include <utility>

#include "core/decoding/strategy.h"
#include "core/model/net/model.h"

namespace speclab::markov {
namespace {

class IndependentTree final : public Strategy {
 public:
  IndependentTree(IndependentShape shape, const Resources& resources) : shape_(std::move(shape)) {
    const int vocab = resources.draft->config().vocab;
    for (Token token = 0; token < vocab; ++token) {
      logits_.emplace_back(static_cast<std::size_t>(vocab));
      resources.draft->open(4)->prefill({&token, 1}, logits_.back().data());
    }
  }
  void begin(const Sequence&) override {}
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) draft_one(*sequences[i], *drafts[i]);
  }

 private:
  void draft_one(const Sequence& sequence, Draft& draft) const {
    for (int node = 0; node < draft.tree.size(); ++node) {
      const int depth = draft.tree.depth(node);
      if (depth >= std::min(static_cast<int>(shape_.widths.size()), sequence.depth_limit)) continue;
      if (node > 0 && draft.confidence[static_cast<std::size_t>(node)] < shape_.least) continue;
      int index = -1;
      const auto row = static_cast<std::size_t>(draft.tree.token(node));
      draft.new_q(&index).assign_logits(logits_[row], sequence.sampling, {},
                                        static_cast<int>(logits_.size()));
      for (int child = 0; child < shape_.widths[static_cast<std::size_t>(depth)]; ++child) {
        const Distribution& q = draft.q[static_cast<std::size_t>(index)];
        const Token token = q.sample(sequence.coins, sequence.draft_coin(draft.tree.size()));
        draft.add(token, node, index, static_cast<float>(q.prob(token)));
      }
    }
    draft.source = "draft";
  }

  IndependentShape shape_;
  std::vector<std::vector<float>> logits_;  // by the token before
};

}  // namespace

const StrategyEntry& independent_tree(const IndependentShape& shape) {
  static const IndependentShape* source = nullptr;
  static std::vector<std::unique_ptr<IndependentShape>> all;
  source = all.emplace_back(std::make_unique<IndependentShape>(shape)).get();
  static std::deque<StrategyEntry> entries;
  StrategyInfo info{};
  info.name = "independent_tree";
  return entries.emplace_back(StrategyEntry{
      info,
      [](const void* copy_of) -> std::shared_ptr<void> {
        return std::make_shared<IndependentShape>(
            copy_of != nullptr ? *static_cast<const IndependentShape*>(copy_of) : *source);
      },
      [](void*, OptionVisitor&) {},
      [](const void* options, const Resources& resources) -> std::unique_ptr<Strategy> {
        return std::make_unique<IndependentTree>(*static_cast<const IndependentShape*>(options), resources);
      }});
}

}  // namespace speclab::markov
