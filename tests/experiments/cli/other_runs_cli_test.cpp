// Commands that combine a run with another run or with a device: empty runs, other models, other prompts, a
// drafter that the trace lacks, tables with holes. Each gives an error or a note, and the rest is used.
#include <functional>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::other_runs_cli_test {
namespace {

using namespace speclab::fixtures;

class OtherRuns : public Speclab {
 protected:
  /// A run with a calibration, on one repeat.
  void calibrated(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"run", "a.json", "--out", out, "-q", "--set", "repeats=1"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  /// A trace of the drafts that `filter` matches.
  void trace(const std::string& out, const std::string& filter) {
    json config = Speclab::config();
    config["options"]["emit_at_most"] = 1;
    config["calibration"] = false;
    std::ofstream(dir() / "trace.json") << config.dump(1);
    const Result result = run({"run", "trace.json", "--out", out, "-q", "--filter", filter});
    ASSERT_EQ(result.code, 0) << result.err;
  }
  /// How many cases the notes on stderr name as left out.
  static int left_out(const std::string& notes) {
    int count = 0;
    for (std::size_t at = notes.find(": left out;"); at != notes.npos; at = notes.find(": left out;", at + 1))
      ++count;
    return count;
  }
  void change_lines(const std::string& file, const std::function<void(json&)>& how) {
    std::vector<json> lines = read_json_lines(dir() / file);
    ASSERT_FALSE(lines.empty()) << file;
    std::ofstream out(dir() / file);
    for (json& line : lines) {
      how(line);
      out << line.dump() << "\n";
    }
  }
};

TEST_F(OtherRuns, ARunWithoutAFinishedLineIsNamed) {
  calibrated("run");
  calibrated("full");
  fs::remove_all(dir() / "run/cases");
  fs::create_directory(dir() / "run/cases");
  const std::vector<std::string> words = {"run: got a run without a finished line",
                                          "speclab run --resume run"};
  expect_error(run({"simulate", "run", "--device", "full"}), words);
  expect_error(run({"replay", "run"}), words);
  expect_error(run({"replay", "full", "--check", "run"}), words);
  EXPECT_EQ(run({"simulate", "full", "--device", "run"}).code, 0) << "as a device it has its calibration";
  const Result report = run({"report", "run"});
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.err, HasSubstr("run has no finished line"));
  EXPECT_THAT(report.out, HasSubstr("This run is not complete."));
  const Result explain = run({"explain", "run"});
  EXPECT_EQ(explain.code, 0);
  EXPECT_THAT(explain.err, HasSubstr("no finished line"));
  EXPECT_THAT(run({"explain", "full"}).err, Not(HasSubstr("no finished line")));
  fs::remove_all(dir() / "run/cases");
  expect_error(run({"simulate", "run", "--device", "full"}), {"without raw lines", "expand"});
}

TEST_F(OtherRuns, ARunOfFailedLinesIsNamed) {
  json too_long = config();
  std::string ids;
  for (int i = 0; i < 300; ++i) ids += "1 ";
  too_long["prompts"]["inline"] = {ids};
  too_long["calibration"] = false;
  write(too_long);
  EXPECT_EQ(run({"run", "a.json", "--out", "run", "-q"}).code, 1);
  expect_error(run({"replay", "run"}), {"a run in which every line failed", "speclab report run"});
}

TEST_F(OtherRuns, ARunOfAnotherTargetIsNoDevice) {
  calibrated("run");
  calibrated("other", {"--set", "target=draft"});
  expect_error(run({"simulate", "run", "--device", "other"}),
               {"other: got the target", "SHA-256", "expected"});
}

TEST_F(OtherRuns, ADraftThatIsAnotherModelThereLeavesTheOtherCases) {
  calibrated("run");
  write_tiny_llama(dir() / "third", tiny_shape(), 3);
  calibrated("other", {"--set", "drafts.small.model=third"});
  const Result other = run({"simulate", "run", "--device", "other", "--json"});
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("speculative_sampling/draft=small/gamma=1: left out; its draft small is"));
  EXPECT_EQ(left_out(other.err), 2);
  const json out = json::parse(other.out);
  std::vector<std::string> ids;
  for (const json& row : out[0]["cases"]) {
    ids.push_back(row["case"]);
    EXPECT_TRUE(row["there"].is_number()) << row;
  }
  EXPECT_THAT(ids,
              ::testing::UnorderedElementsAre("speculative_sampling/draft=skip/gamma=1",
                                              "speculative_sampling/draft=skip/gamma=3", "prompt_lookup"));
  const Result same = run({"simulate", "run", "--device", "run", "--json"});
  EXPECT_EQ(json::parse(same.out)[0]["cases"].size(), 5u);
  EXPECT_EQ(left_out(same.err), 0);
}

TEST_F(OtherRuns, ATableWithHolesSaysWhereItsTimesAreInterpolated) {
  calibrated("run", {"--filter", "draft="});  // steps of at most four rows
  write_json_file(dir() / "table.json",
                  {{"kind", "table"},
                   {"target_us", {{"1", 10}, {"8", 20}}},
                   {"drafts_us", {{"small", {{"1", 2}, {"2", 3}}}, {"skip", {{"1", 5}, {"2", 6}}}}}});
  const Result one = run({"simulate", "run", "--device", "table.json", "--json"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.err, AllOf(HasSubstr("no times of the target between 1 and 8 rows. They are interpolated."),
                             Not(HasSubstr("extrapolated"))));
  const json out = json::parse(one.out);
  EXPECT_TRUE(out[0]["cases"][0]["speedup"].is_number()) << "the rest is used";
  EXPECT_THAT(run({"simulate", "run", "--device", "table.json", "--batch", "1,4"}).err,
              AllOf(HasSubstr("of the target above 8 rows"), HasSubstr("of the draft skip above 2 rows")));
}

TEST_F(OtherRuns, AReplayNamesTheDraftersThatTheTraceLacks) {
  trace("trace", "draft=skip/gamma=3|lookup");
  measure("run", {"--set", "repeats=1"});
  const Result some = run({"replay", "trace", "--check", "run"});
  EXPECT_EQ(some.code, 0) << some.err;
  EXPECT_THAT(some.out, AllOf(HasSubstr("draft=skip/gamma=1"), HasSubstr("draft=skip/gamma=3")));
  EXPECT_THAT(
      some.err,
      AllOf(HasSubstr("speculative_sampling/draft=small/gamma=1: not replayed; the trace has no drafter "
                      "speculative_sampling with draft small"),
            Not(HasSubstr("draft=skip/gamma=1: not replayed"))));
  measure("small", {"--set", "repeats=1", "--filter", "draft=small"});
  expect_error(run({"replay", "trace", "--check", "small"}),
               {"--check small", "speculative_sampling with draft skip"});
}

TEST_F(OtherRuns, ATraceOfOtherModelsOrPromptsIsRefused) {
  trace("trace", "draft=skip/gamma=3");
  measure("other_target", {"--set", "target=draft", "--set", "repeats=1"});
  expect_error(run({"replay", "trace", "--check", "other_target"}), {"got the target", "SHA-256"});
  json other = config();
  other["prompts"]["inline"][1]["turns"][0] = "6 5";
  write(other);
  measure("prompts", {"--set", "repeats=1"});
  expect_error(run({"replay", "trace", "--check", "prompts"}),
               {"prompts: got another text of the prompt two"});
  // Another tokenizer makes other ids of the same text.
  write(config());
  measure("ids", {"--set", "repeats=1"});
  EXPECT_EQ(run({"replay", "trace", "--check", "ids"}).code, 0);
  change_lines("ids/cases/autoregressive.jsonl", [](json& line) {
    if (line["prompt"] == "two") line["turns"][0]["context"] = {5, 6, 7};
  });
  expect_error(run({"replay", "trace", "--check", "ids"}),
               {"ids: got other token ids of the prompt two (3 tokens, ", "tokenizer"});
}

}  // namespace
}  // namespace speclab::other_runs_cli_test
