#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "core/decoding/ahead/side_thread.h"
#include "core/decoding/drafting/draft_chain.h"
#include "core/decoding/strategy.h"

namespace speclab {

/// Drafts chains with a draft model, and drafts the next chain on a thread of its own while the target
/// verifies the current one. This is the post-verify of PEARL (Liu et al. 2024, "Parallel Speculative
/// Decoding with Adaptive Draft Length").
///
/// The draft ahead assumes that all drafted tokens are accepted. It also guesses the token that the
/// verification will add: the draft model's own next token. If the text goes on in this way, the chain ahead
/// is the draft of the next step. It has the bits that drafting after the verification would give: DraftChain
/// drafts it after the same text, with the same coins (which are addressed, not streamed) and with a draft
/// model whose rows do not depend on other rows or on threads. Otherwise the chain ahead is dropped, and the
/// next step drafts anew. So DraftChain without drafting ahead gives the same drafts, text and verdicts. The
/// guess changes only the time.
///
/// observe() waits for the draft ahead also if it will be dropped. So after its own draft, a step takes as
/// long as its verification or as the gamma + 1 draft forwards at the same time, whichever is longer. The
/// counts of a record do not depend on times.
///
/// Nothing is drafted ahead after an empty draft, or if the coins are scripted or watched, or if the assumed
/// text ends with this step or leaves the next step no room for a drafted token.
class AheadChain {
 public:
  /// The draft model must not share its backend with the target (divide_threads). options.schedule must be
  /// constant: drafts have options.gamma tokens, fewer only near the end of the text or of the context.
  AheadChain(const DraftChainOptions& options, const Resources& resources);
  ~AheadChain();

  /// Starts a sequence: the draft model reads the prompt.
  void begin(const Sequence& sequence);
  /// Makes the chains of this step, as DraftChain::draft() does. Then starts to draft the next ones;
  /// observe() or halt() must follow.
  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts);
  /// Waits for the draft ahead. If a sequence drafted ahead, sets Draft::ahead of its draft of this step.
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes);
  /// Waits for the draft ahead and drops it. For steps that fail before observe().
  void halt();

 private:
  struct Slot;
  Slot& slot(const Sequence& sequence) { return *slots_[static_cast<std::size_t>(sequence.slot)]; }
  bool assume(const Sequence& sequence, Draft& draft);
  void draft_ahead();
  bool take_guess(Slot& slot) const;
  std::int64_t draft_forwards(const Sequence& sequence);

  Resources resources_;
  DraftChain chain_;
  std::vector<std::unique_ptr<Slot>> slots_;  // [batch]
  std::vector<const Sequence*> fresh_;        // the sequences of a step that draft anew, and their drafts
  std::vector<Draft*> fresh_drafts_;
  // What the side thread reads and writes between start() and wait():
  std::vector<Slot*> ahead_;  // the slots that draft ahead in this step
  std::vector<const Sequence*> assumed_;
  std::vector<Draft*> next_;
  std::int64_t begun_ns_ = 0, ended_ns_ = 0;
  std::exception_ptr failure_;  // an exception that is no Error
  bool running_ = false;        // start() was called, and wait() was not; only the loop's thread uses it
  SideThread side_;             // last, because its thread uses the members above
};

}  // namespace speclab
