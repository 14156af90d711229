#include "experiments/run_plan.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "core/base/error.h"

namespace speclab {
namespace {

/// Fisher and Yates with our own bounded numbers: std::shuffle differs between libraries.
template <class T>
void shuffle(std::vector<T>& items, std::mt19937_64& random) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random() % i]);
}

}  // namespace

std::vector<PlannedLine> plan_lines(const Experiment& experiment) {
  std::vector<PlannedLine> plan;
  std::mt19937_64 random(experiment.seeds.front() * 1'000'003 + 17);
  std::vector<std::pair<int, std::uint64_t>> texts;
  for (int prompt = 0; prompt < static_cast<int>(experiment.prompts.size()); ++prompt) {
    for (const std::uint64_t seed : experiment.seeds) texts.emplace_back(prompt, seed);
  }
  std::vector<int> cases(experiment.cases.size());
  std::iota(cases.begin(), cases.end(), 0);
  for (int repeat = 0; repeat < experiment.repeats; ++repeat) {
    shuffle(texts, random);
    for (const auto& [prompt, seed] : texts) {
      shuffle(cases, random);
      if (repeat == 0) {
        std::stable_partition(cases.begin(), cases.end(), [&](int index) {
          return experiment.cases[static_cast<std::size_t>(index)].reference.empty();
        });
      }
      for (const int index : cases) {
        plan.push_back({.order = static_cast<int>(plan.size()),
                        .case_index = index,
                        .prompt_index = prompt,
                        .seed = seed,
                        .repeat = repeat});
      }
    }
  }
  return plan;
}

void take_shard(Experiment& experiment, int i, int n) {
  std::vector<PromptSpec> mine;
  for (std::size_t k = 0; k < experiment.prompts.size(); ++k) {
    if (static_cast<int>(k % static_cast<std::size_t>(n)) == i - 1) mine.push_back(experiment.prompts[k]);
  }
  if (mine.empty()) {
    throw Error({.what = "--shard",
                 .got = fmt::format("{}/{}", i, n),
                 .expected = fmt::format("at most {} shards, one prompt each", experiment.prompts.size()),
                 .advice = ""});
  }
  experiment.prompts = std::move(mine);
}

}  // namespace speclab
