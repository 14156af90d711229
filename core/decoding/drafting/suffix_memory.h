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

/// The indexes of copying strategies: of the text of each running sequence and, if wanted,
/// of the texts of earlier requests.
///
/// A prompt that comes again must not find its own answer, so all earlier texts are then forgotten.
/// (Experiments start every repeat with a new instance.) The turns of one conversation are no such case: each
/// contains the previous ones anyway.
class SuffixMemory {
 public:
  enum class Remember { nothing, outputs, texts };
  enum class From { nowhere, text, earlier };

  /// Makes an index for each sequence of a batch, with room for `capacity` tokens, and one for
  /// `budget_tokens` of earlier texts. Matches are at most `depth` tokens long.
  SuffixMemory(int depth, Remember remember, std::size_t budget_tokens, const Resources& resources);

  /// Starts a sequence in its slot. The text that was there before goes to the earlier texts.
  void begin(const Sequence& sequence);
  /// Indexes the emitted tokens. The functions below call it. Also call it in observe(), so that a text is
  /// complete when the next one begins in its slot. Does not allocate.
  void catch_up(const Sequence& sequence);
  /// Finds the best speculation in the text of the sequence itself.
  void from_text(const Sequence& sequence, const SuffixSpeculationOptions& options, SuffixSpeculation& best);
  /// Finds the best speculation in the earlier texts.
  void from_earlier(const Sequence& sequence, const SuffixSpeculationOptions& options,
                    SuffixSpeculation& best);
  /// Finds the best speculation of both kinds and returns its source. Among equals the text itself wins.
  From speculate(const Sequence& sequence, const SuffixSpeculationOptions& options, SuffixSpeculation& best);

 private:
  struct Slot {
    explicit Slot(int depth) : own(depth) {}
    SuffixAutomaton own;
    SuffixStore::Matches matches{};
    std::uint64_t version = 0;  // version of the store that `matches` belong to
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
