#include "core/decoding/drafting/ngrams/ngram_counts.h"

#include <algorithm>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::size_t kSmallestTable = 64;

}  // namespace

NgramCounts::NgramCounts(int vocab, int order) : vocab_(vocab), order_(order) {
  SPECLAB_CHECK(vocab >= 1 && order >= 1 && order <= kMostOrder, "vocabulary {}, order {}", vocab, order);
  clear();
}

void NgramCounts::reserve(std::size_t tokens) {
  const std::size_t nodes = tokens * static_cast<std::size_t>(order_) + 1;
  nodes_.reserve(nodes);
  std::size_t slots = kSmallestTable;
  while (slots * 3 / 4 < nodes) slots *= 2;
  if (slots > table_.size()) resize_table(slots);
}

void NgramCounts::clear() {
  nodes_.assign(1, {kNone, -1, 0, 0, kNone, kNone});
  if (table_.empty()) table_.resize(kSmallestTable);
  std::fill(table_.begin(), table_.end(), kNone);
  of_counts_.fill({});
  tokens_ = 0;
  begin_document();
}

void NgramCounts::begin_document() {
  ending_.fill(kRoot);
  in_document_ = 0;
}

// Returns the table slot of the child, or the free slot where it would go.
std::size_t NgramCounts::slot(Node parent, Token token) const {
  const std::uint64_t key = (std::uint64_t{parent} << 32) | static_cast<std::uint32_t>(token);
  const std::size_t mask = table_.size() - 1;
  std::size_t at = static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> 29) & mask;
  for (; table_[at] != kNone; at = (at + 1) & mask) {
    const Entry& entry = nodes_[table_[at]];
    if (entry.parent == parent && entry.token == token) break;
  }
  return at;
}

NgramCounts::Node NgramCounts::child(Node node, Token token) const { return table_[slot(node, token)]; }

void NgramCounts::resize_table(std::size_t slots) {
  table_.assign(slots, kNone);
  for (Node node = 1; node < nodes_.size(); ++node)
    table_[slot(nodes_[node].parent, nodes_[node].token)] = node;
}

NgramCounts::Node NgramCounts::add(Node parent, Token token) {
  SPECLAB_CHECK(nodes_.size() < kNone, "{} n-grams", nodes_.size());
  if (nodes_.size() > table_.size() * 3 / 4) resize_table(table_.size() * 2);
  const auto node = static_cast<Node>(nodes_.size());
  table_[slot(parent, token)] = node;
  nodes_.push_back({parent, token, 0, 0, kNone, nodes_[parent].first_child});
  nodes_[parent].first_child = node;
  return node;
}

// Updates counts of counts (`numbers`) after the count of one n-gram has grown by one, to `to`. The count is
// the number of its occurrences, or of the different tokens before it.
void NgramCounts::move(std::array<std::uint32_t, CountsOfCounts::kMost + 1>& numbers, std::uint32_t to) {
  if (to > 1 && to - 1 <= CountsOfCounts::kMost) --numbers[to - 1];
  if (to <= CountsOfCounts::kMost) ++numbers[to];
}

void NgramCounts::add_left(Node node, int order) {
  nodes_[node].left += 2;
  move(of_counts_[static_cast<std::size_t>(order)].by_left, left(nodes_[node]));
}

void NgramCounts::append(Token token) {
  SPECLAB_CHECK(token >= 0 && token < vocab_, "token {} of {}", token, vocab_);
  ++tokens_;
  std::array<Node, kMostOrder + 1> now{};  // n-grams that end at this token, by length
  const int longest = std::min(in_document_ + 1, order_);
  for (int length = 1; length <= longest; ++length) {
    const Node context = ending_[static_cast<std::size_t>(length - 1)];
    Node node = child(context, token);
    const bool is_new = node == kNone;
    if (is_new) node = add(context, token);
    now[static_cast<std::size_t>(length)] = node;
    move(of_counts_[static_cast<std::size_t>(length)].by_count, ++nodes_[node].count);
    // The shorter n-gram, without the first token, has one more different token before it.
    if (is_new && length > 1) add_left(now[static_cast<std::size_t>(length - 1)], length - 1);
    // An n-gram at the start of a document has no token before it. However often this happens, it counts as
    // one more different token.
    if (length == in_document_ + 1 && (nodes_[node].left & 1) == 0) {
      nodes_[node].left |= 1;
      add_left(node, length);
    }
  }
  for (int length = 1; length < order_; ++length)
    ending_[static_cast<std::size_t>(length)] = now[static_cast<std::size_t>(length)];
  in_document_ = longest;
}

}  // namespace speclab
