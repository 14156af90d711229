#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/model/net/session.h"
#include "tests/model/net/target_model.h"

// Compares the forward of class f32 with transformers in float32 and the same bf16-rounded weights
// (scripts/oracle/forward.py wrote the golden file). Every compared logit is within 1e-4 of the largest
// magnitude of its row, in prefill and in steps, and up to 128 greedy tokens are equal.
// SPECLAB_ORACLE_FULL=FOLDER compares whole rows.

namespace speclab::forward_oracle_test {
namespace {

using namespace speclab::fixtures;

/// The number of greedy tokens of a prompt that are compared: all in every fifth text and in the slow tests
/// (SPECLAB_ORACLE_TOKENS).
std::size_t new_tokens([[maybe_unused]] int prompt) {
  if (const char* wanted = std::getenv("SPECLAB_ORACLE_TOKENS"))
    return static_cast<std::size_t>(std::atol(wanted));
#ifdef __SANITIZE_ADDRESS__
  return 8;  // a step takes forty times as long
#else
  return prompt % 5 == 0 ? 128 : 32;
#endif
}

class ForwardOracle : public ::testing::TestWithParam<int> {};

TEST_P(ForwardOracle, LogitsAndGreedyTextEqualTransformers) {
  SPECLAB_NEEDS_TARGET();
  std::ifstream file(std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/forward/smollm2.json");
  const nlohmann::json golden =
      nlohmann::json::parse(file)["prompts"].at(static_cast<std::size_t>(GetParam()));
  const auto prompt = golden["prompt"].get<std::vector<Token>>();
  auto greedy = golden["greedy"].get<std::vector<Token>>();
  greedy.resize(std::min(greedy.size(), new_tokens(GetParam())));
  const auto model = target_model();
  const auto vocab = static_cast<std::size_t>(model->config().vocab);
  std::ifstream full;
  if (const char* folder = std::getenv("SPECLAB_ORACLE_FULL")) {
    full.open(std::filesystem::path(folder) / fmt::format("{:02}.f32", GetParam()), std::ios::binary);
    ASSERT_TRUE(full) << folder;
  }

  std::size_t next = 0;  // row of the golden file
  double worst = 0;
  const auto compare = [&](std::size_t position, const float* row) {
    if (next == golden["rows"].size() || golden["rows"][next]["position"] != position) return;
    const auto& expected = golden["rows"][next++];
    const double largest = expected["largest"];
    for (std::size_t i = 0; i < expected["ids"].size(); ++i) {
      worst = std::max(
          worst, std::abs(row[expected["ids"][i].get<std::size_t>()] - expected["logits"][i].get<double>()) /
                     largest);
    }
    if (full.is_open()) {
      std::vector<float> all(vocab);
      full.read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(vocab * sizeof(float)));
      ASSERT_TRUE(full);
      for (std::size_t i = 0; i < vocab; ++i)
        worst = std::max(worst, std::abs(row[i] - static_cast<double>(all[i])) / largest);
    }
  };

  const auto session = model->open(static_cast<int>(prompt.size() + greedy.size()));
  std::vector<float> logits(100 * vocab);
  for (std::size_t begin = 0; begin < prompt.size(); begin += 100) {
    const std::size_t count = std::min<std::size_t>(100, prompt.size() - begin);
    std::vector<std::int32_t> parents(count), rows(count);
    std::iota(parents.begin(), parents.end(), -1);
    std::iota(rows.begin(), rows.end(), 0);
    session->forward(TokenSpan(prompt).subspan(begin, count), parents, rows, logits.data());
    for (std::size_t i = 0; i < count; ++i) compare(begin + i, logits.data() + i * vocab);
    session->commit(rows);
    if (begin + count == prompt.size())
      std::copy_n(logits.begin() + static_cast<std::ptrdiff_t>((count - 1) * vocab), vocab, logits.begin());
  }
  std::vector<Token> text;
  const std::int32_t root = -1, first = 0;
  for (std::size_t step = 0; step < greedy.size(); ++step) {
    if (step > 0) {
      session->forward({&text.back(), 1}, {&root, 1}, {&first, 1}, logits.data());
      session->commit({&first, 1});
      compare(prompt.size() + step - 1, logits.data());
    }
    text.push_back(static_cast<Token>(
        std::max_element(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(vocab)) -
        logits.begin()));
  }
  EXPECT_EQ(text, greedy);
  const auto last = prompt.size() + greedy.size() - 1;  // position of the last token, which is not fed
  std::size_t rows = 0;
  for (const auto& row : golden["rows"]) rows += row["position"].get<std::size_t>() < last;
  EXPECT_EQ(next, rows);
  EXPECT_LE(worst, 1e-4);
  RecordProperty("worst", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Prompts, ForwardOracle, ::testing::Range(0, 20));

}  // namespace
}  // namespace speclab::forward_oracle_test
