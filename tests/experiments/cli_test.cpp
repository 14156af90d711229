// The real binary on tiny models: bad input (exit code and message), a whole run, resume after kill -9,
// Ctrl-C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/measure/run_result.h"
#include "tests/experiments/cli.h"
#include "tests/model/model_files.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Speclab : public ::testing::Test {
 protected:
  Speclab() {
    fixtures::write_tiny_llama(dir() / "target", fixtures::tiny_shape(), 1);
    fixtures::write_tiny_llama(dir() / "draft", fixtures::tiny_shape(), 2);
    write(config());
  }
  const fs::path& dir() const { return dir_.path(); }
  void write(const json& config) { std::ofstream(dir() / "a.json") << config.dump(1); }
  static json config() {
    return json::parse(
        R"({"name": "tiny", "target": "target", "drafts": {"small": {"model": "draft"}, "skip": {"layers": [0]}},
      "prompts": {"inline": ["1 2 3", {"id": "two", "category": "b", "turns": ["5 6", "7 8 9"]}, "11"]}, "repeats": 2,
      "options": {"max_tokens": 24}, "calibration": {"rows": 4, "rounds": 3},
      "cases": [{"strategy": "autoregressive"}, {"strategy": "speculative_sampling", "draft": ["small", "skip"], "gamma": [1, 3]}, {"strategy": "prompt_lookup"}]})");
  }
  struct Result {
    int code;
    std::string out, err;
  };
  Result run(std::vector<std::string> arguments) {
    fixtures::Cli cli(dir(), std::move(arguments));
    const int code = cli.wait();
    return {code, cli.out(), cli.err()};
  }
  Result shell(const std::string& command) {
    fixtures::Cli cli(fixtures::Cli::Shell{}, dir(), command);
    const int code = cli.wait();
    return {code, cli.out(), cli.err()};
  }
  /// Exit code 2, one line that begins with "error: " and has these words, nothing on stdout.
  void expect_error(const Result& result, const std::vector<std::string>& words) {
    EXPECT_EQ(result.code, 2) << result.err;
    const std::size_t at = result.err.rfind("error: ");
    ASSERT_NE(at, std::string::npos) << result.err;
    const std::string line = result.err.substr(at);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    for (const std::string& word : words) EXPECT_THAT(line, HasSubstr(word));
    EXPECT_EQ(result.out, "");
  }
  fixtures::TempDir dir_;
};

/// A line apart from its times.
json without_times(json line) {
  for (const char* key : {"wall_ns", "cpu_ns", "prefill_ns", "draft_prefill_ns", "phase_ns"}) line.erase(key);
  for (json& turn : line["turns"]) {
    for (const char* key : {"prefill_ns", "draft_prefill_ns", "decode_ns", "cpu_ns"}) turn.erase(key);
  }
  for (json& step : line["steps"]) step.erase("ns");
  return line;
}

std::map<std::string, std::vector<json>> record_of(const fs::path& run) {
  std::map<std::string, std::vector<json>> record;
  for (const auto& entry : fs::directory_iterator(run / "cases")) {
    for (const json& line : read_json_lines(entry.path()))
      record[entry.path().filename()].push_back(without_times(line));
  }
  for (const json& line : read_json_lines(run / "teacher.jsonl")) record["teacher.jsonl"].push_back(line);
  return record;
}

TEST_F(Speclab, ARunFromConfigToTable) {
  const Result result = run({"run", "a.json", "--out", "run"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("speculative_sampling/draft=small/gamma=3"), HasSubstr("speedup"),
                                HasSubstr("Record: run")));
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_TRUE(summary["complete"].get<bool>());
  ASSERT_EQ(summary["cases"].size(), 6u);
  for (const json& entry : summary["cases"]) {
    const json& m = entry["metrics"];
    EXPECT_EQ(m["matches_reference"], true) << entry["id"];
    EXPECT_EQ(m["tokens"], 3 * 23 + 23) << entry["id"];
    EXPECT_EQ(entry["lines"], 6);
    if (entry["draft"].is_null()) continue;
    EXPECT_TRUE(m["speedup"].is_number()) << entry["id"];
    EXPECT_TRUE(m["alpha"].is_number());
    EXPECT_TRUE(m["alpha_teacher_forced"].is_number());
    EXPECT_TRUE(m["c"].is_number());
    EXPECT_EQ(m["t_n"].size(), 4u);
    EXPECT_TRUE(entry["predictions"].contains("leviathan_3_8"));
    EXPECT_EQ(entry["waterfall"].size(), 7u);
    const json& interval = entry["waterfall"].back()["residual_share_ci95"];
    EXPECT_LT(interval[0].get<double>(), interval[1].get<double>());
    EXPECT_EQ(entry["categories"]["b"]["prompts"], 1);
  }
  const std::vector<json> rounds = read_json_lines(dir() / "run" / "calibration.jsonl");
  ASSERT_EQ(rounds.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rounds[i]["round"], i);
    EXPECT_EQ(rounds[i]["t_n_ns"].size(), 4u);
    ASSERT_EQ(rounds[i]["cases"].size(), 6u);
    const json& steps = rounds[i]["cases"]["autoregressive"];
    ASSERT_EQ(steps.size() % 23, 0u) << "a step for each token after the first, for each turn";
    EXPECT_EQ(steps[0]["drafted"], 0);
    EXPECT_GT(steps[0]["ns"]["step"].get<double>(), 0);
    EXPECT_EQ(rounds[i]["cases"]["speculative_sampling/draft=small/gamma=3"][0]["drafted"], 3);
  }
  EXPECT_EQ(summary["calibration"]["rounds"], 3);
  const json environment = read_json_file(dir() / "run" / "environment.json");
  EXPECT_GT(environment["read_bandwidth_bytes_per_second"].get<double>(), 0);
  EXPECT_EQ(environment["models"]["target"]["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(environment["models"]["skip"]["layers"], json::array({0}));

  EXPECT_THAT(run({"report", "run", "--csv", "-"}).out, HasSubstr("case,strategy,draft"));
  EXPECT_THAT(run({"report", "run", "--latex", "-"}).out, HasSubstr("\\begin{tabular}"));
  EXPECT_EQ(json::parse(run({"report", "run", "--json"}).out)["name"], "tiny");
  const Result exported = run({"report", "run", "--export", "vllm", "--case", "prompt_lookup"});
  EXPECT_EQ(exported.code, 0);
  EXPECT_EQ(json::parse(exported.out)["case"], "prompt_lookup");
  EXPECT_EQ(exported.err, "");
  expect_error(run({"report", "run", "--export", "tgi"}), {"tgi", "vllm, sglang, spec-bench, llama.cpp"});
  expect_error(run({"report", "run", "--export", "vllm", "--json"}), {"--export and --json"});
  expect_error(run({"report", "run", "--case", "prompt_lookup"}), {"--case", "--export"});
  EXPECT_THAT(run({"explain", "run", "speculative_sampling/draft=small/gamma=3"}).out,
              HasSubstr("draft cost"));
  EXPECT_EQ(run({"compare", "run", "run"}).code, 0);
  expect_error(run({"explain", "run", "speculative_sampling/draft=small/gamma=2"}),
               {"no case", "Did you mean", "gamma="});
  expect_error(run({"run", "a.json", "--out", "run"}), {"a run already", "--resume"});
  EXPECT_EQ(run({"run", "a.json", "--out", "run", "--resume"}).code, 0);
  expect_error(run({"run", "a.json", "--out", "run", "--resume", "--set", "repeats=3"}),
               {"another config", "/repeats"});
  expect_error(run({"run", "a.json", "--out", "run", "--resume", "--threads", "1"}), {"threads"});
  json changed = environment;
  changed["binary_sha256"] = "0";
  write_json_file(dir() / "run" / "environment.json", changed);
  expect_error(run({"run", "a.json", "--out", "run", "--resume"}), {"binary_sha256"});
  changed = environment;
  changed["models"]["target"]["sha256"] = "0";
  write_json_file(dir() / "run" / "environment.json", changed);
  expect_error(run({"run", "a.json", "--out", "run", "--resume"}), {"model target"});
}

TEST_F(Speclab, SampledRunsSayWhatTheyPromise) {
  json sampled = config();
  sampled["options"]["temperature"] = 1;
  sampled["seeds"] = {1, 2};
  sampled["cases"] = json::parse(
      R"([{"strategy": "speculative_sampling", "draft": "small", "gamma": 2}, {"strategy": "speculative_sampling", "draft": "small", "gamma": 2, "coins": "gumbel"},
    {"strategy": "speculative_sampling", "draft": "small", "gamma": 2, "rule": "typical"}])");
  write(sampled);
  const Result result = run({"run", "a.json", "--out", "run", "--json", "-q"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = json::parse(result.out);
  ASSERT_EQ(summary["cases"].size(), 5u) << "two references were added";
  const json &exact = summary["cases"][2], &coupled = summary["cases"][3], &lossy = summary["cases"][4];
  EXPECT_TRUE(exact["metrics"]["matches_reference"].is_null());
  EXPECT_EQ(exact["loss_class"], "L1");
  EXPECT_EQ(coupled["metrics"]["matches_reference"], true);
  EXPECT_NE(coupled["reference"], exact["reference"]);
  EXPECT_TRUE(lossy["lossy"].get<bool>());
  EXPECT_TRUE(lossy["metrics"]["distance"].is_number());
  EXPECT_TRUE(lossy["metrics"]["target_nll"].is_number());
}

// Every command that opens a backend, and the dry run, which opens none.
TEST_F(Speclab, HowKernelsAreLaunchedIsChecked) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", "a.json", "--out", "x"},
                                                {"run", "a.json", "--dry-run"},
                                                {"generate", "--model", "target", "--prompt", "1"},
                                                {"numerics", "--model", "target", "--prompts", "p.jsonl"},
                                                {"model", "target"},
                                                {"bench", "--model", "target"}}) {
    SCOPED_TRACE(words.front() + " " + words.back());
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = words;
      all.insert(all.end(), more.begin(), more.end());
      return run(all);
    };
    expect_error(with({"--kernels", "fast"}), {"--kernels", "got fast", "launches, persistent or auto"});
    expect_error(with({"--backend", "host-simt", "--kernels", "fast"}), {"--kernels", "got fast", "launches, persistent or auto"});
    expect_error(with({"--backend", "cpu", "--kernels", "persistent"}), {"--kernels", "got persistent", "the CPU backend has no kernels of a GPU"});
  }
  EXPECT_EQ(run({"model", "target", "--backend", "cpu", "--kernels", "auto"}).code, 0);
  const auto dry = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run", "a.json", "--dry-run"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  expect_error(dry({"--backend", "tpu"}), {"--backend", "got tpu"});
  expect_error(dry({"--backend", "cpu", "--numerics", "f8"}), {"f8"});
  expect_error(dry({"--backend", "cpu", "--device", "1"}), {"--device", "got 1"});
  expect_error(dry({"--backend", "cuda", "--kernels", "fast"}), {"--kernels", "got fast"});
  EXPECT_EQ(dry({"--backend", "cuda", "--kernels", "persistent"}).code, 0) << "a GPU is not looked for";
  EXPECT_EQ(dry({"--backend", "host-simt", "--kernels", "persistent"}).code, 0);
}

TEST_F(Speclab, WhoMultipliesPromptsIsChecked) {
  const std::vector<std::string> model = {"model", "target"}, dry = {"run", "a.json", "--dry-run"};
  for (const std::vector<std::string>& words : {model, dry}) {
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = words;
      all.insert(all.end(), more.begin(), more.end());
      return run(all);
    };
    expect_error(with({"--backend", "host-simt", "--prefill", "cublas"}), {"--prefill", "got cublas", "own or cublaslt"});
    expect_error(with({"--backend", "cpu", "--prefill", "cublaslt"}), {"--prefill", "got cublaslt", "the CPU backend has no library of a GPU"});
    EXPECT_EQ(with({"--backend", "host-simt", "--prefill", "cublaslt"}).code, 0);
    EXPECT_EQ(with({"--backend", "cpu", "--prefill", "own"}).code, 0);
  }
  expect_error(run({"run", "a.json", "--dry-run", "--backend", "cuda", "--prefill", "fast"}), {"--prefill", "got fast"});
  EXPECT_EQ(run({"run", "a.json", "--dry-run", "--backend", "cuda", "--prefill", "cublaslt"}).code, 0) << "a GPU is not looked for";
  expect_error(run({"bench", "--model", "target", "--rows", "1", "--prompts", "5"}), {"--rows and --prompts", "one of them"});
}

// Cases of a run share the way of their prompts, so that speculation changes nothing in it; the record says which it was.
TEST_F(Speclab, PromptsByALibraryAreMeasuredAndRecorded) {
  const Result measured = run({"bench", "--model", "target", "--backend", "host-simt", "--prefill", "cublaslt", "--prompts", "20,40", "--repeats", "2", "--json"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  const json prompts = json::parse(measured.out)["prompts"];
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[1]["tokens"], 40);
  EXPECT_EQ(prompts[1]["own_ns"].size(), 2u);
  ASSERT_TRUE(prompts[1].contains("library_ns"));
  EXPECT_EQ(prompts[1]["library_ns"].size(), 2u);
  const Result own = run({"bench", "--model", "target", "--backend", "cpu", "--prompts", "20", "--repeats", "1"});
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_THAT(own.out, HasSubstr("library / own"));

  std::string prompt;
  for (int i = 0; i < 25; ++i) prompt += std::to_string(1 + i % 9) + " ";
  const auto generated = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"generate", "--model", "target", "--backend", "host-simt", "--prefill", "cublaslt", "--set", "max_tokens=6", "--prompt", prompt, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? json::parse(result.out)["tokens"] : json();
  };
  const json plain = generated({});
  EXPECT_EQ(generated({"--draft", "layers:0", "--strategy", "speculative_sampling"}), plain);
  EXPECT_EQ(generated({"--strategy", "prompt_lookup"}), plain);
}

TEST_F(Speclab, BadInputOfEveryKind) {
  expect_error(run({"run", "none.json"}), {"none.json"});
  expect_error(run({"run"}), {"no CONFIG", "speclab run"});
  expect_error(run({"runn"}), {"runn", "run"});
  expect_error(run({"run", "a.json", "--filtre", "x"}), {"--filtre", "--filter"});
  expect_error(run({"run", "a.json", "--shard", "3/2"}), {"--shard", "3/2"});
  expect_error(run({"run", "a.json", "--backend", "tpu"}), {"--backend", "tpu"});
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", "a.json", "--out", "x"},
                                                {"generate", "--model", "target", "--prompt", "1"},
                                                {"model", "target"},
                                                {"bench", "--model", "target"}}) {
    std::vector<std::string> with_device = words;
    with_device.insert(with_device.end(), {"--device", "1"});
    expect_error(run(with_device), {"--device", "got 1", "0"});
  }
  EXPECT_EQ(run({"model", "target", "--device", "0"}).code, 0);
  expect_error(run({"model", "target", "--backend", "host-simt", "--device", "1"}), {"--device", "got 1", "host-simt backend has one device"});
  expect_error(run({"run", "a.json", "--numerics", "f8", "--out", "x"}), {"f8"});
  expect_error(run({"run", "a.json", "--shard", "4/4", "--out", "x"}), {"--shard", "4/4", "at most 3"});
  expect_error(run({"run", "a.json", "--set", "cases.1.gama=2"}), {"a.json: /cases/1/gama", "gamma"});
  std::ofstream(dir() / "bad.json") << "{\n  \"name\": \"x\",\n  oops\n}";
  expect_error(run({"run", "bad.json"}), {"bad.json", "line 3", "column"});
  expect_error(run({"run", "a.json", "--set", "target=nowhere", "--out", "x"}), {"nowhere"});
  expect_error(run({"run", "a.json", "--set", "target=a.json", "--out", "x"}), {"a.json"});
  expect_error(run({"run", "a.json", "--set", "drafts.skip.layers=[7]", "--out", "x"}), {"[7]", "0 to 1"});
  fixtures::Shape other = fixtures::tiny_shape();
  other.vocab = 48;
  fixtures::write_tiny_llama(dir() / "foreign", other, 3);
  expect_error(run({"run", "a.json", "--set", "drafts.small.model=foreign", "--out", "x"}), {"48", "64"});
  const fs::path weights = dir() / "target" / "model.safetensors";
  const std::string bytes = fixtures::Cli::read(weights);
  std::ofstream(weights, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  expect_error(run({"run", "a.json", "--out", "x"}), {"model.safetensors"});
  EXPECT_FALSE(fs::exists(dir() / "x")) << "nothing half-written";
  expect_error(run({"report", "nowhere"}), {"nowhere", "no run"});
  expect_error(run({"compare", "nowhere"}), {"NEW"});
  expect_error(run({"describe", "speculative_samplin"}), {"speculative_sampling"});
  expect_error(run({"list", "rules"}), {"acceptances"});
  expect_error(run({"theory", "--alpha", "1.5", "--gamma", "2"}), {"alpha", "1.5"});
  expect_error(run({"theory", "--alpha", "x"}), {"alpha"});
  expect_error(run({"theory", "--alpha", ".4", "--W", "15"}), {"--N", "nothing", "2 to 64"});
  expect_error(run({"theory", "--alpha", ".4", "--N", "1", "--W", "15"}), {"--N", "1"});
  expect_error(run({"model", "a.json"}), {"a.json"});
}

TEST_F(Speclab, FoldersThatCannotBeWritten) {
  expect_error(run({"run", "a.json", "--out", "a.json/run"}), {"a.json/run"});
  const Result full =
      shell("ulimit -f 24; exec $SPECLAB run a.json --out run -q --set repeats=6 --set calibration=false");
  expect_error(full, {"cannot write", "cases/", "--resume"});
  std::size_t lines = 0;
  for (const auto& entry : fs::directory_iterator(dir() / "run" / "cases")) {
    const std::string text = fixtures::Cli::read(entry.path());
    EXPECT_TRUE(text.empty() || text.back() == '\n') << "nothing half-written in " << entry.path();
    lines += read_case_file(entry.path()).size();
  }
  EXPECT_GT(lines, 0u) << "finished lines are kept";
  EXPECT_EQ(run({"run", "a.json", "--out", "run", "-q", "--set", "repeats=6", "--set", "calibration=false",
                 "--resume"})
                .code,
            0);
}

TEST_F(Speclab, WhatFailsInOneLineIsRecordedThere) {
  json long_prompt = config();
  std::string ids;
  for (int i = 0; i < 300; ++i) ids += "1 ";
  long_prompt["prompts"]["inline"].push_back({{"id", "long"}, {"turns", {ids}}});
  write(long_prompt);
  const Result result = run({"run", "a.json", "--out", "run"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("failed: autoregressive prompt long"), HasSubstr("256")));
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_EQ(summary["cases"][0]["errors"], 2);
  EXPECT_EQ(summary["cases"][0]["prompts"], 3) << "the others were measured";
  EXPECT_TRUE(summary["cases"][1]["metrics"]["speedup"].is_number());
}

TEST_F(Speclab, CalibrationStaysWithinTheContext) {
  fixtures::Shape small = fixtures::tiny_shape();
  small.context = 48;
  fixtures::write_tiny_llama(dir() / "target", small, 1);
  const Result result =
      run({"run", "a.json", "--out", "run", "--filter", "prompt_lookup", "--set", "calibration.rows=64"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_EQ(summary["calibration"]["t_n"].size(), 47u);
  EXPECT_EQ(summary["calibration"]["context_length"], 1);
}

TEST_F(Speclab, WeightsThatAreNoNumbersAreRefused) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    fixtures::TinyModel broken = fixtures::random_llama(fixtures::tiny_shape(), 2);
    broken.tensors["final_norm"].values[3] = bad;
    fixtures::write_huggingface(dir() / "draft", broken);
    expect_error(run({"run", "a.json", "--out", "run", "--filter", "small/gamma=1", "-q"}),
                 {"draft", "model.norm.weight", std::isnan(bad) ? "nan" : "inf", "finite"});
    EXPECT_FALSE(fs::exists(dir() / "run"));
  }
}

TEST_F(Speclab, NanLogitsAreAnErrorWithoutNumbers) {
  fixtures::TinyModel broken = fixtures::random_llama(fixtures::tiny_shape(), 2);
  for (float& weight : broken.tensors["final_norm"].values) weight = 3e38f;  // finite, but not what it scales
  fixtures::write_huggingface(dir() / "draft", broken);
  const Result result = run({"run", "a.json", "--out", "run", "--filter", "small/gamma=1"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("logits of the model, entry"));
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_TRUE(summary["cases"][1]["metrics"]["speedup"].is_null());
  EXPECT_TRUE(summary["cases"][1]["metrics"]["tau"].is_null());
  EXPECT_TRUE(summary["cases"][0]["metrics"]["tau"].is_number());
  EXPECT_THAT(summary["errors"][0]["message"].get<std::string>(), HasSubstr("logits of the model, entry"));
}

TEST_F(Speclab, GammaPastTheContextEndIsCut) {
  json near_end = config();
  near_end["options"]["max_tokens"] = 400;
  near_end["cases"][1]["gamma"] = 60;
  write(near_end);
  const Result result =
      run({"run", "a.json", "--out", "run", "--set", "prompts.limit=1", "--set", "repeats=1"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = read_json_file(dir() / "run" / "summary.json");
  ASSERT_EQ(summary["cases"].size(), 4u);
  for (const json& entry : summary["cases"]) {
    const bool is_reference = entry["reference"].is_null();  // one repeat: nothing to hold it against
    EXPECT_EQ(entry["metrics"]["matches_reference"], is_reference ? json() : json(true)) << entry["id"];
    EXPECT_GE(entry["metrics"]["tokens"].get<double>(), 256 - 5) << entry["id"];
  }
}

TEST_F(Speclab, ResumeAfterKillEqualsTheUninterruptedRun) {
  const std::vector<std::string> settings = {"--set", "repeats=12", "-q"};
  const auto command = [&](const std::string& out, bool resume) {
    std::vector<std::string> words = {"run", "a.json", "--out", out};
    words.insert(words.end(), settings.begin(), settings.end());
    if (resume) words.emplace_back("--resume");
    return words;
  };
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_EQ(run(command("whole", false)).code, 0);
  const std::chrono::duration<double, std::milli> life = std::chrono::steady_clock::now() - begun;
  std::mt19937 random(std::random_device{}());
  bool resume = false;
  int kills = 0;
  for (int attempt = 0; attempt < 60; ++attempt) {
    fixtures::Cli cli(dir(), command("killed", resume));
    // Half of the lives end at a random moment after lines began to appear, the others at any time.
    const fs::path cases = dir() / "killed" / "cases";
    if (random() % 2 == 0) {
      while (cli.running() && !fs::exists(cases / "autoregressive.jsonl"))
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    } else {
      std::this_thread::sleep_for(life * (static_cast<double>(random() % 1000) / 1000));
    }
    cli.kill(SIGKILL);
    const int code = cli.wait();
    if (code == 0 && kills > 0) break;
    if (code == 0) {  // it was faster than its killer
      fs::remove_all(dir() / "killed");
      continue;
    }
    ASSERT_EQ(code, -SIGKILL) << cli.err();
    ++kills;
    resume = fs::exists(dir() / "killed" / "config.json");
    if (kills >= 8) break;
  }
  EXPECT_GT(kills, 0);
  const Result last = run(command("killed", resume));
  ASSERT_EQ(last.code, 0) << last.err;
  const auto whole = record_of(dir() / "whole"), killed = record_of(dir() / "killed");
  ASSERT_EQ(whole.size(), killed.size());
  for (const auto& [file, lines] : whole) {
    ASSERT_TRUE(killed.contains(file)) << file;
    EXPECT_EQ(lines.size(), killed.at(file).size()) << file;
    EXPECT_TRUE(lines == killed.at(file)) << file;
  }
  const std::vector<json> rounds = read_json_lines(dir() / "killed" / "calibration.jsonl");
  ASSERT_EQ(rounds.size(), 3u) << "no round is lost or measured twice";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rounds[static_cast<std::size_t>(i)]["round"], i);
}

TEST_F(Speclab, GreedyVerificationAtATemperatureIsGreedyDecoding) {
  json greedy = config();
  greedy["options"]["temperature"] = 1;
  greedy["cases"][1]["rule"] = "exact";
  write(greedy);
  const Result result = run({"run", "a.json", "--out", "run", "-q", "--set", "calibration=false"});
  ASSERT_EQ(result.code, 0) << result.err;
  int compared = 0;
  const json summary = read_json_file(dir() / "run" / "summary.json");
  for (const json& entry : summary["cases"]) {
    if (entry["rule"] != "exact") continue;
    EXPECT_EQ(entry["metrics"]["matches_reference"], true) << entry["id"];
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

TEST_F(Speclab, SharedPrefillsChangeNothingButTheirTime) {
  for (const std::string share : {"true", "false"}) {
    const Result result = run({"run", "a.json", "--out", share, "--set", "share_prefills=" + share, "--set",
                               "calibration=false", "-q"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(read_json_file(dir() / share / "config.json")["share_prefills"], share == "true");
  }
  EXPECT_EQ(record_of(dir() / "true"), record_of(dir() / "false"));
}

TEST_F(Speclab, ShardsTogetherAreTheWholeRun) {
  const auto shard = [&](const std::string& out, std::vector<std::string> words) {
    words.insert(words.begin(), {"run", "a.json", "--out", out, "--set", "calibration=false"});
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  };
  const auto sorted_record = [](const fs::path& folder) {  // lines stand in order of measurement
    auto record = record_of(folder);
    for (auto& [file, lines] : record) {
      const bool raw = file != "teacher.jsonl";
      std::sort(lines.begin(), lines.end(), [&](const json& a, const json& b) {
        return raw ? a["order"] < b["order"] : a.dump() < b.dump();
      });
    }
    return record;
  };
  shard("whole", {});
  EXPECT_THAT(shard("parts", {"--shard", "1/2"}).err, HasSubstr("--shard i/2 --resume --out parts"));
  EXPECT_FALSE(read_json_file(dir() / "parts" / "summary.json")["complete"].get<bool>());
  shard("other", {"--shard", "2/2"});
  for (const char* folder : {"cases", "."}) {  // the parts of two machines, put together by hand
    fs::create_directories(dir() / "joined" / folder);
    for (const char* part : {"parts", "other"}) {
      for (const auto& entry : fs::directory_iterator(dir() / part / folder)) {
        if (entry.path().extension() == ".jsonl")
          std::ofstream(dir() / "joined" / folder / entry.path().filename(), std::ios::app)
              << fixtures::Cli::read(entry.path());
      }
    }
  }
  shard("parts", {"--shard", "2/2", "--resume"});
  const auto whole = sorted_record(dir() / "whole");
  EXPECT_GT(whole.at("teacher.jsonl").size(), 0u);
  EXPECT_TRUE(whole == sorted_record(dir() / "parts"));
  EXPECT_TRUE(whole == sorted_record(dir() / "joined"));
  EXPECT_EQ(fixtures::Cli::read(dir() / "whole" / "config.json"),
            fixtures::Cli::read(dir() / "other" / "config.json"));
  const json a = read_json_file(dir() / "whole" / "summary.json"),
             b = read_json_file(dir() / "parts" / "summary.json");
  EXPECT_TRUE(b["complete"].get<bool>());
  for (std::size_t i = 0; i < a["cases"].size(); ++i) {
    for (const char* metric : {"tokens", "steps", "tau", "alpha", "alpha_teacher_forced", "flops"})
      EXPECT_EQ(a["cases"][i]["metrics"][metric], b["cases"][i]["metrics"][metric]) << metric;
  }
  EXPECT_THAT(run({"run", "a.json", "--shard", "2/2", "--dry-run"}).out, HasSubstr("1 prompts"));
}

TEST_F(Speclab, EveryShardHasCalibrationRoundsOfItsOwn) {
  const Result first = run({"run", "a.json", "--out", "parts", "--shard", "1/2", "-q"});
  ASSERT_EQ(first.code, 0) << first.err;
  const Result second = run({"run", "a.json", "--out", "parts", "--shard", "2/2", "--resume", "-q"});
  ASSERT_EQ(second.code, 0) << second.err;
  std::map<std::string, int> rounds;
  for (const json& round : read_json_lines(dir() / "parts" / "calibration.jsonl"))
    EXPECT_EQ(round["round"], rounds[round["shard"].dump()]++);
  EXPECT_THAT(rounds, ::testing::ElementsAre(std::pair("[1,2]", 3), std::pair("[2,2]", 3)));
  EXPECT_EQ(read_json_file(dir() / "parts" / "summary.json")["calibration"]["rounds"], 6);
}

TEST_F(Speclab, CtrlCFinishesTheLineInFlight) {
  fixtures::Cli cli(dir(),
                   {"run", "a.json", "--out", "run", "--set", "repeats=400", "--set", "calibration=false"});
  const fs::path file = dir() / "run" / "cases" / "prompt_lookup.jsonl";
  while (cli.running() && !fs::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  cli.kill(SIGINT);
  EXPECT_EQ(cli.wait(), 130) << cli.err();
  EXPECT_THAT(cli.err(), AllOf(HasSubstr("interrupted"), HasSubstr("--resume")));
  for (const auto& entry : fs::directory_iterator(dir() / "run" / "cases")) {
    const std::string text = fixtures::Cli::read(entry.path());
    EXPECT_TRUE(!text.empty() && text.back() == '\n') << entry.path();
  }
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_FALSE(summary["complete"].get<bool>());
}

TEST_F(Speclab, TheLaboratoryOfLookaheadDecodingEndToEnd) {
  json grid = config();
  grid["cases"] = {{{"strategy", "autoregressive"}},
                   {{"strategy", "lookahead"}, {"W", {1, 2, 4}}, {"N", {3, 4}}, {"G", "=W"}}};
  grid["repeats"] = 1;
  write(grid);
  ASSERT_EQ(run({"run", "a.json", "--out", "run", "-q"}).code, 0);
  const Result before = run({"lookahead", "run", "--t", "1:1,128:1,256:2"});
  EXPECT_EQ(before.code, 0) << before.err;
  EXPECT_THAT(before.out, AllOf(HasSubstr("Law of lookahead decoding over 6 cases"), HasSubstr("t(n) = 1:1,128:1,256:2"),
                                HasSubstr("free rows")));
  EXPECT_THAT(before.err, HasSubstr("--measure"));
  const Result after = run({"lookahead", "run", "--measure", "--json", "-q"});
  ASSERT_TRUE(after.code == 0 || after.code == 1) << after.err;  // tiny models: nobody knows what is faster
  const json verdict = json::parse(after.out)["verdict"];
  EXPECT_EQ(after.code == 1, verdict["never_slower"] == false);
  ASSERT_GE(verdict["measured"].size(), 1u);
  EXPECT_GT(verdict["measured"][0]["speedup"], 0);
  EXPECT_EQ(read_json_file(dir() / "run" / "verdict" / "verdict.json"), verdict);
  // A window has a waterfall of its own, and it adds up.
  const Result explained = run({"explain", "run", "lookahead/W=4/N=4", "--json"});
  ASSERT_EQ(explained.code, 0) << explained.err;
  const json terms = json::parse(explained.out)["lookahead/W=4/N=4"];
  EXPECT_EQ(terms[0]["step"], "free_rows");
  double sum = 0;
  for (const json& term : terms) sum += term["log_ratio"].get<double>();
  EXPECT_NEAR(sum, std::log(terms.back()["speedup"].get<double>() / terms[0]["speedup"].get<double>()), 1e-9);
  expect_error(run({"lookahead", "run", "--t", "5:"}), {"--t", "rows:time"});
  write(config());
  ASSERT_EQ(run({"run", "a.json", "--out", "other", "-q", "--filter", "lookup"}).code, 0);
  expect_error(run({"lookahead", "other"}), {"no two cases", "lookahead_wng"});
}

TEST_F(Speclab, StepsDividedOverDevices) {
  json divided = config();
  divided["cases"] = {{{"strategy", "autoregressive"}},
                      {{"strategy", "lookahead"}, {"W", 6}, {"N", 4}, {"G", 6}, {"devices", {1, 2, 5}}}};
  write(divided);
  const Result ran = run({"run", "a.json", "--out", "run", "-q"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("Lookahead parallelism"));
  const json free = json::parse(run({"lookahead", "run", "--json"}).out)["devices"];
  const json far = json::parse(
      run({"lookahead", "run", "--json", "--link-us", "1e6", "--link-gbytes", "1e-9"}).out)["devices"];
  ASSERT_EQ(free.size(), 2u) << "one device is no division";
  for (std::size_t i = 0; i < free.size(); ++i) {
    const json& row = free[i];
    const int devices = row["devices"];
    EXPECT_TRUE(row["equal"]);
    ASSERT_EQ(row["rows"].size(), static_cast<std::size_t>(devices));
    const double tau = row["tau"];
    for (std::size_t d = 0; d < row["rows"].size(); ++d)
      EXPECT_LE(row["rows"][d].get<double>(), row["most_rows"][d].get<double>() + tau - 1 + 3)
          << "accepted tokens again; warming up takes longer rows";
    EXPECT_GT(row["slowest_ms"], 0);
    for (const json& ms : row["device_ms"]) EXPECT_LE(ms, row["slowest_ms"]);
    EXPECT_NEAR(row["exchange_bytes"], 4 * (devices * tau + 6), 1e-9);
    EXPECT_EQ(row["exchange_ms"], 0.);
    EXPECT_GT(row["predicted_speedup"], 0);
    EXPECT_GT(row["undivided_speedup"], 0);
    // An all-gather: 1 message for two devices, 3 for five; 1 byte takes a second.
    const double ms =
        1e3 * ((devices == 2 ? 1 : 3) + row["exchange_bytes"].get<double>() * (devices - 1) / devices);
    EXPECT_NEAR(far[i]["exchange_ms"], ms, 1e-6 * ms);
    const double step = row["slowest_ms"].get<double>() + row["other_ms"].get<double>();
    EXPECT_NEAR(far[i]["speedup"], row["speedup"].get<double>() * step / (step + ms), 1e-9);
  }
  const json summary = read_json_file(dir() / "run" / "summary.json");
  for (const json& each : summary["cases"]) {
    const std::string id = each["id"];
    EXPECT_EQ(each["metrics"]["speedup"].is_null(), !id.ends_with("devices=1")) << id;
  }
  expect_error(run({"lookahead", "run", "--link-us", "-1"}), {"--link-us", "negative"});
}

TEST_F(Speclab, SmallCommands) {
  EXPECT_EQ(run({"--help"}).code, 0);
  EXPECT_EQ(run({}).code, 2);
  EXPECT_THAT(run({"--version"}).out, HasSubstr("speclab"));
  for (const char* name : {"run", "generate", "list", "describe", "model", "theory", "explain", "compare",
                           "report", "bench", "numerics", "lookahead"}) {
    EXPECT_THAT(run({name, "--help"}).out, HasSubstr("Example:")) << name;
  }
  for (const char* kind : {"strategies", "acceptances", "schedules", "metrics", "models"}) {
    EXPECT_EQ(run({"list", kind}).code, 0) << kind;
    EXPECT_TRUE(json::parse(run({"list", kind, "--json"}).out).is_array()) << kind;
  }
  for (const char* name : {"speculative_sampling", "generation", "typical", "constant", "tau"}) {
    EXPECT_EQ(run({"describe", name}).code, 0) << name;
    EXPECT_EQ(json::parse(run({"describe", name, "--json"}).out)["name"], name);
  }
  EXPECT_EQ(json::parse(run({"model", "target", "--json"}).out)["layers"], 2);
  EXPECT_THAT(run({"model", "target", "--tensors"}).out, HasSubstr("layers.1.ffn_down"));
  EXPECT_NEAR(json::parse(run({"theory", "--alpha", ".8", "--gamma", "5", "--c", "0", "--json"})
                              .out)["leviathan_3_8"]["value"]
                  .get<double>(),
              3.69, .005);
  const json bench =
      json::parse(run({"bench", "--model", "target", "--tokens", "8", "--repeats", "1", "--json"}).out);
  EXPECT_GT(bench["measuring"][1]["cost_ns"].get<double>(), 0);
  const std::vector<std::string> timing = {"bench", "--model", "target", "--tokens", "4", "--repeats", "3"};
  const auto timed = [&](std::vector<std::string> more) {
    more.insert(more.begin(), timing.begin(), timing.end());
    return run(more);
  };
  const json times =
      json::parse(timed({"--rows", "5,1", "--context", "8,16", "--texts", "2", "--json"}).out)["engine"];
  ASSERT_EQ(times["contexts"].size(), 2U);
  const json& last = times["contexts"][1];
  EXPECT_EQ(last["context"], 16);
  EXPECT_EQ(last["tokens"].size(), 4U);
  EXPECT_EQ(last["prefill_ns"].size(), 2U);
  EXPECT_EQ(last["step_ns"].size(), 2U);
  EXPECT_EQ(last["rows_ns"]["5"].size(), 3U);
  EXPECT_GT(last["work"]["5"]["flops"].get<double>(), 4 * last["work"]["1"]["flops"].get<double>());
  EXPECT_THAT(timed({"--rows", "1,2", "--context", "8"}).out, HasSubstr("forward, rows: 2"));
  expect_error(timed({"--rows", "1,x"}), {"--rows", "\"x\"", "1 to 128"});
  expect_error(timed({"--rows", "1", "--context", "100000"}), {"--context", "100000"});
  std::ofstream(dir() / "p.jsonl") << R"({"id": "a", "turns": ["1 2 3"]})"
                                   << "\n";
  const json numerics = json::parse(
      run({"numerics", "--model", "target", "--prompts", "p.jsonl", "--tokens", "5", "--json"}).out);
  EXPECT_EQ(numerics[0]["numerics"], "f32-kv16");
  EXPECT_EQ(numerics[0]["positions"], 5);
  const auto device = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"numerics", "--model", "target", "--prompts", "p.jsonl", "--tokens", "5", "--backend", "host-simt"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const json both = json::parse(device({"--json"}).out);
  ASSERT_EQ(both.size(), numerics.size() + 1);
  EXPECT_EQ(both[0], numerics[0]);
  EXPECT_EQ(both.back()["numerics"], "host-simt");
  EXPECT_GT(both.back()["logit_difference"].get<double>(), 0) << "it rounds activations";
  EXPECT_LT(both.back()["logit_difference"].get<double>(), .05);
  expect_error(device({"--class", "f32-kv16"}), {"--numerics", "got f32-kv16", "host-simt"});
  const Result dry = run({"run", "a.json", "--dry-run"});
  EXPECT_THAT(dry.out, AllOf(HasSubstr("prompt_lookup"), HasSubstr("36 lines")));
  const Result text = run({"generate", "--model", "target", "--draft", "layers:0", "--strategy",
                           "speculative_sampling", "--set", "max_tokens=8", "--prompt", "1 2 3"});
  EXPECT_EQ(text.code, 0) << text.err;
  const Result plain =
      run({"generate", "--model", "target", "--set", "max_tokens=8", "--prompt", "1 2 3", "--json"});
  std::string ids;
  const json record = json::parse(plain.out);
  for (const json& token : record["tokens"]) ids += token.dump() + " ";
  EXPECT_EQ(text.out, ids + "\n") << "speculation changes nothing";
  EXPECT_EQ(record["prompt_tokens"], (json{1, 2, 3}));
  EXPECT_TRUE(record["prompt_text"].is_string());
  EXPECT_THAT(text.out, Not(HasSubstr("\033"))) << "no colours in a file";
}

// The kernels of a GPU on the CPU: speculation changes nothing there either, and the record says what it ran on.
TEST_F(Speclab, TheSimulatedGpuGeneratesAndIsMeasured) {
  const auto generated = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"generate", "--model", "target", "--backend", "host-simt", "--set", "max_tokens=6", "--prompt", "1 2 3", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? json::parse(result.out)["tokens"] : json();
  };
  const json plain = generated({});
  EXPECT_EQ(plain.size(), 6u);
  EXPECT_EQ(generated({"--draft", "layers:0", "--strategy", "speculative_sampling"}), plain);
  EXPECT_EQ(generated({"--strategy", "prompt_lookup"}), plain);
  EXPECT_EQ(generated({"--kernels", "persistent"}), plain);
  const Result measured = run({"bench", "--model", "target", "--backend", "host-simt", "--rows", "1,2", "--context", "8", "--tokens", "2", "--repeats", "1", "--json"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  const json bench = json::parse(measured.out);
  EXPECT_EQ(bench["backend"], "host-simt");
  EXPECT_EQ(bench["engine"]["numerics"], "host-simt");
  EXPECT_GT(bench["device"]["peak_flops"].get<double>(), 0);
  EXPECT_GT(bench["device"]["read_bandwidth_bytes_per_second"].get<double>(), 0);
  EXPECT_EQ(bench["device"]["name"].get<std::string>().substr(0, 13), "simulated GPU");
  expect_error(run({"model", "target", "--backend", "host-simt", "--numerics", "f32"}), {"--numerics", "got f32", "host-simt"});
}

// Steps that a device runs by itself leave the record that the host's steps leave, but for the times.
TEST_F(Speclab, DeviceLoopLeavesTheRecordOfTheHost) {
  json small = config();
  small["options"] = {{"max_tokens", 7}, {"temperature", 1}};
  small["repeats"] = 1;
  small["cases"] = json::parse(R"([{"strategy": "autoregressive"}, {"strategy": "speculative_sampling", "draft": ["small", "skip"], "gamma": 2}, {"strategy": "prompt_lookup"}])");
  write(small);
  const auto record = [&](const std::string& device_loop, std::map<std::string, std::vector<json>>& of_device) {
    const Result result = run({"run", "a.json", "--backend", "host-simt", "--out", device_loop, "--set", "calibration=false", "--set", "options.device_loop=" + device_loop, "-q"});
    EXPECT_EQ(result.code, 0) << result.err;
    auto lines = record_of(dir() / device_loop);
    for (auto& [file, of_case] : lines) {
      for (json& line : of_case) {
        for (json& turn : line["turns"]) {
          of_device[file].push_back({turn["device"]["planned_steps"], turn["device"]["round_trips"], turn["steps"]});
          turn.erase("device");
        }
      }
    }
    return lines;
  };
  std::map<std::string, std::vector<json>> host, planned;
  const auto expected = record("off", host), got = record("auto", planned);
  EXPECT_EQ(got.size(), 5u);  // the teacher's lines too
  EXPECT_EQ(got, expected);
  for (const auto& [file, turns] : planned) {
    const bool asks_the_host = file.find("prompt_lookup") != file.npos;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(turns[i][0], asks_the_host ? json(0) : turns[i][2]) << file;
      EXPECT_EQ(turns[i][1] == 0, !asks_the_host) << file;
      EXPECT_EQ(host[file][i][0], 0) << file;
    }
  }
  const Result refused = run({"run", "a.json", "--backend", "host-simt", "--out", "on", "--set", "calibration=false", "--set", "options.device_loop=on", "--filter", "prompt_lookup"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("prompt_lookup with these options asks the host in every step"));
  expect_error(run({"generate", "--model", "target", "--prompt", "1 2 3", "--set", "device_loop=on"}), {"option device_loop", "backend cpu runs no steps by itself", "\"auto\""});
}

}  // namespace
}  // namespace speclab
