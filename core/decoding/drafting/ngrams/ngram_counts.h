#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// How many n-grams of one order have a count of r, for small r. Discounts are estimated from these numbers.
struct CountsOfCounts {
  static constexpr std::uint32_t kMost = 6;
  std::array<std::uint32_t, kMost + 1> by_count{};  ///< [r], n-grams with r occurrences; entry 0 unused
  std::array<std::uint32_t, kMost + 1> by_left{};   ///< [r], n-grams with r different tokens before them
};

/// Counts the n-grams of up to `order` tokens of a growing text: how often each one occurs, and how many
/// different tokens come before it (the start of a document counts as one). It is a trie; the children of a
/// node are the tokens that followed it. Appending a token is O(order).
///
/// Memory: 24 bytes per node, and a hash table with 4 bytes per slot.
class NgramCounts {
 public:
  using Node = std::uint32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = 0xffffffff;
  static constexpr int kMostOrder = 6;

  /// `order` from 1 to kMostOrder; token ids from 0 to vocab - 1.
  NgramCounts(int vocab, int order);

  /// Reserves memory for any text of this many tokens. append() does not allocate until then.
  void reserve(std::size_t tokens);
  void clear();           ///< keeps the memory
  void begin_document();  ///< no n-gram crosses this place
  void append(Token token);

  int vocab() const { return vocab_; }
  int order() const { return order_; }
  std::size_t tokens() const { return tokens_; }
  std::size_t nodes() const { return nodes_.size() - 1; }
  const CountsOfCounts& counts_of_counts(int order) const {
    return of_counts_[static_cast<std::size_t>(order)];
  }

  /// The n-gram `node` followed by `token`; kNone when it does not occur.
  Node child(Node node, Token token) const;
  /// Calls visit(token, count, left) for each token that followed a node, in no particular order. `left` is
  /// the number of different tokens before the n-gram that ends with `token`.
  template <class Visit>
  void for_each_child(Node node, const Visit& visit) const {
    for (Node n = nodes_[node].first_child; n != kNone; n = nodes_[n].next_sibling)
      visit(nodes_[n].token, nodes_[n].count, left(nodes_[n]));
  }

 private:
  struct Entry {
    Node parent;
    Token token;
    std::uint32_t count;
    std::uint32_t
        left;  // 2 * (number of different tokens before it) + (1 if it occurs at the start of a document)
    Node first_child, next_sibling;
  };
  static std::uint32_t left(const Entry& entry) { return entry.left >> 1; }

  std::size_t slot(Node parent, Token token) const;
  Node add(Node parent, Token token);
  void resize_table(std::size_t slots);
  void add_left(Node node, int order);
  static void move(std::array<std::uint32_t, CountsOfCounts::kMost + 1>& numbers, std::uint32_t to);

  int vocab_, order_;
  std::size_t tokens_ = 0;
  std::vector<Entry> nodes_;               // node 0 is the empty n-gram
  std::vector<Node> table_;                // open addressing
  std::array<Node, kMostOrder> ending_{};  // [k], n-gram of the document's last k tokens, k < order
  int in_document_ = 0;                    // tokens of the document, at most order
  std::array<CountsOfCounts, kMostOrder + 1> of_counts_{};
};

}  // namespace speclab
