// Runs every command of the real binary once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "experiments/run/engine_times.h"
#include "experiments/run/model_set.h"
#include "experiments/run/prompt_times.h"
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::commands_cli_test {
namespace {

using namespace speclab::fixtures;

// What `speclab bench --out` writes while it measures.
TEST_F(Speclab, BenchKeepsEachResultAsSoonAsItHasIt) {
  const ModelSet models((dir() / "target").string(),
                        make_backend({.backend = BackendKind::kCpu, .threads = 1}), "plain");
  std::vector<json> kept;
  const auto keep = [&](const json& so_far) { kept.push_back(so_far); };
  const json times =
      engine_times(models, {.contexts = {8, 9}, .rows = {1, 2}, .tokens = 3, .repeats = 2}, keep);
  ASSERT_EQ(kept.size(), 6U) << "in each context after the texts and after two repeats";
  EXPECT_EQ(kept[0]["contexts"][0]["step_ns"].size(), 1U);
  EXPECT_FALSE(kept[0]["contexts"][0].contains("rows_ns"));
  EXPECT_EQ(kept[1]["contexts"][0]["rows_ns"]["2"].size(), 1U);
  EXPECT_EQ(kept[1]["contexts"][0]["work"], times["contexts"][0]["work"]);
  EXPECT_EQ(kept[2]["contexts"][0]["rows_ns"], times["contexts"][0]["rows_ns"]);
  EXPECT_EQ(kept[3]["contexts"].size(), 2U);
  EXPECT_EQ(kept[3]["contexts"][0], times["contexts"][0]);
  kept.clear();
  const json prompts = prompt_times(*models.target(), {5, 9}, 1, keep);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].size(), 1U);
  EXPECT_EQ(kept[1], prompts);
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
  EXPECT_THAT(run({"describe", "lenience"}).out, HasSubstr("L2 or L3 at temperature 0, L1 or L3 at 1"))
      << "lossless only as its default is";
  EXPECT_THAT(run({"describe", "distance"}).out, HasSubstr("L2 or L3 at temperature 0, L3 at 1"));
  EXPECT_THAT(run({"describe", "rejection"}).out, HasSubstr("L2 at temperature 0, L1 at 1"));
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
  const json printed =
      json::parse(timed({"--rows", "1,2", "--context", "8", "--json", "--out", "bench.json"}).out);
  EXPECT_EQ(read_json_file(dir() / "bench.json"), printed);
  expect_error(timed({"--rows", "1,x"}), {"--rows", "\"x\"", "1 to 128"});
  expect_error(timed({"--rows", "1", "--context", "100000"}), {"--context", "100000"});
  std::ofstream(dir() / "p.jsonl") << R"({"id": "a", "turns": ["1 2 3"]})"
                                   << "\n";
  const json numerics = json::parse(
      run({"numerics", "--model", "target", "--prompts", "p.jsonl", "--tokens", "5", "--json"}).out);
  EXPECT_EQ(numerics[0]["numerics"], "f32-kv16");
  EXPECT_EQ(numerics[0]["positions"], 5);
  EXPECT_EQ(std::count_if(numerics.begin(), numerics.end(),
                          [](const json& each) { return each.contains("auto_reason"); }),
            1);
  EXPECT_THAT(run({"numerics", "--model", "target", "--prompts", "p.jsonl", "--tokens", "5"}).out,
              AllOf(HasSubstr("--numerics auto takes "), HasSubstr("(amx-bf16: ")));
  const auto device = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"numerics", "--model", "target",    "--prompts", "p.jsonl",
                                      "--tokens", "5",       "--backend", "host-simt"};
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

// Checks every command that opens a backend, and the dry run, which opens none.
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
    expect_error(with({"--kernels", "fast"}),
                 {"--kernels", "got \"fast\"", "launches, serial, graphs, persistent or auto"});
    expect_error(with({"--backend", "host-simt", "--kernels", "fast"}),
                 {"--kernels", "got \"fast\"", "launches, serial, graphs, persistent or auto"});
    for (const std::string kernels : {"persistent", "serial", "graphs"}) {
      expect_error(with({"--backend", "cpu", "--kernels", kernels}),
                   {"--kernels", "got " + kernels, "--kernels " + kernels + " needs --backend cuda"});
    }
  }
  EXPECT_EQ(run({"model", "target", "--backend", "cpu", "--kernels", "auto"}).code, 0);
  const auto dry = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run", "a.json", "--dry-run"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  expect_error(dry({"--backend", "tpu"}), {"--backend", "got \"tpu\""});
  expect_error(dry({"--backend", "cpu", "--numerics", "f8"}), {"f8"});
  expect_error(dry({"--backend", "cpu", "--device", "1"}), {"--device", "got 1"});
  expect_error(dry({"--backend", "cuda", "--kernels", "fast"}), {"--kernels", "got \"fast\""});
  EXPECT_EQ(dry({"--backend", "cuda", "--kernels", "persistent"}).code, 0) << "a GPU is not looked for";
  EXPECT_EQ(dry({"--backend", "host-simt", "--kernels", "persistent"}).code, 0);
}

}  // namespace
}  // namespace speclab::commands_cli_test
