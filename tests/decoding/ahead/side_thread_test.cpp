#include "core/decoding/ahead/side_thread.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"

namespace speclab::side_thread_test {
namespace {

TEST(SideThread, RunsItsTaskOnceForEachStart) {
  std::vector<int> seen;  // no atomics: start() and wait() order the accesses
  int given = 0;
  SideThread side([&] { seen.push_back(given); });
  side.wait();  // nothing runs
  for (given = 1; given <= 200;) {
    side.start();
    side.wait();
    ASSERT_EQ(seen.size(), static_cast<std::size_t>(given));
    ASSERT_EQ(seen.back(), given);
    ++given;
  }
}

TEST(SideThread, TheEndWaitsForTheTask) {
  for (int i = 0; i < 50; ++i) {
    bool done = false;
    {
      SideThread side([&] { done = true; });
      side.start();
    }
    EXPECT_TRUE(done);
  }
  SideThread unused([] {});  // ends without a start
}

TEST(SideThread, ASecondStartIsABug) {
  std::mutex held;
  SideThread side([&] { const std::scoped_lock lock(held); });
  {
    const std::scoped_lock lock(held);  // keeps the task running
    side.start();
    EXPECT_THROW(side.start(), Bug);
  }
  side.wait();
}

}  // namespace
}  // namespace speclab::side_thread_test
