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

std::vector<PlannedLine> plan_lines(const Experiment& experiment, const Shard& shard) {
  const int prompts = static_cast<int>(experiment.prompts.size());
  SPECLAB_CHECK(1 <= shard.i && shard.i <= shard.n, "shard {}/{}", shard.i, shard.n);
  if (shard.n > std::max(1, prompts)) {
    throw Error({.what = "--shard",
                 .got = fmt::format("{}/{}", shard.i, shard.n),
                 .expected = fmt::format("at most {} shards, one prompt each", prompts),
                 .advice = ""});
  }
  std::vector<PlannedLine> plan;
  std::mt19937_64 random(experiment.seeds.front() * 1'000'003 + 17);
  std::vector<std::pair<int, std::uint64_t>> texts;
  for (int prompt = 0; prompt < prompts; ++prompt) {
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
  // Drawn for the whole run first: a shard's order is that of the run without the other prompts.
  std::erase_if(plan, [&](const PlannedLine& line) { return line.prompt_index % shard.n != shard.i - 1; });
  return plan;
}

}  // namespace speclab
