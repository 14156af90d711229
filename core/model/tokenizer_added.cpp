#include "core/model/tokenizer_added.h"

namespace speclab {

void AddedTokens::add(std::string_view written, Token token, bool special) {
  std::uint32_t node = 0;
  for (const char c : written) {
    const std::uint64_t edge = std::uint64_t{node} << 8 | static_cast<std::uint8_t>(c);
    const auto [found, added] = children_.try_emplace(edge, nodes_);
    if (added) ++nodes_;
    node = found->second;
  }
  if (node != 0) {
    ends_[node] = {token, special};
    starts_[static_cast<std::uint8_t>(written[0])] = true;
  }
}

std::vector<AddedTokens::Section> AddedTokens::split(std::string_view text, bool parse_special) const {
  std::vector<Section> sections;
  std::size_t plain = 0;  // where the ordinary text before `at` begins
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
    if (parse_special || !longest->special) {
      if (plain < at) sections.push_back({text.substr(plain, at - plain), -1});
      sections.push_back({text.substr(at, length), longest->token});
      plain = at + length;
    }
    at += length;
  }
  if (plain < text.size()) sections.push_back({text.substr(plain), -1});
  return sections;
}

}  // namespace speclab
