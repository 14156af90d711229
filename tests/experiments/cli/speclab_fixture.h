#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/measure/run_result.h"
#include "tests/experiments/cli/cli.h"
#include "tests/model/files/model_files.h"

namespace speclab::fixtures {

// The names that the tests of the command line use.
namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Runs the real binary in a folder of its own that holds a tiny target, a tiny draft and the config a.json.
class Speclab : public ::testing::Test {
 protected:
  Speclab() {
    write_tiny_llama(dir() / "target", tiny_shape(), 1);
    write_tiny_llama(dir() / "draft", tiny_shape(), 2);
    write(config());
  }
  const fs::path& dir() const { return dir_.path(); }
  void write(const json& config) { std::ofstream(dir() / "a.json") << config.dump(1); }
  static json config() {
    return json::parse(
        R"({"name": "tiny", "target": "target", "drafts": {"small": {"model": "draft"}, "skip": {"layers": [0]}},
      "prompts": {"inline": ["1 2 3", {"id": "two", "category": "b", "turns": ["5 6", "7 8 9"]}, "11"]}, "repeats": 2,
      "options": {"max_tokens": 24, "budget": "fixed"}, "calibration": {"rows": 4, "rounds": 3},
      "cases": [{"strategy": "autoregressive"}, {"strategy": "speculative_sampling", "draft": ["small", "skip"], "gamma": [1, 3]}, {"strategy": "prompt_lookup"}]})");
  }
  struct Result {
    int code;
    std::string out, err;
  };
  Result run(std::vector<std::string> arguments) {
    Cli cli(dir(), std::move(arguments));
    const int code = cli.wait();
    return {code, cli.out(), cli.err()};
  }
  Result shell(const std::string& command) {
    Cli cli(Cli::Shell{}, dir(), command);
    const int code = cli.wait();
    return {code, cli.out(), cli.err()};
  }
  /// Runs a.json into `out` without a calibration; the run must succeed. `more`: further options.
  void measure(const std::string& out = "run", const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"run", "a.json", "--out", out, "-q", "--set", "calibration=false"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  /// Expects exit code 2, nothing on stdout, and one line on stderr that begins with "error: " and contains
  /// these texts.
  void expect_error(const Result& result, const std::vector<std::string>& words) {
    EXPECT_EQ(result.code, 2) << result.err;
    const std::size_t at = result.err.rfind("error: ");
    ASSERT_NE(at, std::string::npos) << result.err;
    const std::string line = result.err.substr(at);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    for (const std::string& word : words) EXPECT_THAT(line, HasSubstr(word));
    EXPECT_EQ(result.out, "");
  }
  TempDir dir_;
};

/// The contents of all files below a folder, by path relative to the folder.
inline std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) contents[entry.path().lexically_relative(folder)] = Cli::read(entry.path());
  }
  return contents;
}

/// A line of a record without its times.
inline json without_times(json line) {
  for (const char* key : {"wall_ns", "cpu_ns", "prefill_ns", "draft_prefill_ns", "phase_ns"}) line.erase(key);
  for (json& turn : line["turns"]) {
    for (const char* key : {"prefill_ns", "draft_prefill_ns", "observe_prompt_ns", "decode_ns", "cpu_ns"})
      turn.erase(key);
  }
  for (json& step : line["steps"]) step.erase("ns");
  return line;
}

/// All lines of a run without their times, by file.
inline std::map<std::string, std::vector<json>> record_of(const fs::path& run) {
  std::map<std::string, std::vector<json>> record;
  for (const auto& entry : fs::directory_iterator(run / "cases")) {
    for (const json& line : read_json_lines(entry.path()))
      record[entry.path().filename()].push_back(without_times(line));
  }
  for (const json& line : read_json_lines(run / "teacher.jsonl")) record["teacher.jsonl"].push_back(line);
  return record;
}

}  // namespace speclab::fixtures
