#include "core/measure/run_result.h"

#include <nlohmann/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <set>

#include "core/base/error.h"

namespace speclab::run_result_test {
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
  line.probes = {{1500000, 600000}, {1600000, 500000}};
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
    if (t == 1) turn.observe_prompt_ns = 15;
    turn.decode_ns = 4000 + t;
    turn.cpu_ns = 7000;
    if (t == 1) turn.planned_steps = 1, turn.verified_steps = 4, turn.round_trips = 2, turn.stamped_ns = 3900;
    turn.target.calls = 1;
    turn.target.flops = 2.5e9;
    if (t == 1) turn.target.hidden_bytes = 1536;
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
                            .entropy = .75f,
                            .predicted = .625f,
                            .p = .25,
                            .q = .5,
                            .expected = .75,
                            .rank = 2});
    step.drafted.push_back(
        {.id = 99, .parent = 0, .tested = true, .p = 0, .q = 1, .expected = 0, .rank = 40, .distance = .125});
    step.pool_size = 40 + t;
    step.probes = {{7, 0, -1}, {8, 3, 12}};
    if (t == 1) step.parts = {{4, 800}, {5, 900}}, step.contributions = {{1, "draft"}, {2, "text"}};
    if (t == 1) step.reviews = {{"draft", "text", 5, 3}};
    if (t == 1) step.ahead = AheadWork{3, 2, true, 900, 700, 200};
    if (t == 1) step.root_confidence = .375f, step.tree_number = 2;
    if (t == 1) step.top = {.5f, .25f, 1, 0}, step.top_width = 2;
    turn.steps.push_back(step);
    line.turns.push_back(turn);
  }
  line.pieces = {"a", "b", "c", "d", "e", "f"};
  line.text = "abc␞def";
  line.matches_reference = false;
  line.first_divergence = 3;
  return line;
}

TEST_F(RunResult, AnInfiniteDivergenceComesBack) {
  LineRecord line = example();
  std::vector<DraftedToken>& drafted = line.turns[0].steps[0].drafted;
  drafted[0].kl = .25;
  drafted[1].kl = std::numeric_limits<double>::infinity();
  const nlohmann::json json = to_json(line), &tokens = json["steps"][0]["tokens"];
  EXPECT_EQ(tokens[0]["kl"], .25);
  EXPECT_TRUE(tokens[1].contains("kl"));
  EXPECT_TRUE(tokens[1]["kl"].is_null());
  EXPECT_FALSE(json["steps"][1]["tokens"][0].contains("kl"));
  const LineRecord back = line_from_json(json, "x");
  EXPECT_EQ(back.turns[0].steps[0].drafted[0].kl, .25);
  EXPECT_EQ(back.turns[0].steps[0].drafted[1].kl, std::numeric_limits<double>::infinity());
  EXPECT_EQ(back.turns[1].steps[0].drafted[0].kl, -1);
  EXPECT_EQ(to_json(back), json);
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
  EXPECT_EQ(back.turns[1].observe_prompt_ns, 15);
  EXPECT_FALSE(json["turns"][0].contains("observe_prompt_ns"));
  EXPECT_EQ(back.turns[1].steps[0].drafted[1].parent, 0);
  EXPECT_EQ(back.turns[1].steps[0].drafted[0].entropy, .75f);
  EXPECT_EQ(back.turns[1].steps[0].drafted[1].entropy, -1);
  EXPECT_EQ(back.turns[1].steps[0].drafted[0].predicted, .625f);
  EXPECT_EQ(back.turns[1].steps[0].drafted[1].predicted, -1);
  EXPECT_EQ(json["steps"][1]["top"], nlohmann::json::parse("[[0.5, 0.25], [1.0, 0.0]]"));
  EXPECT_EQ(back.turns[1].steps[0].top, (std::vector<float>{.5f, .25f, 1, 0}));
  EXPECT_EQ(back.turns[1].steps[0].top_width, 2);
  EXPECT_FALSE(json["steps"][0].contains("top"));
  EXPECT_TRUE(back.turns[0].steps[0].top.empty());
  for (const char* bad : {"[[0.5, 0.25]]", "[[0.5, 0.25], [1.0]]", "[[], []]", "[[0.5], [\"x\"]]", "3"}) {
    nlohmann::json damaged = json;
    damaged["steps"][1]["top"] = nlohmann::json::parse(bad);
    EXPECT_THROW(line_from_json(damaged, "x"), Error) << bad;
  }
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
  EXPECT_EQ(json["steps"][1]["root_confidence"], .375);
  EXPECT_EQ(json["steps"][1]["tree"], 2);
  EXPECT_EQ(back.turns[1].steps[0].root_confidence, .375f);
  EXPECT_EQ(back.turns[1].steps[0].tree_number, 2);
  EXPECT_FALSE(json["steps"][0].contains("root_confidence"));  // as in older records
  EXPECT_EQ(back.turns[0].steps[0].root_confidence, -1);
  EXPECT_EQ(back.turns[0].steps[0].tree_number, -1);
  EXPECT_FALSE(back.turns[0].steps[0].ahead);
  ASSERT_TRUE(back.turns[1].steps[0].ahead);
  EXPECT_EQ(back.turns[1].steps[0].ahead->forwards, 3);
  EXPECT_EQ(back.turns[1].steps[0].ahead->drafted, 2);
  EXPECT_TRUE(back.turns[1].steps[0].ahead->right);
  EXPECT_EQ(back.turns[1].steps[0].ahead->overlapped_ns, 700);
  EXPECT_EQ(back.turns[1].steps[0].ahead->waited_ns, 200);
  nlohmann::json longer = json;
  longer["steps"][1]["ahead"]["overlapped_ns"] = 901;
  EXPECT_THROW(line_from_json(longer, "x"), Error) << "a part that is longer than the whole";
  EXPECT_TRUE(back.turns[0].steps[0].reviews.empty());
  ASSERT_EQ(back.turns[1].steps[0].reviews.size(), 1u);
  EXPECT_EQ(back.turns[1].steps[0].reviews[0].source, "text");
  EXPECT_EQ(back.turns[1].steps[0].reviews[0].kept, 3);
  EXPECT_EQ(back.turns[1].steps[0].parts[1].rows, 5);
  EXPECT_EQ(back.turns[1].steps[0].parts[1].ns, 900);
  EXPECT_EQ(back.turns[1].steps[0].drafted[0].parent, 0);
  EXPECT_EQ(back.seed, 18446744073709551615u);
  ASSERT_EQ(back.probes.size(), 2u);
  EXPECT_EQ(back.probes[1].memory_ns, 1600000);
  EXPECT_EQ(back.probes[1].arithmetic_ns, 500000);
  EXPECT_EQ(back.drift.size(), 2u);
  EXPECT_EQ(back.drift[1].rows, 3);
  EXPECT_EQ(back.drift[1].ns, 8500000);
  EXPECT_FALSE(*back.matches_reference);
  EXPECT_EQ(back.turns[1].target.hidden_bytes, 1536);
  EXPECT_EQ(json["work"]["target"]["hidden_bytes"], 1536);
  EXPECT_FALSE(json["turns"][0]["work"]["target"].contains("hidden_bytes"));  // as in older records
}

TEST_F(RunResult, ALineSaysWhatItPromisesAndNotWhetherItIsKept) {
  for (const auto& [promise, name] : {std::pair(Promise::nothing, "nothing"), std::pair(Promise::ids, "ids"),
                                      std::pair(Promise::rows, "rows")}) {
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
  {
    JsonLinesWriter(file).append(to_json(example()));
  }
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

/// The error of reading the line.
std::string refusal(const nlohmann::json& line) {
  try {
    line_from_json(line, "a.jsonl: line 7");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_F(RunResult, HashesAreCheckedAtEveryRead) {
  nlohmann::json json = to_json(example());
  EXPECT_EQ(refusal(json), "");
  json["tokens"][4] = 12;  // it was 11
  EXPECT_THAT(refusal(json), testing::AllOf(testing::HasSubstr("a.jsonl: line 7: output_hash: got "),
                                            testing::HasSubstr("tokens")));
  json = to_json(example());
  json["row_hashes"][0] = 2;
  EXPECT_THAT(refusal(json), testing::AllOf(testing::HasSubstr("a.jsonl: line 7: logits_hash: got "),
                                            testing::HasSubstr("row_hashes")));
  json = to_json(example());
  json.erase("output_hash");
  EXPECT_THAT(refusal(json), testing::HasSubstr("output_hash"));
}

TEST_F(RunResult, PlacesOfSourcesAndPartsOfDevicesAreChecked) {
  const nlohmann::json good = to_json(example());
  const std::size_t step = good["steps"].size() - 1;  // two drafted nodes, two sources, two parts
  for (const nlohmann::json& places :
       {nlohmann::json{0, 2}, {1, 4}, {2, 1}, {1, 1e300}, {-1, 2}, {1, "2"}, {1, 2.5}}) {
    nlohmann::json json = good;
    for (std::size_t i = 0; i < 2; ++i) json["steps"][step]["sources"][i][0] = places[i];
    EXPECT_THAT(refusal(json), testing::HasSubstr("sources: got ")) << places;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    nlohmann::json json = good;
    json["steps"][step]["parts"][1][i] = -1;
    EXPECT_THAT(refusal(json), testing::HasSubstr("parts: got -1")) << i;
  }
}

TEST_F(RunResult, ALineStandsOnceInTheFileOfItsCase) {
  LineRecord line = example();
  line.case_id = "a";
  fs::create_directories(dir_ / "cases");
  const auto message = [&] {
    try {
      return std::to_string(read_case_lines(dir_, "a").size()) + " lines";
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(message(), "0 lines");
  const auto add = [&] { JsonLinesWriter(dir_ / "cases" / "a.jsonl").append(to_json(line)); };
  add();
  line.repeat = 2;
  add();
  EXPECT_EQ(message(), "2 lines");
  line.repeat = 1;
  add();
  EXPECT_THAT(message(), testing::AllOf(testing::HasSubstr("a.jsonl: line 3"),
                                        testing::HasSubstr("prompt 81"), testing::HasSubstr("as in line 1")));
  fs::remove(dir_ / "cases" / "a.jsonl");
  line.case_id = "b";
  add();
  EXPECT_THAT(message(), testing::AllOf(testing::HasSubstr("a.jsonl: line 1: case: got b"),
                                        testing::HasSubstr("expected a")));
}

TEST_F(RunResult, LinesAreAppendedWhateverTheFileHasBecome) {
  const fs::path file = dir_ / "a.jsonl";
  JsonLinesWriter first(file), second(file);
  first.append({{"n", 1}});
  second.append({{"n", 2}});
  first.append({{"n", 3}});
  const std::vector<nlohmann::json> lines = read_json_lines(file);
  ASSERT_EQ(lines.size(), 3u) << "nothing is written over";
  EXPECT_EQ(lines[1]["n"], 2);
}

TEST_F(RunResult, ATornLineIsFoundFromTheEndOfALongFile) {
  const fs::path file = dir_ / "a.jsonl";
  const std::string line = "\"" + std::string(100'000, 'x') + "\"\n";
  std::ofstream(file) << line << line << line.substr(0, 99'000);
  {
    JsonLinesWriter writer(file);
  }
  EXPECT_EQ(fs::file_size(file), 2 * line.size());
  std::ofstream(file, std::ios::trunc) << line.substr(0, 99'000);
  {
    JsonLinesWriter writer(file);
  }
  EXPECT_EQ(fs::file_size(file), 0u);
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
  write_file(dir_ / std::string(255, 'a'), "x");
  EXPECT_EQ(fs::file_size(dir_ / std::string(255, 'a')), 1u) << "the file beside it has a shorter name";
  fs::create_symlink(file, dir_ / "link");
  write_json_file(dir_ / "link", {{"a", 3}});
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_EQ(read_json_file(file)["a"], 3);
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  const int reader = ::open((dir_ / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file(dir_ / "pipe", "through");
  char text[8] = "";
  EXPECT_EQ(::read(reader, text, sizeof text), 7);
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(dir_ / "pipe"));
  EXPECT_THROW(write_json_file(dir_ / "no" / "folder.json", {}), Error);
  EXPECT_THROW(read_json_file(dir_ / "missing.json"), Error);
}

TEST(CaseFileName, IsSafeAndReadable) {
  EXPECT_EQ(case_file_name("speculative_sampling/draft=d/gamma=4"),
            "speculative_sampling__draft=d__gamma=4.jsonl");
  EXPECT_EQ(case_file_name("a/b=../x y"), "a__b=..__x%20y.jsonl");
}

TEST(CaseFileName, IsThatOfOneCase) {
  std::set<std::string> names;
  std::vector<std::string> ids = {""};
  for (std::size_t i = 0; i < ids.size(); ++i) {  // every text of up to six of these characters
    if (ids[i].size() == 6) break;
    for (const char c : {'_', '/', 'a', '%', '5'}) ids.push_back(ids[i] + c);
  }
  for (const std::string& id : ids) names.insert(case_file_name(id));
  EXPECT_EQ(names.size(), ids.size());
  EXPECT_EQ(case_file_name("a/gamma=2"), "a__gamma=2.jsonl");
  EXPECT_EQ(case_file_name("a__gamma=2"), "a%5F%5Fgamma=2.jsonl");
}

TEST(CaseFileName, FitsIntoAFileSystem) {
  const std::string id(249, 'a');
  EXPECT_EQ(case_file_name(id), id + ".jsonl");
  EXPECT_EQ(case_file_name(id).size(), 255u);
  const std::string b = case_file_name(id + "b"), c = case_file_name(id + "c");
  EXPECT_LE(b.size(), 255u);
  EXPECT_NE(b, c);
  EXPECT_EQ(b.substr(0, 201), std::string(200, 'a') + "~");
}

TEST_F(RunResult, AFileOfAnOlderNameIsFoundWhereItIsThatOfTheCase) {
  LineRecord line = example();
  line.case_id = "x__y";
  fs::create_directories(dir_ / "cases");
  JsonLinesWriter(dir_ / "cases" / "x__y.jsonl").append(to_json(line));
  EXPECT_EQ(read_case_lines(dir_, "x__y").size(), 1u);
  EXPECT_EQ(find_case_file(dir_, "x__y").filename(), "x__y.jsonl");
  line.case_id = "p/q";
  JsonLinesWriter(dir_ / "cases" / "p__q.jsonl").append(to_json(line));
  EXPECT_TRUE(read_case_lines(dir_, "p__q").empty()) << "that file is of p/q";
  EXPECT_EQ(find_case_file(dir_, "p__q").filename(), "p%5F%5Fq.jsonl");
}

}  // namespace
}  // namespace speclab::run_result_test
