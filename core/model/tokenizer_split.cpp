#include "core/model/tokenizer_split.h"

#include <cstdint>
#include <utility>

#include "core/model/unicode.h"

namespace speclab {
namespace {

using Position = std::size_t;

/// A text as code points; positions below are indices into these arrays.
struct Characters {
  std::vector<char32_t> code_points;
  std::vector<std::uint8_t> classes;
  std::vector<std::size_t> offsets;  // one more than characters

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

/// Finds the end of the word that begins at a position, within a piece that ends at `end`.
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
    // Any one character but a line end may lead a word.
    if (!is_line_end(at) && at + 1 < end_ && is(at + 1, unicode::kLetter))
      return run(at + 1, unicode::kLetter);
    const Position body = text_.code_points[at] == U' ' && at + 1 < end_ ? at + 1 : at;
    if (!is(body, unicode::kSpace | unicode::kLetter | unicode::kNumber)) {
      Position after = symbols(body);
      while (after < end_ && is_line_end(after)) ++after;
      return after;
    }
    // \s*[\r\n]+ reaches to the last line end of the white space.
    const Position after_spaces = run(at, unicode::kSpace);
    for (Position after = after_spaces; after > at; --after) {
      if (is_line_end(after - 1)) return after;
    }
    return spaces(at);
  }

 private:
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

  /// \s+(?!\S)|\s+ : before a word the last space is left to that word, unless it is the only one.
  Position spaces(Position at) const {
    const Position after = run(at, unicode::kSpace);
    return after == end_ || after == at + 1 ? after : after - 1;
  }

  /// 's 't 're 've 'm 'll 'd; `at` itself if there is none. Ignoring case takes in U+017F, which folds to s.
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

using Piece = std::pair<Position, Position>;

void split_piece(SplitStep step, const Characters& text, Piece piece, std::vector<Piece>& out) {
  const auto [begin, end] = piece;
  if (step == SplitStep::kDigits) {
    Position start = begin;
    for (Position at = begin; at < end; ++at) {
      if ((text.classes[at] & unicode::kDigit) == 0) continue;
      if (start < at) out.emplace_back(start, at);
      out.emplace_back(at, at + 1);
      start = at + 1;
    }
    if (start < end) out.emplace_back(start, end);
    return;
  }
  const Scanner scanner(text, end);
  for (Position at = begin; at < end;) {
    const Position after = step == SplitStep::kGpt2     ? scanner.gpt2(at)
                           : step == SplitStep::kLlama3 ? scanner.llama3(at, 3)
                                                        : scanner.llama3(at, 1);
    out.emplace_back(at, after);
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
