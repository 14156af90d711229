#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// Makes small character maps for tests of core/model/text/character_map.h.
namespace speclab::fixtures {

using Replacements = std::vector<std::pair<std::string, std::string>>;

/// Writes a character map: a double array in the layout of darts-clone, filled by first fit, and the
/// replacement texts.
class CharacterMapWriter {
 public:
  explicit CharacterMapWriter(const Replacements& replacements) {
    Node trie;
    for (const auto& [key, text] : replacements) {
      Node* node = &trie;
      for (const char c : key) node = &node->children[static_cast<std::uint8_t>(c)];
      node->value = static_cast<std::int64_t>(texts_.size());
      texts_ += text + '\0';
    }
    units_[0] = 0;
    place(trie, 0);
  }

  std::string bytes() const {
    const std::uint32_t count = (units_.rbegin()->first | 255u) + 1;
    std::string out = number(4 * count);
    for (std::uint32_t i = 0; i < count; ++i) out += number(units_.contains(i) ? units_.at(i) : 0);
    return out + texts_;
  }

 private:
  struct Node {
    std::map<std::uint8_t, Node> children;
    std::int64_t value = -1;
  };

  static std::string number(std::uint32_t value) {
    std::string out;
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xFF);
    return out;
  }

  bool fits(const Node& node, std::uint32_t base) const {
    if (bases_.contains(base) || (node.value >= 0 && units_.contains(base))) return false;
    for (const auto& [label, child] : node.children) {
      if (units_.contains(base ^ label)) return false;
    }
    return true;
  }

  void place(const Node& node, std::uint32_t index) {
    std::uint32_t base = 0;
    while (!fits(node, base)) ++base;
    bases_.insert(base);
    units_[index] |= (base ^ index) << 10;
    if (node.value >= 0) {
      units_[index] |= 1u << 8;
      units_[base] = 1u << 31 | static_cast<std::uint32_t>(node.value);
    }
    for (const auto& [label, child] : node.children) units_[base ^ label] = label;
    for (const auto& [label, child] : node.children) place(child, base ^ label);
  }

  std::map<std::uint32_t, std::uint32_t> units_;
  std::set<std::uint32_t> bases_;
  std::string texts_;
};

inline std::string character_map(const Replacements& replacements) {
  return CharacterMapWriter(replacements).bytes();
}

inline std::string base64(const std::string& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = at; i < at + 3; ++i)
      bits = bits << 8 | (i < bytes.size() ? static_cast<std::uint8_t>(bytes[i]) : 0u);
    for (const int shift : {18, 12, 6, 0}) out += kDigits[bits >> shift & 63];
  }
  for (std::size_t i = 0; i < (3 - bytes.size() % 3) % 3; ++i) out[out.size() - 1 - i] = '=';
  return out;
}

}  // namespace speclab::fixtures
