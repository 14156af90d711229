#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "core/decoding/strategy.h"
#include "core/decoding/drafting/suffix_speculation.h"
#include "core/decoding/drafting/suffix_store.h"

namespace speclab {

/// Holds the text indexes of strategies that copy: one index for the text of each running sequence and, if
/// wanted, one for the texts of earlier requests.
///
/// A prompt that is repeated must not find its own answer. So when a prompt comes again, the index of earlier
/// requests is cleared, and the texts that run in other slots at that moment stay out of it. (Experiments
/// start every repeat with a new instance.) Later turns of a conversation do not count as repeats, because
/// each turn contains the previous ones anyway.
class SuffixMemory {
 public:
  /// What the index of earlier requests holds: nothing, only what was emitted, or prompts too.
  enum class Remember { nothing, outputs, texts };
  /// Where a speculation comes from: the text of the sequence itself, or the texts of earlier requests.
  enum class From { nowhere, text, earlier };

  /// Makes an index for each sequence of a batch, with room for resources.capacity tokens. Unless `remember`
  /// is `nothing`, also makes an index of at most `budget_tokens` tokens of earlier texts. Matches are at
  /// most `depth` tokens long.
  SuffixMemory(int depth, Remember remember, std::size_t budget_tokens, const Resources& resources);

  /// Starts a sequence in its slot. Adds the previous text of the slot to the earlier texts, if they are
  /// kept. With Remember::texts, adds a conversation only once, when another one begins.
  void begin(const Sequence& sequence);
  /// Indexes the emitted tokens. The functions below call it. Also call it in observe(), so that a text is
  /// complete when the next one begins in its slot. Does not allocate.
  void catch_up(const Sequence& sequence);
  /// Finds the best speculation in the text of the sequence itself.
  void from_text(const Sequence& sequence, const SuffixSpeculationOptions& options, SuffixSpeculation& best);
  /// Finds the best speculation in the earlier texts.
  void from_earlier(const Sequence& sequence, const SuffixSpeculationOptions& options,
                    SuffixSpeculation& best);
  /// Finds the best speculation in the sequence's own text and in the earlier texts, and returns its source.
  /// If the scores are equal, the sequence's own text wins.
  From speculate(const Sequence& sequence, const SuffixSpeculationOptions& options, SuffixSpeculation& best);

 private:
  struct Slot {
    explicit Slot(int depth) : own(depth) {}
    SuffixAutomaton own;
    SuffixStore::Matches matches{};
    std::uint64_t version = 0;  // version of the store that `matches` belong to
    std::uint64_t cleared = 0;  // cleared_ when the conversation began
    int prompt_length = 0;
  };
  void remember(Slot& slot, const Sequence& next);
  /// Whether a conversation may add to the earlier texts and copy from them. It may not if it was running
  /// when a repeated prompt in another slot cleared these texts, because it may answer the same prompt.
  bool may_share(const Slot& slot) const { return slot.cleared == cleared_; }

  Remember remember_;
  std::unique_ptr<SuffixStore> store_;
  std::unordered_set<std::uint64_t> seen_;  // hashes of prompts
  std::uint64_t cleared_ = 0;               // how often a repeated prompt has cleared the earlier texts
  std::vector<std::unique_ptr<Slot>> slots_;
  SuffixSpeculation part_, earlier_;
};

}  // namespace speclab
