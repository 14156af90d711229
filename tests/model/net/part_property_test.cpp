// Random trees drafted by a part of the layers or with a view of part of the cache, and verified by the whole
// model: bit for bit what a fresh prefill gives, on every class of the CPU and on the simulated GPU.
#include <gtest/gtest.h>

#include "tests/model/net/part_life.h"

namespace speclab::part_property_test {
namespace {

using namespace speclab::fixtures;

void live(const std::string& numerics, std::size_t which, int threads, unsigned seed, int steps) {
  PartLife life(numerics, which, threads, seed);
  for (int step = 0; step < steps; ++step) {
    const std::string wrong = life.step();
    ASSERT_EQ(wrong, "") << kLifeModels[which] << ", " << numerics << ", " << threads << " threads, seed "
                         << seed << ", step " << step;
  }
}

TEST(PartProperty, DraftsAndVerifiesBitForBit) {
  unsigned seed = 1;
  for (const std::string& numerics : life_classes()) {
    for (std::size_t which = 0; which < kLifeModelCount; ++which, ++seed)
      live(numerics, which, 1 + static_cast<int>(seed % 4), seed, 8);
  }
}

class HostSimtPartLife : public ::testing::TestWithParam<std::size_t> {};

TEST_P(HostSimtPartLife, DraftsAndVerifiesBitForBit) { live("host-simt", GetParam(), 1, 11, 6); }
INSTANTIATE_TEST_SUITE_P(Models, HostSimtPartLife, ::testing::Values(0, 2, 5, 6, 8, 12, 14));

// Views are launches of their own between the tasks of a persistent kernel.
TEST(PersistentPartLife, DraftsAndVerifiesBitForBit) { live("host-simt-persistent", 5, 1, 13, 4); }

}  // namespace
}  // namespace speclab::part_property_test
