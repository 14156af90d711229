// Runs are combined only if their models and prompts are the same, whatever their names say.
#include "experiments/simulate/run_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/error.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::run_match_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_in(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// A run whose speculative case drafts with the model "d".
class RunMatch : public Record {
 protected:
  RunMatch() {
    environment_["models"]["target"] = {{"sha256", "1111"}, {"name", "big"}, {"layers", {0, 1}}};
    environment_["models"]["d"] = {{"sha256", "2222"}, {"name", "small"}, {"layers", {0}}};
    here_ = load_run(write_run("here", 1'600'000));
  }
  json with(const std::string& pointer, const json& value) const {
    json out = environment_;
    out[json::json_pointer(pointer)] = value;
    return out;
  }
  static std::vector<std::string> ids_of(const RunData& run) {
    std::vector<std::string> ids;
    for (const auto& data : run.cases) ids.push_back(data->id());
    return ids;
  }
  /// Changes config.json of a run and loads the run.
  RunData loaded(const std::string& name, const std::function<void(json&)>& how) {
    const auto path = write_run(name, 1'600'000);
    json config = read_json_file(path / "config.json");
    how(config);
    write_json_file(path / "config.json", config);
    return load_run(path);
  }
  RunData here_;
};

TEST_F(RunMatch, AnotherTargetIsAnError) {
  const auto error_with = [&](const std::string& pointer, const json& value) {
    return error_in([&] { with_models_of(here_, with(pointer, value), "there"); });
  };
  EXPECT_THAT(error_with("/models/target/sha256", "999999999999ff"),
              AllOf(HasSubstr("there: got the target big (SHA-256 999999999999...)"),
                    HasSubstr("expected big (SHA-256 1111)")));
  EXPECT_THAT(error_with("/models/target/layers", {0}),
              AllOf(HasSubstr("SHA-256 1111, layers [0]"), HasSubstr("SHA-256 1111, layers [0,1]")));
  EXPECT_THAT(error_with("/models/target/inflated", {{"to", {{"hidden", 64}}}}), HasSubstr("the target big"));
  EXPECT_EQ(error_with("/models/target/name", "another name"), "no error");
  EXPECT_EQ(error_with("/models/target/path", "elsewhere"), "no error");
}

TEST_F(RunMatch, ACaseWithAnotherDraftIsLeftOutAndNamed) {
  const MatchedRun other = with_models_of(here_, with("/models/d/sha256", "3333"), "there");
  EXPECT_THAT(ids_of(other.run), ElementsAre("autoregressive"));
  EXPECT_THAT(other.notes, ElementsAre(AllOf(HasSubstr("spec: left out; its draft d is small (SHA-256 2222)"),
                                             HasSubstr("small (SHA-256 3333) in there"))));
  const MatchedRun same = with_models_of(here_, environment_, "there");
  EXPECT_THAT(ids_of(same.run), ElementsAre("autoregressive", "spec"));
  EXPECT_TRUE(same.notes.empty());
}

TEST_F(RunMatch, ModelsThatARecordDoesNotDescribeAreNotCompared) {
  json older = environment_;
  older["models"].erase("d");
  older["models"]["target"].erase("sha256");
  EXPECT_EQ(ids_of(with_models_of(here_, older, "there").run).size(), 2u);
  older.erase("models");
  EXPECT_EQ(ids_of(with_models_of(here_, older, "there").run).size(), 2u);
}

TEST_F(RunMatch, ADeviceFileHasNoModels) {
  EXPECT_EQ(ids_of(with_models_of_device(here_, "h100").run).size(), 2u);
  const auto there = write_run("there", 1'600'000);
  write_json_file(there / "environment.json", with("/models/d/sha256", "3333"));
  EXPECT_EQ(ids_of(with_models_of_device(here_, there.string()).run).size(), 1u);
}

TEST_F(RunMatch, PromptsAreTheSameTexts) {
  const auto with_texts = [](const std::string& second) {
    return [second](json& config) {
      config["prompts"][0]["turns"] = {"a b"};
      config["prompts"][1]["turns"] = {"c", second};
    };
  };
  const RunData trace = loaded("trace", with_texts("d"));
  const auto checked = [&](const RunData& measured) {
    return error_in([&] { require_same_prompts(trace, measured, "there"); });
  };
  EXPECT_EQ(checked(loaded("same", with_texts("d"))), "no error");
  EXPECT_THAT(checked(loaded("other", with_texts("e"))),
              HasSubstr("there: got another text of the prompt 1"));
  EXPECT_EQ(checked(here_), "no error") << "a record without the texts";
  RunData fewer = loaded("fewer", with_texts("e"));
  fewer.config["prompts"].erase(1);
  EXPECT_EQ(checked(fewer), "no error") << "only the prompts that both runs have";
}

TEST_F(RunMatch, PromptsHaveTheSameTokenIds) {
  const auto there = write_run("there", 1'600'000);
  rewrite(there / "cases" / "spec.jsonl", [](LineRecord& line) {
    if (line.prompt == "1") line.turns[0].context = {9, 9, 4}, line.turns[0].context_length = 3;
  });
  const RunData other = load_run(there);
  EXPECT_THAT(error_in([&] { require_same_prompts(here_, other, "there"); }),
              AllOf(HasSubstr("other token ids of the prompt 1 (3 tokens, 10 in the trace)"),
                    HasSubstr("tokenizer")));
  EXPECT_EQ(error_in([&] { require_same_prompts(here_, here_, "there"); }), "no error");
}

TEST_F(RunMatch, CasesThatTheTraceDoesNotPredictAreListedWithTheReason) {
  const RunData trace =
      loaded("trace", [](json& config) { config["cases"][1]["options"]["emit_at_most"] = 1; });
  EXPECT_EQ(traced_drafters(trace), "spec with draft d");
  EXPECT_EQ(traced_drafters(here_), "none");
  EXPECT_TRUE(not_replayed(trace, here_, {"spec"}).empty()) << "the reference is no case to predict";
  EXPECT_THAT(not_replayed(trace, here_, {}),
              ElementsAre(HasSubstr("spec: not replayed; the trace of its drafter")));
  const RunData others = loaded("others", [](json& config) { config["cases"][1]["draft"] = "e"; });
  EXPECT_THAT(not_replayed(trace, others, {}),
              ElementsAre("spec: not replayed; the trace has no drafter spec with draft e"));
}

}  // namespace
}  // namespace speclab::run_match_test
