#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/model/net/session.h"
#include "tests/model/net/family_logits.h"

// Hidden states against output_hidden_states of transformers in float32 (scripts/oracle/hidden_states.py
// wrote them): RMS norms, layer norms with position embeddings, and scaled embeddings with post norms. On the
// CPU in float32 within 1e-4 of the largest number of a state. On the simulated GPU, which rounds inputs of
// linear layers, keys and values to bf16, within 4e-2.

namespace speclab::hidden_oracle_test {
namespace {

using namespace speclab::fixtures;
using Json = nlohmann::json;

void expect_golden(const std::shared_ptr<Backend>& backend, double tolerance) {
  std::ifstream file(std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/hidden_states.json");
  const Json golden = Json::parse(file);
  ASSERT_EQ(golden.size(), 3u);
  for (const auto& [family, expected] : golden.items()) {
    const auto model = Model::load(Checkpoint::open(family_folder() / family), backend, {});
    const auto tokens = expected["tokens"].get<std::vector<Token>>();
    const auto hidden = static_cast<std::size_t>(model->config().hidden);
    std::vector<int> layers(static_cast<std::size_t>(model->config().layers));
    std::iota(layers.begin(), layers.end(), 0);
    layers.push_back(kFinalNorm);  // transformers' last entry
    std::vector<std::vector<float>> states(layers.size());
    const PromptTaps taps{layers, [&](const PromptStates& chunk) {
                            for (std::size_t i = 0; i < layers.size(); ++i) {
                              const float* from = chunk.layers[i];
                              states[i].insert(states[i].end(), from,
                                               from + static_cast<std::size_t>(chunk.count) * hidden);
                            }
                          }};
    model->open(64, 7)->prefill(tokens, nullptr, &taps);
    for (const auto& [position, rows] : expected["states"].items()) {
      ASSERT_EQ(rows.size(), layers.size()) << family;
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const auto wanted = rows[i].get<std::vector<double>>();
        ASSERT_EQ(wanted.size(), hidden);
        double largest = 0, worst = 0;
        for (const double value : wanted) largest = std::max(largest, std::abs(value));
        for (std::size_t k = 0; k < hidden; ++k)
          worst = std::max(worst, std::abs(states[i][std::stoul(position) * hidden + k] - wanted[k]));
        EXPECT_LE(worst, tolerance * largest) << family << " position " << position << " layer " << layers[i];
      }
    }
  }
}

TEST(HiddenOracle, StatesEqualTransformers) { expect_golden(make_cpu_backend({2, "f32"}), 1e-4); }
TEST(HiddenOracle, StatesOfTheSimulatedGpuAreNearTransformers) {
  expect_golden(make_cuda_backend({.simulated = true}), 4e-2);
}

}  // namespace
}  // namespace speclab::hidden_oracle_test
