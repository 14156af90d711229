#include "core/decoding/drafting/tree_growth.h"

#include <utility>

namespace speclab {

void TreeGrowthOptions::fields(OptionVisitor& visit) {
  visit("children", children,
        {{Children::without_replacement, "without_replacement"},
         {Children::independent, "independent"},
         {Children::best, "best"}},
        "without_replacement: each child is drawn from q without the earlier ones; at temperature 0 the "
        "children are the best tokens, best first; independent: each child is drawn from q, and equal "
        "children stay; best: the draft's best tokens, which are not drawn (one-hot q)");
  visit("used_up", used_up, {{UsedUp::best, "best"}, {UsedUp::uniform, "uniform"}},
        "when q has no further token: best: the next best tokens, with one-hot q; uniform: draws from all "
        "other tokens with equal probability, as in Sequoia");
  draft.fields(visit);
}

SamplingParams TreeGrowthOptions::sampling_over(const SamplingParams& target) const {
  if (children == Children::best) return {};  // temperature 0: the best tokens
  return draft.over(target);
}

TreeGrowth::TreeGrowth(const TreeGrowthOptions& options, TreesByConfidence trees, const Resources& resources)
    : options_(options),
      config_(resources.draft->config()),
      trees_(std::move(trees)),
      with_confidence_(trees_.several()) {
  if (options_.children != Children::independent) trees_.require_children(config_.head_rows());
  slots_.resize(static_cast<std::size_t>(resources.batch));
}

void TreeGrowth::begin(const Sequence& sequence) {
  slots_[static_cast<std::size_t>(sequence.slot)].sampling = options_.sampling_over(sequence.sampling);
}

TreeGrowth::Fed TreeGrowth::fed(const DraftLevel& level, int i) const {
  if (level.draft().tree.drafted() == 0) return {0, -1};
  const Slot& s = slots_[static_cast<std::size_t>(level.sequence().slot)];
  const int node = s.fed[static_cast<std::size_t>(i)];
  return {node, s.in_flight[static_cast<std::size_t>(node)]};
}

int TreeGrowth::fed_count(const DraftLevel& level) const {
  if (level.draft().tree.drafted() == 0) return 1;
  return static_cast<int>(slots_[static_cast<std::size_t>(level.sequence().slot)].fed.size());
}

// The choice comes before the first draw, so it depends on the text alone.
void TreeGrowth::choose_tree(Slot& s, DraftLevel& level) {
  s.tree = 0;
  if (!with_confidence_) return;
  const std::span<const float> logits = level.logits(0, {});
  if (logits.empty()) return;
  const SamplingParams sampling{.temperature = s.sampling.temperature > 0 ? s.sampling.temperature : 1};
  s.root.assign_logits(logits, sampling, config_.head_ids, config_.vocab);
  Draft& draft = level.draft();
  draft.root_confidence = static_cast<float>(s.root.prob(s.root.argmax()));
  if (trees_.several()) draft.tree_number = s.tree = trees_.number_at(draft.root_confidence);
}

// Adds the children of the fed nodes, and feeds those children that have children of their own.
void TreeGrowth::grow(DraftLevel& level) {
  Slot& s = slots_[static_cast<std::size_t>(level.sequence().slot)];
  const TokenTree& tree = level.draft().tree;
  if (level.depth() == 0) {
    s.fed.assign(1, 0);
    s.in_shape.assign(1, 0);
    s.in_flight.assign(1, -1);
    choose_tree(s, level);
  }
  const TreeShape& shape = trees_.tree(s.tree);
  const int first = tree.size();
  for (std::size_t i = 0; i < s.fed.size(); ++i) {
    const int before = tree.size(), of_shape = s.in_shape[static_cast<std::size_t>(s.fed[i])];
    const int count = children_of(s, of_shape);
    if (count == 0) continue;  // the tree of this confidence is the pending token alone
    add_children(s, level, static_cast<int>(i), s.fed[i], count);
    for (int node = before; node < tree.size(); ++node)
      s.in_shape.push_back(shape.first_child(of_shape) + node - before);
  }
  s.fed.clear();
  for (int node = first; node < tree.size(); ++node) {
    const bool inner = children_of(s, s.in_shape[static_cast<std::size_t>(node)]) > 0;
    s.in_flight.push_back(
        inner ? level.feed(tree.token(node), s.in_flight[static_cast<std::size_t>(tree.parent(node))]) : 0);
    if (inner) s.fed.push_back(node);
  }
}

// Adds `count` children of a node, which is fed node `row`; fewer if the draft model can draw fewer tokens,
// none if the processors ban every token.
void TreeGrowth::add_children(Slot& s, DraftLevel& level, int row, int node, int count) {
  const Sequence& sequence = level.sequence();
  Draft& draft = level.draft();
  s.prefix.clear();
  if (sequence.processors) {
    draft.tree.path_to(node, s.path);
    for (const int on_path : s.path) s.prefix.push_back(draft.tree.token(on_path));
  }
  const std::span<const float> logits = level.logits(row, s.prefix);
  if (logits.empty()) return;
  const struct {
    const Sequence& sequence;
    const TokenTree& tree;
    std::int64_t position;
    int first;  // number of the first child
  } at{sequence, draft.tree, sequence.position() + level.depth() + 1, draft.tree.size()};
  const auto draw =
      [&at](const Distribution& q) {  // captures only one pointer, so the function object does not allocate
        const int child = at.tree.size() - at.first;
        if (at.sequence.coupled)
          return q.sample_coupled(at.sequence.coins, at.position, child % at.sequence.noise_streams);
        return q.sample(at.sequence.coins, at.sequence.draft_coin(at.tree.size()));
      };
  if (options_.children != Children::independent) {
    s.siblings.add(draft, node, count, logits, s.sampling, config_.head_ids, config_.vocab, draw,
                   options_.used_up == UsedUp::uniform);
    return;
  }
  int index = Draft::kOneHot;
  draft.new_q(&index).assign_logits(logits, s.sampling, config_.head_ids, config_.vocab);
  for (int child = 0; child < count; ++child) {
    const Distribution& q = draft.q[static_cast<std::size_t>(index)];
    const Token token = draw(q);
    draft.add(token, node, index, q.one_hot() ? -1.0f : static_cast<float>(q.prob(token)));
  }
}

}  // namespace speclab
