#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// The n-gram pool of lookahead decoding (Fu et al. 2024, Section 3.1): n-grams seen so far, by their first
/// token (the key). A key has a list of continuations of `length` tokens each, oldest first. A full list
/// drops its oldest continuation for a new one.
///
/// Memory is one arena and one entry per vocabulary token. After reserve(n) nothing allocates until the pool
/// holds n n-grams. A pool that has stopped growing never allocates.
class NgramPool {
 public:
  /// What happens when a known continuation is inserted again. lru: it moves to the end, so the least
  /// recently used one is dropped first. fifo: it stays (first in, first out).
  enum class Order { lru, fifo };
  static constexpr int kUnbounded = -1;

  /// Continuations have `length` >= 1 tokens after the key. A key has at most `per_key` of them (0: the pool
  /// stays empty; kUnbounded: no limit).
  NgramPool(int vocab, int length, int per_key, Order order);

  void reserve(std::size_t ngrams);
  void clear();  ///< keeps the memory; takes time proportional to keys()
  /// Returns true when the continuation was added, false when it was known or `per_key` is 0.
  bool insert(Token key, TokenSpan continuation);

  int length() const { return length_; }
  std::size_t size() const { return links_.size(); }      ///< number of n-grams
  std::size_t keys() const { return used_keys_.size(); }  ///< number of keys that were used since clear()
  int count(Token key) const { return lists_[static_cast<std::size_t>(key)].count; }

  /// Iterates over the continuations of a key, newest first:
  /// for (int i = pool.newest(key); i >= 0; i = pool.older(i))
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
