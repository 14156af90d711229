#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Merge rules of byte-pair encoding: (left, right) -> rank and merged token. Open addressing, one probe per
/// look-up as a rule.
class MergeTable {
 public:
  struct Rule {
    std::int32_t rank;
    Token merged;
  };

  /// At most `rules` rules will be added.
  explicit MergeTable(std::size_t rules = 0);

  /// Ranks are given by the order of the calls. False when the pair already has a rule (nothing changes).
  bool add(Token left, Token right, Token merged);

  /// Null when the pair is not merged.
  const Rule* find(Token left, Token right) const;

  /// Merges the pair of lowest rank, the leftmost of equals, until no pair has a rule: O(n log n), in place.
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
