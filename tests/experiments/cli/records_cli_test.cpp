// Commands that read a record do not change it and refuse lines that are not valid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::records_cli_test {
namespace {

using namespace speclab::fixtures;

class Records : public Speclab {
 protected:
  /// A small run: two cases, three prompts, two repeats.
  void measure_two_cases(const std::string& out = "run") {
    measure(out, {"--filter", "autoregressive|lookup"});
  }
  fs::path lines(const std::string& case_id) const {
    return dir() / "run" / "cases" / case_file_name(case_id);
  }
  /// Changes the n-th line of a case.
  void change(const std::string& case_id, std::size_t n, const std::function<void(json&)>& how) {
    std::vector<json> all = read_json_lines(lines(case_id));
    how(all.at(n));
    std::ofstream file(lines(case_id));
    for (const json& line : all) file << line.dump() << "\n";
  }
  void expect_refused_by_readers(const std::vector<std::string>& words) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"report", "run"},
                                                    {"explain", "run"},
                                                    {"compare", "run", "run"},
                                                    {"report", "run", "--export", "vllm"}}) {
      SCOPED_TRACE(command.front());
      expect_error(run(command), words);
    }
  }
};

TEST_F(Records, ReadingChangesNothing) {
  json grid = config();
  grid["cases"] = {{{"strategy", "autoregressive"}},
                   {{"strategy", "lookahead"}, {"W", {1, 2, 4}}, {"N", {3, 4}}, {"G", "=W"}}};
  grid["repeats"] = 1;
  grid["prompts"]["inline"] = {"1 2 3"};
  write(grid);
  ASSERT_EQ(run({"run", "a.json", "--out", "run", "-q"}).code, 0);
  json summary = read_json_file(dir() / "run" / "summary.json");
  summary["cases"][0]["metrics"]["tau"] = 7;  // as if an older version had computed another value
  write_json_file(dir() / "run" / "summary.json", summary);
  const auto before = contents_of(dir() / "run");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"report", "run"},
                                                  {"report", "run", "--json"},
                                                  {"report", "run", "--csv", "x.csv"},
                                                  {"report", "run", "--latex", "x.tex"},
                                                  {"report", "run", "--prompts"},
                                                  {"report", "run", "--export", "vllm"},
                                                  {"explain", "run"},
                                                  {"compare", "run", "run"},
                                                  {"lookahead", "run"}}) {
    const Result result = run(command);
    EXPECT_TRUE(result.code == 0 || result.code == 1) << command.front() << ": " << result.err;
    EXPECT_EQ(contents_of(dir() / "run"), before) << command.front() << " " << command.back();
  }
  EXPECT_EQ(json::parse(run({"report", "run", "--json"}).out)["cases"][0]["metrics"]["tau"], 1)
      << "computed anew";
}

TEST_F(Records, ARecordWithoutLinesIsReportedFromItsSummary) {
  measure_two_cases();
  json summary = read_json_file(dir() / "run" / "summary.json");
  summary["cases"][1]["metrics"]["speedup"] = 4.25;
  write_json_file(dir() / "run" / "summary.json", summary);
  fs::remove_all(dir() / "run" / "cases");
  const auto before = contents_of(dir() / "run");
  const Result table = run({"report", "run"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("4.25"));
  EXPECT_THAT(table.err, HasSubstr("run has no raw lines"));
  EXPECT_EQ(json::parse(run({"report", "run", "--json"}).out)["cases"][1]["metrics"]["speedup"], 4.25);
  EXPECT_THAT(run({"report", "run", "--csv", "-"}).out, HasSubstr(",4.25,"));
  EXPECT_EQ(run({"report", "run", "--prompts", "--case", "prompt_lookup"}).code, 0);
  expect_error(run({"report", "run", "--export", "vllm"}), {"--export", "without raw lines"});
  EXPECT_EQ(contents_of(dir() / "run"), before);
  fs::remove(dir() / "run" / "summary.json");
  EXPECT_THAT(run({"report", "run", "--json"}).out, HasSubstr("\"complete\": false"));
}

TEST_F(Records, TheHtmlReportShowsTheNewlyComputedSummary) {
  measure_two_cases();
  json summary = read_json_file(dir() / "run" / "summary.json");
  summary["description"] = "of an older version";
  write_json_file(dir() / "run" / "summary.json", summary);
  // A fake checkout whose python writes its input to a file.
  fs::create_directories(dir() / "scripts");
  fs::create_directories(dir() / ".venv" / "bin");
  std::ofstream(dir() / "scripts" / "report.py") << "";
  std::ofstream(dir() / ".venv" / "bin" / "python")
      << "#!/bin/sh\necho \"$@\" > arguments\ncat > given.json\necho done\n";
  fs::permissions(dir() / ".venv" / "bin" / "python", fs::perms::owner_all);
  const auto before = contents_of(dir() / "run");
  const Result result = run({"report", "run", "--out", "x.html"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "") << "what Python says is no data";
  EXPECT_THAT(result.err, HasSubstr("done"));
  EXPECT_THAT(Cli::read(dir() / "arguments"), HasSubstr("scripts/report.py run --summary - --out x.html"));
  EXPECT_EQ(read_json_file(dir() / "given.json"), json::parse(run({"report", "run", "--json"}).out));
  EXPECT_EQ(read_json_file(dir() / "given.json")["description"], "");
  EXPECT_EQ(contents_of(dir() / "run"), before);
}

TEST_F(Records, CommittedRecordsAreReportedAndStayAsTheyAre) {
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(SPECLAB_SOURCE_DIR) / "results/baselines")) {
    if (entry.path().filename() != "summary.json") continue;
    SCOPED_TRACE(entry.path());
    const fs::path copy = dir() / "kept";
    fs::remove_all(copy);
    fs::copy(entry.path().parent_path(), copy, fs::copy_options::recursive);
    const auto before = contents_of(copy);
    const Result table = run({"report", "kept"});
    EXPECT_EQ(table.code, 0) << table.err;
    EXPECT_THAT(table.err, HasSubstr("no raw lines"));
    const json printed = json::parse(run({"report", "kept", "--json"}).out),
               stored = read_json_file(copy / "summary.json");
    ASSERT_EQ(printed["cases"].size(), stored["cases"].size());
    for (std::size_t i = 0; i < stored["cases"].size(); ++i)
      EXPECT_EQ(printed["cases"][i]["metrics"], stored["cases"][i]["metrics"]);
    EXPECT_EQ(contents_of(copy), before);
  }
}

TEST_F(Records, TextsThatACommittedSummarySharesArePutBack) {
  measure_two_cases();
  fs::remove_all(dir() / "run" / "cases");
  json summary = read_json_file(dir() / "run" / "summary.json");
  summary["texts"] = {"tau = 1", "the first assumption"};
  summary["cases"][1]["predictions"] = {{"made_up", {{"equation", 0}, {"assumptions", 1}, {"value", 2.5}}}};
  const auto report = [&] {
    write_json_file(dir() / "run" / "summary.json", summary);
    return run({"report", "run", "--json"});
  };
  const json printed = json::parse(report().out);
  EXPECT_FALSE(printed.contains("texts"));
  const json& prediction = printed["cases"][1]["predictions"]["made_up"];
  EXPECT_EQ(prediction["equation"], "tau = 1");
  EXPECT_EQ(prediction["assumptions"], "the first assumption");
  EXPECT_EQ(prediction["value"], 2.5);
  for (const json& bad : {json(2), json(-1), json("tau = 1"), json(.5)}) {
    summary["cases"][1]["predictions"]["made_up"]["equation"] = bad;
    expect_error(report(), {"summary.json", "\"equation\": " + bad.dump(), "from 0 to 1"});
  }
}

TEST_F(Records, OptionsWithoutEffectAreRefused) {
  measure_two_cases();
  expect_error(run({"replay", "run", "--limit", ".03"}), {"replay without --check", "--limit"});
  expect_error(run({"replay", "run", "--check", "run", "--gamma", "2"}), {"replay with --check", "--gamma"});
  expect_error(run({"replay", "run", "--check", "run", "--product", ".5"}),
               {"replay with --check", "--product"});
  expect_error(run({"lookahead", "run", "--resume"}), {"lookahead without --measure", "--resume"});
  for (const std::vector<std::string>& option : std::vector<std::vector<std::string>>{
           {"--width", "3"}, {"--measured-depth", "2"}, {"--set", "seed=2"}, {"--run", "x"}, {"--resume"}}) {
    std::vector<std::string> words = {"optimize", "tree", "run", "--out", "tree.json"};
    words.insert(words.end(), option.begin(), option.end());
    expect_error(run(words), {"optimize tree with a RUN", option.front()});
  }
  for (const char* c : {"-1", "nan", "1001"})
    expect_error(run({"optimize", "tree", "run", "--out", "tree.json", "--c", c}), {"--c", "0 to 1000"});
}

TEST_F(Records, AnUnknownCaseIsNamed) {
  measure_two_cases();
  expect_error(run({"report", "run", "--prompts", "--case", "nothing"}), {"--case", "no case \"nothing\""});
  expect_error(run({"report", "run", "--export", "vllm", "--case", "nothing"}),
               {"--case", "no case \"nothing\""});
}

TEST_F(Records, AChangedTokenIsFoundAtItsLine) {
  measure_two_cases();
  change("autoregressive", 2,
         [](json& line) { line["tokens"][3] = (line["tokens"][3].get<int>() + 1) % 64; });
  expect_refused_by_readers({"autoregressive.jsonl: line 3: output_hash"});
  expect_error(run({"run", "a.json", "--out", "run", "-q", "--filter", "autoregressive|lookup", "--set",
                    "calibration=false", "--resume"}),
               {"autoregressive.jsonl: line 3: output_hash"});
}

TEST_F(Records, AChangedLogitsHashIsFoundAtItsLine) {
  measure_two_cases();
  change("prompt_lookup", 1,
         [](json& line) { line["row_hashes"][0] = line["row_hashes"][0].get<std::uint32_t>() ^ 1; });
  expect_refused_by_readers({"prompt_lookup.jsonl: line 2: logits_hash"});
}

TEST_F(Records, ADoubledLineDoesNotHideALostOne) {
  measure_two_cases();
  std::vector<json> all = read_json_lines(lines("prompt_lookup"));
  std::ofstream file(lines("prompt_lookup"));
  for (std::size_t i = 0; i + 1 < all.size(); ++i) file << all[i].dump() << "\n";
  file << all[0].dump() << "\n";
  file.close();
  expect_refused_by_readers({"prompt_lookup.jsonl: line 6", "as in line 1"});
}

TEST_F(Records, AMissingLineMakesTheRunIncomplete) {
  measure_two_cases();
  std::vector<json> all = read_json_lines(lines("prompt_lookup"));
  std::ofstream file(lines("prompt_lookup"));
  for (std::size_t i = 1; i < all.size(); ++i) file << all[i].dump() << "\n";
  file.close();
  EXPECT_THAT(run({"report", "run"}).out, HasSubstr("This run is not complete."));
}

TEST_F(Records, LinesOfOtherCasesAndOtherRunsAreRefused) {
  measure_two_cases();
  const std::string good = Cli::read(lines("prompt_lookup"));
  std::ofstream(lines("prompt_lookup")) << Cli::read(lines("autoregressive"));
  expect_refused_by_readers({"prompt_lookup.jsonl: line 1: case: got autoregressive"});
  std::ofstream(lines("prompt_lookup")) << good;
  change("prompt_lookup", 0, [](json& line) { line["seed"] = 77; });
  expect_refused_by_readers({"a line of prompt_lookup", "seed 77", "config.json"});
}

TEST_F(Records, TwoCasesNeverShareAFile) {
  json twins = config();
  twins["drafts"] = {{"small", {{"model", "draft"}}},
                     {"small__gamma=1", {{"model", "draft"}}},
                     {std::string(300, 'd'), {{"layers", {0}}}}};
  twins["options"]["max_tokens"] = 6;
  twins["calibration"] = false;
  twins["cases"] = {{{"strategy", "autoregressive"}},
                    {{"strategy", "speculative_sampling"}, {"draft", "small"}, {"gamma", 1}},
                    {{"strategy", "speculative_sampling"}, {"draft", "small__gamma=1"}},
                    {{"strategy", "speculative_sampling"}, {"draft", std::string(300, 'd')}}};
  write(twins);
  const Result result = run({"run", "a.json", "--out", "run", "-q"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_TRUE(summary["complete"].get<bool>());
  std::set<std::string> files;
  for (const json& entry : summary["cases"]) {
    files.insert(entry["file"].get<std::string>());
    const std::vector<json> all = read_json_lines(dir() / "run" / entry["file"].get<std::string>());
    EXPECT_EQ(all.size(), 6u) << entry["id"];
    for (const json& line : all) EXPECT_EQ(line["case"], entry["id"]);
  }
  EXPECT_EQ(files.size(), 4u);
  EXPECT_EQ(run({"run", "a.json", "--out", "run", "-q", "--resume"}).code, 0);
}

TEST_F(Records, FilesOfTheWrongShapeAreUserErrors) {
  measure_two_cases();
  for (const char* file : {"config.json", "environment.json"}) {
    const std::string good = Cli::read(dir() / "run" / file);
    for (const char* bad : {"[]", "7", "\"text\"", "{\"cpu\": [], \"models\": []}",
                            "{\"models\": {\"target\": 3}, \"threads\": \"many\"}",
                            "{\"prompts\": {}, \"cases\": [1]}", "{\"schema_version\": 9}"}) {
      if (file == std::string("environment.json") && std::string(bad).starts_with("{\"prompts"))
        continue;  // all of its fields are optional
      std::ofstream(dir() / "run" / file) << bad;
      SCOPED_TRACE(std::string(file) + " " + bad);
      expect_refused_by_readers({file});
      expect_error(run({"run", "a.json", "--out", "run", "-q", "--resume", "--filter",
                        "autoregressive|lookup", "--set", "calibration=false"}),
                   {"run"});
    }
    std::ofstream(dir() / "run" / file) << good;
  }
  fs::remove_all(dir() / "run" / "cases");
  for (const char* bad : {"[]", "{}", "{\"cases\": {}}"}) {
    std::ofstream(dir() / "run" / "summary.json") << bad;
    for (const char* option : {"--json", "--prompts"})
      expect_error(run({"report", "run", option}), {"summary.json"});
  }
  measure_two_cases("other");
  json summary = read_json_file(dir() / "other" / "summary.json");
  fs::remove_all(dir() / "other" / "cases");
  for (const char* place : {"/cases/0/metrics", "/cases/1/lossy", "/errors", "/cases/0/by_prompt/1/tau",
                            "/cases/1/metrics/ms_per_token_ci95", "/lookahead", "/noise_floor"}) {
    SCOPED_TRACE(place);
    json bad = summary;
    bad[json::json_pointer(place)] = "x";
    write_json_file(dir() / "other" / "summary.json", bad);
    expect_error(run({"report", "other"}), {"summary.json"});
  }
}

}  // namespace
}  // namespace speclab::records_cli_test
