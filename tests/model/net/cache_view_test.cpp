#include "core/model/net/cache_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

namespace speclab::cache_view_test {
namespace {

using Positions = std::vector<std::int32_t>;

Positions positions(const CacheView& view, int committed) {
  Positions out;
  view.append(committed, out);
  return out;
}

TEST(CacheView, ListsItsPositions) {
  EXPECT_EQ(positions(CacheView(), 4), (Positions{0, 1, 2, 3}));
  EXPECT_EQ(positions(CacheView::ends(2, 3), 9), (Positions{0, 1, 6, 7, 8}));
  EXPECT_EQ(positions(CacheView::ends(2, 3), 5), (Positions{0, 1, 2, 3, 4}));
  EXPECT_EQ(positions(CacheView::ends(2, 3), 4), (Positions{0, 1, 2, 3}));  // they overlap
  EXPECT_EQ(positions(CacheView::ends(2, 3), 1), (Positions{0}));
  EXPECT_EQ(positions(CacheView::ends(0, 2), 5), (Positions{3, 4}));
  EXPECT_EQ(positions(CacheView::ends(3, 0), 5), (Positions{0, 1, 2}));
  EXPECT_EQ(positions(CacheView::ends(0, 0), 5), Positions{});
  EXPECT_EQ(positions(CacheView::ends(INT32_MAX, INT32_MAX), 3), (Positions{0, 1, 2}));
  EXPECT_EQ(positions(CacheView::list({1, 4}), 9), (Positions{1, 4}));
  EXPECT_EQ(positions(CacheView::list({}), 9), Positions{});
}

TEST(CacheView, HasOneListForEachLayer) {
  const auto view = CacheView::per_layer({CacheView::ends(1, 1), CacheView::list({2}), CacheView()});
  EXPECT_FALSE(view.same_in_all_layers());
  EXPECT_EQ(positions(view.of(0), 5), (Positions{0, 4}));
  EXPECT_EQ(positions(view.of(1), 5), (Positions{2}));
  EXPECT_EQ(view.of(2).count(5), 5);
  EXPECT_EQ(view.most(5), 5);
}

// Ranks and keys of a row, against counting.
TEST(CacheView, KeysOfARowAreThoseOfTheListWithinTheWindow) {
  std::mt19937 random(3);
  for (int times = 0; times < 300; ++times) {
    const int committed = static_cast<int>(random() % 30);
    Positions list;
    for (int p = 0; p < committed; ++p)
      if (random() % 3 > 0) list.push_back(p);
    const CacheView view =
        times % 3 == 0   ? CacheView()
        : times % 3 == 1 ? CacheView::list(list)
                         : CacheView::ends(static_cast<int>(random() % 9), static_cast<int>(random() % 9));
    list = positions(view, committed);
    ASSERT_EQ(view.count(committed), static_cast<int>(list.size()));
    for (int p = 0; p <= committed; ++p) {
      ASSERT_EQ(view.rank(committed, p),
                std::count_if(list.begin(), list.end(), [&](int q) { return q < p; }))
          << p << " of " << committed;
    }
    const int depth = static_cast<int>(random() % 6), position = committed + depth,
              window = static_cast<int>(random() % 12);
    for (int p = committed; p <= position; ++p) list.push_back(p);  // its path
    const int seen = static_cast<int>(
        std::count_if(list.begin(), list.end(), [&](int p) { return window == 0 || p > position - window; }));
    const KeysOfRow keys = keys_of_row(view, committed, position, window);
    ASSERT_EQ(keys.rank, static_cast<int>(list.size()) - 1);
    ASSERT_EQ(keys.first, static_cast<int>(list.size()) - seen);
    ASSERT_EQ(keys.count(), seen);
  }
}

TEST(CacheView, RefusesWhatIsNoList) {
  EXPECT_THROW(CacheView::ends(-1, 3), std::logic_error);
  EXPECT_THROW(CacheView::ends(1, -3), std::logic_error);
  EXPECT_THROW(CacheView::list({2, 2}), std::logic_error);
  EXPECT_THROW(CacheView::list({2, 1}), std::logic_error);
  EXPECT_THROW(CacheView::list({-1}), std::logic_error);
  EXPECT_THROW(CacheView::per_layer({}), std::logic_error);
  EXPECT_THROW(CacheView::per_layer({CacheView::per_layer({CacheView()})}), std::logic_error);
  const auto two = CacheView::per_layer({CacheView(), CacheView::list({4})});
  EXPECT_NO_THROW(two.check(2, 5));
  EXPECT_THROW(two.check(3, 5), std::logic_error);
  EXPECT_THROW(two.check(2, 4), std::logic_error);
}

}  // namespace
}  // namespace speclab::cache_view_test
