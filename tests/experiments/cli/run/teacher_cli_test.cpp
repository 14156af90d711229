// Teacher-forced estimates of `speclab run` that fail.
#include <set>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::teacher_cli_test {
namespace {

using namespace speclab::fixtures;

class TeacherRun : public Speclab {
 protected:
  static constexpr Token kNone = -1;
  /// Writes the draft: a table of logits. The row after `fatal` is infinite.
  void write_draft(Token fatal) {
    const int vocab = tiny_shape().vocab;
    std::vector<float> logits(static_cast<std::size_t>(vocab * vocab));
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7 % 5);
    TinyModel table = markov_table(vocab, logits);
    if (fatal != kNone) {
      constexpr float kHuge = 0x1p127f;
      table.tensors["token_embedding"].values[static_cast<std::size_t>(fatal * vocab + fatal)] = kHuge;
      for (int x = 0; x < vocab; ++x)
        table.tensors["head"].values[static_cast<std::size_t>(x * vocab + fatal)] = kHuge;
    }
    fs::remove_all(dir() / "draft");
    write_huggingface(dir() / "draft", table);
  }
  std::vector<json> estimates() { return read_json_lines(dir() / "run" / "teacher.jsonl"); }
};

// minimum_block accepts the first tokens untested, so it has no alpha, and none is estimated.
TEST_F(TeacherRun, ARuleWithoutAlphaHasNoEstimate) {
  json one = config();
  one["prompts"] = {{"inline", {"1 2 3"}}};
  one["repeats"] = 1;
  one["options"].update({{"max_tokens", 4}, {"temperature", 1}, {"ignore_eos", true}});
  one["cases"] = json::array({{{"strategy", "autoregressive"}},
                              {{"strategy", "speculative_sampling"},
                               {"draft", "skip"},
                               {"gamma", 2},
                               {"rule", {"top_beta", "minimum_block"}}}});
  write(one);
  write_draft(kNone);
  measure();
  std::set<std::string> estimated;
  for (const json& line : estimates()) {
    if (line["kind"] == "alpha") estimated.insert(line["case"].get<std::string>());
  }
  ASSERT_EQ(estimated.size(), 1u);
  EXPECT_THAT(*estimated.begin(), HasSubstr("top_beta"));
}

// The estimate needs the draft's row after the second to last token of the text, because this row predicts
// the last token. Decoding does not draft there.
TEST_F(TeacherRun, AFailedEstimateIsInTheRecordAndInTheExitCode) {
  json one = config();
  one["prompts"] = {{"inline", {"1 2 3"}}};
  one["repeats"] = 1;
  one["options"].update({{"max_tokens", 4}, {"temperature", 1}, {"coins", "gumbel"}, {"ignore_eos", true}});
  one["cases"] =
      json::array({{{"strategy", "autoregressive"}},
                   {{"strategy", "speculative_sampling"}, {"draft", {"skip", "small"}}, {"gamma", 1}}});
  write(one);
  write_draft(kNone);
  measure();
  ASSERT_EQ(estimates().size(), 2u);
  EXPECT_EQ(estimates()[0]["kind"], "alpha");
  EXPECT_EQ(run({"report", "run"}).code, 0);
  const json tokens = read_json_lines(dir() / "run" / "cases" / "autoregressive.jsonl")[0]["tokens"];
  const std::set<Token> before{1, 2, 3, tokens[0].get<Token>(), tokens[1].get<Token>()};
  ASSERT_FALSE(before.contains(tokens[2].get<Token>())) << "take another prompt: " << tokens;

  write_draft(tokens[2].get<Token>());
  fs::remove_all(dir() / "run");
  const Result failed = run({"run", "a.json", "--out", "run", "-q", "--set", "calibration=false"});
  EXPECT_EQ(failed.code, 1) << failed.err;
  EXPECT_THAT(failed.err, HasSubstr("exit code 1: 1 estimates on finished texts failed"));
  for (int attempt = 1; attempt <= 2; ++attempt) {
    const std::vector<json> lines = estimates();
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(1 + attempt));
    EXPECT_EQ(lines[0]["case"], "speculative_sampling/draft=skip/gamma=1")
        << "the other draft has its estimate";
    EXPECT_EQ(lines[0]["kind"], "alpha");
    EXPECT_EQ(lines.back()["kind"], "failed");
    EXPECT_EQ(lines.back()["estimate"], "alpha");
    EXPECT_THAT(lines.back()["message"].get<std::string>(), HasSubstr("logit"));
    const json errors = read_json_file(dir() / "run" / "summary.json")["errors"];
    ASSERT_EQ(errors.size(), 1u) << errors;
    EXPECT_THAT(errors[0]["message"].get<std::string>(), HasSubstr("the estimate of alpha for seed"));
    EXPECT_EQ(errors[0]["case"], "speculative_sampling/draft=small/gamma=1");
    EXPECT_EQ(run({"report", "run"}).code, 1);
    if (attempt == 1) {
      EXPECT_EQ(run({"run", "--resume", "run", "-q"}).code, 1) << "tries again";
    }
  }
}

}  // namespace
}  // namespace speclab::teacher_cli_test
