// Multi-token prediction: modules that were trained together with the target, and are part of its checkpoint,
// guess the tokens after the next one. A module reads the state below it, the token that follows, and its own
// K/V. The first one reads states of the target, each further one the outputs of the module before it. A
// checkpoint with a single module drafts a chain by running it again and again on its own outputs, as EAGLE
// does.
//
// Paper:       DeepSeek-AI 2024, "DeepSeek-V3 Technical Report" (arXiv 2412.19437), Section 2.2; Gloeckle et
//              al. 2024, "Better & Faster Large Language Models via Multi-token Prediction" (arXiv
//              2404.19737), for the idea. The paper of DeepSeek-V3 drafts one token; a tree of fixed shape is
//              possible too.
// Draft cost:  every module reads the newly committed positions. Then one forward of a module for each
//              further level. If there are several modules, each one has its own K/V, so the module of a
//              level reads all drafted nodes above this level that have children. After each forward an
//              output head.
// Loses when:  the target is small, because a module is a whole layer with an output head over the
//              vocabulary. With one module, deep guesses rest on states that the module predicted itself.
//
// The K/V of committed positions come from true states and true tokens alone. Module k, counted from 0, reads
// at position i the token i + k + 1. So its newest committed position is k positions before the newest one of
// module 0. The rows of drafted tokens are dropped after the draft.
//
// With "budget": "auto" a part of the tree is verified. The modules run in any case, so the budget does not
// count their time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/heads/head_children.h"
#include "core/decoding/drafting/heads/head_strategy.h"
#include "core/decoding/drafting/heads/states_drafter.h"
#include "core/decoding/registry.h"
#include "core/model/heads/mtp/mtp_head.h"
#include "core/model/net/session.h"

namespace speclab {
namespace {

class Mtp final : public StatesDrafter {
 public:
  Mtp(const HeadStrategyOptions& options, const Resources& resources)
      : Mtp(options, resources, read_head_card(options.head, HeadKind::kMtp, *resources.target)) {}

 private:
  static constexpr int kUsualChain = 3, kMostLevels = 64;  // with one module
  static constexpr int kReadTogether = 64;                 // committed positions in one forward

  Mtp(const HeadStrategyOptions& options, const Resources& resources, const HeadCard& card)
      : StatesDrafter(resources, card.mtp.tap, true),
        head_(card, resources.target),
        shape_(shape_of(options.tree, card, head_)),
        children_(options.children, head_.ids(), resources.target->config().vocab),
        tracks_(static_cast<std::size_t>(resources.batch)) {
    require_uncut_draws(options.children, options.budget, "mtp");
    set_nodes(shape_.nodes());
  }

  static TreeShape shape_of(const HeadTreeOptions& options, const HeadCard& card, const MtpHead& head) {
    if (head.modules() > 1) return options.shape(card, head.modules(), head.rows(), "mtp");
    if (options.any() || !card.tree.empty()) return options.shape(card, kMostLevels, head.rows(), "mtp");
    return TreeShape::chain(kUsualChain);
  }

  /// The cache of one module for one sequence. Position i of the session of module k is computed from the
  /// output of module k - 1 at position i (k = 0: the target's state there) and from the token i + k + 1.
  struct Cache {
    std::unique_ptr<Session> session;
    HeadRows newest;  // the module's output at its newest committed position, [1, hidden]
  };
  using Track = std::vector<Cache>;  // [modules]
  Track& track_of(const Sequence& sequence) { return tracks_[static_cast<std::size_t>(sequence.slot)]; }

  void start(const Sequence& sequence, Slot& slot) override {
    Track& track = track_of(sequence);
    if (track.empty()) track = Track(static_cast<std::size_t>(head_.modules()));
    for (int module = 0; module < head_.modules(); ++module) {
      Cache& cache = track[static_cast<std::size_t>(module)];
      if (!cache.session) cache.session = resources().open_session(head_.layer(module));
      cache.session->rewind(0);
    }
    read_committed(sequence, slot, track);
  }

  void draft_one(const Sequence& sequence, Slot& slot, Draft& draft, int depth) override {
    Track& track = track_of(sequence);
    read_committed(sequence, slot, track);
    const int levels = std::min(depth, shape_.depth());
    if (head_.modules() == 1) {
      draft_by_one(sequence, *slot.runner, track.front(), draft, levels);
    } else {  // module k reads the first drafted token at position length(track) - k >= 0
      draft_in_order(sequence, *slot.runner, track, draft, std::min(levels, length(track) + 1));
    }
  }

  static int length(const Track& track) { return track.front().session->length(); }

  // Reads the positions that were committed since the last call, with their true states. A row of a module
  // does not depend on the other rows of a forward, so the K/V are the same as after a new start().
  void read_committed(const Sequence& sequence, Slot& slot, Track& track) {
    const int count = slot.states.count();
    SPECLAB_CHECK(length(track) + count == sequence.position(), "{} + {} states before position {}",
                  length(track), count, sequence.position());
    for (int done = 0; done < count;) {
      const int rows = std::min(count - done, kReadTogether);
      const auto from = static_cast<std::size_t>(done) * static_cast<std::size_t>(hidden());
      slot.runner->put(slot.states.data() + from, rows, hidden(), states_);
      read_rows(sequence, *slot.runner, track, rows);
      done += rows;
    }
    slot.states.clear();
  }

  // The first module reads the next `count` positions, whose states are in states_. Each further one reads
  // the positions for which the module before it has an output and the text has the token. The last one is
  // one position before the last one that the module before it reads.
  void read_rows(const Sequence& sequence, HeadRunner& runner, Track& track, int count) {
    const HeadRows* inputs = &states_;
    for (std::size_t module = 0; module < track.size() && count > 0; ++module) {
      Cache& cache = track[module];
      const int before = cache.session->length();
      const TokenSpan after =
          TokenSpan(sequence.tokens)
              .subspan(static_cast<std::size_t>(before) + module + 1, static_cast<std::size_t>(count));
      const bool last = module + 1 == track.size();
      chain_of(count);
      rows_.assign(1, count - 1);
      const MtpHead::Pairs pairs{
          *cache.session, after,
          *inputs,        parents_,
          false,          last ? std::span<const std::int32_t>(rows_) : std::span<const std::int32_t>()};
      head_.forward(runner, static_cast<int>(module), pairs, last ? cache.newest : outputs_);
      cache.session->commit(path_);
      if (last) break;
      const HeadRows* const parts[] = {&cache.newest, &outputs_};
      runner.stack(std::span<const HeadRows* const>(parts).subspan(before > 0 ? 0 : 1), stacked_);
      runner.select(outputs_, rows_, cache.newest);
      count = stacked_.rows() - 1;
      if (count == 0) break;
      rows_.resize(static_cast<std::size_t>(count));
      std::iota(rows_.begin(), rows_.end(), 0);
      runner.select(stacked_, rows_, inputs_);
      inputs = &inputs_;
    }
  }

  // Sets the parents of `count` rows that follow each other, and the path of all of them.
  void chain_of(int count) {
    parents_.resize(static_cast<std::size_t>(count));
    std::iota(parents_.begin(), parents_.end(), -1);
    path_.resize(static_cast<std::size_t>(count));
    std::iota(path_.begin(), path_.end(), 0);
  }

  // Drafts with one module, level by level, on the outputs for the level above.
  void draft_by_one(const Sequence& sequence, HeadRunner& runner, Cache& cache, Draft& draft, int levels) {
    level_ = HeadChildren::root();
    const HeadRows* outputs = &cache.newest;  // of the nodes of the level
    int fed = 0, above = 0;                   // rows in flight; the first one of the level above
    for (int depth = 0; depth < levels && !level_.empty(); ++depth) {
      if (depth > 0) {
        tokens_.clear();
        parents_.clear();
        rows_.clear();
        for (const HeadNode& at : level_) {
          tokens_.push_back(draft.tree.token(at.node));
          parents_.push_back(depth == 1 ? -1 : above + at.row);
          rows_.push_back(at.row);
        }
        runner.select(*outputs, rows_, inputs_);
        head_.forward(runner, 0, {*cache.session, tokens_, inputs_, parents_, depth > 1}, outputs_);
        outputs = &outputs_;
        above = fed;
        fed += static_cast<int>(level_.size());
      }
      head_.logits(runner, 0, *outputs, logits_);
      children_.grow(sequence, draft, shape_, download(runner, logits_), logits_.rows(), level_);
    }
  }

  // Drafts with one module for each level. Module k reads all drafted nodes down to depth k that have
  // children. At each node it reads the token, and the output of module k - 1 at the node's parent. For a
  // node of depth 1, this is the newest committed output.
  void draft_in_order(const Sequence& sequence, HeadRunner& runner, Track& track, Draft& draft, int levels) {
    level_ = HeadChildren::root();
    tokens_.clear();
    parents_.clear();
    int above = 0;  // the first row of the level above
    for (int module = 0; module < levels && !level_.empty(); ++module) {
      const HeadRows* outputs = &track.front().newest;  // of the nodes of the level
      if (module > 0) {
        const int first = static_cast<int>(tokens_.size());
        for (const HeadNode& at : level_) {
          tokens_.push_back(draft.tree.token(at.node));
          parents_.push_back(module == 1 ? -1 : above + at.row);
        }
        above = first;
        rows_.clear();
        for (const std::int32_t parent : parents_) rows_.push_back(parent + 1);
        const HeadRows* const parts[] = {&track[static_cast<std::size_t>(module) - 1].newest, &outputs_};
        runner.stack(std::span<const HeadRows* const>(parts).first(module == 1 ? 1 : 2), stacked_);
        runner.select(stacked_, rows_, inputs_);
        Session& session = *track[static_cast<std::size_t>(module)].session;
        head_.forward(runner, module, {session, tokens_, inputs_, parents_}, outputs_);
        rows_.resize(level_.size());
        std::iota(rows_.begin(), rows_.end(), first);
        runner.select(outputs_, rows_, of_level_);
        outputs = &of_level_;
      }
      head_.logits(runner, module, *outputs, logits_);
      children_.grow(sequence, draft, shape_, download(runner, logits_), logits_.rows(), level_);
    }
  }

  MtpHead head_;
  TreeShape shape_;
  HeadChildren children_;
  std::vector<Track> tracks_;  // [batch]
  std::vector<HeadNode> level_;
  std::vector<Token> tokens_;
  std::vector<std::int32_t> parents_, rows_;
  std::vector<int> path_;
  HeadRows states_, inputs_, outputs_, stacked_, of_level_, logits_;
};

const RegisterStrategy<HeadStrategyOptions, Mtp> registered{head_strategy_info({
    .name = "mtp",
    .summary = "modules of the target's checkpoint, each a decoder layer on the states below it, guess one "
               "token after the other; a tree of fixed shape, by default a chain",
    .paper = "DeepSeek-AI 2024, DeepSeek-V3 Technical Report",
    .draft_source = "modules trained with the target",
    .criterion = "any rule; one-hot q, or the q of drawn children",
    .trained = "together with the target",
})};

}  // namespace
}  // namespace speclab
