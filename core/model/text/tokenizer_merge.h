#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// The merge rules of byte-pair encoding: a hash table from (left, right) to rank and merged token. Open
/// addressing; a lookup usually takes one probe.
class MergeTable {
 public:
  struct Rule {
    std::int32_t rank;
    Token merged;
  };

  /// Makes room for `rules` rules. No more may be added.
  explicit MergeTable(std::size_t rules = 0);

  /// Adds a rule. Its rank is the number of rules before it. Returns false, without a change, when the pair
  /// already has a rule.
  bool add(Token left, Token right, Token merged);

  /// The rule of a pair, or null.
  const Rule* find(Token left, Token right) const;

  /// Merges the pair of lowest rank (the leftmost of equals) until no pair has a rule. In place, O(n log n).
  void merge(std::vector<Token>& symbols) const;

 private:
  struct Slot {
    std::uint64_t pair;
    Rule rule;
  };
  std::size_t slot_of(std::uint64_t pair) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::int32_t rules_ = 0;
};

}  // namespace speclab
