#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Largest length of an added token, in bytes.
inline constexpr std::size_t kMaxAddedTokenBytes = 1024;

/// Finds added tokens in a text. It finds the leftmost token first, and at one position the longest. Matches
/// do not overlap. The search walks a byte trie from every position: O(text * longest token), and the longest
/// is at most kMaxAddedTokenBytes.
class AddedTokens {
 public:
  struct Conditions {
    bool strip_left = false, strip_right = false;  ///< a match includes the white space on that side
    bool single_word = false;  ///< no word character (unicode::kWord) may be directly before or after a match
  };
  /// Adds a token. If two tokens are written alike, the later one counts.
  void add(std::string_view written, Token token, bool special, Conditions conditions);

  struct Section {
    std::string_view text;
    Token token;  ///< -1: ordinary text
  };
  /// Divides the text into sections without gaps. White space that a token strips belongs to its section.
  /// Without `parse_special`, a match of a special token is ordinary text. A match that breaks its
  /// single_word condition is ordinary text too. Tokens that overlap with such a match are not searched, as
  /// in `tokenizers`.
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
