#include "core/model/text/unicode/unicode_graphemes.h"

#include <algorithm>
#include <iterator>

namespace speclab::unicode {
namespace {

using enum GraphemeClass;

GraphemeClass grapheme_class(char32_t c) {
  if (c >= 0x20 && c < 0x7F) return kOther;
  if (c == '\r') return kCarriageReturn;
  if (c == '\n') return kLineFeed;
  if (c >= 0x1F1E6 && c <= 0x1F1FF) return kRegional;
  if (c >= 0xAC00 && c <= 0xD7A3) return (c - 0xAC00) % 28 == 0 ? kSyllable : kClosedSyllable;
  const std::span<const ClassRun> runs = grapheme_runs();
  const auto after = std::upper_bound(runs.begin(), runs.end(), c,
                                      [](char32_t value, const ClassRun& run) { return value < run.first; });
  return static_cast<GraphemeClass>(std::prev(after)->classes);
}

bool is_control(GraphemeClass c) { return c == kControl || c == kCarriageReturn || c == kLineFeed; }
bool is_extend(GraphemeClass c) { return c == kExtend || c == kExtendOutsideConjuncts || c == kLinker; }

/// What the rules need to know about the characters that a cluster has so far.
class Cluster {
 public:
  explicit Cluster(GraphemeClass first) { append(first); }

  /// Whether a character of this class belongs to the cluster. GB3 and so on are the numbers of the rules.
  bool joins(GraphemeClass next) const {
    if (last_ == kCarriageReturn && next == kLineFeed) return true;  // GB3
    if (is_control(last_) || is_control(next)) return false;         // GB4, GB5
    if (last_ == kLeading &&
        (next == kLeading || next == kVowel || next == kSyllable || next == kClosedSyllable))
      return true;                                                                                      // GB6
    if ((last_ == kSyllable || last_ == kVowel) && (next == kVowel || next == kTrailing)) return true;  // GB7
    if ((last_ == kClosedSyllable || last_ == kTrailing) && next == kTrailing) return true;             // GB8
    if (is_extend(next) || next == kJoiner || next == kSpacingMark) return true;  // GB9, GB9a
    if (last_ == kPrepend) return true;                                           // GB9b
    if (next == kConsonant) return conjunct_ == 2;                                // GB9c
    if (next == kPictograph) return emoji_ == 2;                                  // GB11
    return next == kRegional && last_ == kRegional && regionals_ % 2 == 1;        // GB12, GB13
  }

  void append(GraphemeClass next) {
    regionals_ = next == kRegional ? regionals_ + 1 : 0;
    if (next == kConsonant) {
      conjunct_ = 1;
    } else if (next == kLinker) {
      conjunct_ = conjunct_ == 0 ? 0 : 2;
    } else if (next != kExtend && next != kJoiner) {
      conjunct_ = 0;
    }
    if (next == kPictograph) {
      emoji_ = 1;
    } else if (next == kJoiner) {
      emoji_ = emoji_ == 1 ? 2 : 0;
    } else if (!is_extend(next) || emoji_ == 2) {
      emoji_ = 0;
    }
    last_ = next;
  }

 private:
  GraphemeClass last_ = kOther;
  int conjunct_ = 0;   // 1: a consonant and marks; 2: the marks include a linker
  int emoji_ = 0;      // 1: a pictograph and marks; 2: the same with a joiner at the end
  int regionals_ = 0;  // number of regional indicators at the end
};

}  // namespace

std::size_t first_grapheme(std::string_view text) {
  Decoded next = decode_one(text);
  Cluster cluster(grapheme_class(next.code_point));
  auto size = static_cast<std::size_t>(next.length);
  for (; size < text.size(); size += static_cast<std::size_t>(next.length)) {
    next = decode_one(text.substr(size));
    const GraphemeClass found = grapheme_class(next.code_point);
    if (!cluster.joins(found)) break;
    cluster.append(found);
  }
  return size;
}

}  // namespace speclab::unicode
