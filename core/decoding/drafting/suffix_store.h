#pragma once

#include <array>
#include <cstddef>

#include "core/decoding/drafting/suffix_automaton.h"

namespace speclab {

/// Indexes earlier texts within a memory budget, first in, first out. It has two suffix automata of half the
/// budget each. When a document does not fit into the younger one, the older one is cleared and becomes the
/// younger. Adding is O(1) amortised per token.
class SuffixStore {
 public:
  static constexpr int kParts = 2;
  using Matches = std::array<SuffixAutomaton::Match, kParts>;

  SuffixStore(int depth, std::size_t budget_tokens);

  /// Adds a document. If the document is longer than half the budget, adds only its end. Existing matches
  /// become invalid, see version().
  void add(TokenSpan document);
  void clear();

  const SuffixAutomaton& part(int i) const { return parts_[i == 0 ? young_ : 1 - young_]; }
  std::size_t tokens() const { return parts_[0].text().size() + parts_[1].text().size(); }
  std::size_t bytes() const { return parts_[0].bytes() + parts_[1].bytes(); }
  std::uint64_t version() const { return version_; }  ///< changes whenever the contents change

  void extend(Matches& matches, Token token) const;
  Matches match(TokenSpan text) const;  ///< matches of a text in both parts, see SuffixAutomaton::extend

 private:
  std::size_t budget_;  ///< tokens of one part
  std::array<SuffixAutomaton, kParts> parts_;
  int young_ = 0;
  std::uint64_t version_ = 1;
};

}  // namespace speclab
