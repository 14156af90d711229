#pragma once

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "core/measure/run_result.h"
#include "tests/model/files/model_files.h"

namespace speclab::fixtures {

using nlohmann::json;

inline Work passes(std::int64_t calls, std::int64_t rows, double flops, double weight_bytes) {
  Work counts;
  counts.calls = calls;
  counts.rows = counts.logit_rows = rows;
  counts.flops = flops;
  counts.weight_bytes = weight_bytes;
  return counts;
}

/// A turn with gamma = 2. One step accepts both tokens (bonus), one rejects the second token, one rejects the
/// first.
inline GenerationRecord speculative_turn(std::int64_t step_ns) {
  GenerationRecord turn;
  turn.context_length = 10;
  turn.context = {9, 9, 9, 5, 6, 7, 5, 6, 8, 8};
  turn.tokens = {1};
  for (const int count : {2, 1, 0}) {
    StepRecord step;
    step.source = count > 0 ? "draft+text" : "draft";
    if (count > 0) step.contributions = {{1, "draft"}, {2, "text"}};
    step.accepted = count;
    step.emitted = count + 1;
    step.ended_by = count == 2 ? EndedBy::bonus : EndedBy::rejection;
    step.rows = 3;
    step.draft_calls = 2;
    step.times.ns = {step_ns / 4, step_ns / 2, step_ns / 8, step_ns / 8};
    for (int i = 0; i < 2; ++i) {
      DraftedToken token;
      token.id = 5;
      token.parent = i;
      token.tested = i <= count;
      token.accepted = i < count;
      if (token.tested) token.p = .5, token.q = .5, token.expected = .6;
      step.drafted.push_back(token);
    }
    for (int i = 0; i < step.emitted; ++i) turn.tokens.push_back(5 + i);
    turn.steps.push_back(step);
    turn.decode_ns += step_ns;
  }
  turn.row_hashes.assign(turn.tokens.size(), 9);
  turn.prefill_ns = 1000;
  turn.target = passes(3, 9, 900, 300);
  turn.draft = passes(6, 6, 60, 60);
  return turn;
}

inline GenerationRecord autoregressive_turn(std::int64_t step_ns) {
  GenerationRecord turn;
  turn.context_length = 10;
  turn.tokens = speculative_turn(4).tokens;
  turn.row_hashes.assign(turn.tokens.size(), 9);
  for (int i = 0; i < 6; ++i) {
    StepRecord step;
    step.emitted = 1;
    step.rows = 1;
    step.times.ns = {0, step_ns, 0, 0};
    turn.steps.push_back(step);
    turn.decode_ns += step_ns;
  }
  turn.prefill_ns = 1000;
  turn.target = passes(6, 6, 600, 600);
  return turn;
}

/// Makes folders of runs whose numbers were computed by hand.
class Record : public ::testing::Test {
 protected:
  /// A run folder with 3 prompts and 2 repeats; the speculative case takes `step_ns` per step.
  std::filesystem::path write_run(const std::string& name, std::int64_t step_ns) {
    const auto path = dir_.path() / name;
    std::filesystem::create_directories(path / "cases");
    json prompts = json::array(), cases = json::array();
    for (int i = 0; i < 3; ++i)
      prompts.push_back({{"id", std::to_string(i)}, {"category", i < 2 ? "a" : "b"}});
    const auto entry = [](const char* id, const json& draft, const json& reference) {
      json out = {{"id", id},
                  {"strategy", id},
                  {"verify", "one_pass"},
                  {"axes", json::object()},
                  {"rule", "rejection"},
                  {"loss_class", "L2"}};
      out["options"] = {{"temperature", 0}, {"gamma", 2}};
      out["draft"] = draft;
      out["reference"] = reference;
      return out;
    };
    cases.push_back(entry("autoregressive", nullptr, nullptr));
    cases.push_back(entry("spec", "d", "autoregressive"));
    json config = {{"name", "t"}, {"description", ""}, {"repeats", 2}};
    config["prompts"] = prompts;
    config["seeds"] = json::array({1});
    config["cases"] = cases;
    write_json_file(path / "config.json", config);
    write_json_file(path / "environment.json", environment_);
    JsonLinesWriter ar(path / "cases" / "autoregressive.jsonl"), spec(path / "cases" / "spec.jsonl");
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (int i = 0; i < 3; ++i) {
        LineRecord line;
        line.prompt = std::to_string(i);
        line.seed = 1;
        line.repeat = repeat;
        line.matches_reference = true;
        line.case_id = "autoregressive";
        line.turns = {autoregressive_turn(1'000'000)};
        ar.append(to_json(line));
        line.case_id = "spec";
        line.turns = {speculative_turn(step_ns)};
        line.turns[0].planned_steps = 3;
        line.turns[0].stamped_ns = line.turns[0].decode_ns * 3 / 4;
        line.gpu = {{"joules", 14.}, {"energy", "counter"}};
        spec.append(to_json(line));
      }
    }
    return path;
  }
  /// Changes the config as if the run had been planned with this many repeats.
  static void plan_repeats(const std::filesystem::path& path, int repeats) {
    json config = read_json_file(path / "config.json");
    config["repeats"] = repeats;
    write_json_file(path / "config.json", config);
  }
  /// Changes every line of one case file of the folder.
  template <class Change>
  static void rewrite(const std::filesystem::path& file, Change change) {
    std::vector<LineRecord> lines = read_case_file(file);
    std::filesystem::remove(file);
    JsonLinesWriter writer(file);
    for (LineRecord& line : lines) {
      change(line);
      writer.append(to_json(line));
    }
  }
  TempDir dir_;
  json environment_ = json::parse(R"({"cpu": {"model": "x"}, "device": "cpu", "numerics": "f32", "threads": 2,
    "read_bandwidth_bytes_per_second": 1e9, "peak_flops": 1e6, "models": {"target": {"sha256": "1", "name": "m"}}})");
};

/// A calibration round in which a forward of one row takes `target_ns` and one of three rows `wide` times as
/// long.
inline json calibration_round(double target_ns, double wide = 1.2) {
  const auto steps = [](int drafted, double draft_ns) {
    const json ns = {{"draft", draft_ns}, {"accept", 0}, {"other", 0}, {"step", 1}};
    return json::array({{{"drafted", drafted}, {"accepted", 1}, {"ns", ns}}});
  };
  return {{"context_length", 10},
          {"t_n_ns", {{"1", target_ns}, {"3", wide * target_ns}}},
          {"drafts", {{"d", {{"1", 1e5}, {"2", 1e5}}}}},
          {"cases", {{"autoregressive", steps(0, 0)}, {"spec", steps(2, 2e5)}}}};
}

}  // namespace speclab::fixtures
