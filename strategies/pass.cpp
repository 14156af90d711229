// PaSS: the target drafts for itself in one forward. Trained look-ahead embeddings stand in place of the next
// tokens after the pending one, and the target guesses the tokens at all these places at once. So a step has
// two forwards of the target: one drafts, and one verifies. The row of the pending token in the first forward
// is already the target's own. So if tokens are drawn with the target's own sampling and judged by
// `rejection` or `block`, the first drafted token is always accepted, and every step emits at least two
// tokens.
//
// Paper:       Monea et al. 2023, "PaSS: Parallel Speculative Sampling" (arXiv 2311.13581).
// Draft cost:  one forward of the target over the pending token and the look-ahead embeddings. The K/V of
//              these rows are dropped: the verifying forward computes the pending token again.
// Loses when:  the second token is seldom right. Let L be the number of look-ahead embeddings, a the rate at
//              which guesses are accepted, and let a forward of a few rows take as long as one of a single
//              row. A step then gives 1 + (1 - a^(L+1)) / (1 - a) tokens for the time of two forwards. With
//              a = 0 nothing is gained, and the extra rows are lost time.
//
// There is no option "budget": the draft's forward costs as much as the verifying one, however much of the
// draft is verified.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_tree.h"
#include "core/decoding/registry.h"
#include "core/model/heads/head_runner.h"
#include "core/model/heads/pass_embeddings.h"

namespace speclab {
namespace {

struct PassOptions {
  std::string head;
  HeadTreeOptions tree;
  HeadChildrenOptions children{.children = HeadDraw::without_replacement};
  void fields(OptionVisitor& visit) {
    visit("head", head, "folder of the look-ahead embeddings, with head.json; required");
    tree.fields(visit);
    visit("children", children.children,
          {{HeadDraw::without_replacement, "without_replacement"}, {HeadDraw::best, "best"}},
          "without_replacement: tokens are drawn from the rows, and a row that has several children draws "
          "each one without the earlier ones; best: the best tokens of the rows, which are not drawn "
          "(one-hot q)");
    children.draft.fields(visit);
  }
};

class Pass final : public Strategy {
 public:
  Pass(const PassOptions& options, const Resources& resources)
      : Pass(options, resources, read_head_card(options.head, HeadKind::kPass, *resources.target)) {}

  TargetUse target_use() const override { return {.drafts = true, .exits = {}}; }
  int max_nodes() const override { return shape_.nodes() > kUsualNodes ? shape_.nodes() : 0; }
  void begin(const Sequence& sequence) override {
    Slot& slot = slot_of(sequence);
    if (!slot.runner) slot.runner = resources_.open_heads();
  }
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    feeds_.clear();
    for (const Sequence* sequence : sequences) {
      if (const int levels = levels_of(*sequence); levels > 0) feeds_.push_back(feed(*sequence, levels));
    }
    if (feeds_.empty()) return;
    resources_.target->forward(feeds_);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (const int levels = levels_of(*sequences[i]); levels > 0) grow(*sequences[i], levels, *drafts[i]);
    }
  }

 private:
  static constexpr int kUsualNodes = 128;  // see Strategy::max_nodes()
  struct Slot {
    std::unique_ptr<HeadRunner> runner;  // from begin() on
    HeadRows inputs;                     // [levels, width]
    std::vector<float> logits;           // [levels, vocab]
  };

  Pass(const PassOptions& options, const Resources& resources, const HeadCard& card)
      : resources_(resources),
        embeddings_(card, *resources.target),
        shape_(options.tree.shape(card, embeddings_.count() + 1, resources.target->config().vocab, "pass")),
        children_(options.children, {}, resources.target->config().vocab),
        slots_(static_cast<std::size_t>(resources.batch)),
        rows_(static_cast<std::size_t>(shape_.depth())),
        parents_(rows_.size()) {
    std::iota(rows_.begin(), rows_.end(), 0);
    std::iota(parents_.begin(), parents_.end(), -1);
  }

  Slot& slot_of(const Sequence& sequence) { return slots_[static_cast<std::size_t>(sequence.slot)]; }
  int levels_of(const Sequence& sequence) const { return std::min(sequence.depth_limit, shape_.depth()); }

  // One row for each level of the tree: the pending token, then look-ahead embeddings.
  Feed feed(const Sequence& sequence, int levels) {
    Slot& slot = slot_of(sequence);
    embeddings_.inputs(*slot.runner, sequence.tokens.back(), levels - 1, slot.inputs);
    const auto rows = static_cast<std::size_t>(levels);
    slot.logits.resize(rows * vocab());
    Feed feed;
    feed.session = &resources_.target_session(sequence);
    feed.parents = std::span<const std::int32_t>(parents_).first(rows);
    feed.rows = std::span<const std::int32_t>(rows_).first(rows);
    feed.logits = slot.logits.data();
    feed.embeddings = slot.inputs.data();
    feed.embeddings_in = Memory::kBackend;
    return feed;
  }

  void grow(const Sequence& sequence, int levels, Draft& draft) {
    const std::span<const float> logits(slot_of(sequence).logits);
    level_ = HeadChildren::root();
    for (int level = 0; level < levels && !level_.empty(); ++level) {
      children_.grow(sequence, draft, shape_,
                     logits.subspan(static_cast<std::size_t>(level) * vocab(), vocab()), 1, level_);
    }
    if (draft.tree.drafted() > 0) draft.source = "heads";
  }

  std::size_t vocab() const { return static_cast<std::size_t>(resources_.target->config().vocab); }

  Resources resources_;
  PassEmbeddings embeddings_;
  TreeShape shape_;
  HeadChildren children_;
  std::vector<Slot> slots_;                   // [batch]
  std::vector<std::int32_t> rows_, parents_;  // of a feed over all levels
  std::vector<Feed> feeds_;
  std::vector<HeadNode> level_;
};

const RegisterStrategy<PassOptions, Pass> registered{{
    .name = "pass",
    .summary = "the target guesses several tokens in one forward, at trained look-ahead embeddings after the "
               "pending token, and verifies them in the next one",
    .paper = "Monea et al. 2023, PaSS",
    .draft_source = "the target with trained look-ahead embeddings",
    .stop_rule = "shape of the tree; by default a chain over all embeddings",
    .verification = "chain or tree",
    .criterion = "any rule; the q of drawn tokens, or one-hot q",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "look-ahead embeddings for this target",
    .needs_file = "head",
    .drafts_with_target = true,
}};

}  // namespace
}  // namespace speclab
