// Bad input to the real binary: exit code, message, and what is left of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::bad_input_cli_test {
namespace {

using namespace speclab::fixtures;

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
  expect_error(run({"model", "target", "--backend", "host-simt", "--device", "1"}),
               {"--device", "got 1", "host-simt backend has one device"});
  expect_error(run({"run", "a.json", "--numerics", "f8", "--out", "x"}), {"f8"});
  expect_error(run({"run", "a.json", "--shard", "4/4", "--out", "x"}), {"--shard", "4/4", "at most 3"});
  expect_error(run({"run", "a.json", "--set", "cases.1.gama=2"}), {"a.json: /cases/1/gama", "gamma"});
  std::ofstream(dir() / "bad.json") << "{\n  \"name\": \"x\",\n  oops\n}";
  expect_error(run({"run", "bad.json"}), {"bad.json", "line 3", "column"});
  expect_error(run({"run", "a.json", "--set", "target=nowhere", "--out", "x"}), {"nowhere"});
  expect_error(run({"run", "a.json", "--set", "target=a.json", "--out", "x"}), {"a.json"});
  expect_error(run({"run", "a.json", "--set", "drafts.skip.layers=[7]", "--out", "x"}), {"[7]", "0 to 1"});
  Shape other = tiny_shape();
  other.vocab = 48;
  write_tiny_llama(dir() / "foreign", other, 3);
  expect_error(run({"run", "a.json", "--set", "drafts.small.model=foreign", "--out", "x"}), {"48", "64"});
  const fs::path weights = dir() / "target" / "model.safetensors";
  const std::string bytes = Cli::read(weights);
  std::ofstream(weights, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  expect_error(run({"run", "a.json", "--out", "x"}), {"model.safetensors"});
  EXPECT_FALSE(fs::exists(dir() / "x")) << "nothing half-written";
  expect_error(run({"report", "nowhere"}), {"nowhere", "no run"});
  expect_error(run({"compare", "nowhere"}), {"NEW"});
  expect_error(run({"describe", "speculative_samplin"}), {"speculative_sampling"});
  expect_error(run({"list", "rules"}), {"acceptances"});
  expect_error(run({"theory", "--alpha", "1.5", "--gamma", "2"}), {"alpha", "1.5"});
  expect_error(run({"theory", "--alpha", "x"}), {"alpha"});
  expect_error(run({"theory", "--alpha", ".4", "--W", "15"}), {"--N", "no value", "2 to 64"});
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
    const std::string text = Cli::read(entry.path());
    EXPECT_TRUE(text.empty() || text.back() == '\n') << "nothing half-written in " << entry.path();
    lines += read_case_file(entry.path()).size();
  }
  EXPECT_GT(lines, 0u) << "finished lines are kept";
  EXPECT_EQ(run({"run", "a.json", "--out", "run", "-q", "--set", "repeats=6", "--set", "calibration=false",
                 "--resume"})
                .code,
            0);
}

TEST_F(Speclab, AnErrorInOneLineIsRecordedInIt) {
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

TEST_F(Speclab, WeightsThatAreNoNumbersAreRefused) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    TinyModel broken = random_llama(tiny_shape(), 2);
    broken.tensors["final_norm"].values[3] = bad;
    write_huggingface(dir() / "draft", broken);
    expect_error(run({"run", "a.json", "--out", "run", "--filter", "small/gamma=1", "-q"}),
                 {"draft", "model.norm.weight", std::isnan(bad) ? "nan" : "inf", "finite"});
    EXPECT_FALSE(fs::exists(dir() / "run"));
  }
}

TEST_F(Speclab, NanLogitsAreAnErrorWithoutNumbers) {
  TinyModel broken = random_llama(tiny_shape(), 2);
  for (float& weight : broken.tensors["final_norm"].values)
    weight = 3e38f;  // finite, but its products are not
  write_huggingface(dir() / "draft", broken);
  const Result result = run({"run", "a.json", "--out", "run", "--filter", "small/gamma=1"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("logits of the model, entry"));
  const json summary = read_json_file(dir() / "run" / "summary.json");
  EXPECT_TRUE(summary["cases"][1]["metrics"]["speedup"].is_null());
  EXPECT_TRUE(summary["cases"][1]["metrics"]["tau"].is_null());
  EXPECT_TRUE(summary["cases"][0]["metrics"]["tau"].is_number());
  EXPECT_THAT(summary["errors"][0]["message"].get<std::string>(), HasSubstr("logits of the model, entry"));
}

}  // namespace
}  // namespace speclab::bad_input_cli_test
