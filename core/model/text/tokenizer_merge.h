#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Stores the merge rules of byte-pair encoding and applies them. A hash table with open addressing maps a
/// pair (left, right) to its rank and its merged token. A lookup usually takes one probe.
class MergeTable {
 public:
  struct Rule {
    std::int32_t rank;
    Token merged;
  };

  /// Makes room for `rules` rules. At most this many rules may be added.
  explicit MergeTable(std::size_t rules = 0);

  /// Adds a rule. Its rank is the number of rules before it. Returns false, without a change, when the pair
  /// already has a rule.
  bool add(Token left, Token right, Token merged);

  /// The rule of a pair, or null.
  const Rule* find(Token left, Token right) const;

  /// Merges the pair of the lowest rank, again and again, until no pair has a rule. Among pairs of equal rank
  /// the leftmost one is merged first. Works in place in O(n log n).
  void merge(std::vector<Token>& symbols) const;

 private:
  struct Slot {
    std::uint64_t pair;
    Rule rule;
  };
  std::size_t slot_of(std::uint64_t pair) const;

  std::vector<Slot> slots_;  // the size is a power of two; at most half of the slots are used
  std::int32_t rules_ = 0;
};

}  // namespace speclab
