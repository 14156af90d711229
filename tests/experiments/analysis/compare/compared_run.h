#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/analysis/compare/compare.h"

namespace speclab::fixtures {

/// A case of a hand-made run.
struct MadeCase {
  std::string id = "spec", loss_class = "L2", coins = "independent";
  std::vector<std::string> prompts = {"1", "2", "3"};
  int tokens = 6;                           ///< tokens of each text, without the one from prefill
  double ms = 10;                           ///< time of a text
  std::vector<double> repeats = {1, 1.02};  ///< factors of `ms`, one for each repeat
  std::string other_text = {};              ///< the prompt whose fourth token differs
  int max_tokens = 32;
};

/// A run with these cases and all fields that compare_runs reads, as load_compared_run would return it.
inline ComparedRun made_run(const std::vector<MadeCase>& cases) {
  using nlohmann::json;
  ComparedRun made;
  made.run.environment = {{"cpu", {{"model", "none"}}},
                          {"backend", "cpu"},
                          {"numerics", "f32"},
                          {"threads", 2},
                          {"models", {{"target", {{"sha256", "1"}}}}}};
  made.run.config = {{"prompts", json::array()}, {"seeds", {1}}, {"cases", json::array()}};
  made.summary = {{"complete", true}, {"cases", json::array()}};
  for (const std::string& prompt : cases.front().prompts)
    made.run.config["prompts"].push_back({{"id", prompt}, {"turns", {"text " + prompt}}});
  for (const MadeCase& one : cases) {
    auto data = std::make_shared<CaseData>();
    data->config = {{"id", one.id},
                    {"strategy", "speculative_sampling"},
                    {"draft", nullptr},
                    {"loss_class", one.loss_class},
                    {"options", {{"max_tokens", one.max_tokens}, {"coins", one.coins}, {"temperature", 0}}}};
    for (const std::string& prompt : one.prompts) {
      std::vector<LineRecord> repeats;
      for (std::size_t repeat = 0; repeat < one.repeats.size(); ++repeat) {
        LineRecord line;
        line.prompt = prompt;
        line.seed = 1;
        line.repeat = static_cast<int>(repeat);
        GenerationRecord turn;
        for (int i = 0; i <= one.tokens; ++i)
          turn.tokens.push_back(i == 3 && prompt == one.other_text ? 99 : i);
        turn.decode_ns = static_cast<std::int64_t>(1e6 * one.ms * one.repeats[repeat] *
                                                   (1 + .01 * static_cast<double>(data->prompts.size())));
        for (int i = 0; i < one.tokens; ++i) {
          turn.steps.emplace_back();
          turn.steps.back().emitted = turn.steps.back().rows = 1;
        }
        turn.target.calls = turn.target.rows = one.tokens;
        line.turns.push_back(turn);
        repeats.push_back(line);
      }
      data->prompts.push_back(prompt);
      data->categories.emplace_back();
      data->lines.push_back(std::make_shared<PromptLines>(PromptLines{repeats}));
    }
    made.run.config["cases"].push_back(data->config);
    const int texts = static_cast<int>(one.prompts.size());
    made.summary["cases"].push_back({{"id", one.id},
                                     {"errors", 0},
                                     {"metrics",
                                      {{"tokens", one.tokens * texts},
                                       {"tau", 1},
                                       {"alpha", nullptr},
                                       {"target_rows", 1},
                                       {"target_calls", 1},
                                       {"draft_calls", nullptr}}}});
    made.run.cases.push_back(std::move(data));
  }
  return made;
}

/// The same run as a committed record, without raw lines.
inline ComparedRun without_lines(ComparedRun run) {
  for (auto& data : run.run.cases) {
    auto empty = std::make_shared<CaseData>(*data);
    empty->prompts.clear();
    empty->categories.clear();
    empty->lines.clear();
    data = std::move(empty);
  }
  run.run.complete = false;
  return run;
}

}  // namespace speclab::fixtures
