// Compares random trees, commits, rewinds, forks, copies and batches of sessions bit for bit with a fresh
// prefill of the same text by one thread: for every numerics class (emulated if this CPU lacks its
// instructions), 1 to 4 threads, several shapes and families. A failure names the seed that repeats it alone:
// SPECLAB_PROPERTY_SEED=N.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/model/net/session_life.h"

namespace speclab::session_property_test {
namespace {

TEST(SessionProperty, EqualsRePrefillBitForBit) {
  constexpr int kForwards = 12'000, kForwardsPerLife = 25;
  const char* seed = std::getenv("SPECLAB_PROPERTY_SEED");
  const int compared = fixtures::compare_lives(kForwards, kForwardsPerLife,
                                               seed != nullptr ? static_cast<unsigned>(std::atoi(seed)) : 0);
  EXPECT_GE(compared, seed == nullptr ? kForwards : kForwardsPerLife);
  fmt::print("{} forwards compared\n", compared);
}

}  // namespace
}  // namespace speclab::session_property_test
