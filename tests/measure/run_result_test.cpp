#include "core/measure/run_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "core/base/error.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;

class RunResult : public ::testing::Test {
 protected:
  RunResult() : dir_(fs::path(testing::TempDir()) / ("run_result_" + std::to_string(::getpid()))) {
    fs::create_directories(dir_);
  }
  ~RunResult() override { fs::remove_all(dir_); }
  fs::path dir_;
};

LineRecord example() {
  LineRecord line;
  line.case_id = "speculative_sampling/gamma=2";
  line.prompt = "81";
  line.category = "chat";
  line.seed = 18446744073709551615u;
  line.repeat = 1;
  line.order = 7;
  line.calibration_rounds = 3;
  line.drift = {{1, 9000000}, {3, 8500000}};
  for (int t = 0; t < 2; ++t) {
    GenerationRecord turn;
    turn.context_length = 5 + t;
    if (t == 1) turn.context = {4, 4, 2, 1, 0, 6};
    turn.tokens = {10, 11, 12 + t};
    turn.row_hashes = {1, 4294967295u, 3};
    turn.finish = t == 0 ? Finish::eos : Finish::stop;
    turn.prefill_ns = 100;
    turn.draft_prefill_ns = 20;
    turn.decode_ns = 4000 + t;
    turn.cpu_ns = 7000;
    if (t == 1) turn.planned_steps = 1, turn.verified_steps = 4, turn.round_trips = 2, turn.stamped_ns = 3900;
    turn.target.calls = 1;
    turn.target.flops = 2.5e9;
    turn.draft.rows = 3;
    StepRecord step;
    step.source = "draft";
    step.accepted = 1;
    step.emitted = 2;
    step.ended_by = EndedBy::rejection;
    step.rows = 3;
    step.draft_calls = 2;
    step.times.ns = {1, 2, 3, 4};
    step.drafted.push_back({.id = 11,
                            .tested = true,
                            .accepted = true,
                            .confidence = .5f,
                            .p = .25,
                            .q = .5,
                            .expected = .75,
                            .rank = 2});
    step.drafted.push_back(
        {.id = 99, .parent = 0, .tested = true, .p = 0, .q = 1, .expected = 0, .rank = 40, .distance = .125});
    step.pool_size = 40 + t;
    step.probes = {{7, 0, -1}, {8, 3, 12}};
    if (t == 1) step.parts = {{4, 800}, {5, 900}}, step.contributions = {{1, "draft"}, {2, "text"}};
    turn.steps.push_back(step);
    line.turns.push_back(turn);
  }
  line.pieces = {"a", "b", "c", "d", "e", "f"};
  line.text = "abc␞def";
  line.matches_reference = false;
  line.first_divergence = 3;
  return line;
}

TEST_F(RunResult, ALineComesBackAsItWas) {
  const nlohmann::json json = to_json(example());
  EXPECT_EQ(json["wall_ns"], 8001);
  EXPECT_EQ(json["phase_ns"]["accept"], 6);
  EXPECT_EQ(json["context_length"], 5);
  EXPECT_EQ(json["work"]["draft"]["rows"], 6);
  EXPECT_EQ(json["steps"][0]["drafted"], 2);
  EXPECT_EQ(json["steps"][0]["nodes"], 3);
  const LineRecord back = line_from_json(json, "x");
  EXPECT_EQ(to_json(back), json);
  EXPECT_EQ(back.turns[1].tokens, (std::vector<Token>{10, 11, 13}));
  EXPECT_EQ(back.turns[1].context, (std::vector<Token>{4, 4, 2, 1, 0, 6}));
  EXPECT_FALSE(json["turns"][0].contains("context"));
  EXPECT_EQ(back.turns[1].steps[0].drafted[1].parent, 0);
  EXPECT_EQ(back.turns[1].steps[0].pool_size, 41);
  ASSERT_EQ(back.turns[1].steps[0].probes.size(), 2u);
  EXPECT_EQ(back.turns[1].steps[0].probes[1].id, 8);
  EXPECT_EQ(back.turns[1].steps[0].probes[1].parent, 3);
  EXPECT_EQ(back.turns[1].steps[0].probes[1].best, 12);
  EXPECT_TRUE(back.turns[0].steps[0].parts.empty());
  EXPECT_TRUE(back.turns[0].steps[0].contributions.empty());
  ASSERT_EQ(back.turns[1].steps[0].contributions.size(), 2u);
  EXPECT_EQ(back.turns[1].steps[0].contributions[1].first, 2);
  EXPECT_EQ(back.turns[1].steps[0].contributions[1].source, "text");
  ASSERT_EQ(back.turns[1].steps[0].parts.size(), 2u);
  EXPECT_EQ(back.turns[1].steps[0].parts[1].rows, 5);
  EXPECT_EQ(back.turns[1].steps[0].parts[1].ns, 900);
  EXPECT_EQ(back.turns[1].steps[0].drafted[0].parent, 0);
  EXPECT_EQ(back.seed, 18446744073709551615u);
  EXPECT_EQ(back.drift.size(), 2u);
  EXPECT_EQ(back.drift[1].rows, 3);
  EXPECT_EQ(back.drift[1].ns, 8500000);
  EXPECT_FALSE(*back.matches_reference);
}

TEST_F(RunResult, ALineSaysWhatItPromisesAndNotWhetherItIsKept) {
  for (const auto& [promise, name] : {std::pair(Promise::nothing, "nothing"), std::pair(Promise::ids, "ids"), std::pair(Promise::rows, "rows")}) {
    LineRecord line = example();
    line.promise = promise;
    nlohmann::json json = to_json(line);
    EXPECT_EQ(json["promise"], name);
    EXPECT_FALSE(json.contains("matches_reference"));
    const LineRecord back = line_from_json(json, "x");
    EXPECT_EQ(back.promise, promise);
    EXPECT_FALSE(back.matches_reference.has_value()) << "what compares it with its reference fills it in";
    json["promise"] = "much";
    EXPECT_THROW(line_from_json(json, "x"), Error);
  }
}

TEST_F(RunResult, AFailedLineHasNoNumbers) {
  LineRecord line = example();
  line.error = "the model gave NaN logits";
  const nlohmann::json json = to_json(line);
  EXPECT_FALSE(json.contains("wall_ns"));
  EXPECT_FALSE(json.contains("tokens"));
  EXPECT_EQ(line_from_json(json, "x").error, line.error);
}

TEST_F(RunResult, ATornLastLineIsDroppedAndOverwritten) {
  const fs::path file = dir_ / "a.jsonl";
  { JsonLinesWriter(file).append(to_json(example())); }
  const auto whole = fs::file_size(file);
  std::ofstream(file, std::ios::app) << R"({"schema_version": 1, "case")";
  EXPECT_EQ(read_case_file(file).size(), 1u);
  JsonLinesWriter writer(file);
  EXPECT_EQ(fs::file_size(file), whole);
  writer.append(to_json(example()));
  EXPECT_EQ(read_case_file(file).size(), 2u);
  std::ofstream(dir_ / "b.jsonl") << "{\"schema_version\": 1, \"case";  // torn at the first line
  EXPECT_TRUE(read_case_file(dir_ / "b.jsonl").empty());
  EXPECT_TRUE(read_case_file(dir_ / "none.jsonl").empty());
}

TEST_F(RunResult, ADamagedFinishedLineIsAnErrorWithItsNumber) {
  const fs::path file = dir_ / "a.jsonl";
  nlohmann::json json = to_json(example());
  JsonLinesWriter(file).append(json);
  json.erase("steps");
  JsonLinesWriter(file).append(json);
  try {
    read_case_file(file);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("a.jsonl: line 2"));
    EXPECT_THAT(error.what(), testing::HasSubstr("steps"));
  }
}

TEST_F(RunResult, AFullDiskKeepsFinishedLines) {
  const fs::path file = dir_ / "a.jsonl";
  EXPECT_EXIT(
      {
        std::signal(SIGXFSZ, SIG_IGN);
        JsonLinesWriter writer(file);
        writer.append(to_json(example()));
        rlimit limit;
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = fs::file_size(file) + 100;
        setrlimit(RLIMIT_FSIZE, &limit);
        try {
          writer.append(to_json(example()));
        } catch (const Error& error) {
          std::fprintf(stderr, "%s\n", error.what());
          std::_Exit(7);
        }
        std::_Exit(0);
      },
      testing::ExitedWithCode(7), "cannot write .*a.jsonl.*--resume");
  EXPECT_EQ(read_case_file(file).size(), 1u);
  std::ifstream in(file);
  std::string first, rest;
  std::getline(in, first);
  EXPECT_FALSE(std::getline(in, rest)) << "nothing half-written";
}

TEST_F(RunResult, FilesAreReplacedWhole) {
  const fs::path file = dir_ / "summary.json";
  write_json_file(file, {{"a", 1}});
  write_json_file(file, {{"a", 2}});
  EXPECT_EQ(read_json_file(file)["a"], 2);
  EXPECT_FALSE(fs::exists(file.string() + ".part"));
  EXPECT_THROW(write_json_file(dir_ / "no" / "folder.json", {}), Error);
  EXPECT_THROW(read_json_file(dir_ / "missing.json"), Error);
}

TEST(CaseFileName, IsSafeAndReadable) {
  EXPECT_EQ(case_file_name("speculative_sampling/draft=d/gamma=4"),
            "speculative_sampling__draft=d__gamma=4.jsonl");
  EXPECT_EQ(case_file_name("a/b=../x y"), "a__b=..__x%20y.jsonl");
}

}  // namespace
}  // namespace speclab
