// The real binary on the simulated GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::device_cli_test {
namespace {

using namespace speclab::fixtures;

// Speculation changes no text on the simulated GPU, and the record names the device.
TEST_F(Speclab, TheSimulatedGpuGeneratesAndIsMeasured) {
  const auto generated = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"generate", "--model",      "target",   "--backend", "host-simt",
                                      "--set",    "max_tokens=6", "--prompt", "1 2 3",     "--json"};
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
  const Result measured = run({"bench", "--model", "target", "--backend", "host-simt", "--rows", "1,2",
                               "--context", "8", "--tokens", "2", "--repeats", "1", "--json"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  const json bench = json::parse(measured.out);
  EXPECT_EQ(bench["backend"], "host-simt");
  EXPECT_EQ(bench["engine"]["numerics"], "host-simt");
  EXPECT_GT(bench["device"]["peak_flops"].get<double>(), 0);
  EXPECT_GT(bench["device"]["read_bandwidth_bytes_per_second"].get<double>(), 0);
  EXPECT_EQ(bench["device"]["name"].get<std::string>().substr(0, 13), "simulated GPU");
  const json& times = bench["engine"]["contexts"][0];
  for (const char* rows : {"1", "2"}) {
    EXPECT_LT(times["device_rows_ns"][rows][0], times["rows_ns"][rows][0]) << "the download is not in it";
    EXPECT_EQ(times["kernels"][rows]["attention_splits"], 2) << "layers";
  }
  EXPECT_EQ(times["device_step_ns"].size(), 3u);
  for (const char* graph : {"off", "round", "loop"}) EXPECT_GT(times["device_step_ns"][graph][0], 0) << graph;
  const std::vector<std::string> one_row = {"bench", "--model",  "target", "--rows",    "1", "--context",
                                            "8",     "--tokens", "2",      "--repeats", "1", "--backend"};
  const auto table_of = [&](const char* backend) {
    std::vector<std::string> words = one_row;
    words.push_back(backend);
    return run(words).out;
  };
  EXPECT_THAT(table_of("host-simt"),
              AllOf(HasSubstr("ms with download"), HasSubstr("greedy step, device_graph loop")));
  EXPECT_THAT(table_of("cpu"), AllOf(HasSubstr("forward, rows: 1"), Not(HasSubstr("with download")),
                                     Not(HasSubstr("device_graph"))));
  expect_error(run({"model", "target", "--backend", "host-simt", "--numerics", "f32"}),
               {"--numerics", "got f32", "host-simt"});
}

// Steps that a device runs by itself leave the same record as the host's steps, except for the times.
TEST_F(Speclab, DeviceLoopLeavesTheRecordOfTheHost) {
  json small = config();
  small["options"] = {{"max_tokens", 7}, {"temperature", 1}, {"budget", "fixed"}};
  small["repeats"] = 1;
  small["cases"] = json::parse(
      R"([{"strategy": "autoregressive"}, {"strategy": "speculative_sampling", "draft": ["small", "skip"], "gamma": 2}, {"strategy": "prompt_lookup"}, {"strategy": "jacobi"}])");
  write(small);
  const auto record = [&](const std::string& device_loop,
                          std::map<std::string, std::vector<json>>& of_device) {
    const Result result = run({"run", "a.json", "--backend", "host-simt", "--out", device_loop, "--set",
                               "calibration=false", "--set", "options.device_loop=" + device_loop, "-q"});
    EXPECT_EQ(result.code, 0) << result.err;
    auto lines = record_of(dir() / device_loop);
    for (auto& [file, of_case] : lines) {
      for (json& line : of_case) {
        for (json& turn : line["turns"]) {
          of_device[file].push_back({turn["device"]["planned_steps"], turn["device"]["round_trips"],
                                     turn["steps"], turn["device"]["verified_steps"]});
          turn.erase("device");
        }
      }
    }
    return lines;
  };
  std::map<std::string, std::vector<json>> host, planned;
  const auto expected = record("off", host), got = record("auto", planned);
  EXPECT_EQ(got.size(), 6u);  // with the lines of teacher forcing
  EXPECT_EQ(got, expected);
  for (const auto& [file, turns] : planned) {
    const bool learns = file.find("jacobi") != file.npos, copies = file.find("prompt_lookup") != file.npos;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(turns[i][0], learns || copies ? json(0) : turns[i][2]) << file;
      EXPECT_EQ(turns[i][1], learns || copies ? turns[i][2] : json(0)) << file;
      EXPECT_EQ(turns[i][3], copies ? turns[i][2] : json(0)) << file;
      EXPECT_EQ(host[file][i][0], 0) << file;
      EXPECT_EQ(host[file][i][3], 0) << file;
    }
  }
  const Result refused = run({"run", "a.json", "--backend", "host-simt", "--out", "on", "--set",
                              "calibration=false", "--set", "options.device_loop=on", "--filter", "jacobi"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("jacobi learns from the target's rows"));
  expect_error(run({"generate", "--model", "target", "--prompt", "1 2 3", "--set", "device_loop=on"}),
               {"option device_loop", "backend cpu runs no steps by itself", "\"auto\""});
}

// A prediction uses the times that the steps of its case pay: without the download where the device judges.
TEST_F(Speclab, PredictionsOfADeviceCountTheDownloadsThatAStepMakes) {
  json small = config();
  small["options"] = {{"max_tokens", 6}, {"budget", "fixed"}};
  small["repeats"] = 1;
  small["prompts"] = {{"inline", {"1 2 3"}}};
  small["calibration"] = {{"rows", 4}, {"rounds", 2}, {"texts", 1}};
  small["cases"] = json::parse(
      R"([{"strategy": "autoregressive"}, {"strategy": "prompt_lookup"}, {"strategy": "prompt_lookup", "device_loop": "auto"},
          {"strategy": "speculative_sampling", "draft": "small", "gamma": 2, "device_loop": "auto"}])");
  write(small);
  ASSERT_EQ(run({"run", "a.json", "--backend", "host-simt", "--out", "device", "-q"}).code, 0);
  const auto read = [&](const std::string& folder) {
    std::ifstream file(dir() / folder / "summary.json");
    return json::parse(file);
  };
  const json summary = read("device"), &costs = summary["calibration"];
  ASSERT_TRUE(costs.contains("device"));
  for (const json& round : read_json_lines(dir() / "device/calibration.jsonl")) {
    for (const auto& [rows, ns] : round["device"]["t_n_ns"].items())
      EXPECT_LT(ns, round["t_n_ns"][rows]) << rows << ": the download is not in it";
    EXPECT_EQ(round["device"]["t_n_ns"].size(), round["t_n_ns"].size());
    EXPECT_EQ(round["device"]["drafts"]["small"].size(), 2u);
  }
  EXPECT_EQ(summary["cases"].size(), 5u) << "with the reference of the cases that use the device";
  for (const json& of_case : summary["cases"]) {
    const bool stays = of_case["id"].get<std::string>().find("device_loop") != std::string::npos;
    const json& expected = stays ? costs["device"] : costs;
    EXPECT_EQ(of_case["metrics"]["t_n"], expected["t_n"]) << of_case["id"];
    if (!of_case["draft"].is_null()) {
      EXPECT_EQ(of_case["metrics"]["c"], expected["drafts"]["small"]["c"]) << of_case["id"];
    }
  }
  ASSERT_EQ(
      run({"run", "a.json", "--backend", "cpu", "--out", "host", "-q", "--filter", "autoregressive"}).code,
      0);
  EXPECT_FALSE(read("host")["calibration"].contains("device"));
}

// Steps that were asked for as a loop are queued one by one, and the record and the user learn why.
TEST_F(Speclab, ADeviceWithoutLoopsSaysSo) {
  json small = config();
  small["options"] = {{"max_tokens", 6}, {"device_loop", "on"}};
  small["repeats"] = 1;
  small["cases"] = json::parse(R"([{"strategy": "autoregressive"}])");
  write(small);
  const auto device_of = [&](const std::string& out, std::string& status) {
    const Result result =
        run({"run", "a.json", "--backend", "host-simt", "--out", out, "--set", "calibration=false"});
    EXPECT_EQ(result.code, 0) << result.err;
    status = result.err;
    return read_json_lines(dir() / out / "cases/autoregressive.jsonl").at(0)["turns"][0]["device"];
  };
  std::string status;
  const json loop = device_of("loop", status);
  EXPECT_EQ(loop["graph"], "loop");
  EXPECT_FALSE(loop.contains("graph_problem"));
  setenv("SPECLAB_SIMT_NO_LOOPS", "1", 1);
  const json round = device_of("round", status);
  const Result bench = run({"bench", "--model", "target", "--backend", "host-simt", "--rows", "1",
                            "--context", "8", "--tokens", "2", "--repeats", "1", "--json"});
  unsetenv("SPECLAB_SIMT_NO_LOOPS");
  EXPECT_EQ(round["graph"], "round");
  EXPECT_EQ(round["planned_steps"], loop["planned_steps"]);
  const std::string why = "the simulated GPU runs no loops, because SPECLAB_SIMT_NO_LOOPS is set";
  EXPECT_EQ(round["graph_problem"], why);
  EXPECT_THAT(status, HasSubstr("warning: " + why));
  ASSERT_EQ(bench.code, 0) << bench.err;
  const json times = json::parse(bench.out)["engine"]["contexts"][0];
  EXPECT_EQ(times["device_step_ns"].size(), 2u);
  EXPECT_EQ(times["device_step_problem"], why);
}

#if defined(SPECLAB_FAKE_CUDA_DRIVER)
// One sentence, exit code 2, and a record that exists stays as it is.
TEST_F(Speclab, AMachineWithoutAUsableGpuIsNamed) {
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "--model", "target", "--prompt", "1 2 3", "--backend", "cuda"},
      {"bench", "--model", "target", "--rows", "1", "--context", "8", "--backend", "cuda"},
      {"run", "a.json", "--out", "new", "--backend", "cuda"}};
  measure("old", {"--backend", "cpu"});
  const auto before = contents_of(dir() / "old");
  const char* const path = std::getenv("LD_LIBRARY_PATH");
  const std::string outside = path == nullptr ? "" : path;
  setenv("LD_LIBRARY_PATH", (std::string(SPECLAB_FAKE_CUDA_DRIVER) + ":" + outside).c_str(), 1);
  for (const auto& command : commands) {
    expect_error(run(command),
                 {"backend cuda: got no GPU: the CUDA driver sees none", "--backend cpu needs none"});
    setenv("FAKE_CUDA_VERSION", "11080", 1);
    expect_error(run(command), {"no CUDA driver that is new enough: the driver supports CUDA 11.8, and this "
                                "program was built with"});
    unsetenv("FAKE_CUDA_VERSION");
  }
  expect_error(run({"run", "a.json", "--out", "old", "--backend", "cuda"}), {});
  const Result automatic = run({"model", "target", "--backend", "auto"});
  EXPECT_EQ(automatic.code, 0) << "auto takes the CPU: " << automatic.err;
  path == nullptr ? unsetenv("LD_LIBRARY_PATH") : setenv("LD_LIBRARY_PATH", outside.c_str(), 1);
  EXPECT_EQ(contents_of(dir() / "old"), before);
}
#endif

// A device that passed is not tested again by the same program.
TEST_F(Speclab, TheSelfTestOfADeviceRunsOnceAndIsSaid) {
  const std::vector<std::string> words = {"generate", "--model",      "target",      "--prompt", "1 2 3",
                                          "--set",    "max_tokens=2", "--self-test", "on",       "--backend"};
  const auto on = [&](const char* backend) {
    std::vector<std::string> all = words;
    all.emplace_back(backend);
    return run(all);
  };
  const char* const outside = std::getenv("XDG_CACHE_HOME");
  const std::string before = outside == nullptr ? "" : outside;
  setenv("XDG_CACHE_HOME", (dir() / "cache").c_str(), 1);
  const Result first = on("host-simt"), second = on("host-simt");
  before.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", before.c_str(), 1);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.err, AllOf(HasSubstr("self-test of simulated GPU"), HasSubstr("passed: 8 tokens")));
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("self-test")));
  EXPECT_EQ(first.out, second.out);
  expect_error(on("cpu"), {"--self-test", "got on, with the CPU", "auto or off"});
  expect_error(run({"trace", "a.json", "--out", "traced", "--backend", "cpu", "--self-test", "on"}),
               {"--self-test", "got on, with the CPU", "auto or off"});
  expect_error(run({"model", "target", "--self-test", "maybe"}),
               {"--self-test", "got \"maybe\"", "auto, on or off"});
}

TEST_F(Speclab, PrefillOptionIsChecked) {
  const std::vector<std::string> model = {"model", "target"}, dry = {"run", "a.json", "--dry-run"};
  for (const std::vector<std::string>& words : {model, dry}) {
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = words;
      all.insert(all.end(), more.begin(), more.end());
      return run(all);
    };
    expect_error(with({"--backend", "host-simt", "--prefill", "cublas"}),
                 {"--prefill", "got \"cublas\"", "own or cublaslt"});
    expect_error(with({"--backend", "cpu", "--prefill", "cublaslt"}),
                 {"--prefill", "got cublaslt", "needs --backend cuda or host-simt; use --prefill own"});
    EXPECT_EQ(with({"--backend", "host-simt", "--prefill", "cublaslt"}).code, 0);
    EXPECT_EQ(with({"--backend", "cpu", "--prefill", "own"}).code, 0);
  }
  expect_error(run({"run", "a.json", "--dry-run", "--backend", "cuda", "--prefill", "fast"}),
               {"--prefill", "got \"fast\""});
  EXPECT_EQ(run({"run", "a.json", "--dry-run", "--backend", "cuda", "--prefill", "cublaslt"}).code, 0)
      << "a GPU is not looked for";
  expect_error(run({"bench", "--model", "target", "--rows", "1", "--prompts", "5"}),
               {"--rows and --prompts", "one of them"});
}

// All cases of a run prefill in the same way, so that speculation changes no text. The record says which way.
TEST_F(Speclab, PromptsByALibraryAreMeasuredAndRecorded) {
  const Result measured = run({"bench", "--model", "target", "--backend", "host-simt", "--prefill",
                               "cublaslt", "--prompts", "20,40", "--repeats", "2", "--json"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  const json prompts = json::parse(measured.out)["prompts"];
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[1]["tokens"], 40);
  EXPECT_EQ(prompts[1]["own_ns"].size(), 2u);
  ASSERT_TRUE(prompts[1].contains("library_ns"));
  EXPECT_EQ(prompts[1]["library_ns"].size(), 2u);
  const Result own =
      run({"bench", "--model", "target", "--backend", "cpu", "--prompts", "20", "--repeats", "1"});
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_THAT(own.out, HasSubstr("library / own"));

  std::string prompt;
  for (int i = 0; i < 25; ++i) prompt += std::to_string(1 + i % 9) + " ";
  const auto generated = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"generate",     "--model",   "target",   "--backend",
                                      "host-simt",    "--prefill", "cublaslt", "--set",
                                      "max_tokens=6", "--prompt",  prompt,     "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Result result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? json::parse(result.out)["tokens"] : json();
  };
  const json plain = generated({});
  EXPECT_EQ(generated({"--draft", "layers:0", "--strategy", "speculative_sampling"}), plain);
  EXPECT_EQ(generated({"--strategy", "prompt_lookup"}), plain);
}

}  // namespace
}  // namespace speclab::device_cli_test
