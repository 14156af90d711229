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
  struct Conditions {
    bool strip_left = false, strip_right = false;  ///< a match takes the white space there with it
    bool single_word =
        false;  ///< no letter, digit or the like (unicode::kWord) stands directly beside a match
  };
  /// Two tokens that are written alike: the later one counts.
  void add(std::string_view written, Token token, bool special, Conditions conditions);

  struct Section {
    std::string_view text;
    Token token;  ///< -1: ordinary text
  };
  /// Covers the text without gaps; the white space that a token strips is part of its section. A match of a
  /// special token counts as ordinary text unless `parse_special`, and so does one that is not a single word
  /// though it must be; tokens that overlap with it are not looked for (as in the reference).
  std::vector<Section> split(std::string_view text, bool parse_special) const;

 private:
  struct End {
    Token token;
    bool special;
    Conditions conditions;
  };
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> node
  std::unordered_map<std::uint32_t, End> ends_;
  std::uint32_t nodes_ = 1;
  bool starts_[256] = {};
};

}  // namespace speclab
