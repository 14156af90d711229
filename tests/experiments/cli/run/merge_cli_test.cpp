// Shards that were measured into folders of their own are merged into the record of a run in one piece.
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::merge_cli_test {
namespace {

using namespace speclab::fixtures;

class Merge : public Speclab {
 protected:
  /// Five prompts and two seeds; one of the cases is lossy, so that there are estimates of both kinds.
  static json long_config() {
    json out = config();
    out["prompts"]["inline"] = json::parse(
        R"(["1 2 3", {"id": "two", "category": "b", "turns": ["5 6", "7 8 9"]}, "11", "4 4 5 5", "9 8 7"])");
    out["seeds"] = {3, 1};
    out["options"].update({{"temperature", 1}, {"ignore_eos", true}, {"max_tokens", 12}});
    out["bounds"] = true;
    out["cases"].push_back(
        {{"strategy", "speculative_sampling"}, {"draft", "small"}, {"gamma", 2}, {"rule", "typical"}});
    return out;
  }
  /// Runs a.json in shards without a calibration, each into a folder of its own: a, b, ...
  std::vector<std::string> measure_shards(int count, const std::vector<std::string>& more = {}) {
    std::vector<std::string> folders;
    for (int i = 1; i <= count; ++i) {
      folders.push_back(std::string(1, static_cast<char>('a' + i - 1)));
      std::vector<std::string> words = more;
      words.insert(words.end(), {"--shard", std::to_string(i) + "/" + std::to_string(count)});
      measure(folders.back(), words);
    }
    return folders;
  }
  Result merge(std::vector<std::string> folders, const std::vector<std::string>& more = {},
               const std::string& out = "merged") {
    folders.insert(folders.begin(), "merge");
    folders.insert(folders.end(), {"--out", out});
    folders.insert(folders.end(), more.begin(), more.end());
    return run(folders);
  }
  /// The lines of the cases of a run without their times, as text, by file. `rounds`: also without the number
  /// of calibration rounds before each line.
  std::map<std::string, std::string> cases_of(const std::string& run, bool rounds = false) const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::directory_iterator(dir() / run / "cases")) {
      for (json line : read_json_lines(entry.path())) {
        if (rounds) line.erase("calibration_rounds");
        out[entry.path().filename()] += without_times(line).dump() + "\n";
      }
    }
    return out;
  }
  std::string bytes(const std::string& path) const { return Cli::read(dir() / path); }
  /// Changes a JSON file of a folder.
  void change(const std::string& path, const std::function<void(json&)>& how) {
    json value = read_json_file(dir() / path);
    how(value);
    write_json_file(dir() / path, value);
  }
  /// A copy of a folder under another name.
  std::string copy_of(const std::string& folder, const std::string& name) {
    fs::remove_all(dir() / name);
    fs::copy(dir() / folder, dir() / name, fs::copy_options::recursive);
    return name;
  }
  void append(const std::string& path, const std::string& text) {
    std::ofstream(dir() / path, std::ios::app) << text;
  }
  static std::vector<std::string> lines_in(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  /// Takes away the last line of a file, or only its end.
  void cut_last_line(const std::string& path, bool whole) {
    std::string text = bytes(path);
    const std::size_t begin = text.rfind('\n', text.size() - 2) + 1;
    text.resize(whole ? begin : begin + (text.size() - begin) / 2);
    std::ofstream(dir() / path, std::ios::binary) << text;
  }
  static constexpr const char* kLookup = "/cases/prompt_lookup.jsonl";
};

TEST_F(Merge, TheRecordIsThatOfARunInOnePieceButForTimes) {
  write(long_config());
  measure("whole");
  const std::vector<std::string> shards = measure_shards(3);
  std::map<std::string, std::map<std::string, std::string>> before;
  for (const std::string& shard : shards) before[shard] = contents_of(dir() / shard);
  const Result result = merge({"c", "a", "b"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("prompt_lookup"), HasSubstr("Record: merged"), Not(HasSubstr("not complete"))));
  EXPECT_EQ(result.err, "");
  for (const std::string& shard : shards) EXPECT_EQ(contents_of(dir() / shard), before[shard]) << "read only";

  const auto whole = cases_of("whole"), merged = cases_of("merged");
  ASSERT_EQ(whole.size(), 7u);
  for (const auto& [file, lines] : whole) {
    EXPECT_EQ(lines_in(lines).size(), 20u) << file;
    EXPECT_EQ(merged.at(file), lines) << file;
  }
  EXPECT_EQ(merged.size(), whole.size());
  for (const char* file : {"config.json", "teacher.jsonl", "bounds.jsonl"}) {
    EXPECT_GT(bytes(std::string("whole/") + file).size(), 100u) << file;
    EXPECT_EQ(bytes(std::string("merged/") + file), bytes(std::string("whole/") + file)) << file;
  }
  std::set<std::string> kinds;
  for (const json& line : read_json_lines(dir() / "merged/teacher.jsonl")) kinds.insert(line["kind"]);
  EXPECT_THAT(kinds, ::testing::ElementsAre("alpha", "nll"));
  std::set<std::string> whole_files, merged_files;
  for (const auto& [file, text] : contents_of(dir() / "whole")) whole_files.insert(file);
  for (const auto& [file, text] : contents_of(dir() / "merged")) merged_files.insert(file);
  EXPECT_EQ(merged_files, whole_files);
  // The lines of the shards are copied byte for byte, with their times.
  std::multiset<std::string> of_shards, of_merged;
  for (const std::string& shard : shards) {
    for (const std::string& line : lines_in(bytes(shard + kLookup))) of_shards.insert(line);
  }
  for (const std::string& line : lines_in(bytes(std::string("merged") + kLookup))) of_merged.insert(line);
  EXPECT_EQ(of_merged, of_shards);

  const json a = read_json_file(dir() / "whole/summary.json"),
             b = read_json_file(dir() / "merged/summary.json");
  EXPECT_TRUE(b["complete"].get<bool>());
  for (std::size_t i = 0; i < a["cases"].size(); ++i) {
    for (const char* metric : {"tokens", "steps", "tau", "tau_ci95", "alpha", "alpha_teacher_forced",
                               "target_nll", "tau_bound", "flops"})
      EXPECT_EQ(a["cases"][i]["metrics"].value(metric, json()),
                b["cases"][i]["metrics"].value(metric, json()))
          << metric;
  }
  EXPECT_EQ(read_json_file(dir() / "b/environment.json")["shard"], json({2, 3}));
  EXPECT_FALSE(read_json_file(dir() / "whole/environment.json").contains("shard"));
  const json environment = read_json_file(dir() / "merged/environment.json");
  EXPECT_FALSE(environment.contains("shard"));
  EXPECT_FALSE(environment.contains("other_machines"));
  ASSERT_EQ(environment["shards"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(environment["shards"][i]["shard"], json({i + 1, 3}));
    EXPECT_EQ(environment["shards"][i]["folder"], shards[i]);
  }
  const json differs = environment["shards"][1]["environment"];
  EXPECT_TRUE(differs.contains("command_line"));
  EXPECT_FALSE(differs.contains("models") || differs.contains("shard"));
}

TEST_F(Merge, EveryShardBringsItsCalibrationRounds) {
  write(config());
  ASSERT_EQ(run({"run", "a.json", "--out", "whole", "-q"}).code, 0);
  ASSERT_EQ(run({"run", "a.json", "--out", "a", "-q", "--shard", "1/2"}).code, 0);
  ASSERT_EQ(run({"run", "a.json", "--out", "b", "-q", "--shard", "2/2"}).code, 0);
  const Result result = merge({"b", "a"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(bytes("merged/calibration.jsonl"), bytes("a/calibration.jsonl") + bytes("b/calibration.jsonl"));
  EXPECT_EQ(cases_of("merged", true), cases_of("whole", true));
  EXPECT_EQ(read_json_file(dir() / "merged/summary.json")["calibration"]["rounds"], 6);
  // A round that is missing was to be measured after the last line.
  cut_last_line("b/calibration.jsonl", true);
  expect_error(merge({"a", "b"}, {}, "again"),
               {"shard 2/2 in b", "1 of 3 calibration rounds", "speclab run --resume b --shard 2/2"});
  append("b/calibration.jsonl", lines_in(bytes("a/calibration.jsonl")).back() + "\n");
  expect_error(merge({"a", "b"}, {}, "again"), {"shard 1/2", "in a and in b"});
  fs::remove(dir() / "b/calibration.jsonl");
  append("b/calibration.jsonl", R"({"round": 3, "shard": [2, 2]})"
                                "\n");
  expect_error(merge({"a", "b"}, {}, "again"), {"b/calibration.jsonl: line 1", "round 3", "3 rounds"});
  EXPECT_FALSE(fs::exists(dir() / "again"));
}

TEST_F(Merge, ShardsInOneFolderCountAsTheShardsThatTheyAre) {
  measure_shards(3);
  ASSERT_EQ(run({"run", "--resume", "a", "--shard", "2/3", "-q"}).code, 0);
  expect_error(merge({"a", "b", "c"}), {"shard 2/3", "in a and in b"});
  EXPECT_EQ(merge({"a", "c"}).code, 0);
  measure("whole");
  EXPECT_EQ(cases_of("merged"), cases_of("whole"));
}

TEST_F(Merge, EachShardIsThereOnce) {
  measure_shards(3);
  expect_error(merge({"a", "c"}), {"no folder with shard 2/3", "--partial"});
  expect_error(merge({"a"}), {"no folder with shard 2/3, 3/3"});
  copy_of("b", "again");
  expect_error(merge({"a", "b", "c", "again"}), {"shard 2/3", "in b and in again"});
  measure("other", {"--shard", "2/2"});
  expect_error(merge({"a", "other"}), {"other", "a run in 2 shards", "3"});
  measure("whole");
  copy_of("whole", "twice");
  expect_error(merge({"whole", "twice"}), {"the whole run", "--shard"});
  expect_error(merge({"a", "nowhere"}), {"nowhere: got no run"});
  expect_error(run({"merge", "a", "b", "c"}), {"no --out"});
  expect_error(run({"merge", "--out", "merged"}), {"no DIR"});
  expect_error(merge({"a", "b", "c"}, {}, "whole"), {"whole: got a run already"});
  EXPECT_FALSE(fs::exists(dir() / "merged"));
}

TEST_F(Merge, ShardsOfDifferentRunsAreRefusedWithTheFieldAndTheFolders) {
  measure_shards(3);
  measure("long", {"--shard", "2/3", "--set", "repeats=1"});
  expect_error(merge({"a", "long", "c"}), {"long/config.json", "/repeats: 2 in a, 1 here"});
  const auto refused = [&](const std::string& pointer, const json& value,
                           const std::vector<std::string>& words,
                           const std::vector<std::string>& options = {}) {
    SCOPED_TRACE(pointer);
    copy_of("b", "changed");
    change("changed/environment.json", [&](json& all) { all[json::json_pointer(pointer)] = value; });
    expect_error(merge({"a", "changed", "c"}, options), words);
  };
  refused("/commit", std::string(40, '0'), {"commit: ", "in a, c", "in changed"});
  refused("/dirty", "x", {"dirty: ", "\"x\" in changed"});
  refused("/binary_sha256", "x", {"binary_sha256: "});
  refused("/numerics", "f64", {"numerics: ", "\"f64\" in changed"}, {"--allow-other-machine"});
  refused("/threads", 99, {"threads: ", "99 in changed"}, {"--allow-other-machine"});
  refused("/backend", "cuda", {"backend: "}, {"--allow-other-machine"});
  refused("/models/target/sha256", "x", {"SHA-256 of the model target: "}, {"--allow-other-machine"});
  refused("/models/small/sha256", "x", {"SHA-256 of the model small: "});
  refused("/cpu/model", "Another CPU",
          {"cpu/model: ", "\"Another CPU\" in changed", "--allow-other-machine"});
  refused("/cpu/cache/L3_bytes", 1, {"cpu/cache/L3_bytes: ", "1 in changed", "--allow-other-machine"});
  refused("/cpu/flags/-", "new_set", {"cpu/flags: [] in a, c; [\"new_set\"] in changed"});
  for (const std::string folder : {"a", "c"})
    change(folder + "/environment.json", [](json& all) { all["gpu"] = {{"memory_bytes", {{"total", 8}}}}; });
  refused("/gpu", {{"memory_bytes", {{"total", 9}}}}, {"gpu/memory_bytes/total: 8 in a, c; 9 in changed"},
          {"--allow-other-machine"});
  // Cases with "budget": "auto" choose their drafts by a table that each shard measures.
  for (const std::string folder : {"a", "c"})
    change(folder + "/environment.json", [](json& all) { all["step_costs"] = {{"target_ns", {{"1", 5}}}}; });
  refused("/step_costs", {{"target_ns", {{"1", 6}}}}, {"step_costs: ", "--costs"});
  EXPECT_FALSE(fs::exists(dir() / "merged"));
  EXPECT_EQ(merge({"a", "b", "c"}).code, 0) << "a record that lacks a field is not compared";
}

TEST_F(Merge, AnotherKindOfCpuIsAcceptedOnRequestAndTheRecordSaysSo) {
  measure_shards(2);
  change("b/environment.json", [](json& all) { all["device"] = all["cpu"]["model"] = "Another CPU"; });
  expect_error(merge({"a", "b"}), {"cpu/model: ", "device: ", "\"Another CPU\" in b"});
  const Result result = merge({"a", "b"}, {"--allow-other-machine"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("Several machines: the shards were measured on several kinds of CPU (cpu/model"));
  const json environment = read_json_file(dir() / "merged/environment.json");
  ASSERT_EQ(environment["other_machines"].size(), 2u);
  EXPECT_THAT(environment["other_machines"][0].get<std::string>(),
              AllOf(HasSubstr("cpu/model"), HasSubstr("\"Another CPU\" in b")));
  EXPECT_EQ(environment["shards"][1]["environment"]["cpu"]["model"], "Another CPU");
  const json machine = read_json_file(dir() / "merged/summary.json")["machine"];
  EXPECT_TRUE(machine["busy"].get<bool>()) << "its times are doubtful";
  bool found = false;
  for (const json& reason : machine["reasons"])
    found = found || (reason["kind"] == "machines" && reason["value"] == 2);
  EXPECT_TRUE(found) << machine;
  EXPECT_THAT(run({"report", "merged"}).out, HasSubstr("Several machines"));
}

TEST_F(Merge, UnfinishedShardsAreRefusedOrMergedOnRequest) {
  measure_shards(3);
  measure("whole");
  copy_of("b", "cut");
  cut_last_line(std::string("cut") + kLookup, false);
  const Result refused = merge({"a", "cut", "c"});
  expect_error(refused,
               {"shard 2/3 in cut", "1 of 12 lines", "speclab run --resume cut --shard 2/3", "--partial"});
  EXPECT_FALSE(fs::exists(dir() / "merged"));
  const Result partial = merge({"a", "cut"}, {"--partial"}, "partial");
  EXPECT_EQ(partial.code, 0) << partial.err;
  EXPECT_THAT(partial.out, HasSubstr("This run is not complete."));
  EXPECT_THAT(
      partial.err,
      AllOf(HasSubstr("cut/cases/prompt_lookup.jsonl: the last line was not written completely"),
            HasSubstr("shard 3/3: in none of the folders"), HasSubstr("shard 2/3 in cut: 1 of 12 lines")));
  EXPECT_EQ(lines_in(bytes(std::string("partial") + kLookup)).size(),
            lines_in(bytes(std::string("a") + kLookup)).size() +
                lines_in(bytes(std::string("b") + kLookup)).size() - 1);
  // A partial record can be merged again, and what is missing can be measured.
  expect_error(merge({"partial", "c"}), {"shard 2/3 in partial", "1 of 12 lines"});
  ASSERT_EQ(run({"run", "--resume", "partial", "--shard", "2/3", "-q"}).code, 0);
  const Result again = merge({"partial", "c"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(cases_of("merged"), cases_of("whole"));
  EXPECT_EQ(bytes("merged/teacher.jsonl"), bytes("whole/teacher.jsonl"));
}

TEST_F(Merge, AShardWithoutItsEstimatesIsNotFinished) {
  write(long_config());
  measure_shards(2);
  fs::copy_file(dir() / "b/teacher.jsonl", dir() / "kept");
  cut_last_line("b/teacher.jsonl", true);
  expect_error(merge({"a", "b"}), {"shard 2/2 in b", "1 estimates on finished texts"});
  fs::remove(dir() / "b/teacher.jsonl");
  expect_error(merge({"a", "b"}), {"shard 2/2 in b", "the estimates on finished texts"});
  fs::copy_file(dir() / "kept", dir() / "b/teacher.jsonl");
  append("b/teacher.jsonl", lines_in(bytes("kept")).front() + "\n");
  expect_error(merge({"a", "b"}), {"b/teacher.jsonl: line ", "again, as in b/teacher.jsonl: line 1"});
  // Two lines of bounds are what a killed run leaves. The first one counts.
  fs::copy_file(dir() / "kept", dir() / "b/teacher.jsonl", fs::copy_options::overwrite_existing);
  append("b/bounds.jsonl", lines_in(bytes("b/bounds.jsonl")).front() + "\n");
  measure("whole");
  EXPECT_EQ(merge({"a", "b"}).code, 0);
  EXPECT_EQ(bytes("merged/bounds.jsonl"), bytes("whole/bounds.jsonl"));
}

TEST_F(Merge, LinesThatNoShardShouldHaveAreRefused) {
  measure_shards(2);
  const auto with_line = [&](const std::function<void(json&)>& how, const std::vector<std::string>& words) {
    copy_of("a", "changed");
    json line = read_json_lines(dir() / ("a" + std::string(kLookup))).front();
    how(line);
    append("changed" + std::string(kLookup), line.dump() + "\n");
    expect_error(merge({"changed", "b"}), words);
  };
  const std::string place = "changed/cases/prompt_lookup.jsonl: line 5";
  with_line([](json&) {}, {place, "again, as in changed/cases/prompt_lookup.jsonl: line 1"});
  with_line([](json& line) { line["prompt"] = "nowhere"; }, {place, "the prompt \"nowhere\""});
  with_line([](json& line) { line["seed"] = 77; }, {place, "the seed 77"});
  with_line([](json& line) { line["repeat"] = 2; }, {place, "repeat 2", "0 to 1"});
  with_line([](json& line) { line["case"] = "autoregressive"; }, {place, "autoregressive"});
  const json of_b = read_json_lines(dir() / ("b" + std::string(kLookup))).front();
  with_line([&](json& line) { line = of_b; }, {"shard 2/2", "in changed and in b"});
  with_line([](json& line) { line["tokens"][0] = line["tokens"][0].get<int>() ^ 1; }, {place, "output_hash"});
  copy_of("a", "changed");
  append("changed/cases/lookahead.jsonl", "");
  expect_error(merge({"changed", "b"}), {"changed/cases/lookahead.jsonl", "a file of no case"});
  // A line of the second repeat cannot come before those of the first.
  copy_of("a", "changed");
  const std::string path = "changed" + std::string(kLookup);
  std::vector<json> lines = read_json_lines(dir() / path);
  ASSERT_EQ(lines.back()["repeat"], 1);
  lines.back()["order"] = 1;
  std::ofstream file(dir() / path);
  for (const json& line : lines) file << line.dump() << "\n";
  file.close();
  expect_error(merge({"changed", "b"}), {"\"order\": 1 in repeat 1", "18 to 35"});
  EXPECT_FALSE(fs::exists(dir() / "merged"));
}

TEST_F(Merge, CasesWithMemoryAreRefused) {
  json with_lookahead = config();
  with_lookahead["cases"] = {{{"strategy", "autoregressive"}},
                             {{"strategy", "lookahead"}, {"W", 2}, {"N", 3}, {"G", 2}}};
  write(with_lookahead);
  measure_shards(2);
  EXPECT_EQ(merge({"a", "b"}, {}, "fine").code, 0);
  // speclab run refuses such shards, so the configs are changed by hand.
  for (const std::string folder : {"a", "b"})
    change(folder + "/config.json", [](json& all) { all["cases"][1]["options"]["keep_pool"] = true; });
  expect_error(merge({"a", "b"}), {"a/config.json", "lookahead/", "carries memory"});
  for (const std::string folder : {"a", "b"})
    change(folder + "/config.json", [](json& all) { all["cases"][1]["strategy"] = "from_the_future"; });
  expect_error(merge({"a", "b"}), {"a/config.json", "from_the_future", "version"});
}

TEST_F(Merge, FailedLinesAreMergedAndGiveExitCodeOne) {
  json with_long_prompt = config();
  std::string ids;
  for (int i = 0; i < 300; ++i) ids += "1 ";
  with_long_prompt["prompts"]["inline"].push_back(ids);
  write(with_long_prompt);
  const std::vector<std::string> words = {"run", "a.json", "-q", "--set", "calibration=false", "--out"};
  for (const auto& [folder, shard] : std::map<std::string, std::string>{{"a", "1/2"}, {"b", "2/2"}}) {
    std::vector<std::string> own = words;
    own.insert(own.end(), {folder, "--shard", shard});
    EXPECT_EQ(run(own).code, folder == "a" ? 0 : 1) << folder;
  }
  const Result result = merge({"a", "b"});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("error: prompt_lookup"));
  EXPECT_EQ(read_json_file(dir() / "merged/summary.json")["errors"].size(), 12u);
  EXPECT_TRUE(read_json_file(dir() / "merged/summary.json")["complete"].get<bool>());
}

TEST_F(Merge, RunsOfSeveralTargetsAreMergedTargetByTarget) {
  json two = config();
  two.erase("target");
  two["targets"] = {{"one", "target"}, {"two", "draft"}};
  two["cases"] = {{{"strategy", "autoregressive"}}, {{"strategy", "prompt_lookup"}}};
  write(two);
  measure("whole");
  measure_shards(2);
  const Result result = merge({"a", "b"}, {"--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(json::parse(result.out)["two"]["complete"].get<bool>());
  EXPECT_EQ(bytes("merged/targets.json"), bytes("whole/targets.json"));
  for (const std::string target : {"one", "two"})
    EXPECT_EQ(cases_of("merged/" + target), cases_of("whole/" + target)) << target;
  EXPECT_EQ(merge({"a/two", "b/two"}, {}, "second").code, 0);
  expect_error(merge({"a", "b/one"}, {}, "mixed"), {"1 folders of runs of several targets among 2"});
  fs::remove_all(dir() / "b/two");
  expect_error(merge({"a", "b"}, {}, "again"), {"no folder with shard 2/2"});
  EXPECT_FALSE(fs::exists(dir() / "again")) << "all targets are checked before one is written";
  change("b/targets.json", [](json& header) { header["filter"] = "x"; });
  expect_error(merge({"a", "b"}, {}, "other"), {"b/targets.json", "other targets"});
}

}  // namespace
}  // namespace speclab::merge_cli_test
