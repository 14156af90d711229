// --resume DIR, messages of an interrupted run, dry runs, parts of case ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <thread>

#include "core/base/error.h"
#include "experiments/analysis/case_match.h"
#include "experiments/run/resume.h"
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::go_on_cli_test {
namespace {

using namespace speclab::fixtures;

class GoOn : public Speclab {
 protected:
  /// Runs the command and sends Ctrl-C as soon as the file exists.
  Result interrupt(std::vector<std::string> words, const fs::path& file) {
    Cli cli(dir(), std::move(words));
    while (cli.running() && !fs::exists(dir() / file))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    cli.kill(SIGINT);
    const int code = cli.wait();
    return {code, cli.out(), cli.err()};
  }
};

TEST_F(GoOn, TheFolderAloneIsEnough) {
  const std::vector<std::string> words = {
      "run",        "a.json",       "--out",          "it's a run", "--set",
      "repeats=60", "--set",        "max_tokens=+20", "--set",      "calibration=false",
      "--filter",   "small|lookup", "--threads",      "1",          "--numerics",
      "f32"};
  const Result cut = interrupt(words, "it's a run/cases/prompt_lookup.jsonl");
  ASSERT_EQ(cut.code, 130) << cut.err;
  const std::string folder = "'it'\\''s a run'";
  EXPECT_THAT(cut.err, AllOf(HasSubstr("Resume with: speclab run --resume " + folder + "\n"),
                             HasSubstr("speclab run a.json --set repeats=60 --set max_tokens=+20 --set "
                                       "calibration=false --filter 'small|lookup' "
                                       "--numerics=f32 --threads=1 --resume --out " +
                                       folder + "\n")));
  const json before = read_json_file(dir() / "it's a run/config.json");
  EXPECT_EQ(before["cases"].size(), 4u);
  fs::remove(dir() / "a.json");  // the record holds the config
  const Result rest = run({"run", "--resume", "it's a run", "-q"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(read_json_file(dir() / "it's a run/config.json"), before);
  EXPECT_TRUE(read_json_file(dir() / "it's a run/summary.json")["complete"].get<bool>());
  EXPECT_EQ(read_json_file(dir() / "it's a run/environment.json")["options"]["threads"], 1);
  // The printed command works in a shell, and --resume refuses other options.
  const std::string said = cut.err.substr(cut.err.find("--resume 'it"));
  EXPECT_EQ(shell("$SPECLAB run " + said.substr(0, said.find('\n'))).code, 0);
  expect_error(run({"run", "--resume", "it's a run", "--threads", "2", "-q"}), {"--resume", "threads"});
  expect_error(run({"run", "--resume", "it's a run", "--set", "repeats=61", "-q"}), {"--resume", "/repeats"});
  expect_error(run({"run", "--resume", "it's a run", "--out", "x"}),
               {"a folder", "speclab run --resume DIR"});
  expect_error(run({"run", "it's a run"}), {"a folder", "speclab run --resume DIR"});
  expect_error(run({"run", "--resume", "target"}), {"target/config.json", "the record of a run"});
  expect_error(run({"run", "--resume", "it's a run/cases"}), {"it's a run/cases", "no run"});
  // A part of a case id is enough if only one case has it.
  expect_error(run({"explain", "it's a run", "draft=small"}),
               {"a part of 2 case ids", "draft=small/gamma=1, ", "draft=small/gamma=3"});
}

TEST_F(GoOn, ARunOfSeveralTargetsResumesFromItsFolder) {
  json two = config();
  two.erase("target");
  two["targets"] = {{"one", "target"}, {"two", "target"}};
  two["repeats"] = 60;
  two["calibration"] = false;
  write(two);
  const Result cut = interrupt({"run", "a.json", "--out", "runs", "--filter", "lookup"},
                               "runs/one/cases/prompt_lookup.jsonl");
  ASSERT_EQ(cut.code, 130) << cut.err;
  EXPECT_THAT(cut.err, HasSubstr("speclab run --resume runs\n"));
  EXPECT_FALSE(fs::exists(dir() / "runs/two"));
  fs::remove(dir() / "a.json");
  const Result rest = run({"run", "--resume", "runs", "-q"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  for (const char* target : {"runs/one", "runs/two"}) {
    EXPECT_TRUE(read_json_file(dir() / target / "summary.json")["complete"].get<bool>()) << target;
    EXPECT_EQ(read_json_file(dir() / target / "config.json")["cases"].size(), 2u) << "--filter holds";
  }
}

TEST_F(GoOn, ARunWithoutLinesClaimsNothing) {
  const Result cut =
      interrupt({"run", "a.json", "--out", "run", "--set", "warmup=100", "--set", "options.max_tokens=200"},
                "run/config.json");
  ASSERT_EQ(cut.code, 130) << cut.err;
  if (fs::exists(dir() / "run/cases/autoregressive.jsonl"))
    GTEST_SKIP() << "a line was faster than the signal";
  EXPECT_EQ(cut.out, "");
  EXPECT_THAT(cut.err, AllOf(HasSubstr("nothing was measured"), HasSubstr("--resume run")));
}

TEST_F(GoOn, ADryRunLooksForFilesAndEstimatesTheTime) {
  const Result dry = run({"run", "a.json", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out,
              AllOf(HasSubstr("36 lines"), HasSubstr("Rough estimate of the time"), HasSubstr("leaves out")));
  json more = config();
  more["cases"].push_back({{"strategy", "retrieval"}, {"datastore", "none.datastore"}});
  more["cases"].push_back({{"strategy", "ngram_model"}, {"counts", "file"}, {"file", "none.ngrams"}});
  more["drafts"]["unused"] = {{"model", "nowhere/unused"}};
  write(more);
  fs::rename(dir() / "draft", dir() / "elsewhere");
  const Result missing = run({"run", "a.json", "--dry-run"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.out, HasSubstr("prompt_lookup")) << "the cases are shown all the same";
  EXPECT_THAT(missing.err, AllOf(HasSubstr("draft, none.datastore, none.ngrams: got no such file"),
                                 Not(HasSubstr("unused"))));
  const Result real = run({"run", "a.json", "--out", "x"});
  expect_error(real, {"none.datastore"});
  EXPECT_THAT(real.err, Not(HasSubstr("loading"))) << "before a model is loaded";
  EXPECT_FALSE(fs::exists(dir() / "x"));
}

TEST_F(GoOn, QuietSaysWhyTheExitCodeIsNotZero) {
  json long_prompt = config();
  std::string ids;
  for (int i = 0; i < 300; ++i) ids += "1 ";
  long_prompt["prompts"]["inline"].push_back(ids);
  write(long_prompt);
  const Result result = run({"run", "a.json", "--out", "run", "-q"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("exit code 1"), HasSubstr("12 lines failed"), HasSubstr("run/summary.json")));
}

TEST_F(GoOn, ShardsAreNumbersThatExist) {
  for (const char* text : {"1/99999999999", "99999999999/99999999999", "0/2", "3/2", "1", "1/", "/2", "1/2/3",
                           "1/2x", "-1/2", "4294967297/4294967298", "+1/2", " 1/2"})
    expect_error(run({"run", "a.json", "--dry-run", "--shard", text}), {"--shard", text, "1 <= i <= n"});
}

TEST_F(GoOn, ExpressionsTakeLinearTimeAndBadOnesAreRefused) {
  expect_error(run({"run", "a.json", "--dry-run", "--filter", std::string(20000, '(')}), {"--filter", "RE2"});
  expect_error(run({"run", "a.json", "--dry-run", "--filter", "("}), {"--filter", "missing )"});
  expect_error(run({"run", "a.json", "--dry-run", "--filter", "gamma=(?!1)"}), {"--filter", "RE2"});
  std::string slow;
  for (int i = 0; i < 12; ++i) slow += "(.*)*";
  expect_error(run({"run", "a.json", "--dry-run", "--filter", slow + "never"}),
               {"--filter", "a match in at least one case id"});
  const Result one = run({"run", "a.json", "--dry-run", "--filter", "(small|nothing)/gamma=1$"});
  EXPECT_THAT(one.out,
              AllOf(HasSubstr("draft=small/gamma=1"), Not(HasSubstr("gamma=3")), HasSubstr("2 cases")));
}

TEST_F(GoOn, TooLargePlansAreRefusedBeforeTheyAreMade) {
  json huge = config();
  std::string prompts;
  for (int i = 0; i < 1000; ++i) prompts += "{\"id\": \"" + std::to_string(i) + "\", \"turns\": [\"1 2\"]}\n";
  std::ofstream(dir() / "p.jsonl") << prompts;
  huge["prompts"] = "p.jsonl";
  huge["repeats"] = 1000;
  json gammas = json::array(), seeds = json::array();
  for (int i = 0; i < 1000; ++i) seeds.push_back(i);
  huge["seeds"] = seeds;
  write(huge);
  expect_error(run({"run", "a.json", "--dry-run"}),
               {"a.json", "6 cases x 1000 prompts x 1000 seeds x 1000 repeats", "at most 1000000 lines"});
  EXPECT_EQ(
      run({"run", "a.json", "--dry-run", "--set", "repeats=1", "--set", "seeds=1", "--filter", "lookup"})
          .code,
      0);
}

TEST_F(GoOn, ANumberTooLargeForADoubleIsNamedWithItsPlace) {
  std::ofstream(dir() / "bad.json") << "{\n  \"name\": \"1e999\",\n  \"repeats\": 1e999\n}";
  expect_error(run({"run", "bad.json"}), {"bad.json: line 3, column 14", "1e999"});
}

TEST_F(GoOn, ARunFolderStaysInsideTheFolderOfRuns) {
  expect_error(run({"run", "a.json", "-q", "--set", "name=../../../x"}),
               {"name=../../../x", "without a slash"});
  EXPECT_FALSE(fs::exists(dir() / "results"));
}

TEST_F(GoOn, ErrorsNameTheOptionOfTheCommand) {
  const auto generate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", "--model", "target", "--prompt", "1 2"});
    return run(more);
  };
  expect_error(generate({"--set", "gama=2"}), {"--set gama=2", "--set gamma=2"});
  expect_error(generate({"--set", "gamma=2"}), {"--set gamma=2", "speculative_sampling"});
  expect_error(generate({"--set", "temperature=hot"}), {"--set temperature=hot", "a number"});
  expect_error(generate({"--strategy", "speculative_samplin"}), {"--strategy", "speculative_sampling"});
  expect_error(generate({"--strategy", "speculative_sampling"}),
               {"--strategy speculative_sampling", "--draft"});
  expect_error(generate({"--strategy", "retrieval"}), {"--strategy retrieval", "--set datastore=FILE"});
  expect_error(generate({"--set", "lenience=.3"}), {"--set lenience=.3", "rule"});
  EXPECT_EQ(generate({"--strategy", "speculative_sampling", "--draft", "draft", "--set", "rule=lenience",
                      "--set", "lenience=.3", "--set", "temperature=+1", "--set", "max_tokens=8", "--set",
                      "cases.0.gamma=2."})
                .code,
            0);
  expect_error(run({"theory", "--alpha", "1.5", "--gamma", "2"}), {"--alpha", "1.5"});
  expect_error(run({"theory", "--alpha", ".5", "--gamma", "-2"}), {"--gamma", "-2"});
}

TEST(CaseMatch, APartOfOneIdIsEnough) {
  const std::vector<std::string> ids = {"autoregressive", "s/draft=a/gamma=1", "s/draft=a/gamma=16",
                                        "s/draft=b/gamma=2", "lookup"};
  const auto match = [&](const std::string& wanted) { return match_case(wanted, ids, "speclab explain"); };
  EXPECT_EQ(match("gamma=1"), "s/draft=a/gamma=1") << "a whole part goes before gamma=16";
  EXPECT_EQ(match("gamma=16"), "s/draft=a/gamma=16");
  EXPECT_EQ(match("draft=b"), "s/draft=b/gamma=2");
  EXPECT_EQ(match("look"), "lookup");
  EXPECT_EQ(match("lookup"), "lookup");
  for (const auto& [wanted, words] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"draft=a", {"a part of 2 case ids", "s/draft=a/gamma=1, s/draft=a/gamma=16"}},
           {"nothing", {"no case \"nothing\""}},
           {"", {"no case"}}}) {
    try {
      match(wanted);
      ADD_FAILURE() << wanted;
    } catch (const Error& error) {
      for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
    }
  }
}

TEST(ShellWord, AShellReadsTheWordUnchanged) {
  EXPECT_EQ(shell_word("a/b.json"), "a/b.json");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("gamma=[1,2]"), "'gamma=[1,2]'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace speclab::go_on_cli_test
