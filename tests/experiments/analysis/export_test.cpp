// Export to other tools, on a hand-made record whose numbers were computed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "core/measure/run_result.h"
#include "experiments/analysis/export.h"
#include "tests/model/files/model_files.h"

namespace speclab::export_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

StepRecord step(std::vector<int> parents, int accepted, int emitted, std::int64_t ns) {
  StepRecord out;
  out.source = parents.empty() ? "" : "draft";
  out.accepted = accepted;
  out.emitted = emitted;
  out.times.ns = {0, ns, 0, 0};
  for (const int parent : parents) {
    DraftedToken token;
    token.id = 5;
    token.parent = parent;
    out.drafted.push_back(token);
  }
  return out;
}

GenerationRecord turn(std::vector<StepRecord> steps, int prompt_tokens, std::int64_t prefill_ns,
                      std::int64_t draft_prefill_ns) {
  GenerationRecord out;
  out.context_length = 20;
  out.target_prefill.rows = prompt_tokens;
  out.prefill_ns = prefill_ns;
  out.draft_prefill_ns = draft_prefill_ns;
  int tokens = 1;
  for (const StepRecord& one : steps) tokens += one.emitted, out.decode_ns += one.times.total();
  out.tokens.assign(static_cast<std::size_t>(tokens), 3);
  out.row_hashes.assign(static_cast<std::size_t>(tokens), 9);
  out.steps = std::move(steps);
  return out;
}

class Export : public ::testing::Test {
 protected:
  /// Cases "autoregressive" and "spec" over one prompt of two turns with three repeats, whose steps take 1, 3
  /// and 2 ms.
  void write_run(bool equal = true) {
    json config = {{"name", "t"}, {"description", ""}, {"repeats", 3}, {"seeds", {1}}};
    config["prompts"] = {{{"id", prompt_}, {"category", "writing"}}};
    const auto entry = [](const char* id, const json& reference) {
      return json{{"id", id},
                  {"strategy", id},
                  {"draft", nullptr},
                  {"reference", reference},
                  {"verify", "one_pass"},
                  {"rule", "rejection"},
                  {"loss_class", "L2"},
                  {"axes", json::object()},
                  {"options", json::object()}};
    };
    config["cases"] = {entry("autoregressive", nullptr), entry("spec", "autoregressive")};
    std::filesystem::create_directories(dir_.path() / "cases");
    write_json_file(dir_.path() / "config.json", config);
    write_json_file(dir_.path() / "environment.json", json::object());
    for (int repeat = 0; repeat < 3; ++repeat) {
      const std::int64_t ns = (std::array{1, 3, 2})[static_cast<std::size_t>(repeat)] * 1'000'000;
      LineRecord line;
      line.prompt = prompt_;
      line.seed = 1;
      line.repeat = repeat;
      line.text = "one\u241etwo";
      line.pieces.assign(11, "");
      line.case_id = "spec";
      line.matches_reference = equal;
      // Steps: two of two accepted; one of two; nothing drafted; none of two; then a tree of depth 2 that the
      // end token cuts, with both accepted tokens and no bonus.
      line.turns = {
          turn({step({0, 1}, 2, 3, ns), step({0, 1}, 1, 2, ns), step({}, 0, 1, ns), step({0, 1}, 0, 1, ns)},
               7, 2'000'000, 1'000'000),
          turn({step({0, 0, 1}, 2, 2, ns)}, 4, 1'000'000, 0)};
      JsonLinesWriter(dir_.path() / "cases" / "spec.jsonl").append(to_json(line));
      line.case_id = "autoregressive";
      line.turns = {turn(std::vector<StepRecord>(7, step({}, 0, 1, ns)), 7, 2'000'000, 0),
                    turn(std::vector<StepRecord>(2, step({}, 0, 1, ns)), 4, 1'000'000, 0)};
      JsonLinesWriter(dir_.path() / "cases" / "autoregressive.jsonl").append(to_json(line));
    }
  }
  std::string text(const std::string& tool, const std::string& case_id) const {
    return export_run(load_run(dir_.path()), tool, case_id);
  }
  json of(const std::string& tool, const std::string& case_id = "spec") const {
    return json::parse(text(tool, case_id));
  }
  void expect_error(const std::string& tool, const std::string& case_id, const std::string& words) const {
    try {
      text(tool, case_id);
      FAIL() << words;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
  }
  fixtures::TempDir dir_;
  std::string prompt_ = "81";
};

TEST_F(Export, VllmCountsStepsThatDraftedAndABonusForEach) {
  write_run();
  const json out = of("vllm");
  EXPECT_EQ(out["case"], "spec");
  EXPECT_EQ(out["vllm:spec_decode_num_drafts"], 4);
  EXPECT_EQ(out["vllm:spec_decode_num_draft_tokens"], 2 + 2 + 2 + 3);
  EXPECT_EQ(out["vllm:spec_decode_num_accepted_tokens"], 2 + 1 + 0 + 2);
  EXPECT_EQ(out["vllm:spec_decode_num_accepted_tokens_per_pos"], (json{3, 2}));
  EXPECT_DOUBLE_EQ(out["Mean acceptance length"], 1 + 5. / 4) << "tau is 9 / 5";
  EXPECT_EQ(out["Per-position acceptance rate"], (json{.75, .5})) << "joint: over all drafts";
  EXPECT_DOUBLE_EQ(out["Avg Draft acceptance rate"], 500. / 9);
  const json& request = out["metrics"]["speculative_decoding"];
  EXPECT_EQ(request["acceptance_histogram"], (json{1, 1, 2}));
  EXPECT_EQ(request["num_spec_steps"], 4);
  EXPECT_EQ(request["num_spec_tokens"], 2);
  EXPECT_DOUBLE_EQ(request["draft_acceptance_rate"], 5. / 9);
}

TEST_F(Export, SglangCountsEveryStepAndThePrefillToken) {
  write_run();
  const json out = of("sglang"), meta = out["meta_info"];
  EXPECT_EQ(meta["completion_tokens"], 8 + 3);
  EXPECT_EQ(meta["spec_verify_ct"], 5);
  EXPECT_DOUBLE_EQ(meta["spec_accept_length"], 11. / 5);
  EXPECT_DOUBLE_EQ(meta["spec_accept_rate"], 5. / 9);
  EXPECT_EQ(meta["spec_num_correct_drafts"], 5);
  EXPECT_EQ(meta["spec_num_proposed_drafts"], 9);
  EXPECT_EQ(meta["spec_correct_drafts_histogram"], (json{2, 1, 2})) << "their sum is spec_verify_ct";
  EXPECT_DOUBLE_EQ(out["sglang:spec_accept_length"], 1 + 5. / 5);
}

TEST_F(Export, LlamaCppTimes) {
  write_run();
  const json out = of("llama.cpp"), timings = out["timings"];
  EXPECT_EQ(out["n_drafted"], 9);
  EXPECT_EQ(out["n_accept"], 5);
  EXPECT_DOUBLE_EQ(out["accept"], 500. / 9);
  EXPECT_DOUBLE_EQ(out["mean len"], 2.25);
  EXPECT_EQ(timings["prompt_n"], 7 + 4);
  EXPECT_DOUBLE_EQ(timings["prompt_ms"], 3 + 1);
  EXPECT_DOUBLE_EQ(timings["prompt_per_second"], 11 / .004);
  EXPECT_EQ(timings["predicted_n"], 11);
  EXPECT_DOUBLE_EQ(timings["predicted_ms"], 5 * 2) << "the median of 5, 15 and 10";
  EXPECT_DOUBLE_EQ(timings["predicted_per_token_ms"], 10. / 9) << "two tokens come from the prompts";
  EXPECT_DOUBLE_EQ(timings["predicted_per_second"], 9 / .010);
  EXPECT_EQ(timings["draft_n"], 9);
  EXPECT_EQ(timings["draft_n_accepted"], 5);
  EXPECT_EQ(out["llamacpp:spec_decode_num_accepted_tokens_per_pos_total"], (json{3, 2}));
}

TEST_F(Export, ValuesThatDoNotExistAreNull) {
  write_run();
  const json vllm = of("vllm", "autoregressive"), sglang = of("sglang", "autoregressive");
  EXPECT_EQ(vllm["vllm:spec_decode_num_drafts"], 0);
  EXPECT_TRUE(vllm["Mean acceptance length"].is_null());
  EXPECT_EQ(vllm["Per-position acceptance rate"], json::array());
  EXPECT_EQ(sglang["meta_info"]["spec_verify_ct"], 0) << "the server does not speculate";
  EXPECT_TRUE(sglang["sglang:spec_accept_length"].is_null());
  EXPECT_DOUBLE_EQ(of("llama.cpp", "autoregressive")["timings"]["predicted_per_second"], 9 / .018);
  const std::string both = text("vllm", "");
  EXPECT_EQ(std::count(both.begin(), both.end(), '\n'), 2) << "a line for each case";
}

TEST_F(Export, SpecBenchAnswers) {
  write_run();
  const json out = of("spec-bench");
  EXPECT_EQ(out["question_id"], 81);
  EXPECT_EQ(out["category"], "writing");
  EXPECT_EQ(out["model_id"], "spec");
  ASSERT_EQ(out["choices"].size(), 1u);
  const json& choice = out["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["turns"], (json{"one", "two"}));
  EXPECT_EQ(choice["decoding_steps"], (json{4, 1})) << "without the prefill";
  EXPECT_EQ(choice["new_tokens"], (json{8, 3})) << "with the prefill's token";
  EXPECT_NEAR(choice["wall_time"][0].get<double>(), .002 + .001 + 4 * .002, 1e-12);
  EXPECT_NEAR(choice["wall_time"][1].get<double>(), .001 + .002, 1e-12);
  EXPECT_EQ(choice["accept_lengths"], (json{3, 2, 1, 1, 2}));
  prompt_ = "chat-1";
  std::filesystem::remove_all(dir_.path() / "cases");
  write_run();
  EXPECT_EQ(of("spec-bench")["question_id"], "chat-1");
}

TEST_F(Export, ACaseThatLostEqualityHasNoTimes) {
  write_run(false);
  const json out = of("llama.cpp");
  EXPECT_EQ(out["n_drafted"], 9);
  for (const char* name : {"prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second"})
    EXPECT_TRUE(out["timings"][name].is_null()) << name;
  expect_error("spec-bench", "spec", "differ from their reference");
}

TEST_F(Export, UnknownNamesAreRefused) {
  write_run();
  expect_error("tgi", "", "vllm, sglang, spec-bench, llama.cpp");
  expect_error("vllm", "spek", "Did you mean \"spec\"");
  expect_error("spec-bench", "", "--case spec");
}

TEST_F(Export, EveryNameStandsInTheSchema) {
  write_run();
  std::ifstream file(std::filesystem::path(SPECLAB_SOURCE_DIR) / "results" / "SCHEMA.md");
  std::ostringstream schema;
  schema << file.rdbuf();
  for (const std::string_view tool : export_tools()) {
    EXPECT_NE(schema.str().find("`" + std::string(tool) + "`"), std::string::npos) << tool;
    const json fields = tool == "spec-bench" ? of("spec-bench")["choices"][0] : of(std::string(tool));
    json flat = fields.flatten();
    flat.erase("/case");  // ours
    EXPECT_GT(flat.size(), 5u);
    for (const auto& [path, value] : flat.items()) {
      const std::size_t at = path.find_last_of('/');
      std::string name = path.substr(at + 1);
      if (name.find_first_not_of("0123456789") == std::string::npos) {  // an element of an array
        const std::string parent = path.substr(0, at);
        name = parent.substr(parent.find_last_of('/') + 1);
      }
      EXPECT_NE(schema.str().find("`" + name + "`"), std::string::npos) << tool << " " << name;
    }
  }
}

}  // namespace
}  // namespace speclab::export_test
