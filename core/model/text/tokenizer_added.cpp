#include "core/model/text/tokenizer_added.h"

#include <algorithm>

#include "core/model/text/unicode/unicode.h"

namespace speclab {
namespace {

bool begins_with_word(std::string_view text) {
  return !text.empty() && (unicode::classes_of(unicode::decode_one(text).code_point) & unicode::kWord) != 0;
}

/// Position of the last character of a valid UTF-8 text, which must not be empty.
std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && begins_with_word(text.substr(last_character(text)));
}

/// Number of bytes of white space at the beginning of a valid UTF-8 text.
std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const unicode::Decoded next = unicode::decode_one(text.substr(at));
    if (!unicode::is_space(next.code_point)) break;
    at += static_cast<std::size_t>(next.length);
  }
  return at;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t last = last_character(text.substr(0, end));
    if (!unicode::is_space(unicode::decode_one(text.substr(last)).code_point)) break;
    end = last;
  }
  return text.size() - end;
}

}  // namespace

void AddedTokens::add(std::string_view written, Token token, bool special, Conditions conditions) {
  std::uint32_t node = 0;
  for (const char c : written) {
    const std::uint64_t edge = std::uint64_t{node} << 8 | static_cast<std::uint8_t>(c);
    const auto [found, added] = children_.try_emplace(edge, nodes_);
    if (added) ++nodes_;
    node = found->second;
  }
  if (node != 0) {
    ends_[node] = {token, special, conditions};
    starts_[static_cast<std::uint8_t>(written[0])] = true;
  }
}

std::vector<AddedTokens::Section> AddedTokens::split(std::string_view text, bool parse_special) const {
  std::vector<Section> sections;
  std::size_t plain = 0;  // start of the ordinary text before `at`
  for (std::size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<std::uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    std::uint32_t node = 0;
    std::size_t length = 0;
    const End* longest = nullptr;
    for (std::size_t i = at; i < text.size(); ++i) {
      const auto child = children_.find(std::uint64_t{node} << 8 | static_cast<std::uint8_t>(text[i]));
      if (child == children_.end()) break;
      node = child->second;
      if (const auto end = ends_.find(node); end != ends_.end()) longest = &end->second, length = i + 1 - at;
    }
    if (longest == nullptr) {
      ++at;
      continue;
    }
    const bool stands_alone =
        !longest->conditions.single_word ||
        !(ends_with_word(text.substr(0, at)) || begins_with_word(text.substr(at + length)));
    if ((parse_special || !longest->special) && stands_alone) {
      std::size_t begin = at, end = at + length;
      // White space that the previous token took stays with that token.
      if (longest->conditions.strip_left) begin = std::max(plain, at - trailing_space(text.substr(0, at)));
      if (longest->conditions.strip_right) end += leading_space(text.substr(end));
      if (plain < begin) sections.push_back({text.substr(plain, begin - plain), -1});
      sections.push_back({text.substr(begin, end - begin), longest->token});
      plain = end;
    }
    at += length;
  }
  if (plain < text.size()) sections.push_back({text.substr(plain), -1});
  return sections;
}

}  // namespace speclab
