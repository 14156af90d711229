#include "core/decoding/drafting/ngram_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "core/base/error.h"

namespace speclab::ngram_pool_test {
namespace {

using Ngram = std::vector<Token>;

std::vector<Ngram> newest_first(const NgramPool& pool, Token key) {
  std::vector<Ngram> out;
  for (int entry = pool.newest(key); entry >= 0; entry = pool.older(entry)) {
    const TokenSpan tokens = pool.continuation(entry);
    out.emplace_back(tokens.begin(), tokens.end());
  }
  return out;
}

TEST(NgramPool, LeastRecentlyUsedGoesFirst) {
  NgramPool pool(10, 2, 2, NgramPool::Order::lru);
  EXPECT_TRUE(pool.insert(1, Ngram{2, 3}));
  EXPECT_TRUE(pool.insert(1, Ngram{4, 5}));
  EXPECT_FALSE(pool.insert(1, Ngram{2, 3}));  // refreshed
  EXPECT_TRUE(pool.insert(1, Ngram{6, 7}));
  EXPECT_EQ(newest_first(pool, 1), (std::vector<Ngram>{{6, 7}, {2, 3}}));
}

TEST(NgramPool, FirstInFirstOut) {
  NgramPool pool(10, 2, 2, NgramPool::Order::fifo);
  pool.insert(1, Ngram{2, 3});
  pool.insert(1, Ngram{4, 5});
  pool.insert(1, Ngram{2, 3});
  pool.insert(1, Ngram{6, 7});
  EXPECT_EQ(newest_first(pool, 1), (std::vector<Ngram>{{6, 7}, {4, 5}}));
}

TEST(NgramPool, NothingIsHeldWithoutRoomAndEverythingWithoutABound) {
  NgramPool none(10, 1, 0, NgramPool::Order::lru), all(10, 1, NgramPool::kUnbounded, NgramPool::Order::lru);
  for (Token token = 0; token < 10; ++token) {
    EXPECT_FALSE(none.insert(3, Ngram{token}));
    EXPECT_TRUE(all.insert(3, Ngram{token}));
  }
  EXPECT_EQ(none.size(), 0u);
  EXPECT_EQ(all.count(3), 10);
  EXPECT_EQ(all.count(4), 0);
  EXPECT_EQ(all.newest(4), -1);
  EXPECT_EQ(newest_first(all, 3).front(), Ngram{9});
}

TEST(NgramPool, RefusesOtherLengthsAndUnknownKeys) {
  NgramPool pool(10, 2, 2, NgramPool::Order::lru);
  EXPECT_THROW(pool.insert(1, Ngram{2}), Bug);
  EXPECT_THROW(pool.insert(10, Ngram{2, 3}), Bug);
  EXPECT_THROW(pool.insert(-1, Ngram{2, 3}), Bug);
  EXPECT_THROW(NgramPool(10, 0, 2, NgramPool::Order::lru), Bug);
}

// Compares with lists of vectors, with clearing.
TEST(NgramPool, AgreesWithANaiveOne) {
  std::mt19937 random(5);
  for (const NgramPool::Order order : {NgramPool::Order::lru, NgramPool::Order::fifo}) {
    for (const int per_key : {1, 3, NgramPool::kUnbounded}) {
      NgramPool pool(6, 3, per_key, order);
      std::map<Token, std::deque<Ngram>> naive;  // newest first
      for (int i = 0; i < 3000; ++i) {
        if (random() % 500 == 0) {
          pool.clear();
          naive.clear();
        }
        const Token key = static_cast<Token>(random() % 6);
        const Ngram ngram{static_cast<Token>(random() % 3), static_cast<Token>(random() % 2),
                          static_cast<Token>(random() % 2)};
        std::deque<Ngram>& list = naive[key];
        const auto found = std::find(list.begin(), list.end(), ngram);
        const bool is_new = found == list.end();
        if (is_new || order == NgramPool::Order::lru) {
          if (!is_new) list.erase(found);
          list.push_front(ngram);
          if (per_key > 0 && static_cast<int>(list.size()) > per_key) list.pop_back();
        }
        EXPECT_EQ(pool.insert(key, ngram), is_new);
        EXPECT_EQ(newest_first(pool, key), std::vector<Ngram>(list.begin(), list.end()));
      }
      std::size_t held = 0, keys = 0;
      for (const auto& [key, list] : naive) {
        held += list.size();
        keys += list.empty() ? 0 : 1;
        EXPECT_EQ(pool.count(key), static_cast<int>(list.size()));
      }
      EXPECT_EQ(pool.size(), held);
      EXPECT_EQ(pool.keys(), keys);
    }
  }
}

}  // namespace
}  // namespace speclab::ngram_pool_test
