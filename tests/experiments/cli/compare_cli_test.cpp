// speclab compare on real runs of tiny models, and on committed records.
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::compare_cli_test {
namespace {

using namespace speclab::fixtures;

class CompareCommand : public Speclab {
 protected:
  /// Copies a run as a committed record, without raw lines.
  void commit(const std::string& from, const std::string& to) {
    std::filesystem::create_directory(dir() / to);
    for (const char* file : {"config.json", "environment.json", "summary.json"})
      std::filesystem::copy_file(dir() / from / file, dir() / to / file);
  }
  static void rewrite(const std::filesystem::path& file, const std::function<void(LineRecord&)>& change) {
    std::vector<LineRecord> lines = read_case_file(file);
    std::filesystem::remove(file);
    JsonLinesWriter writer(file);
    for (LineRecord& line : lines) {
      change(line);
      writer.append(to_json(line));
    }
  }
  json compared(const std::vector<std::string>& more, int code) {
    std::vector<std::string> words = {"compare", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, code) << result.err << result.out;
    return json::parse(result.out, nullptr, false);
  }
};

TEST_F(CompareCommand, OneRepeatIsNoVerdict) {
  measure("base", {"--set", "repeats=1"});
  measure("new", {"--set", "repeats=1"});
  const json result = compared({"base", "new"}, 0);
  EXPECT_TRUE(result["noise"].is_null());
  for (const json& entry : result["cases"]) {
    EXPECT_EQ(entry["verdict"], "unclear: no repeats") << entry["id"];
    EXPECT_GT(entry["ratio"].get<double>(), 0);
    EXPECT_EQ(entry["texts"]["compared"], 3);
    EXPECT_EQ(entry["texts"]["changed"], 0);
    EXPECT_EQ(entry["texts"]["promised"], true);
  }
}

TEST_F(CompareCommand, ACommittedRecordComparesByGates) {
  measure("run", {"--set", "repeats=1"});
  commit("run", "committed");
  const Result nothing = run({"compare", "committed", "run"});
  EXPECT_EQ(nothing.code, 1);
  EXPECT_THAT(nothing.out, HasSubstr("Nothing was compared: BASE has no raw lines"));
  EXPECT_THAT(nothing.out, HasSubstr("FAILED"));
  EXPECT_EQ(run({"compare", "committed", "run", "--allow-uncompared"}).code, 0);
  for (const char* base : {"committed", "run"}) {
    const json same = compared({base, "run", "--gate", "tau,alpha,rows,calls"}, 0);
    for (const json& entry : same["cases"]) {
      EXPECT_EQ(entry["verdict"], "equal");
      EXPECT_EQ(entry["gates"].size(), 5u);
    }
  }
  json summary = read_json_file(dir() / "committed" / "summary.json");
  for (json& entry : summary["cases"]) {
    if (entry["id"] == "speculative_sampling/draft=skip/gamma=3")
      entry["metrics"]["target_rows"] =
          entry["metrics"]["target_rows"].get<double>() - 1 / entry["metrics"]["tokens"].get<double>();
  }
  write_json_file(dir() / "committed" / "summary.json", summary);
  const Result worse = run({"compare", "committed", "run", "--gate", "tau,alpha,rows,calls"});
  EXPECT_EQ(worse.code, 1);
  EXPECT_TRUE(std::regex_search(worse.out, std::regex(R"(gamma=3.*[0-9]+ -> [0-9]+ worse.*differs)")))
      << worse.out;
  EXPECT_THAT(worse.out, HasSubstr("FAILED: 1 case: gate"));
  EXPECT_EQ(run({"compare", "committed", "run", "--gate", "tau,alpha"}).code, 0);
  expect_error(run({"compare", "committed", "run", "--gate", "rowz"}),
               {"\"rowz\"", "tau, alpha, rows, calls"});
}

TEST_F(CompareCommand, OtherWorkloadsMissingCasesAndChangedTexts) {
  measure("base", {"--set", "repeats=1"});
  measure("short", {"--set", "repeats=1", "--set", "options.max_tokens=12"});
  expect_error(run({"compare", "base", "short"}), {"max_tokens: 24, 12 (6 cases)", "--allow-other-workload"});
  const json allowed = compared({"base", "short", "--allow-other-workload", "--markdown", "change.md"}, 0);
  EXPECT_THAT(Cli::read(dir() / "change.md"),
              HasSubstr("\n- The workloads differ: max_tokens: 24, 12 (6 cases)\n"));
  EXPECT_EQ(allowed["workload_differences"], json::array({"max_tokens: 24, 12 (6 cases)"}));
  EXPECT_EQ(allowed["cases"][0]["texts"]["promised"], false);

  measure("part", {"--set", "repeats=1", "--filter", "prompt_lookup"});
  const Result missing = run({"compare", "base", "part"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.out, HasSubstr("4 cases: missing (--allow-missing allows it)"));
  EXPECT_EQ(run({"compare", "base", "part", "--allow-missing"}).code, 0);
  EXPECT_EQ(run({"compare", "part", "base"}).code, 0) << "more cases are no failure";

  std::filesystem::copy(dir() / "base", dir() / "changed", std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::directory_iterator(
           dir() / "changed" / "cases")) {  // in all cases, so that each stays equal to its reference
    rewrite(entry.path(), [](LineRecord& line) {
      if (line.prompt == "two") line.turns[1].tokens[5] += 1;
    });
  }
  const Result changed = run({"compare", "base", "changed"});
  EXPECT_EQ(changed.code, 1);
  EXPECT_THAT(changed.out, HasSubstr("CHANGED 1 of 3, first prompt two seed 1 token 29"));
  EXPECT_EQ(run({"compare", "base", "changed", "--allow-changed-text"}).code, 0);
}

TEST_F(CompareCommand, ABusyMachineIsMarkedEverywhere) {
  measure("run");
  json summary = read_json_file(dir() / "run" / "summary.json");
  ASSERT_TRUE(summary.contains("machine"));
  ASSERT_TRUE(summary["machine"]["busy"].is_boolean());
  rewrite(dir() / "run" / "cases" / "autoregressive.jsonl", [](LineRecord& line) {
    for (GenerationRecord& turn : line.turns) turn.cpu_ns = turn.decode_ns / 10;
  });
  const Result resumed =
      run({"run", "a.json", "--out", "run", "--resume", "-q", "--set", "calibration=false"});
  EXPECT_THAT(resumed.out, HasSubstr("Busy machine: cpu_share 0."));
  const Result report = run({"report", "run"});
  EXPECT_THAT(report.out, HasSubstr("Busy machine: cpu_share 0."));
  EXPECT_THAT(run({"report", "run", "--latex", "-"}).out, HasSubstr("busy machine"));
  EXPECT_EQ(json::parse(run({"report", "run", "--json"}).out)["machine"]["busy"], true);
  const Result compare = run({"compare", "run", "run", "--markdown", "change.md"});
  EXPECT_EQ(compare.code, 0);
  EXPECT_THAT(compare.out, HasSubstr("BASE: Busy machine: cpu_share 0."));
  EXPECT_THAT(compare.out, HasSubstr("unclear: busy machine"));
  EXPECT_THAT(Cli::read(dir() / "change.md"), AllOf(HasSubstr("\n- BASE: Busy machine: cpu_share 0."),
                                                    HasSubstr("\n- NEW: Busy machine: cpu_share 0.")));
}

TEST_F(CompareCommand, TheExampleOfItsHelpNamesARecordThatExists) {
  const std::string help = run({"compare", "--help"}).out;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(help, found, std::regex("results/baselines/[^ ]+"))) << help;
  EXPECT_TRUE(
      std::filesystem::exists(std::filesystem::path(SPECLAB_SOURCE_DIR) / found.str() / "summary.json"))
      << found.str();
}

TEST_F(CompareCommand, DamagedRecordsAreUserErrors) {
  measure("run", {"--set", "repeats=1"});
  commit("run", "damaged");
  for (const char* text : {"[]", "{}", "{\"cases\": 3}", "{\"cases\": [{}]}",
                           "{\"cases\": [{\"id\": \"autoregressive\", \"metrics\": 1}]}"}) {
    std::ofstream(dir() / "damaged" / "summary.json") << text;
    expect_error(run({"compare", "damaged", "run", "--gate", "tau"}), {"damaged/summary.json"});
  }
}

}  // namespace
}  // namespace speclab::compare_cli_test
