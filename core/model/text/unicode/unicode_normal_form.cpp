#include "core/model/text/unicode/unicode_normal_form.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "core/model/text/unicode/unicode.h"

namespace speclab::unicode {
namespace {

// Hangul syllables, Unicode 16, 3.12.
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTrailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

struct Character {
  char32_t code_point;
  std::uint8_t combining_class;
};

std::uint8_t combining_class(char32_t code_point) {
  const auto runs = combining_runs();
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), code_point,
                       [](char32_t value, const CombiningRun& run) { return value < run.first; });
  return std::prev(after)->combining_class;
}

void append_decomposed(char32_t c, std::vector<Character>& out) {
  const auto put = [&](char32_t part) { out.push_back({part, combining_class(part)}); };
  if (c >= kSyllables && c < kSyllables + kSyllableCount) {
    const char32_t index = c - kSyllables;
    put(kLeads + index / (kVowelCount * kTrailCount));
    put(kVowels + index / kTrailCount % kVowelCount);
    if (index % kTrailCount != 0) put(kTrails + index % kTrailCount);
    return;
  }
  const auto table = decompositions();
  const auto found = std::ranges::lower_bound(table, c, {}, &Decomposition::code_point);
  if (found == table.end() || found->code_point != c) return put(c);
  for (const char32_t part : found->parts) {
    if (part != 0) put(part);
  }
}

std::uint64_t pair_of(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

/// (first, second) -> composed. For a longer decomposition `first` is itself
/// composed of all parts except the last.
const std::unordered_map<std::uint64_t, char32_t>& compositions() {
  static const auto map = [] {
    std::unordered_map<std::uint64_t, char32_t> pairs;
    for (int length = 2; length <= 4; ++length) {
      for (const Decomposition& entry : decompositions()) {
        const auto parts_end = std::find(std::begin(entry.parts), std::end(entry.parts), U'\0');
        if (!entry.composes || parts_end - std::begin(entry.parts) != length) continue;
        char32_t head = entry.parts[0];
        for (int i = 1; i + 1 < length; ++i) head = pairs.at(pair_of(head, entry.parts[i]));
        pairs.emplace(pair_of(head, entry.parts[length - 1]), entry.code_point);
      }
    }
    return pairs;
  }();
  return map;
}

/// Composes two code points; 0 when they do not compose.
char32_t compose(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels && second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTrailCount;
  }
  const bool open_syllable =
      first >= kSyllables && first < kSyllables + kSyllableCount && (first - kSyllables) % kTrailCount == 0;
  if (open_syllable && second > kTrails && second < kTrails + kTrailCount) return first + (second - kTrails);
  const auto found = compositions().find(pair_of(first, second));
  return found == compositions().end() ? 0 : found->second;
}

}  // namespace

std::string to_nfc(std::string_view text) {
  // No code point below U+0300 combines with the one before it, so a text of these is already in NFC.
  if (std::ranges::all_of(text, [](char c) { return static_cast<std::uint8_t>(c) < 0xCC; }))
    return std::string(text);
  std::vector<Character> characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Decoded next = decode_one(text.substr(at));
    append_decomposed(next.code_point, characters);
    at += next.length;
  }
  const auto is_starter = [](const Character& c) { return c.combining_class == 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if_not(begin, characters.end(), is_starter);
    const auto end = std::find_if(begin, characters.end(), is_starter);
    std::stable_sort(begin, end, [](const Character& a, const Character& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end;
  }
  std::vector<Character> composed;
  std::ptrdiff_t starter = -1;  // index in `composed` of the last starter
  for (const Character& c : characters) {
    if (starter >= 0) {
      // c cannot be composed with the starter if a code point of the same or a higher class, or another
      // starter, lies between them.
      const bool adjacent = starter + 1 == static_cast<std::ptrdiff_t>(composed.size());
      if (adjacent || composed.back().combining_class < c.combining_class) {
        if (const char32_t both = compose(composed[starter].code_point, c.code_point); both != 0) {
          composed[starter].code_point = both;
          continue;
        }
      }
    }
    if (is_starter(c)) starter = static_cast<std::ptrdiff_t>(composed.size());
    composed.push_back(c);
  }
  std::string out;
  out.reserve(text.size());
  for (const Character& c : composed) append_utf8(out, c.code_point);
  return out;
}

}  // namespace speclab::unicode
