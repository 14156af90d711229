#include "core/model/text/tokenizer_split.h"

#include <cstdint>
#include <utility>

#include "core/base/error.h"
#include "core/model/text/unicode/unicode.h"

namespace speclab {
namespace {

using Position = std::size_t;

/// A text as code points. Positions are indices into these arrays.
struct Characters {
  std::vector<char32_t> code_points;
  std::vector<std::uint8_t> classes;
  std::vector<std::size_t> offsets;  // one more entry than characters

  explicit Characters(std::string_view text) {
    code_points.reserve(text.size()), classes.reserve(text.size()), offsets.reserve(text.size() + 1);
    for (std::size_t at = 0; at < text.size();) {
      const unicode::Decoded next = unicode::decode_one(text.substr(at));
      code_points.push_back(next.code_point);
      classes.push_back(unicode::classes_of(next.code_point));
      offsets.push_back(at);
      at += next.length;
    }
    offsets.push_back(text.size());
  }
};

using Piece = std::pair<Position, Position>;

/// Finds words within a piece that ends at `end`. gpt2(), llama3() and deepseek3() return the end of the word
/// that begins at a position. The functions next_...() return the next word from a position on, or an empty
/// word at the end if there is none.
class Scanner {
 public:
  Scanner(const Characters& text, Position end) : text_(text), end_(end) {}

  Position gpt2(Position at) const {
    if (const Position after = contraction(at, false); after != at) return after;
    const Position body = text_.code_points[at] == U' ' && at + 1 < end_ ? at + 1 : at;
    if (is(body, unicode::kLetter)) return run(body, unicode::kLetter);
    if (is(body, unicode::kNumber)) return run(body, unicode::kNumber);
    if (!is(body, unicode::kSpace)) return symbols(body);
    return spaces(at);
  }

  Position llama3(Position at, int most_numbers) const {
    if (const Position after = contraction(at, true); after != at) return after;
    if (is(at, unicode::kLetter)) return run(at, unicode::kLetter);
    if (is(at, unicode::kNumber)) {
      Position after = at + 1;
      while (after < end_ && after - at < static_cast<Position>(most_numbers) && is(after, unicode::kNumber))
        ++after;
      return after;
    }
    // Any single character except a line end may begin a word.
    if (!is_line_end(at) && at + 1 < end_ && is(at + 1, unicode::kLetter))
      return run(at + 1, unicode::kLetter);
    const Position body = text_.code_points[at] == U' ' && at + 1 < end_ ? at + 1 : at;
    if (!is(body, unicode::kSpace | unicode::kLetter | unicode::kNumber)) {
      Position after = symbols(body);
      while (after < end_ && is_line_end(after)) ++after;
      return after;
    }
    return lines_or_spaces(at);
  }

  /// Matches [C]+, or \s?[C]+ if `after_space`. C is the set that `in_set` describes.
  template <typename Contains>
  Piece next_run(Position at, bool after_space, Contains in_set) const {
    for (; at < end_; ++at) {
      const Position body =
          after_space && is(at, unicode::kSpace) && at + 1 < end_ && in_set(at + 1) ? at + 1 : at;
      if (!in_set(body)) continue;
      Position after = body + 1;
      while (after < end_ && in_set(after)) ++after;
      return {at, after};
    }
    return {end_, end_};
  }

  Piece next_numbers(Position at, Position most) const {
    while (at < end_ && !is(at, unicode::kNumber)) ++at;
    Position after = at;
    while (after < end_ && after - at < most && is(after, unicode::kNumber)) ++after;
    return {at, after};
  }

  /// [0-9][0-9][0-9]
  Piece next_three_digits(Position at) const {
    for (Position digits = 0; at < end_; ++at) {
      const char32_t c = text_.code_points[at];
      digits = c >= U'0' && c <= U'9' ? digits + 1 : 0;
      if (digits == 3) return {at - 2, at + 1};
    }
    return {end_, end_};
  }

  Piece next_digit(Position at) const {
    while (at < end_ && !is(at, unicode::kDigit)) ++at;
    return {at, at < end_ ? at + 1 : at};
  }

  Piece next_line_end(Position at) const {
    while (at < end_ && !is_line_end(at)) ++at;
    return {at, at < end_ ? at + 1 : at};
  }

  /// \s+$. As in Ruby, $ matches at the end and directly before each U+000A. So a run of white space at the
  /// end of the piece matches as a whole. Of any other run, the part before its last U+000A matches.
  Piece next_trailing_spaces(Position at) const {
    while (at < end_) {
      if (!is(at, unicode::kSpace)) {
        ++at;
        continue;
      }
      const Position after = run(at, unicode::kSpace);
      if (after == end_) return {at, after};
      for (Position before = after - 1; before > at; --before) {
        if (text_.code_points[before] == U'\n') return {at, before};
      }
      at = after;
    }
    return {end_, end_};
  }

  Piece next_deepseek3(Position at) const {
    for (; at < end_; ++at) {
      if (const Position after = deepseek3(at); after != at) return {at, after};
    }
    return {end_, end_};
  }

 private:
  /// The end of the word that begins at a position; the position itself if none begins there.
  Position deepseek3(Position at) const {
    constexpr int kWord = unicode::kLetter | unicode::kMark, kSign = unicode::kPunctuation | unicode::kSymbol;
    if (is_ascii_sign(at) && at + 1 < end_ && is_ascii_letter(at + 1)) {
      Position after = at + 2;
      while (after < end_ && is_ascii_letter(after)) ++after;
      return after;
    }
    const bool may_lead = !is_line_end(at) && !is(at, unicode::kLetter | kSign);
    if (may_lead && at + 1 < end_ && is(at + 1, kWord)) return run(at + 1, kWord);
    if (is(at, kWord)) return run(at, kWord);
    const Position body = text_.code_points[at] == U' ' && at + 1 < end_ ? at + 1 : at;
    if (is(body, kSign)) {
      Position after = run(body, kSign);
      while (after < end_ && is_line_end(after)) ++after;
      return after;
    }
    return is(at, unicode::kSpace) ? lines_or_spaces(at) : at;
  }

  bool is_ascii_letter(Position at) const {
    const char32_t c = text_.code_points[at] | 0x20;
    return c >= U'a' && c <= U'z';
  }
  bool is_ascii_sign(Position at) const {
    const char32_t c = text_.code_points[at];
    return c > 0x20 && c < 0x7F && !is_ascii_letter(at) && !(c >= U'0' && c <= U'9');
  }

  /// \s*[\r\n]+|\s+(?!\S)|\s+ : the first alternative reaches to the last line end of the white space.
  Position lines_or_spaces(Position at) const {
    for (Position after = run(at, unicode::kSpace); after > at; --after) {
      if (is_line_end(after - 1)) return after;
    }
    return spaces(at);
  }

  bool is(Position at, int classes) const { return (text_.classes[at] & classes) != 0; }
  bool is_line_end(Position at) const {
    return text_.code_points[at] == U'\n' || text_.code_points[at] == U'\r';
  }

  Position run(Position at, int classes) const {
    while (at < end_ && is(at, classes)) ++at;
    return at;
  }

  Position symbols(Position at) const {
    while (at < end_ && !is(at, unicode::kSpace | unicode::kLetter | unicode::kNumber)) ++at;
    return at;
  }

  /// \s+(?!\S)|\s+ : of several white-space characters before a word, the last one is left for the word; a
  /// single one is the match. (gpt2() has already taken a single U+0020 before a word.)
  Position spaces(Position at) const {
    const Position after = run(at, unicode::kSpace);
    return after == end_ || after == at + 1 ? after : after - 1;
  }

  /// The end of 's 't 're 've 'm 'll 'd, or `at` if there is none. Ignoring case
  /// includes U+017F, which folds to s.
  Position contraction(Position at, bool ignore_case) const {
    if (text_.code_points[at] != U'\'' || at + 1 == end_) return at;
    const auto letter = [&](Position i) -> char32_t {
      const char32_t c = text_.code_points[i];
      if (!ignore_case) return c;
      return c == 0x17F ? U's' : c >= U'A' && c <= U'Z' ? c + 32 : c;
    };
    const char32_t first = letter(at + 1);
    if (first == U's' || first == U't' || first == U'm' || first == U'd') return at + 2;
    if (at + 2 == end_) return at;
    const char32_t second = letter(at + 2);
    const bool two = (first == U'r' && second == U'e') || (first == U'v' && second == U'e') ||
                     (first == U'l' && second == U'l');
    return two ? at + 3 : at;
  }

  const Characters& text_;
  Position end_;
};

Piece next_word(SplitStep step, const Characters& text, const Scanner& scanner, Position at) {
  const auto of_class = [&](int classes) {
    return [&text, classes](Position i) { return (text.classes[i] & classes) != 0; };
  };
  const auto of_set = [&](Position i) { return in_split_set(step, text.code_points[i]); };
  switch (step) {
    case SplitStep::kDigits: return scanner.next_digit(at);
    case SplitStep::kGpt2: return {at, scanner.gpt2(at)};
    case SplitStep::kLlama3: return {at, scanner.llama3(at, 3)};
    case SplitStep::kQwen2: return {at, scanner.llama3(at, 1)};
    case SplitStep::kLineEnds: return scanner.next_line_end(at);
    case SplitStep::kDeepSeekLetters:
    case SplitStep::kDeepSeekSymbols: return scanner.next_run(at, true, of_set);
    case SplitStep::kEastAsian:
    case SplitStep::kHanAndKana: return scanner.next_run(at, false, of_set);
    case SplitStep::kTrailingSpaces: return scanner.next_trailing_spaces(at);
    case SplitStep::kSpaceLetters: return scanner.next_run(at, true, of_class(unicode::kLetter));
    case SplitStep::kSpacePunctuation: return scanner.next_run(at, true, of_class(unicode::kPunctuation));
    case SplitStep::kThreeNumbers: return scanner.next_numbers(at, 3);
    case SplitStep::kDeepSeek3: return scanner.next_deepseek3(at);
    case SplitStep::kSigns:
      return scanner.next_run(at, false, [&](Position i) {
        constexpr std::u32string_view kMore = U"$+<=>^~|";
        return (text.classes[i] & unicode::kPunctuation) != 0 ||
               kMore.find(text.code_points[i]) != kMore.npos;
      });
    case SplitStep::kNumbers: return scanner.next_run(at, false, of_class(unicode::kNumber));
    case SplitStep::kThreeDigits: return scanner.next_three_digits(at);
  }
  SPECLAB_CHECK(false, "step {}", static_cast<int>(step));
  return {};
}

void split_piece(SplitStep step, const Characters& text, Piece piece, std::vector<Piece>& out) {
  const auto [begin, end] = piece;
  const Scanner scanner(text, end);
  for (Position at = begin; at < end;) {
    const auto [first, after] = next_word(step, text, scanner, at);
    if (at < first) out.emplace_back(at, first);
    if (first < after) out.emplace_back(first, after);
    at = after;
  }
}

}  // namespace

std::vector<std::string_view> split_words(const std::vector<SplitStep>& steps, std::string_view text) {
  if (text.empty()) return {};
  if (steps.empty()) return {text};
  const Characters characters(text);
  std::vector<Piece> pieces = {{0, characters.code_points.size()}};
  for (const SplitStep step : steps) {
    std::vector<Piece> finer;
    for (const Piece& piece : pieces) split_piece(step, characters, piece, finer);
    pieces = std::move(finer);
  }
  std::vector<std::string_view> words;
  words.reserve(pieces.size());
  for (const auto& [begin, end] : pieces) {
    const std::size_t first = characters.offsets[begin];
    words.push_back(text.substr(first, characters.offsets[end] - first));
  }
  return words;
}

}  // namespace speclab
