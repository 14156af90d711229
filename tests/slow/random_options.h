#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "core/measure/run_result.h"

namespace speclab::fixtures {

/// Reads tests/slow/random_options.json, which lists the values that the options of each strategy may have:
///   {"STRATEGY": [{"draws": 16, "options": {"W": [1, 2, 5], "initial": ["random", "prompt"]}}, ...], ...}
/// A strategy has several entries when options exclude each other.
inline nlohmann::json random_option_spaces(const std::filesystem::path& root) {
  return read_json_file(root / "tests/slow/random_options.json");
}

/// Returns cases of a strategy for "cases" of a config, all different, as many as "draws" of its entries
/// says. They are the same each time, because the generator is seeded with the name of the strategy.
inline nlohmann::json random_cases(const std::string& strategy, const nlohmann::json& spaces) {
  std::seed_seq seed(strategy.begin(), strategy.end());
  std::mt19937 random(seed);
  nlohmann::json cases = nlohmann::json::array();
  std::set<nlohmann::json> seen;
  for (const nlohmann::json& space : spaces) {
    for (int draws = space.at("draws"); draws > 0;) {
      nlohmann::json one = {{"strategy", strategy}};
      for (const auto& [name, values] : space.at("options").items())
        one[name] = values[random() % values.size()];
      if (!seen.insert(one).second) continue;
      cases.push_back(std::move(one));
      --draws;
    }
  }
  return cases;
}

/// The experiment with all these cases: six prompts of six categories, 40 tokens each, greedy.
inline nlohmann::json random_options_config(const std::filesystem::path& root) {
  nlohmann::json cases = {{{"strategy", "autoregressive"}}};
  const nlohmann::json strategies = random_option_spaces(root);
  for (const auto& [strategy, spaces] : strategies.items()) {
    for (nlohmann::json& one : random_cases(strategy, spaces)) cases.push_back(std::move(one));
  }
  return {{"name", "lossless_random_options"},
          {"description",
           "Options drawn at random: ids and logits rows must be bitwise those of autoregressive decoding."},
          {"target", "models/SmolLM2-135M-Instruct.Q4_1.gguf"},
          {"drafts", {{"distilled", {{"model", "models/draft/smollm2-135m-instruct"}}}}},
          {"prompts",
           {{"file", "configs/prompts/speclab.jsonl"},
            {"per_category", 1},
            {"categories", {"chat", "code", "maths", "summarisation", "passage_qa", "editing"}}}},
          {"seed", 4},
          {"repeats", 1},
          {"warmup", 0},
          {"teacher_forced", false},
          {"calibration", false},
          {"options", {{"temperature", 0}, {"ignore_eos", true}, {"max_tokens", 40}}},
          {"cases", std::move(cases)}};
}

}  // namespace speclab::fixtures
