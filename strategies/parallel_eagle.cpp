// P-EAGLE: a head of EAGLE-3 drafts all tokens of a step in one forward. It reads the committed positions
// that are new, with the target's true states, and after them a mask for each further token: a trained state
// that all masks share, and a mask token. So the layers run once for a draft of any length, where EAGLE runs
// them once for each token. The guesses do not know each other: given the text, the law of a drawn chain is
// the product of the laws at its places. Each drawn token hands over the law of its place as its q.
//
// Paper:       "P-EAGLE: Parallel-Drafting EAGLE with Scalable Training" (arXiv 2602.01469). The paper drafts
//              chains; here a tree of fixed shape is possible too. All nodes of a level get their children
//              from the same row.
// Draft cost:  one forward of the head over the new positions and the masks, and the output head for each
//              drafted level.
// Loses when:  the text branches. A token that is right only after one guess is also drafted after others.
//
// The K/V of committed positions come from the target's states alone: the same forward reads them, and the
// rows of the masks are dropped.
//
// With "budget": "auto" a part of the tree is verified. The head runs in any case, so the budget does not
// count its time.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_strategy.h"
#include "core/decoding/drafting/heads/states_drafter.h"
#include "core/decoding/registry.h"
#include "core/model/heads/eagle/parallel_eagle_head.h"
#include "core/model/net/session.h"

namespace speclab {
namespace {

class ParallelEagle final : public StatesDrafter {
 public:
  ParallelEagle(const HeadStrategyOptions& options, const Resources& resources)
      : ParallelEagle(options, resources,
                      read_head_card(options.head, HeadKind::kParallelEagle, *resources.target)) {}

 private:
  static constexpr int kMostPairs = 64;  // in one forward

  ParallelEagle(const HeadStrategyOptions& options, const Resources& resources, const HeadCard& card)
      : StatesDrafter(resources, card.eagle.taps, true),
        head_(card, resources.target),
        shape_(options.tree.shape(card, head_.count(), head_.rows(), "parallel_eagle")),
        children_(options.children, head_.ids(), resources.target->config().vocab),
        tracks_(static_cast<std::size_t>(resources.batch)) {
    require_uncut_draws(options.children, options.budget, "parallel_eagle");
    set_nodes(shape_.nodes());
  }

  /// The head's cache of one sequence. Position p of the session is computed from the target's states at
  /// position p and the token at position p + 1.
  struct Track {
    std::unique_ptr<Session> session;
    int read = 0;  // positions in slot.states that are in the session already
  };
  Track& track_of(const Sequence& sequence) { return tracks_[static_cast<std::size_t>(sequence.slot)]; }

  // Reads the prompt without its newest position, which the first draft reads.
  void start(const Sequence& sequence, Slot& slot) override {
    Track& track = track_of(sequence);
    if (!track.session) track.session = resources().open_session(head_.layers());
    track.session->rewind(0);
    track.read = 0;
    read_up_to(sequence, slot, track, slot.states.count() - 1);
  }

  void draft_one(const Sequence& sequence, Slot& slot, Draft& draft, int depth) override {
    Track& track = track_of(sequence);
    const int count = slot.states.count(), levels = std::min(depth, shape_.depth());
    SPECLAB_CHECK(track.read < count && track.session->length() + count - track.read == sequence.position(),
                  "{} + {} states, {} of them read, before position {}", track.session->length(), count,
                  track.read, sequence.position());
    read_up_to(sequence, slot, track, count - kMostPairs);
    const TokenSpan after = tokens_after(sequence, track, count);
    head_.draft(*slot.runner, *track.session, states_at(slot, track), after, levels, rows_);
    slot.states.clear();
    track.read = 0;
    const std::span<const float> logits = download(*slot.runner, rows_);
    const auto width = static_cast<std::size_t>(head_.rows());
    level_ = HeadChildren::root();
    for (int level = 0; level < levels && !level_.empty(); ++level) {
      children_.grow(sequence, draft, shape_, logits.subspan(static_cast<std::size_t>(level) * width, width),
                     1, level_);
    }
  }

  // Reads the positions track.read to `count` - 1 of slot.states. The K/V of a position do not depend on the
  // other positions of a forward, so they are the same as after a new start().
  void read_up_to(const Sequence& sequence, Slot& slot, Track& track, int count) {
    while (track.read < count) {
      const int end = std::min(count, track.read + kMostPairs);
      head_.read(*slot.runner, *track.session, states_at(slot, track), tokens_after(sequence, track, end));
      track.read = end;
    }
  }
  // The states of the first position that is not in the session yet.
  const float* states_at(const Slot& slot, const Track& track) const {
    return slot.states.data() +
           static_cast<std::size_t>(track.read) * static_cast<std::size_t>(head_.state_width());
  }
  // The tokens that follow the positions track.read to `end` - 1 of slot.states.
  static TokenSpan tokens_after(const Sequence& sequence, const Track& track, int end) {
    return TokenSpan(sequence.tokens)
        .subspan(static_cast<std::size_t>(track.session->length()) + 1,
                 static_cast<std::size_t>(end - track.read));
  }

  ParallelEagleHead head_;
  TreeShape shape_;
  HeadChildren children_;
  std::vector<Track> tracks_;  // [batch]
  std::vector<HeadNode> level_;
  HeadRows rows_;
};

const RegisterStrategy<HeadStrategyOptions, ParallelEagle> registered{head_strategy_info({
    .name = "parallel_eagle",
    .summary =
        "a trained head on the target's states guesses all tokens in one forward, with a mask in place "
        "of each token and state that is not known yet; a tree of fixed shape, by default a chain",
    .paper = "P-EAGLE (arXiv 2602.01469)",
    .draft_source = "trained layers on the target's states",
    .criterion = "any rule; one-hot q, or the q of drawn children",
    .trained = "a head for this target",
})};

}  // namespace
}  // namespace speclab
