#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Finds added tokens in a text: leftmost first, of those the longest, without overlap. A byte trie, walked
/// once from every position: O(text * longest token), and the longest is at most kMaxAddedTokenBytes.
inline constexpr std::size_t kMaxAddedTokenBytes = 1024;

class AddedTokens {
 public:
  /// White space that a match takes with it.
  struct Strip {
    bool left = false, right = false;
  };
  void add(std::string_view written, Token token, bool special, Strip strip);

  struct Section {
    std::string_view text;
    Token token;  ///< -1: ordinary text
  };
  /// Covers the text without gaps; the white space that a token strips is part of its section. A match of a
  /// special token counts as ordinary text unless `parse_special`; tokens that overlap with it are not looked
  /// for (as in the reference).
  std::vector<Section> split(std::string_view text, bool parse_special) const;

 private:
  struct End {
    Token token;
    bool special;
    Strip strip;
  };
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> node
  std::unordered_map<std::uint32_t, End> ends_;
  std::uint32_t nodes_ = 1;
  bool starts_[256] = {};
};

}  // namespace speclab
