#include "core/decoding/ahead/ahead_chain.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/measure/clock.h"

namespace speclab {

struct AheadChain::Slot {
  Draft* current = nullptr;  // the draft that is being verified
  int drafted = 0;           // number of its tokens
  Sequence assumed;          // the text if all of them are accepted; the side thread adds its guess
  int next_limit = 0;        // Sequence::depth_limit of the next step under this assumption
  Draft next;                // the draft after the assumed text
  bool whole = false;        // `next` is complete: DraftChain would draft the same after the assumed text
  bool ready = false;        // the text is as assumed, and `next` is the draft of the next step
  std::int64_t forwards_before = 0;
};

AheadChain::AheadChain(const DraftChainOptions& options, const Resources& resources)
    : resources_(resources), chain_(options, resources), side_([this] { draft_ahead(); }) {
  SPECLAB_CHECK(options.schedule.schedule == ScheduleRule::constant,
                "a chain is drafted ahead with the schedule {}", options.schedule.info().name);
  SPECLAB_CHECK(&resources.target->backend() != &resources.draft->backend(),
                "a draft model that drafts ahead on the backend of its target {}", resources.target->name());
  const auto batch = static_cast<std::size_t>(resources.batch);
  for (std::size_t i = 0; i < batch; ++i) slots_.push_back(std::make_unique<Slot>());
  for (auto* list : {&fresh_, &assumed_}) list->reserve(batch);
  for (auto* list : {&fresh_drafts_, &next_}) list->reserve(batch);
  ahead_.reserve(batch);
}

AheadChain::~AheadChain() = default;

void AheadChain::begin(const Sequence& sequence) {
  SPECLAB_CHECK(!running_, "a sequence begins while others draft ahead");
  Slot& s = slot(sequence);
  s.ready = false;
  // Room for the longest text and what is assumed after it, so that steps do not allocate.
  s.assumed.tokens.reserve(static_cast<std::size_t>(resources_.capacity) + 1);
  chain_.begin(sequence);
}

std::int64_t AheadChain::draft_forwards(const Sequence& sequence) {
  return chain_.cache(sequence).session().work().calls;
}

void AheadChain::draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) {
  SPECLAB_CHECK(!running_, "a draft while the last one is not observed");
  fresh_.clear();
  fresh_drafts_.clear();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Slot& s = slot(*sequences[i]);
    if (std::exchange(s.ready, false)) {
      SPECLAB_CHECK(s.assumed.tokens == sequences[i]->tokens && s.next_limit == sequences[i]->depth_limit,
                    "a draft ahead of {} tokens and depth {}, but the step has {} and {}",
                    s.assumed.tokens.size(), s.next_limit, sequences[i]->tokens.size(),
                    sequences[i]->depth_limit);
      drafts[i]->swap(s.next);
    } else {
      fresh_.push_back(sequences[i]);
      fresh_drafts_.push_back(drafts[i]);
    }
  }
  if (!fresh_.empty()) chain_.draft(fresh_, fresh_drafts_);

  ahead_.clear();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (assume(*sequences[i], *drafts[i])) ahead_.push_back(&slot(*sequences[i]));
  }
  if (ahead_.empty()) return;
  running_ = true;
  side_.start();
}

// Sets the assumption of a sequence. Returns false if nothing is drafted ahead.
bool AheadChain::assume(const Sequence& sequence, Draft& draft) {
  Slot& s = slot(sequence);
  s.current = &draft;
  s.drafted = draft.tree.drafted();
  // All drafted tokens and one more are emitted, and each of them takes a position and a token of the limit.
  s.next_limit = sequence.depth_limit - s.drafted - 1;
  if (s.drafted == 0 || s.next_limit < 1 || sequence.coins.is_scripted() || sequence.coins.is_watched())
    return false;
  s.assumed = sequence;
  for (int node = 1; node <= s.drafted; ++node) {
    const Token token = draft.tree.token(node);
    if (std::ranges::find(sequence.eos, token) != sequence.eos.end()) return false;
    s.assumed.tokens.push_back(token);
  }
  s.assumed.depth_limit = 1;  // for the guess
  s.whole = false;
  s.forwards_before = draft_forwards(sequence);
  return true;
}

// Runs on the side thread.
void AheadChain::draft_ahead() {
  begun_ns_ = wall_now_ns();
  const auto draft_all = [this](std::span<Slot* const> slots) {
    assumed_.clear();
    next_.clear();
    for (Slot* s : slots) {
      s->next.reset(s->assumed.tokens.back());
      assumed_.push_back(&s->assumed);
      next_.push_back(&s->next);
    }
    if (!slots.empty()) chain_.draft(assumed_, next_);
  };
  try {
    draft_all(ahead_);  // one token each: the guess
    const auto rest =
        std::partition(ahead_.begin(), ahead_.end(), [this](Slot* s) { return take_guess(*s); });
    draft_all(std::span(ahead_.begin(), rest));
    std::for_each(ahead_.begin(), rest, [](Slot* s) { s->whole = true; });
  } catch (const Error&) {
    // The draft model has bad rows after the assumed text. If the text goes on so, drafting anew throws too.
  } catch (...) {
    failure_ = std::current_exception();
  }
  ended_ns_ = wall_now_ns();
}

// Appends the guess to the assumed text. Returns false if there is none, or if the text ends with it. With
// independent coins the target's token is most likely the best token of the draft model. With Gumbel coins it
// is most likely the token that the draft model draws with the target's noise.
bool AheadChain::take_guess(Slot& s) const {
  if (s.next.tree.drafted() == 0) return false;
  const Distribution* q = s.next.q_at(1);
  const Token guess = s.assumed.coupled || q == nullptr ? s.next.tree.token(1) : q->argmax();
  if (std::ranges::find(s.assumed.eos, guess) != s.assumed.eos.end()) return false;
  s.assumed.tokens.push_back(guess);
  s.assumed.depth_limit = s.next_limit;
  return true;
}

void AheadChain::observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) {
  if (running_) {
    const std::int64_t verified_ns = wall_now_ns();
    side_.wait();
    running_ = false;
    const std::int64_t waited_ns = wall_now_ns() - verified_ns;
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Slot& s = slot(*sequences[i]);
      if (std::ranges::find(ahead_, &s) == ahead_.end()) continue;
      s.ready = s.whole && s.assumed.tokens == sequences[i]->tokens;
      AheadWork work;
      work.forwards = static_cast<int>(draft_forwards(*sequences[i]) - s.forwards_before);
      work.drafted = s.whole ? s.next.tree.drafted() : 0;
      work.right = s.ready;
      work.ns = ended_ns_ - begun_ns_;
      work.overlapped_ns = std::clamp<std::int64_t>(verified_ns - begun_ns_, 0, work.ns);
      work.waited_ns = waited_ns;
      s.current->ahead = work;
    }
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    chain_.observe(*sequences[i], outcomes[i].draft->tree.drafted(),
                   static_cast<int>(outcomes[i].acceptance->path.size()));
  }
}

void AheadChain::halt() {
  if (!std::exchange(running_, false)) return;
  side_.wait();
  failure_ = nullptr;
  for (const auto& s : slots_) s->ready = false;
}

}  // namespace speclab
