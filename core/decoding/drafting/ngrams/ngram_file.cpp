#include "core/decoding/drafting/ngrams/ngram_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr TokenFile::Kind kNgramKind{
    {'S', 'P', 'E', 'C', 'N', 'G', 'R', 'M'}, 1, "n-gram model", "speclab ngram build"};

}  // namespace

void NgramFile::Builder::write(const std::filesystem::path& path, int order) const {
  SPECLAB_CHECK(order >= 1 && order <= NgramCounts::kMostOrder, "order {}", order);
  const std::vector<std::uint32_t> positions = sorted_positions(order);
  const TokenSpan tokens = text();
  std::vector<std::vector<Entry>> levels(static_cast<std::size_t>(order) + 2);
  // For Entry::left, which counts the different tokens before an n-gram. met[length][token + 1] is
  // 1 + the index of the latest n-gram of this length (in its level) that was seen after this token; 0: none
  // so far. The entry for token -1 is for n-grams at the start of a document.
  std::vector<std::vector<std::uint32_t>> met(
      static_cast<std::size_t>(order) + 1, std::vector<std::uint32_t>(static_cast<std::size_t>(vocab()) + 1));
  std::uint32_t last = 0;
  bool first = true;
  for (const std::uint32_t at : positions) {
    bool same = !first;
    const Token before = at == 0 ? -1 : tokens[at - 1];
    for (std::size_t length = 1; length <= static_cast<std::size_t>(order); ++length) {
      const Token token = tokens[at + length - 1];
      if (token < 0) break;
      // The end of a document may cut off the n-gram at `last`. Then tokens[last + length - 1] is a separator
      // (-1), which differs from every token.
      same = same && tokens[last + length - 1] == token;
      auto& level = levels[length];
      if (!same)
        level.push_back(
            {static_cast<std::uint32_t>(token), 0, 0, static_cast<std::uint32_t>(levels[length + 1].size())});
      ++level.back().count;
      std::uint32_t& met_by = met[length][static_cast<std::size_t>(before + 1)];
      if (met_by == level.size()) continue;
      met_by = static_cast<std::uint32_t>(level.size());
      ++level.back().left;
    }
    last = at;
    first = false;
  }
  std::vector<std::span<const std::byte>> sections;
  for (std::size_t length = 1; length <= static_cast<std::size_t>(order); ++length)
    sections.push_back(std::as_bytes(std::span(levels[length])));
  TokenFile::write(path, kNgramKind, vocab(), tokenizer(), sections);
}

NgramFile NgramFile::open(const std::filesystem::path& path) {
  return NgramFile(TokenFile::open(path, kNgramKind));
}

NgramFile::NgramFile(TokenFile file) : file_(std::move(file)) {
  for (int length = 1; length <= NgramCounts::kMostOrder; ++length) {
    const auto level = file_.section_of<Entry>(static_cast<std::size_t>(length) - 1);
    // The last sections are empty if all documents are shorter than the order.
    levels_[static_cast<std::size_t>(length)] = level;
    if (!level.empty()) order_ = length;
  }
  if (order_ == 0) file_.refuse("no n-grams", "an n-gram model");
  for (int length = 1; length <= order_; ++length) {
    check(length);
    CountsOfCounts& numbers = of_counts_[static_cast<std::size_t>(length)];
    for (const Entry& entry : levels_[static_cast<std::size_t>(length)]) {
      if (entry.count <= CountsOfCounts::kMost) ++numbers.by_count[entry.count];
      if (entry.left <= CountsOfCounts::kMost) ++numbers.by_left[entry.left];
    }
  }
}

// Checks that indexes stay within the file and that children are sorted, so
// that no file can make a search fail.
void NgramFile::check(int length) const {
  const auto level = levels_[static_cast<std::size_t>(length)];
  const std::size_t below = length < order_ ? levels_[static_cast<std::size_t>(length) + 1].size() : 0;
  std::uint32_t child = 0;
  bool good = !level.empty();
  for (const Entry& entry : level) {
    good = good && entry.token < static_cast<std::uint32_t>(vocab()) && entry.count >= 1 && entry.left >= 1 &&
           entry.first_child >= child && entry.first_child <= below;
    child = entry.first_child;
  }
  good = good && level.front().first_child == 0;
  // Siblings must ascend.
  const auto ascend = [&](std::span<const Entry> siblings) {
    for (std::size_t i = 1; i < siblings.size(); ++i)
      good = good && siblings[i - 1].token < siblings[i].token;
  };
  if (length == 1) ascend(level);
  if (good && length < order_) {
    for (std::uint32_t i = 0; i < level.size(); ++i)
      ascend(children({static_cast<std::uint32_t>(length), i}));
  }
  if (!good) file_.refuse("invalid n-grams", "an n-gram model");
}

std::span<const NgramFile::Entry> NgramFile::children(Node node) const {
  if (node.level == 0) return levels_[1];
  if (node.level >= static_cast<std::uint32_t>(order_)) return {};
  const auto level = levels_[node.level];
  const auto below = levels_[node.level + 1];
  const std::size_t from = level[node.index].first_child;
  const std::size_t until = node.index + 1 < level.size() ? level[node.index + 1].first_child : below.size();
  return below.subspan(from, until - from);
}

NgramFile::Node NgramFile::child(Node node, Token token) const {
  const auto all = children(node);
  const auto found = std::lower_bound(all.begin(), all.end(), token, [](const Entry& entry, Token wanted) {
    return static_cast<Token>(entry.token) < wanted;
  });
  if (found == all.end() || static_cast<Token>(found->token) != token) return kNone;
  const std::span<const Entry> siblings = levels_[node.level + 1];
  return {node.level + 1, static_cast<std::uint32_t>(&*found - siblings.data())};
}

}  // namespace speclab
