#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/model/session.h"
#include "tests/model/session_life.h"

// Whole forwards through the GPU backend on its simulated GPU (host-simt): every family against the CPU in float32, and
// random lives of sessions, trees, forks and rewinds included, with the bits of a fresh prefill.

namespace speclab {
namespace {

std::vector<float> logits_of(const std::string& family, const std::shared_ptr<Backend>& backend, const std::vector<Token>& tokens) {
  const auto folder = std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/families" / family;
  const auto model = Model::load(Checkpoint::open(folder), backend, {});
  const auto session = model->open(std::min(64, model->config().context));
  std::vector<std::int32_t> parents(tokens.size()), rows(tokens.size());
  std::iota(parents.begin(), parents.end(), -1);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(tokens.size() * static_cast<std::size_t>(model->config().vocab));
  session->forward(tokens, parents, rows, logits.data());
  return logits;
}

/// Largest difference, as a share of the largest logit.
float apart(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0, most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(b[i]));
    most = std::max(most, std::fabs(a[i] - b[i]));
  }
  return most / largest;
}

// Against float32 and against the class of the CPU that rounds as a GPU does: inputs of linear layers, keys and values to
// bf16. There only the order of sums differs, and what a rounding then decides otherwise.
TEST(HostSimt, EveryFamilyIsNearTheCpu) {
  const auto folder = std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/families";
  const auto simulated = make_cuda_backend({.simulated = true}), exact = make_cpu_backend({1, "f32"}), rounding = make_cpu_backend({1, "avx512-bf16-emulated"});
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string family = entry.path().filename();
    std::ifstream file(entry.path() / "golden.json");
    const auto tokens = nlohmann::json::parse(file)["tokens"].get<std::vector<Token>>();
    const auto logits = logits_of(family, simulated, tokens);
    EXPECT_LE(apart(logits, logits_of(family, exact, tokens)), .04f) << family;
    EXPECT_LE(apart(logits, logits_of(family, rounding, tokens)), .01f) << family;
  }
}

class HostSimtLife : public ::testing::TestWithParam<std::size_t> {};

TEST_P(HostSimtLife, RowsHaveTheBitsOfAFreshPrefill) {
  speclab::fixtures::Life life("host-simt", GetParam(), 1, 7);
  for (int step = 0; step < 6; ++step) ASSERT_TRUE(life.step()) << speclab::fixtures::kLifeModels[GetParam()] << ", step " << step;
}

// What differs in kernels: shapes that fill no tile, groups, windows, caps, norms, rotations, activations.
INSTANTIATE_TEST_SUITE_P(Models, HostSimtLife, ::testing::Values(0, 2, 3, 5, 7, 10, 12, 13));

}  // namespace
}  // namespace speclab
