#include "core/spec/datastore.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>

#include "core/base/error.h"
#include "core/base/sha256.h"

namespace speclab {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is mapped as it is");

constexpr std::array<char, 8> kMagic = {'S', 'P', 'E', 'C', 'D', 'A', 'T', 'A'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMostTokens = std::size_t{1} << 31;

struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::int32_t vocab;
  std::uint64_t tokens;
  std::uint64_t suffixes;
  std::array<char, 64> tokenizer;  // hexadecimal, or zeros
  std::array<char, 64> checksum;   // of everything behind the header
};
static_assert(sizeof(Header) == 160);

std::string text_of(const std::array<char, 64>& field) {
  return {field.data(),
          static_cast<std::size_t>(std::find(field.begin(), field.end(), '\0') - field.begin())};
}

// Lexicographic by at most `depth` tokens. The text ends with a separator, below every token.
int compare(TokenSpan text, std::size_t at, TokenSpan phrase) {
  for (std::size_t i = 0; i < phrase.size(); ++i) {
    const Token token = at + i < text.size() ? text[at + i] : -1;
    if (token != phrase[i]) return token < phrase[i] ? -1 : 1;
  }
  return 0;
}

}  // namespace

Datastore::Builder::Builder(int vocab, std::string tokenizer)
    : vocab_(vocab), tokenizer_(std::move(tokenizer)) {
  SPECLAB_CHECK(vocab >= 1 && tokenizer_.size() <= 64, "vocabulary {}, hash of {} digits", vocab,
                tokenizer_.size());
}

void Datastore::Builder::add(TokenSpan document) {
  for (const Token token : document) {
    if (token < 0 || token >= vocab_) {
      throw Error({"datastore", fmt::format("token {}", token), fmt::format("ids from 0 to {}", vocab_ - 1),
                   "Use the tokenizer of the model."});
    }
  }
  if (document.empty()) return;
  text_.insert(text_.end(), document.begin(), document.end());
  text_.push_back(-1);
}

void Datastore::Builder::write(const std::filesystem::path& path) {
  if (text_.empty())
    throw Error({"datastore", "no tokens", "at least one document with text", "Give it some text."});
  if (text_.size() > kMostTokens) {
    throw Error({"datastore", fmt::format("{} tokens", text_.size()), fmt::format("at most {}", kMostTokens),
                 "Build several."});
  }
  // Counting sort by the first token, then each bucket by what follows; equal ones in the order of the text.
  std::vector<std::uint32_t> begins(static_cast<std::size_t>(vocab_) + 1);
  for (const Token token : text_) {
    if (token >= 0) ++begins[static_cast<std::size_t>(token) + 1];
  }
  for (std::size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  std::vector<std::uint32_t> suffixes(begins.back());
  std::vector<std::uint32_t> next(begins.begin(), begins.end() - 1);
  for (std::size_t at = 0; at < text_.size(); ++at) {
    if (text_[at] >= 0)
      suffixes[next[static_cast<std::size_t>(text_[at])]++] = static_cast<std::uint32_t>(at);
  }
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    for (std::size_t i = 1; i < kDepth; ++i) {
      // The text ends with a separator, so neither runs over its end before they differ or meet one.
      const Token x = text_[a + i], y = text_[b + i];
      if (x != y) return x < y;
      if (x < 0) break;
    }
    return a < b;
  };
  for (std::size_t token = 0; token + 1 < begins.size(); ++token)
    std::sort(suffixes.begin() + begins[token], suffixes.begin() + begins[token + 1], before);

  const auto text_bytes = std::as_bytes(std::span(text_)), suffix_bytes = std::as_bytes(std::span(suffixes));
  Sha256 sum;
  sum.update(text_bytes);
  sum.update(suffix_bytes);
  const std::string checksum = sum.hex();
  Header header{kMagic, kVersion, vocab_, text_.size(), suffixes.size(), {}, {}};
  tokenizer_.copy(header.tokenizer.data(), header.tokenizer.size());
  checksum.copy(header.checksum.data(), header.checksum.size());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  out.write(reinterpret_cast<const char*>(text_bytes.data()),
            static_cast<std::streamsize>(text_bytes.size()));
  out.write(reinterpret_cast<const char*>(suffix_bytes.data()),
            static_cast<std::streamsize>(suffix_bytes.size()));
  out.close();
  if (!out)
    throw Error(
        {path.string(), "it cannot be written", "room for the datastore", "Check the path and the space."});
}

Datastore Datastore::open(const std::filesystem::path& path) {
  Datastore store(MappedFile::open(path));
  const std::span<const std::byte> bytes = store.file_.bytes();
  const auto refuse = [&](std::string got, std::string expected) {
    throw Error(
        {path.string(), std::move(got), std::move(expected), "Build it again: speclab datastore build."});
  };
  Header header;
  if (bytes.size() < sizeof header) refuse(fmt::format("{} bytes", bytes.size()), "a datastore");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic) refuse("a file of another kind", "a datastore");
  if (header.version != kVersion)
    refuse(fmt::format("version {}", header.version), fmt::format("version {}", kVersion));
  if (header.vocab < 1 || header.tokens < 1 || header.tokens > kMostTokens ||
      header.suffixes > header.tokens ||
      bytes.size() != sizeof header + 4 * (header.tokens + header.suffixes)) {
    refuse(
        fmt::format("{} bytes for {} tokens and {} positions", bytes.size(), header.tokens, header.suffixes),
        "a whole datastore");
  }
  if (header.suffixes == 0) refuse("no tokens", "a datastore with text");
  if (sha256_hex(bytes.subspan(sizeof header)) != text_of(header.checksum))
    refuse("contents that differ from their checksum", "an undamaged datastore");
  // The header is a multiple of four bytes, the mapping begins on a page.
  const auto* data = bytes.data() + sizeof header;
  store.text_ = {reinterpret_cast<const Token*>(data), header.tokens};
  store.suffixes_ = {reinterpret_cast<const std::uint32_t*>(data + 4 * header.tokens), header.suffixes};
  store.vocab_ = header.vocab;
  store.tokenizer_ = text_of(header.tokenizer);
  const bool tokens_fit = std::all_of(store.text_.begin(), store.text_.end(),
                                      [&](Token token) { return token >= -1 && token < header.vocab; });
  const bool positions_fit = std::all_of(store.suffixes_.begin(), store.suffixes_.end(),
                                         [&](std::uint32_t at) { return at < header.tokens; });
  if (!tokens_fit || !positions_fit) refuse("ids or positions that are none", "a datastore");
  return store;
}

void Datastore::require(int vocab, const std::string& tokenizer) const {
  if (vocab_ != vocab) {
    throw Error({file_.path().string(), fmt::format("a vocabulary of {} tokens", vocab_),
                 fmt::format("the {} tokens of the target", vocab), "Build it with the target's tokenizer."});
  }
  if (tokenizer_ != tokenizer) {
    throw Error({file_.path().string(), "ids of another tokenizer", "the target's tokenizer",
                 "Build it with the target's tokenizer."});
  }
}

Datastore::Range Datastore::find(TokenSpan phrase) const {
  SPECLAB_CHECK(phrase.size() <= kDepth, "a phrase of {} tokens", phrase.size());
  const auto first =
      std::lower_bound(suffixes_.begin(), suffixes_.end(), phrase,
                       [&](std::uint32_t at, TokenSpan x) { return compare(text_, at, x) < 0; });
  // Few occurrences are the rule: their end is looked for in steps that double.
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

Datastore::Range Datastore::find_ending(TokenSpan text, int shortest, int longest) const {
  // Where a phrase occurs its endings do too: the longest that occurs is found by halving.
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
