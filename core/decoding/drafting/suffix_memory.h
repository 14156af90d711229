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

/// What copying strategies know: the text of each running sequence, and if wanted the texts of earlier
/// requests.
///
/// A prompt that comes again must not find its own answer: the earlier texts are forgotten then, and
/// collecting starts afresh. (Experiments start every repeat with a new instance.) The turns of a
/// conversation hold one another anyway.
class SuffixMemory {
 public:
  enum class Remember { nothing, outputs, texts };
  enum class From { nowhere, text, earlier };

  /// One index for each sequence of a batch, with room for `capacity` tokens; and `budget_tokens` of
  /// earlier texts. Matches longer than `depth` are not told apart.
  SuffixMemory(int depth, Remember remember, std::size_t budget_tokens, const Resources& resources);

  /// A sequence starts in its slot; what was there is remembered.
  void begin(const Sequence& sequence);
  /// Takes in what was emitted: called by those below, and to be called in observe(), so that a text is
  /// complete when the next one begins in its slot. No allocation.
  void catch_up(const Sequence& sequence);
  /// The best speculation after the text of the sequence, from that text.
  void from_text(const Sequence& sequence, const SuffixSpeculationOptions& options, SuffixSpeculation& best);
  /// From the earlier texts.
  void from_earlier(const Sequence& sequence, const SuffixSpeculationOptions& options,
                    SuffixSpeculation& best);
  /// From either, and whence it is. Among equals the text itself wins.
  From speculate(const Sequence& sequence, const SuffixSpeculationOptions& options, SuffixSpeculation& best);

 private:
  struct Slot {
    explicit Slot(int depth) : own(depth) {}
    SuffixAutomaton own;
    SuffixStore::Matches matches{};
    std::uint64_t version = 0;  // of the store that they were made for
    int prompt_length = 0;
  };
  void remember(Slot& slot, const Sequence& next);

  Remember remember_;
  std::unique_ptr<SuffixStore> store_;
  std::unordered_set<std::uint64_t> seen_;  // hashes of prompts
  std::vector<std::unique_ptr<Slot>> slots_;
  SuffixSpeculation part_, earlier_;
};

}  // namespace speclab
