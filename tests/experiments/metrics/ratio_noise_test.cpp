#include "experiments/metrics/noise/ratio_noise.h"

#include <gtest/gtest.h>

namespace speclab::ratio_noise_test {
namespace {

/// [prompts][repeats] decode times in ns, one seed.
std::shared_ptr<CaseData> timed_case(const std::string& id, const std::vector<std::vector<double>>& times) {
  auto data = std::make_shared<CaseData>();
  data->config = {{"id", id}, {"strategy", "prompt_lookup"}};
  for (std::size_t prompt = 0; prompt < times.size(); ++prompt) {
    PromptLines lines(1);
    for (std::size_t repeat = 0; repeat < times[prompt].size(); ++repeat) {
      LineRecord line;
      line.repeat = static_cast<int>(repeat);
      GenerationRecord turn;
      turn.tokens = {1, 2};
      turn.steps.resize(1);
      turn.steps[0].emitted = 1;
      turn.decode_ns = static_cast<std::int64_t>(times[prompt][repeat]);
      line.turns.push_back(std::move(turn));
      lines[0].push_back(std::move(line));
    }
    data->prompts.push_back(std::to_string(prompt));
    data->categories.emplace_back();
    data->lines.push_back(std::make_shared<const PromptLines>(std::move(lines)));
  }
  return data;
}

TEST(RatioNoise, IsTheNoiseOfRatiosNotOfTimes) {
  // The machine is a third slower in the second repeat, for both cases.
  const auto base = timed_case("autoregressive", {{1e9, 1.33e9}, {2e9, 2.66e9}});
  const auto fast = timed_case("lookup", {{.5e9, .665e9}, {1e9, 1.33e9}});
  fast->reference = base;
  EXPECT_NEAR(*ratio_noise(std::vector{base, fast}), 0, 1e-9);
  // Only one case is slower in the second repeat: noise of the ratio.
  const auto loud = timed_case("lookup", {{.5e9, .55e9}, {1e9, 1.1e9}});
  loud->reference = timed_case("autoregressive", {{1e9, 1e9}, {2e9, 2e9}});
  EXPECT_NEAR(*ratio_noise(std::vector{base, loud}), .1, 1e-9);
  const auto single = timed_case("lookup", {{.5e9}, {1e9}});
  single->reference = base;
  EXPECT_FALSE(ratio_noise(std::vector{base, single})) << "one repeat";
  EXPECT_FALSE(ratio_noise({}));
}

}  // namespace
}  // namespace speclab::ratio_noise_test
