#include "core/measure/recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "core/measure/clock.h"

namespace speclab::recorder_test {
namespace {

TEST(PhaseClock, EveryInstantBelongsToOnePhase) {
  PhaseClock clock;
  const std::int64_t before = wall_now_ns();
  clock.start(Phase::draft);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  clock.enter(Phase::target);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  clock.enter(Phase::draft);
  const PhaseTimes first = clock.lap();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const PhaseTimes second = clock.lap();
  const std::int64_t wall = wall_now_ns() - before;
  EXPECT_GE(first[Phase::draft], 3'000'000);
  EXPECT_GE(first[Phase::target], 2'000'000);
  EXPECT_EQ(first[Phase::accept], 0);
  EXPECT_GE(second[Phase::draft], 1'000'000);
  EXPECT_LT(second[Phase::draft], first.total());
  EXPECT_LE(first.total() + second.total(), wall);
  EXPECT_GE(first.total() + second.total(), 6'000'000);
}

TEST(HashRow, SeesEveryBitAndTheLength) {
  std::vector<float> row(1003, 0.25f);
  const std::uint32_t hash = hash_row(row.data(), row.size());
  EXPECT_EQ(hash, hash_row(row.data(), row.size()));
  EXPECT_NE(hash, hash_row(row.data(), row.size() - 1));
  for (std::size_t i :
       {std::size_t{0}, std::size_t{7}, std::size_t{500}, std::size_t{1000}, std::size_t{1002}}) {
    std::vector<float> changed = row;
    changed[i] = std::nextafter(changed[i], 1.0f);
    EXPECT_NE(hash, hash_row(changed.data(), changed.size())) << i;
  }
  std::vector<float> swapped = row;
  swapped[3] = 1, swapped[11] = 2;
  std::vector<float> other = row;
  other[3] = 2, other[11] = 1;
  EXPECT_NE(hash_row(swapped.data(), 16), hash_row(other.data(), 16));
  const float negative_zero = -0.0f, zero = 0.0f;
  EXPECT_NE(hash_row(&negative_zero, 1), hash_row(&zero, 1));
}

}  // namespace
}  // namespace speclab::recorder_test
