#include <algorithm>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/model/text/tokenizer_split.h"
#include "core/model/text/unicode/unicode.h"
#include "core/model/text/unicode/unicode_normal_form.h"

namespace speclab {
namespace {

// The sets in DeepSeek's expressions: ranges and single code points. They are escaped because an editor that
// normalises would change some of them (U+2126, U+1FBE).
constexpr std::string_view kLetterSet =
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF"
    "\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5"
    "\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA"
    "\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45"
    "\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE"
    "\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC"
    "\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3"
    "\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06"
    "\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF"
    "\U0001E900-\U0001E943";
constexpr std::string_view kSymbolSet = "!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002";
constexpr std::string_view kEastAsianSet = "\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF";
constexpr std::string_view kHanAndKanaSet = "\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF";

struct CharacterRange {
  char32_t first, last;
};

std::vector<CharacterRange> parse_set(std::string_view text) {
  std::vector<char32_t> code_points;
  for (std::size_t at = 0; at < text.size();) {
    const unicode::Decoded next = unicode::decode_one(text.substr(at));
    code_points.push_back(next.code_point);
    at += static_cast<std::size_t>(next.length);
  }
  std::vector<CharacterRange> ranges;
  for (std::size_t i = 0; i < code_points.size(); ++i) {
    const bool pair = i + 2 < code_points.size() && code_points[i + 1] == U'-';
    ranges.push_back({code_points[i], code_points[pair ? i + 2 : i]});
    if (pair) i += 2;
  }
  std::ranges::sort(ranges, {}, &CharacterRange::first);
  return ranges;
}

bool contains(const std::vector<CharacterRange>& ranges, char32_t code_point) {
  const auto above = std::ranges::upper_bound(ranges, code_point, {}, &CharacterRange::first);
  return above != ranges.begin() && code_point <= std::prev(above)->last;
}

/// The pattern in one form: line ends are escaped, and characters are canonically composed. So a pattern is
/// recognised with real or escaped line ends, and with its sets normalised or not.
std::string canonical(std::string_view pattern) {
  std::string text;
  for (const char c : pattern) {
    if (c == '\r') {
      text += "\\r";
    } else if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return unicode::to_nfc(unicode::replace_invalid(text));
}

}  // namespace

const std::vector<SplitPattern>& split_patterns() {
  static const std::string letters = "\\s?[" + std::string(kLetterSet) + "]+";
  static const std::string symbols = "\\s?[" + std::string(kSymbolSet) + "]+";
  static const std::string east_asian = "[" + std::string(kEastAsianSet) + "]+";
  static const std::string han_and_kana = "[" + std::string(kHanAndKanaSet) + "]+";
  static const std::vector<SplitPattern> patterns = {
      {SplitStep::kGpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
      {SplitStep::kGpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
      {SplitStep::kLlama3,
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {SplitStep::kQwen2,
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {SplitStep::kLineEnds, R"([\r\n])"},
      {SplitStep::kDeepSeekLetters, letters},
      {SplitStep::kDeepSeekSymbols, symbols},
      {SplitStep::kTrailingSpaces, R"(\s+$)"},
      {SplitStep::kEastAsian, east_asian},
      {SplitStep::kSpaceLetters, R"(\s?\p{L}+)"},
      {SplitStep::kSpacePunctuation, R"(\s?\p{P}+)"},
      {SplitStep::kThreeNumbers, R"(\p{N}{1,3})"},
      {SplitStep::kHanAndKana, han_and_kana},
      {SplitStep::kDeepSeek3,
       R"RE([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)RE"},
      {SplitStep::kSigns, R"([\p{P}\$\+<=>\^~\|]+)"},
      {SplitStep::kNumbers, R"(\p{N}+)"},
      {SplitStep::kThreeDigits, R"([0-9][0-9][0-9])"},
  };
  return patterns;
}

std::optional<SplitStep> split_step_of(std::string_view pattern) {
  static const std::map<std::string, SplitStep> steps = [] {
    std::map<std::string, SplitStep> all;
    for (const SplitPattern& known : split_patterns()) all.emplace(canonical(known.text), known.step);
    return all;
  }();
  const auto found = steps.find(canonical(pattern));
  return found == steps.end() ? std::nullopt : std::optional(found->second);
}

bool in_split_set(SplitStep step, char32_t code_point) {
  static const std::vector<CharacterRange> letters = parse_set(kLetterSet), symbols = parse_set(kSymbolSet),
                                           east_asian = parse_set(kEastAsianSet),
                                           han_and_kana = parse_set(kHanAndKanaSet);
  switch (step) {
    case SplitStep::kDeepSeekLetters: return contains(letters, code_point);
    case SplitStep::kDeepSeekSymbols: return contains(symbols, code_point);
    case SplitStep::kEastAsian: return contains(east_asian, code_point);
    case SplitStep::kHanAndKana: return contains(han_and_kana, code_point);
    default: SPECLAB_CHECK(false, "step {} has no set", static_cast<int>(step)); return false;
  }
}

}  // namespace speclab
