#include <gtest/gtest.h>

#include "tests/model/family_logits.h"
#include "tests/model/session_life.h"

// Whole forwards through the GPU backend on its simulated GPU (host-simt): every family against the CPU in float32, and
// random lives of sessions, trees, forks and rewinds included, with the bits of a fresh prefill.

namespace speclab {
namespace {

using namespace speclab::fixtures;

// Against float32 and against the class of the CPU that rounds as a GPU does: inputs of linear layers, keys and values to
// bf16. There only the order of sums differs, and what a rounding then decides otherwise.
TEST(HostSimt, EveryFamilyIsNearTheCpu) {
  const auto simulated = make_cuda_backend({.simulated = true}), exact = make_cpu_backend({1, "f32"}), rounding = make_cpu_backend({1, "amx-bf16-emulated"});
  for (const auto& entry : std::filesystem::directory_iterator(family_folder())) {
    const std::string family = entry.path().filename();
    const std::vector<Token> tokens = family_tokens(family);
    const auto logits = family_logits(family, simulated, tokens);
    EXPECT_LE(apart(logits, family_logits(family, exact, tokens)), .04f) << family;
    EXPECT_LE(apart(logits, family_logits(family, rounding, tokens)), .01f) << family;
  }
}

// One launch a forward has the bits of a launch for each operation, in every family.
TEST(HostSimt, PersistentKernelsHaveTheBitsOfLaunches) {
  const auto launches = make_cuda_backend({.simulated = true}), persistent = make_cuda_backend({.simulated = true}, CudaKernels::kPersistent);
  for (const auto& entry : std::filesystem::directory_iterator(family_folder())) {
    const std::string family = entry.path().filename();
    std::vector<Token> tokens = family_tokens(family);
    tokens.resize(std::min<std::size_t>(tokens.size(), 9));
    EXPECT_EQ(family_logits(family, persistent, tokens), family_logits(family, launches, tokens)) << family;
  }
}

class HostSimtLife : public ::testing::TestWithParam<std::size_t> {};

TEST_P(HostSimtLife, RowsHaveTheBitsOfAFreshPrefill) {
  speclab::fixtures::Life life("host-simt", GetParam(), 1, 7);
  for (int step = 0; step < 6; ++step) ASSERT_TRUE(life.step()) << speclab::fixtures::kLifeModels[GetParam()] << ", step " << step;
}

// What differs in kernels: shapes that fill no tile, groups, windows, caps, norms, rotations, activations.
class PersistentLife : public ::testing::TestWithParam<std::size_t> {};

TEST_P(PersistentLife, RowsHaveTheBitsOfAFreshPrefill) {
  speclab::fixtures::Life life("host-simt-persistent", GetParam(), 1, 7);
  for (int step = 0; step < 4; ++step) ASSERT_TRUE(life.step()) << speclab::fixtures::kLifeModels[GetParam()] << ", step " << step;
}
INSTANTIATE_TEST_SUITE_P(Models, PersistentLife, ::testing::Values(0, 2, 8, 12));

INSTANTIATE_TEST_SUITE_P(Models, HostSimtLife, ::testing::Values(0, 2, 3, 5, 7, 10, 12, 13));

}  // namespace
}  // namespace speclab
