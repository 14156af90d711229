#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/decoding/drafting/suffix_automaton.h"
#include "core/decoding/drafting/suffix_speculation.h"

namespace speclab {

/// A drafter of one sequence that copies what most often followed an ending of the text at its earlier
/// occurrences (SuffixSpeculation). It can also say for every place of the text how good its copy there was.
/// For that it makes the copy of each place when the text reaches it, and compares it with the tokens that
/// followed later. So a copy never knows the tokens that it is compared with.
class CopyDrafter {
 public:
  struct Settings {
    int length = 8;       ///< largest number of tokens of a copy
    int least_match = 1;  ///< a copy continues a match of at least this many tokens
    int capacity = 0;     ///< tokens of the longest text, to reserve memory
    bool scores = false;  ///< whether read() makes the copies of all places, to score them
  };
  /// Gets the acceptance of each token of a copy, given that the tokens before it were accepted: 1 while the
  /// copy agrees with the text, then 0.
  using Score = std::function<void(std::span<const double> acceptance)>;

  explicit CopyDrafter(Settings settings);
  /// Starts a text: forgets the one before, reads this one and makes the copy of its end.
  void begin(TokenSpan text);
  /// Reads the tokens that are new since the last call and makes the copy of the end of the text. With
  /// Settings::scores it calls `score` for each place since begin() that has a copy and is now followed by
  /// `length` tokens, once for each place.
  void read(TokenSpan text, const Score& score);
  /// The copy of the end of the text; empty if no ending of it occurred before.
  TokenSpan copy() const { return copies_[place_of(index_.text().size() - 1)]; }
  int match_length() const { return speculation_.match_length(); }  ///< of that copy

 private:
  std::size_t place_of(std::size_t token) const { return token % copies_.size(); }
  void make_copy();

  Settings settings_;
  SuffixAutomaton index_;
  SuffixSpeculation speculation_;
  SuffixSpeculationOptions options_;
  std::size_t first_ = 0;                   // the first token that has a copy of what follows it
  std::vector<std::vector<Token>> copies_;  // [length], of the last tokens of the text, see place_of()
  std::vector<double> acceptance_;
};

}  // namespace speclab
