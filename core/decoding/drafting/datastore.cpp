#include "core/decoding/drafting/datastore.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr TokenFile::Kind kDatastoreKind{
    {'S', 'P', 'E', 'C', 'D', 'A', 'T', 'A'}, 2, "datastore", "speclab datastore build"};

// Compares the text at `at` with the phrase lexicographically. The text ends with a
// separator, which is less than every token.
int compare(TokenSpan text, std::size_t at, TokenSpan phrase) {
  for (std::size_t i = 0; i < phrase.size(); ++i) {
    const Token token = at + i < text.size() ? text[at + i] : -1;
    if (token != phrase[i]) return token < phrase[i] ? -1 : 1;
  }
  return 0;
}

}  // namespace

void Datastore::Builder::write(const std::filesystem::path& path) const {
  const std::vector<std::uint32_t> suffixes = sorted_positions(kDepth);
  const std::span<const std::byte> sections[] = {std::as_bytes(text()), std::as_bytes(std::span(suffixes))};
  TokenFile::write(path, kDatastoreKind, vocab(), tokenizer(), sections);
}

Datastore Datastore::open(const std::filesystem::path& path) {
  return Datastore(TokenFile::open(path, kDatastoreKind));
}

Datastore::Datastore(TokenFile file)
    : file_(std::move(file)),
      text_(file_.section_of<Token>(0)),
      suffixes_(file_.section_of<std::uint32_t>(1)) {
  const bool tokens_fit = std::all_of(text_.begin(), text_.end(),
                                      [&](Token token) { return token >= -1 && token < file_.vocab(); });
  const bool positions_fit =
      std::all_of(suffixes_.begin(), suffixes_.end(), [&](std::uint32_t at) { return at < text_.size(); });
  if (suffixes_.empty()) file_.refuse("no tokens", "a datastore with text");
  if (!tokens_fit || !positions_fit) file_.refuse("invalid ids or positions", "a datastore");
}

Datastore::Range Datastore::find(TokenSpan phrase) const {
  SPECLAB_CHECK(phrase.size() <= kDepth, "a phrase of {} tokens", phrase.size());
  const auto first =
      std::lower_bound(suffixes_.begin(), suffixes_.end(), phrase,
                       [&](std::uint32_t at, TokenSpan x) { return compare(text_, at, x) < 0; });
  // Most phrases occur only a few times. So the search for the end starts at `first` and doubles its step.
  const auto behind = [&](TokenSpan x, std::uint32_t at) { return compare(text_, at, x) > 0; };
  auto last = first;
  for (std::ptrdiff_t step = 1;; step *= 2) {
    const auto ahead = suffixes_.end() - last > step ? last + step : suffixes_.end();
    if (ahead == suffixes_.end() || behind(phrase, *ahead)) {
      last = std::upper_bound(last, ahead, phrase, behind);
      break;
    }
    last = ahead;
  }
  return {static_cast<std::size_t>(first - suffixes_.begin()),
          static_cast<std::size_t>(last - suffixes_.begin()), static_cast<int>(phrase.size())};
}

Datastore::Range Datastore::find_suffix(TokenSpan text, int shortest, int longest) const {
  // If a phrase occurs, so do its suffixes. Binary search therefore finds the longest that occurs.
  Range best;
  int low = shortest, high = std::min({longest, kDepth, static_cast<int>(text.size())});
  while (low <= high) {
    const int length = best.length == 0 && low == shortest ? low : (low + high + 1) / 2;
    const Range found = find(text.last(static_cast<std::size_t>(length)));
    if (found.size() > 0) {
      best = found;
      low = length + 1;
    } else {
      high = length - 1;
    }
  }
  return best;
}

Token Datastore::token(std::size_t i, int offset) const {
  const std::size_t at = suffixes_[i] + static_cast<std::size_t>(offset);
  return at < text_.size() ? text_[at] : -1;
}

}  // namespace speclab
