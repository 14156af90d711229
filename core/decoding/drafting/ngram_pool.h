#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// N-grams seen so far, by their first token: the pool of lookahead decoding (Fu et al. 2024, Section 3.1). A
/// key has a list of continuations of `length` tokens each, oldest first; a full list gives up its oldest
/// one.
///
/// Memory is one arena and one entry per vocabulary token: after reserve() nothing allocates until that many
/// n-grams are held, and never again once the pool has stopped growing.
class NgramPool {
 public:
  /// What a continuation that is found again does: moves to the end (least recently used goes first), or
  /// stays where it is (first in, first out).
  enum class Order { lru, fifo };
  static constexpr int kUnbounded = -1;

  /// `length` >= 1 tokens follow the key; at most `per_key` continuations of one key (0: the pool stays
  /// empty).
  NgramPool(int vocab, int length, int per_key, Order order);

  void reserve(std::size_t ngrams);
  void clear();  ///< keeps the memory; costs as much as there are keys in use
  /// True when it was not there before.
  bool insert(Token key, TokenSpan continuation);

  int length() const { return length_; }
  std::size_t size() const { return links_.size(); }      ///< n-grams held
  std::size_t keys() const { return used_keys_.size(); }  ///< keys that have had one since clear()
  int count(Token key) const { return lists_[static_cast<std::size_t>(key)].count; }

  /// Walks the continuations of a key, newest first:  for (int i = pool.newest(key); i >= 0; i =
  /// pool.older(i))
  int newest(Token key) const { return lists_[static_cast<std::size_t>(key)].last; }
  int older(int entry) const { return links_[static_cast<std::size_t>(entry)].before; }
  TokenSpan continuation(int entry) const {
    return TokenSpan(tokens_).subspan(static_cast<std::size_t>(entry) * static_cast<std::size_t>(length_),
                                      static_cast<std::size_t>(length_));
  }

 private:
  struct List {
    std::int32_t first = -1, last = -1, count = 0;
  };
  struct Link {
    std::int32_t before = -1, after = -1;
  };
  void append(List& list, std::int32_t entry);
  void unlink(List& list, std::int32_t entry);

  int length_;
  int per_key_;
  Order order_;
  std::vector<List> lists_;    // [vocab]
  std::vector<Link> links_;    // [entries]
  std::vector<Token> tokens_;  // [entries, length]
  std::vector<Token> used_keys_;
};

}  // namespace speclab
