#pragma once

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/sha256.h"
#include "core/model/text/tokenizer.h"
#include "core/model/text/unicode/unicode.h"

/// Shared by the tests of tokenizers. The tests make the same strings from
/// tests/golden/tokenizer/generator.json as scripts/oracle/tokenizer.py, and compare a hash of the ids of
/// each string with the committed one.
namespace speclab::golden {

using Json = nlohmann::json;
namespace fs = std::filesystem;

inline const fs::path kSource = SPECLAB_SOURCE_DIR;
inline const fs::path kGolden = kSource / "tests/golden/tokenizer";

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// SplitMix64 (Steele, Lea, Flood 2014), seeded by the index of the string.
class Random {
 public:
  explicit Random(std::uint64_t index) : state_((index + 1) * 0xD1342543DE82EF95u) {}
  std::uint64_t below(std::uint64_t n) {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % n;
  }

 private:
  std::uint64_t state_;
};

/// Makes string i from 1 to 12 pieces. About half of them are of the kind i % 8, the others of any kind. Some
/// have a space between them.
class Generator {
 public:
  Generator() {
    const Json parts = Json::parse(read_file(kGolden / "generator.json"));
    ranges_ = parts["ranges"].get<std::vector<std::pair<char32_t, char32_t>>>();
    for (int kind = 0; kind < 8; ++kind) {
      if (kind == kRanges) continue;
      atoms_[kind] = parts[kKinds[kind]].get<std::vector<std::string>>();
      if (kind == kBytes) std::ranges::transform(atoms_[kind], atoms_[kind].begin(), from_hex);
    }
  }

  std::string text(std::uint64_t index) const {
    Random random(index);
    std::string out;
    const std::uint64_t pieces = 1 + random.below(12);
    for (std::uint64_t piece = 0; piece < pieces; ++piece) {
      const int kind = static_cast<int>(random.below(2) == 0 ? index % 8 : random.below(8));
      if (kind == kRanges) {
        const auto [first, last] = ranges_[random.below(ranges_.size())];
        for (std::uint64_t left = 1 + random.below(8); left > 0; --left) {
          unicode::append_utf8(out, first + static_cast<char32_t>(random.below(last - first + 1)));
        }
      } else {
        const bool once = kind == kWords || kind == kSpecial;
        for (std::uint64_t left = once ? 1 : 1 + random.below(4); left > 0; --left) {
          out += atoms_[kind][random.below(atoms_[kind].size())];
        }
      }
      if (random.below(2) == 0) out += ' ';
    }
    return out;
  }

 private:
  static constexpr const char* kKinds[] = {"words",   "ranges", "spaces", "code",
                                           "numbers", "marks",  "bytes",  "special"};
  static constexpr int kWords = 0, kRanges = 1, kBytes = 6, kSpecial = 7;

  static std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
  }

  std::vector<std::pair<char32_t, char32_t>> ranges_;
  std::vector<std::string> atoms_[8];
};

/// A text with 64 code points. Each stands between a letter and a space, between a space and a digit, and
/// between a quote and a line end.
inline std::string code_point_text(char32_t first) {
  std::string out;
  for (char32_t c = first; c < first + 64; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string character;
    unicode::append_utf8(character, c);
    out += "a" + character + " " + character + "1'" + character + "\n";
  }
  return out;
}

/// FNV-1a over the ids as four little-endian bytes.
constexpr std::uint64_t kFnvStart = 0xCBF29CE484222325u;
template <typename Range>
std::uint64_t fnv(const Range& ids, std::uint64_t state = kFnvStart) {
  for (const auto id : ids) {
    for (int byte = 0; byte < 4; ++byte) {
      state = (state ^ (static_cast<std::uint32_t>(id) >> 8 * byte & 0xFF)) * 0x100000001B3u;
    }
  }
  return state;
}

inline std::string shortened(std::uint64_t state) {
  return fmt::format("{:06x}", (state ^ state >> 24 ^ state >> 48) & 0xFFFFFF);
}

/// Six hexadecimal digits of SHA-256 over the ids as four little-endian bytes.
inline std::string digest(const std::vector<Token>& ids) {
  return sha256_hex(std::as_bytes(std::span(ids))).substr(0, 6);
}

inline std::vector<std::string> unpack(const Json& lines) {
  std::vector<std::string> hashes;
  for (const Json& line : lines) {
    std::istringstream words(line.get<std::string>());
    for (std::string hash; words >> hash;) hashes.push_back(hash);
  }
  return hashes;
}

inline std::string escaped(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text += c >= ' ' && c <= '~' ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<std::uint8_t>(c));
  }
  return text;
}

/// Counts mismatches and shows the first few.
class Tally {
 public:
  void compare(const std::string& got, const std::string& want,
               const std::function<std::string()>& describe) {
    ++compared_;
    if (got == want) return;
    if (++wrong_ <= 5) ADD_FAILURE() << describe();
  }
  ~Tally() {
    EXPECT_EQ(wrong_, 0) << "of " << compared_;
    EXPECT_GT(compared_, 0);
  }

 private:
  int compared_ = 0, wrong_ = 0;
};

inline std::string joined(const std::vector<Token>& ids) { return fmt::format("{}", fmt::join(ids, " ")); }

/// Expects the committed ids. If `parse_special`, special tokens are parsed in every second string.
inline void expect_same_ids(const Tokenizer& tokenizer, const Json& section, bool parse_special = true) {
  static const Generator generator;
  const std::string name = section["pre_tokenizer"];
  const bool sha256 = section.contains("hash");
  {
    Tally tally;
    const std::vector<std::string> hashes = unpack(section["strings"]);
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      const std::string text = generator.text(i);
      const std::vector<Token> ids = tokenizer.encode(text, parse_special && i % 2 == 1);
      tally.compare(sha256 ? digest(ids) : shortened(fnv(ids)), hashes[i], [&] {
        return fmt::format("{}, string {}: \"{}\" gave {}", name, i, escaped(text), joined(ids));
      });
    }
  }
  if (!section.contains("code_points")) return;
  Tally tally;
  const std::vector<std::string> hashes = unpack(section["code_points"]);
  ASSERT_EQ(hashes.size(), sha256 ? 0x40u : 0x110u);
  for (std::size_t block = 0; block < hashes.size(); ++block) {
    std::vector<Token> ids;
    for (char32_t i = 0; i < 4096; i += 64) {
      const std::vector<Token> more =
          tokenizer.encode(code_point_text(static_cast<char32_t>(block) * 4096 + i));
      ids.insert(ids.end(), more.begin(), more.end());
    }
    tally.compare(sha256 ? digest(ids) : shortened(fnv(ids)), hashes[block],
                  [&] { return fmt::format("{}, code points from {:X}", name, block * 4096); });
  }
}

/// The text that a stream decoder prints for the ids in this order.
inline std::string streamed(const Tokenizer& tokenizer, TokenSpan ids, bool skip_special) {
  StreamDecoder stream(tokenizer, skip_special);
  std::string text;
  for (const Token id : ids) {
    const std::string part = stream.push(id);
    EXPECT_EQ(part, unicode::replace_invalid(part));
    text += part;
  }
  return text + stream.finish();
}

inline void expect_same_text(const Tokenizer& tokenizer, const Json& section) {
  for (const bool skip_special : {false, true}) {
    Tally tally;
    const std::vector<std::string> hashes = unpack(section[skip_special ? "without_special" : "whole"]);
    const std::uint64_t size = tokenizer.vocab_size();
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      Random random(1'000'000 + i);
      std::vector<Token> ids;
      for (std::uint64_t left = 1 + random.below(24); left > 0; --left) {
        const std::uint64_t range = random.below(8) != 0 ? size : std::min<std::uint64_t>(size, 24);
        const auto id = static_cast<Token>(random.below(range));
        if (!tokenizer.spelling(id).starts_with("<0x")) ids.push_back(id);
      }
      const std::string text = unicode::replace_invalid(tokenizer.decode(ids, skip_special));
      std::vector<std::uint8_t> bytes(text.begin(), text.end());
      tally.compare(shortened(fnv(bytes)), hashes[i],
                    [&] { return fmt::format("ids {} gave \"{}\"", joined(ids), escaped(text)); });
      EXPECT_EQ(streamed(tokenizer, ids, skip_special), text);
    }
  }
}

}  // namespace speclab::golden
