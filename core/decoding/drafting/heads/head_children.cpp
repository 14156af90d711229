#include "core/decoding/drafting/heads/head_children.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/decoding/rows/processors.h"

namespace speclab {
namespace {

constexpr SamplingParams kAtOne{.temperature = 1, .top_k = 0, .top_p = 1};

// Runs `use`, which reads a row of a head. If `use` throws and the row has a NaN or +infinity, throws an
// Error that names the head, not the target.
template <typename Use>
void use_row(std::span<const float> row, const Use& use) {
  try {
    use();
  } catch (const Error&) {
    if (std::none_of(row.begin(), row.end(),
                     [](float logit) { return std::isnan(logit) || logit > FLT_MAX; }))
      throw;
    throw Error({"logits of the trained head", "nan or infinity",
                 "finite numbers (or -inf for a banned token)",
                 "The head is broken, or it was trained for other weights of the target."});
  }
}

}  // namespace

void HeadChildrenOptions::fields(OptionVisitor& visit) {
  visit("children", children,
        {{HeadDraw::best, "best"}, {HeadDraw::without_replacement, "without_replacement"}},
        "best: the best tokens of the head, which are not drawn (one-hot q); without_replacement: each child "
        "is drawn from the head's q without the earlier ones, which needs \"budget\": \"fixed\", because no "
        "drawn token may be removed");
  draft.fields(visit);
}

void require_uncut_draws(const HeadChildrenOptions& options, const CutBudgetOptions& budget,
                         const std::string& strategy) {
  if (options.children == HeadDraw::best || !budget.automatic()) return;
  throw Error({strategy + ": children, budget", "drawn children with \"auto\"",
               "\"fixed\", because a budget would remove drawn tokens, which biases the text",
               "Set budget to fixed, or children to best."});
}

// Prepares the row from which a node gets its children, at most `most`. Returns false if no token of the row
// can be drafted.
bool HeadChildren::take_row(const Sequence& sequence, std::span<const float> logits, TokenSpan path,
                            int most) {
  row_ = logits;
  if (sequence.processors != nullptr) {
    processed_.resize(logits.size());
    sequence.processors->apply(logits, ids_, sequence.tokens, path, processed_);
    row_ = processed_;
    if (std::all_of(row_.begin(), row_.end(), [](float logit) { return std::isinf(logit) && logit < 0; }))
      return false;
  }
  if (options_.children != HeadDraw::best) return true;
  use_row(row_, [&] { soft_.assign_logits(row_, kAtOne, ids_, vocab_); });
  soft_.top(most, best_);
  return !best_.empty();
}

std::span<const Token> HeadChildren::best(const Sequence& sequence, std::span<const float> logits,
                                          TokenSpan path, int most) {
  SPECLAB_CHECK(options_.children == HeadDraw::best, "the best of {} children that are drawn", most);
  if (!take_row(sequence, logits, path, most)) return {};
  return best_;
}

void HeadChildren::add(const Sequence& sequence, Draft& draft, int parent, int count) {
  if (options_.children == HeadDraw::best) {
    const std::size_t most = std::min(static_cast<std::size_t>(count), best_.size());
    for (std::size_t i = 0; i < most; ++i)
      draft.add(best_[i], parent, Draft::kOneHot, static_cast<float>(soft_.prob(best_[i])));
    return;
  }
  const struct {
    const Sequence& sequence;
    const TokenTree& tree;
    std::int64_t position;
    int first;  // number of the first child
  } at{sequence, draft.tree, sequence.position() + draft.tree.depth(parent) + 1, draft.tree.size()};
  const auto draw = [&at](const Distribution& q) {  // one pointer, so the function object does not allocate
    if (at.sequence.coupled)
      return q.sample_coupled(at.sequence.coins, at.position,
                              (at.tree.size() - at.first) % at.sequence.noise_streams);
    return q.sample(at.sequence.coins, at.sequence.draft_coin(at.tree.size()));
  };
  use_row(row_, [&] {
    siblings_.add(draft, parent, count, row_, options_.draft.over(sequence.sampling), ids_, vocab_, draw);
  });
}

void HeadChildren::grow(const Sequence& sequence, Draft& draft, const TreeShape& shape,
                        std::span<const float> logits, int rows, std::vector<HeadNode>& level) {
  SPECLAB_CHECK(rows == 1 || rows == static_cast<int>(level.size()), "{} rows for {} nodes", rows,
                level.size());
  const std::size_t width = logits.size() / static_cast<std::size_t>(rows);
  const bool one_row = rows == 1 && level.size() > 1;
  bool usable = true;
  if (one_row) {
    int most = 0;
    for (const HeadNode& parent : level) most = std::max(most, shape.children(parent.of_shape));
    usable = take_row(sequence, logits, {}, most);
  }
  next_.clear();
  for (std::size_t i = 0; i < level.size() && usable; ++i) {
    const HeadNode parent = level[i];
    const int count = shape.children(parent.of_shape), before = draft.tree.size();
    if (!one_row) {
      path_.clear();
      if (sequence.processors != nullptr) {
        draft.tree.path_to(parent.node, nodes_);
        for (const int on_path : nodes_) path_.push_back(draft.tree.token(on_path));
      }
      if (!take_row(sequence, logits.subspan(i * width, width), path_, count)) continue;
    }
    add(sequence, draft, parent.node, count);
    for (int child = before; child < draft.tree.size(); ++child) {
      const int of_shape = shape.first_child(parent.of_shape) + child - before;
      if (shape.children(of_shape) > 0) next_.push_back({child, of_shape, static_cast<int>(i)});
    }
  }
  std::swap(level, next_);
}

}  // namespace speclab
