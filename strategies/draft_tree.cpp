// Draft tree: a small model drafts a tree of fixed shape. Every node at depth d has widths[d] children, so
// the target has several guesses to choose from when the first one is wrong. At temperature 0 the children
// are the draft's best tokens. Above it they are drawn from the draft without replacement, and each node gets
// the distribution that its token was drawn from. The rule "rejection" is exact for such a tree, because it
// passes the residual from child to child. If all widths are 1, this is speculative sampling.
//
// Paper:       Miao et al. 2024, "SpecInfer" (expansion <k1, ..., kd>, Section 3; multi-step speculative
//              sampling, Algorithm 2); draws without replacement as in Chen et al. 2024, "Sequoia".
// Draft cost:  one draft forward per depth over all nodes of the level above: as many forwards as a chain of
//              that depth.
// Loses when:  rows are not free. A tree of n nodes costs t(1 + n). Compared with the chain on its first
//              path, the tree gains only the probability that the target chooses a sibling: the draft's
//              second, third, ... best token.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/rows/processors.h"
#include "core/decoding/registry.h"

namespace speclab {
namespace {

constexpr int kMostDrafted = 127;  // sessions allow 128 rows, one of which is the pending token

struct Options {
  std::vector<int> widths = {3, 2, 1, 1};
  DraftSampling draft;
  void fields(OptionVisitor& visit) {
    visit("widths", widths, Range<int>{1, kMostDrafted},
          "number of children of each node, one entry per depth; the first entry is for the pending token");
    draft.fields(visit);
  }
};

class DraftTree final : public Strategy {
 public:
  DraftTree(const Options& options, const Resources& resources) : options_(options), resources_(resources) {
    std::int64_t level = 1, nodes = 0;
    for (const int width : options_.widths) {
      level *= width;
      nodes += level;
      if (nodes > kMostDrafted) break;
    }
    if (nodes == 0 || nodes > kMostDrafted) {
      throw Error({"draft_tree: widths",
                   nodes == 0 ? "no widths" : fmt::format("more than {} tokens", kMostDrafted),
                   fmt::format("1 to {} tokens", kMostDrafted), "Use fewer children or less depth."});
    }
    slots_.resize(static_cast<std::size_t>(resources_.batch));
  }

  // A device can run these steps if no node has more children than there are tokens in the draft's vocabulary
  // (which may be reduced).
  std::optional<DevicePlan> device_plan(const SamplingParams& target) const override {
    if (*std::max_element(options_.widths.begin(), options_.widths.end()) > static_cast<int>(columns()))
      return std::nullopt;
    return DevicePlan{options_.widths, options_.draft.over(target)};
  }

  void begin(const Sequence& sequence) override {
    Slot& s = slots_[static_cast<std::size_t>(sequence.slot)];
    s.sampling = options_.draft.over(sequence.sampling);
    s.cache.begin(sequence, resources_);
  }

  // Drafts level by level, for all sequences together. Node 0 is fed and committed to the draft's cache at
  // once. The nodes after it, except those of the last level, are fed and stay in flight. So node i + 1 is
  // row i in flight.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    active_.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& s = slots_[static_cast<std::size_t>(sequences[i]->slot)];
      s.sequence = sequences[i];
      s.draft = drafts[i];
      s.limit =
          static_cast<int>(std::min<std::int64_t>({static_cast<std::int64_t>(options_.widths.size()),
                                                   sequences[i]->depth_limit, s.cache.room(*sequences[i])}));
      if (s.limit <= 0) continue;
      s.depth = 0;
      s.first = 0;
      s.cache.catch_up(*s.sequence, s.feed);
      s.parents.resize(s.feed.size());
      std::iota(s.parents.begin(), s.parents.end(), -1);
      s.rows.assign(1, static_cast<std::int32_t>(s.feed.size()) - 1);
      active_.push_back(&s);
    }
    while (!active_.empty()) {
      feeds_.clear();
      for (Slot* s : active_) {
        s->logits.resize(std::max(s->logits.size(), s->rows.size() * columns()));
        feeds_.push_back({&s->cache.session(), s->feed, s->parents, s->rows, s->logits.data()});
        feeds_.back().continues = s->depth > 0;
      }
      resources_.draft->forward(feeds_);
      std::erase_if(active_, [this](Slot* s) { return !grow(*s); });
    }
  }

 private:
  struct Slot {
    DraftCache cache;
    SamplingParams sampling;
    // State of the draft in progress:
    const Sequence* sequence = nullptr;
    Draft* draft = nullptr;
    int limit = 0;
    int depth = 0;  // depth of the nodes whose children come next
    int first = 0;  // first of those nodes
    // State of the forward in progress:
    std::vector<Token> feed;
    std::vector<std::int32_t> parents, rows;
    std::vector<float> logits;     // [rows, head_rows]
    std::vector<float> processed;  // [head_rows], when there are processors
    std::vector<int> path;
    std::vector<Token> prefix;
    SiblingDraw siblings;
  };

  std::size_t columns() const { return static_cast<std::size_t>(resources_.draft->config().head_rows()); }

  // Adds the level below the nodes that were fed. Returns false when the draft is complete.
  bool grow(Slot& s) {
    if (s.depth == 0) s.cache.keep(s.feed);
    else s.cache.add_in_flight(s.feed);
    const TokenTree& tree = s.draft->tree;
    const int level = tree.size();
    for (int node = s.first; node < level; ++node) add_children(s, node);
    ++s.depth;
    s.first = level;
    if (tree.size() == level) return false;
    s.draft->source = "draft";
    if (s.depth >= s.limit) return false;
    s.feed.assign(tree.tokens().begin() + level, tree.tokens().end());
    s.parents.clear();
    for (int node = level; node < tree.size(); ++node) s.parents.push_back(tree.parent(node) - 1);
    s.rows.resize(s.feed.size());
    std::iota(s.rows.begin(), s.rows.end(), 0);
    return true;
  }

  void add_children(Slot& s, int node) {
    const Sequence& sequence = *s.sequence;
    const ModelConfig& config = resources_.draft->config();
    std::span<const float> logits(s.logits.data() + static_cast<std::size_t>(node - s.first) * columns(),
                                  columns());
    if (sequence.processors) {
      s.draft->tree.path_to(node, s.path);
      s.prefix.clear();
      for (const int on_path : s.path) s.prefix.push_back(s.draft->tree.token(on_path));
      s.processed.resize(logits.size());
      sequence.processors->apply(logits, config.head_ids, sequence.tokens, s.prefix, s.processed);
      logits = s.processed;
      // All tokens of a reduced vocabulary may be banned. Then there is nothing to draft.
      if (std::all_of(logits.begin(), logits.end(), [](float z) { return std::isinf(z) && z < 0; })) return;
    }
    const struct {
      const Sequence& sequence;
      const TokenTree& tree;
      std::int64_t position;
    } at{sequence, s.draft->tree, sequence.position() + s.depth + 1};
    const auto draw =
        [&at](const Distribution& q) {  // captures only one pointer, so the function object does not allocate
          if (at.sequence.coupled) return q.sample_coupled(at.sequence.coins, at.position);
          return q.sample(at.sequence.coins, at.sequence.draft_coin(at.tree.size()));
        };
    s.siblings.add(*s.draft, node, options_.widths[static_cast<std::size_t>(s.depth)], logits, s.sampling,
                   config.head_ids, config.vocab, draw);
  }

  Options options_;
  Resources resources_;
  std::vector<Slot> slots_;    // [batch]
  std::vector<Slot*> active_;  // reused by draft()
  std::vector<Feed> feeds_;
};

const RegisterStrategy<Options, DraftTree> registered{{
    .name = "draft_tree",
    .summary = "a small model drafts a tree of fixed shape, the target verifies it in one forward",
    .paper = "Miao et al. 2024, SpecInfer (expansion); draws as in Chen et al. 2024, Sequoia",
    .draft_source = "small model or layers of the target",
    .stop_rule = "widths by depth",
    .verification = "tree",
    .criterion = "any rule; rejection is exact",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a small model with the target's vocabulary; nothing for layer skipping",
    .needs_draft = true,
}};

}  // namespace
}  // namespace speclab
