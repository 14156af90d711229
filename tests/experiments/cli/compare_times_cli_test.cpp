// speclab compare on times: parts of a change, Markdown, A/A runs, and suspects that are measured again.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::compare_times_cli_test {
namespace {

using namespace speclab::fixtures;

constexpr const char* kSuspect = "speculative_sampling/draft=skip/gamma=3";

/// Runs whose times were replaced by constants, so that verdicts do not depend on the machine.
class CompareTimes : public Speclab {
 protected:
  /// Replaces the times of a run. A step takes 100 ms in the autoregressive case and 110 ms in the others; in
  /// the case `slow` it takes `slow_ms` longer for drafting. The tiny model is a thousand times faster. The
  /// threads get this share of their processors.
  void set_times(const std::string& folder, const std::string& slow = "", int slow_ms = 55,
                 double share = 1) {
    const int threads = read_json_file(dir() / folder / "environment.json")["threads"];
    for (const auto& entry : fs::directory_iterator(dir() / folder / "cases")) {
      std::vector<LineRecord> lines = read_case_file(entry.path());
      fs::remove(entry.path());
      JsonLinesWriter writer(entry.path());
      for (LineRecord& line : lines) {
        for (GenerationRecord& turn : line.turns) {
          turn.decode_ns = 0;
          for (StepRecord& step : turn.steps) {
            step.times.ns = {0, 95'000'000, 3'000'000, 2'000'000};
            if (line.case_id != "autoregressive") step.times[Phase::draft] = 10'000'000;
            if (line.case_id == slow) step.times[Phase::draft] += slow_ms * 1'000'000;
            turn.decode_ns += step.times.total();
          }
          turn.cpu_ns = static_cast<std::int64_t>(share * threads * static_cast<double>(turn.decode_ns));
        }
        writer.append(to_json(line));
      }
    }
  }
  void copy_run(const std::string& from, const std::string& to) {
    fs::copy(dir() / from, dir() / to, fs::copy_options::recursive);
  }
  json compared(std::vector<std::string> words, int code) {
    words.insert(words.begin(), {"compare", "--json"});
    const Result result = run(words);
    EXPECT_EQ(result.code, code) << result.err << result.out;
    return json::parse(result.out, nullptr, false);
  }
  static json find_case(const json& comparison, const std::string& id) {
    for (const json& entry : comparison["cases"]) {
      if (entry["id"] == id) return entry;
    }
    return nullptr;
  }
};

TEST_F(CompareTimes, ASlowCaseFailsAndTheReportSaysWhy) {
  measure("base");
  set_times("base");
  copy_run("base", "new");
  set_times("new", kSuspect);
  const json entry = find_case(compared({"base", "new", "--markdown", "change.md"}, 1), kSuspect);
  EXPECT_EQ(entry["verdict"], "slower");
  EXPECT_EQ(entry["failures"], json::array({"slower"}));
  EXPECT_EQ(entry["suspect"], true);
  const json& change = entry["change"];
  EXPECT_NEAR(change["ratio"].get<double>(), 1 / 1.5, 1e-9);
  EXPECT_NEAR(change["speedup"]["new"].get<double>() / change["speedup"]["base"].get<double>(), 1 / 1.5,
              1e-9);
  EXPECT_NEAR(change["parts"]["draft"]["log_ratio"].get<double>(), std::log(1 / 1.5), 1e-9);
  for (const char* part : {"reference", "acceptance", "verification", "overhead"})
    EXPECT_NEAR(change["parts"][part]["log_ratio"].get<double>(), 0, 1e-9) << part;
  EXPECT_GT(entry["paired_steps"]["pairs"], 0);
  EXPECT_EQ(entry["paired_steps"]["pairs"], entry["paired_steps"]["new_steps"]);
  const std::string markdown = Cli::read(dir() / "change.md");
  EXPECT_THAT(markdown, StartsWith("**FAILED: 1 case: slower** 6 cases: 5 same, 1 slower."));
  EXPECT_THAT(markdown, HasSubstr("takes 50.0 % more time per token; the largest part is draft (-40.5)."));
  EXPECT_THAT(markdown, HasSubstr("| case | speedup | change [95 %] | reference | acceptance | draft |"));
  EXPECT_THAT(markdown, HasSubstr("|---|---:|---:|"));
  const Result text = run({"compare", "base", "new"});
  EXPECT_THAT(text.out, HasSubstr("FAILED: 1 case: slower"));
  EXPECT_THAT(text.err, AllOf(HasSubstr("Suspects: " + std::string(kSuspect)),
                              HasSubstr("speclab compare base new --rerun DIR")));
  EXPECT_THAT(run({"compare", "base", "new", "--quiet"}).err, HasSubstr("Suspects: ")) << "not of --rerun";
  EXPECT_EQ(run({"compare", "new", "base"}).code, 0) << "a faster case is no failure";
}

TEST_F(CompareTimes, SuspectsAreMeasuredAgain) {
  measure("base");
  set_times("base");
  copy_run("base", "new");
  set_times("new", kSuspect);
  run({"compare", "base", "new", "--rerun", "again", "-q"});  // real times: any verdict
  std::vector<std::string> measured;
  const json again = read_json_file(dir() / "again" / "config.json");
  for (const json& one : again["cases"]) measured.push_back(one["id"]);
  EXPECT_EQ(measured, (std::vector<std::string>{"autoregressive", kSuspect}));
  // From here on the lines are there already, with the times that the test writes.
  const auto settled = [&](int slow_ms, double share, int code) {
    set_times("again", kSuspect, slow_ms, share);
    return find_case(compared({"base", "new", "--rerun", "again", "-q", "--markdown", "change.md"}, code),
                     kSuspect);
  };
  const auto markdown = [&] { return Cli::read(dir() / "change.md"); };
  for (const auto& [slow_ms, verdict] : {std::pair(0, "same"), std::pair(-5, "faster")}) {
    const json entry = settled(slow_ms, 1, 0);
    EXPECT_EQ(entry["verdict"], "unclear: not slower when measured again");
    EXPECT_EQ(entry["failures"], json::array());
    EXPECT_EQ(entry["again"]["verdict"], verdict);
    EXPECT_THAT(markdown(), HasSubstr(fmt::format("- {} measured again: {}, base", kSuspect, verdict)));
  }
  // If the second measurement is as slow as the first one, or doubtful, the case fails.
  const json slow = settled(55, 1, 1), busy = settled(0, .3, 1);
  for (const auto& [entry, verdict] :
       {std::pair(&slow, "slower"), std::pair(&busy, "unclear: busy machine")}) {
    EXPECT_EQ((*entry)["verdict"], "slower") << verdict;
    EXPECT_EQ((*entry)["failures"], json::array({"slower"})) << verdict;
    EXPECT_EQ((*entry)["again"]["verdict"], verdict);
  }

  json environment = read_json_file(dir() / "new" / "environment.json");
  environment["binary_sha256"] = "other";
  write_json_file(dir() / "new" / "environment.json", environment);
  expect_error(run({"compare", "base", "new", "--rerun", "third"}), {"new, which another binary measured"});
  EXPECT_FALSE(fs::exists(dir() / "third"));
  expect_error(run({"compare", "base", "new", "--rerun", "third", "--gate", "tau"}), {"--rerun"});
}

TEST_F(CompareTimes, AnAARunGivesTheNoise) {
  measure("base", {"--set", "repeats=1"});
  set_times("base");
  copy_run("base", "new");
  copy_run("base", "noisy");
  set_times("noisy", kSuspect, 66);
  measure("second", {"--set", "repeats=1"});
  set_times("second");
  EXPECT_TRUE(compared({"base", "new"}, 0)["noise"].is_null()) << "one repeat";
  const json same = compared({"base", "new", "--aa", "second"}, 0);
  EXPECT_EQ(same["noise"], 0);
  EXPECT_EQ(same["aa_runs"], 1);
  for (const json& entry : same["cases"]) EXPECT_EQ(entry["verdict"], "same") << entry["id"];
  // If two runs of one program differ by 60 %, a difference of 50 % is noise.
  set_times("new", kSuspect);
  EXPECT_EQ(find_case(compared({"base", "new", "--aa", "second"}, 1), kSuspect)["verdict"], "slower");
  const json noisy = compared({"base", "new", "--aa", "noisy", "--aa", "second"}, 0);
  EXPECT_NEAR(noisy["noise"].get<double>(), .6, 1e-9);
  EXPECT_NEAR(noisy["speedup_noise"].get<double>(), .6, 1e-9);
  EXPECT_EQ(noisy["aa_runs"], 2);
  expect_error(run({"compare", "base", "new", "--aa", "base"}), {"--aa base", "the lines of BASE itself"});
  expect_error(run({"compare", "base", "new", "--aa", "new"}), {"--aa new", "the lines of NEW itself"});
  measure("short", {"--set", "repeats=1", "--set", "options.max_tokens=12"});
  set_times("short");
  expect_error(run({"compare", "base", "new", "--aa", "short"}),
               {"--aa short", "max_tokens: 24, 12 (6 cases)"});

  json environment = read_json_file(dir() / "second" / "environment.json");
  environment["binary_sha256"] = "other";
  write_json_file(dir() / "second" / "environment.json", environment);
  expect_error(run({"compare", "base", "new", "--aa", "second"}), {"--aa", "another binary"});
  expect_error(run({"compare", "base", "new", "--aa", "nowhere"}), {"nowhere"});
}

}  // namespace
}  // namespace speclab::compare_times_cli_test
