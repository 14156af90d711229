// The real binary on the simulated GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab {
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
  expect_error(run({"model", "target", "--backend", "host-simt", "--numerics", "f32"}),
               {"--numerics", "got f32", "host-simt"});
}

// Steps that a device runs by itself leave the same record as the host's steps, except for the times.
TEST_F(Speclab, DeviceLoopLeavesTheRecordOfTheHost) {
  json small = config();
  small["options"] = {{"max_tokens", 7}, {"temperature", 1}};
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

TEST_F(Speclab, PrefillOptionIsChecked) {
  const std::vector<std::string> model = {"model", "target"}, dry = {"run", "a.json", "--dry-run"};
  for (const std::vector<std::string>& words : {model, dry}) {
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = words;
      all.insert(all.end(), more.begin(), more.end());
      return run(all);
    };
    expect_error(with({"--backend", "host-simt", "--prefill", "cublas"}),
                 {"--prefill", "got cublas", "own or cublaslt"});
    expect_error(with({"--backend", "cpu", "--prefill", "cublaslt"}),
                 {"--prefill", "got cublaslt", "--prefill cublaslt needs --backend cuda; use --prefill own"});
    EXPECT_EQ(with({"--backend", "host-simt", "--prefill", "cublaslt"}).code, 0);
    EXPECT_EQ(with({"--backend", "cpu", "--prefill", "own"}).code, 0);
  }
  expect_error(run({"run", "a.json", "--dry-run", "--backend", "cuda", "--prefill", "fast"}),
               {"--prefill", "got fast"});
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
}  // namespace speclab
