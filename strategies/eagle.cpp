// EAGLE: a head of one decoder layer predicts the target's next hidden state from the state before it and the
// token after that state, again and again. The target's output head turns a predicted state into guesses
// (EAGLE, EAGLE-2), or an output head of its own does (EAGLE-3). With "shape": "dynamic" the tree follows the
// head's confidence, as in EAGLE-2 and EAGLE-3; with "fixed" it has a fixed shape, as in EAGLE.
//
// Paper:       Li et al. 2024, "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty" (arXiv
//              2401.15077); Li et al. 2024, "EAGLE-2" (arXiv 2406.16858); Li et al. 2025, "EAGLE-3" (arXiv
//              2503.01840). The card of the head says which form it has
//              (core/model/heads/eagle/eagle_head.h). HASS and other ways of training give heads of the same
//              form.
// Draft cost:  one forward of the layer over the newly committed positions, and one for each further depth
//              over the nodes of that depth that get children; after each of them an output head.
// Loses when:  the target is small, because the head runs once for each depth, and each time with an output
//              head over the vocabulary. Deep guesses rest on states that the head predicted itself, so they
//              are worse than the first one.
//
// The K/V of committed positions come from the target's states alone: after each step the head reads the
// committed positions with their true states, and drops the rows of the draft. A dynamic tree draws nothing
// at random, so its tokens have one-hot q.
//
// With "budget": "auto" a part of the tree is verified. The head runs in any case, so the budget does not
// count its time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_tree.h"
#include "core/decoding/drafting/heads/states_drafter.h"
#include "core/decoding/drafting/likely_tree.h"
#include "core/decoding/registry.h"
#include "core/model/heads/eagle/eagle_head.h"
#include "core/model/net/session.h"

namespace speclab {
namespace {

enum class EagleShape { dynamic, fixed };

struct EagleOptions {
  std::string head;
  EagleShape shape = EagleShape::dynamic;
  int depth = 6;
  int expand = 8;
  int branches = 8;
  int nodes = 48;
  HeadTreeOptions tree;
  HeadChildrenOptions children;
  CutBudgetOptions budget;
  void fields(OptionVisitor& visit) {
    visit("head", head,
          "folder of the trained head: head.json, or the config.json of a published one; required");
    visit(
        "shape", shape, {{EagleShape::dynamic, "dynamic"}, {EagleShape::fixed, "fixed"}},
        "dynamic: `depth`, `expand`, `branches` and `nodes` say how the tree follows the confidence of the "
        "head (EAGLE-2); fixed: the tree of `widths`, of the file `tree` or of the head, or else a chain of "
        "5 tokens");
    visit("depth", depth, Range<int>{1, TreeShape::kMostDrafted},
          "dynamic: largest number of levels of the tree");
    visit("expand", expand, Range<int>{1, TreeShape::kMostDrafted},
          "dynamic: largest number of nodes of a level that get children; the most likely ones");
    visit("branches", branches, Range<int>{1, TreeShape::kMostDrafted},
          "dynamic: children of a node, the head's best tokens");
    visit("nodes", nodes, Range<int>{1, TreeShape::kMostDrafted},
          "dynamic: largest number of nodes that are kept; the most likely ones");
    tree.fields(visit);
    children.fields(visit);
    budget.fields(visit);
  }
};

class Eagle final : public StatesDrafter {
 public:
  Eagle(const EagleOptions& options, const Resources& resources)
      : Eagle(options, resources, read_head_card(options.head, HeadKind::kEagle, *resources.target)) {}

 private:
  static constexpr int kUsualChain = 5, kMostLevels = 64;
  static constexpr int kReadTogether = 64;  // committed positions in one forward

  Eagle(const EagleOptions& options, const Resources& resources, const HeadCard& card)
      : StatesDrafter(resources, card.eagle.taps, true),
        options_(options),
        head_(card, resources.target),
        shape_(shape_of(options, card, head_.rows())),
        children_(options.children, head_.ids(), resources.target->config().vocab),
        tracks_(static_cast<std::size_t>(resources.batch)) {
    require_uncut_draws(options.children, options.budget, "eagle");
    if (is_dynamic()) require_dynamic(options);
    set_nodes(is_dynamic() ? 1 + std::max(options.nodes, most_fed(options)) : shape_.nodes());
  }

  static TreeShape shape_of(const EagleOptions& options, const HeadCard& card, int rows) {
    const bool given = options.shape == EagleShape::fixed && (options.tree.any() || !card.tree.empty());
    return given ? options.tree.shape(card, kMostLevels, rows, "eagle") : TreeShape::chain(kUsualChain);
  }

  // Largest number of drafted nodes that a dynamic tree expands, and that the layer therefore reads.
  static int most_fed(const EagleOptions& options) {
    int level = 1, all = 0;
    for (int depth = 1; depth < options.depth; ++depth) {
      level = std::min(options.expand, level * options.branches);
      all += level;
    }
    return all;
  }

  static void require_dynamic(const EagleOptions& options) {
    if (options.tree.any()) {
      throw Error({"eagle: widths, tree", "a shape with \"shape\": \"dynamic\"", "none",
                   "Set shape to fixed, or leave widths and tree out."});
    }
    if (options.children.children != HeadDraw::best) {
      throw Error({"eagle: children", "drawn children with \"shape\": \"dynamic\"", "\"best\"",
                   "Set shape to fixed, because a tree that chooses among drawn tokens biases the text."});
    }
    if (most_fed(options) > TreeShape::kMostDrafted) {
      throw Error({"eagle: depth, expand",
                   fmt::format("depth {} and expand {}, so up to {} nodes below the root that get children",
                               options.depth, options.expand, most_fed(options)),
                   fmt::format("at most {}", TreeShape::kMostDrafted),
                   "Expand fewer nodes or draft fewer levels."});
    }
  }

  bool is_dynamic() const { return options_.shape == EagleShape::dynamic; }

  /// The head's cache of one sequence. Position p of the session is computed from the target's states at
  /// position p and the token at position p + 1.
  struct Track {
    std::unique_ptr<Session> session;
    HeadRows newest;  // predicted state ("feature") at the pending token's position, [1, hidden]
  };
  Track& track_of(const Sequence& sequence) { return tracks_[static_cast<std::size_t>(sequence.slot)]; }

  void start(const Sequence& sequence, Slot& slot) override {
    Track& track = track_of(sequence);
    if (!track.session) track.session = resources().open_session(head_.layer());
    track.session->rewind(0);
    read_committed(sequence, slot, track);
  }

  void draft_one(const Sequence& sequence, Slot& slot, Draft& draft, int depth) override {
    Track& track = track_of(sequence);
    read_committed(sequence, slot, track);
    if (is_dynamic()) draft_dynamic(sequence, *slot.runner, track, draft, std::min(depth, options_.depth));
    else draft_fixed(sequence, *slot.runner, track, draft, std::min(depth, shape_.depth()));
  }

  // Reads the positions that were committed since the last call, with their true states. A position's row of
  // the layer does not depend on the other rows of a forward, so the K/V are the same as after a new start().
  void read_committed(const Sequence& sequence, Slot& slot, Track& track) {
    HeadRunner& runner = *slot.runner;
    Session& session = *track.session;
    const int count = slot.states.count();
    SPECLAB_CHECK(session.length() + count == sequence.position(), "{} + {} states before position {}",
                  session.length(), count, sequence.position());
    for (int done = 0; done < count;) {
      const int rows = std::min(count - done, kReadTogether);
      const auto from = static_cast<std::size_t>(done) * static_cast<std::size_t>(head_.state_width());
      runner.put(slot.states.data() + from, rows, head_.state_width(), states_);
      head_.features(runner, states_, above_);
      parents_.resize(static_cast<std::size_t>(rows));
      std::iota(parents_.begin(), parents_.end(), -1);
      path_.resize(static_cast<std::size_t>(rows));
      std::iota(path_.begin(), path_.end(), 0);
      rows_.assign(1, rows - 1);
      const TokenSpan after =
          TokenSpan(sequence.tokens)
              .subspan(static_cast<std::size_t>(session.length()) + 1, static_cast<std::size_t>(rows));
      head_.forward(runner, {session, after, above_, parents_, false, rows_}, track.newest);
      session.commit(path_);
      done += rows;
    }
    slot.states.clear();
  }

  void draft_fixed(const Sequence& sequence, HeadRunner& runner, Track& track, Draft& draft, int levels) {
    level_ = HeadChildren::root();
    const HeadRows* features = &track.newest;  // of the nodes of the level
    int fed = 0, above = 0;                    // rows in flight; the first one of the level above
    for (int depth = 0; depth < levels && !level_.empty(); ++depth) {
      if (depth > 0) {
        clear_level();
        for (const HeadNode& at : level_)
          add_pair(draft.tree.token(at.node), depth == 1 ? -1 : above + at.row, at.row);
        feed_level(runner, *track.session, *features, depth > 1);
        features = &drafted_;
        above = fed;
        fed += static_cast<int>(level_.size());
      }
      head_.logits(runner, *features, logits_);
      children_.grow(sequence, draft, shape_, download(runner, logits_), logits_.rows(), level_);
    }
  }

  void draft_dynamic(const Sequence& sequence, HeadRunner& runner, Track& track, Draft& draft, int levels) {
    tree_.clear();
    expanded_.assign(1, -1);
    const HeadRows* features = &track.newest;  // of the expanded nodes
    int fed = 0, above = 0;                    // as in draft_fixed()
    for (int depth = 0; depth < levels && !expanded_.empty(); ++depth) {
      if (depth > 0) {
        clear_level();
        for (std::size_t i = 0; i < expanded_.size(); ++i) {
          LikelyTree::Node& node = tree_.at(expanded_[i]);
          node.in_flight = fed + static_cast<int>(i);
          const int parent = node.parent < 0 ? -1 : tree_.at(node.parent).in_flight;
          add_pair(node.token, parent, parent < 0 ? 0 : parent - above);
        }
        feed_level(runner, *track.session, *features, depth > 1);
        features = &drafted_;
        above = fed;
        fed += static_cast<int>(expanded_.size());
      }
      head_.logits(runner, *features, logits_);
      const int first = tree_.size();
      expand(sequence, download(runner, logits_));
      tree_.sort_from(first);
      const std::span<const int> order = tree_.order();
      expanded_.assign(order.begin(), order.begin() + std::min(static_cast<std::ptrdiff_t>(order.size()),
                                                               static_cast<std::ptrdiff_t>(options_.expand)));
      std::sort(expanded_.begin(), expanded_.end());
    }
    tree_.keep(options_.nodes, draft);
  }

  // Adds the children of the expanded nodes. logits: [expanded nodes, rows].
  void expand(const Sequence& sequence, std::span<const float> logits) {
    const auto width = static_cast<std::size_t>(head_.rows());
    for (std::size_t i = 0; i < expanded_.size(); ++i) {
      const int node = expanded_[i];
      prefix_.clear();
      if (sequence.processors != nullptr) tree_.path_to(node, prefix_);
      for (const Token token :
           children_.best(sequence, logits.subspan(i * width, width), prefix_, options_.branches)) {
        const double q = children_.share(token);
        tree_.add(token, node, static_cast<float>(q), q);
      }
    }
  }

  // The next level that the layer reads: for each node its token, its parent's number among the rows in
  // flight, and the row of its parent's feature.
  void clear_level() {
    tokens_.clear();
    parents_.clear();
    rows_.clear();
  }
  void add_pair(Token token, int parent, int row) {
    tokens_.push_back(token);
    parents_.push_back(parent);
    rows_.push_back(row);
  }
  // Drafted tokens follow features that the head predicted itself.
  void feed_level(HeadRunner& runner, Session& session, const HeadRows& features, bool continues) {
    runner.select(features, rows_, above_);
    head_.forward(runner, {session, tokens_, above_, parents_, continues}, drafted_);
  }

  EagleOptions options_;
  EagleHead head_;
  TreeShape shape_;  // if fixed
  HeadChildren children_;
  std::vector<Track> tracks_;  // [batch]
  LikelyTree tree_;
  std::vector<int> expanded_;  // nodes of tree_ that get children; -1: the pending token
  std::vector<HeadNode> level_;
  std::vector<Token> tokens_, prefix_;
  std::vector<std::int32_t> parents_, rows_;
  std::vector<int> path_;
  HeadRows states_, above_, drafted_, logits_;  // above_: features that come with the tokens
};

const RegisterStrategy<EagleOptions, Eagle> registered{{
    .name = "eagle",
    .summary = "a trained decoder layer predicts the target's next states one after the other; their best "
               "tokens form a tree that follows the head's confidence, or one of fixed shape",
    .paper = "Li et al. 2024 and 2025, EAGLE, EAGLE-2 and EAGLE-3",
    .draft_source = "trained layer on the target's states",
    .stop_rule = "number of nodes, or shape of the tree",
    .verification = "tree",
    .criterion = "any rule; one-hot q, or the q of drawn children",
    .loss = "L1 at T > 0, L2 at T = 0; L3 with a lossy rule",
    .trained = "a head for this target",
    .needs_file = "head",
}};

}  // namespace
}  // namespace speclab
