// `speclab optimize layers`: the acceptance of a set of layers, the search, and drafting with what was found.
#include "experiments/analysis/layer_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/theory/step_costs.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::layer_choice_test {
namespace {

using namespace speclab::fixtures;

ModelPtr four_layers() {
  Shape shape = tiny_shape();
  shape.layers = 4;
  return load_tiny(random_llama(shape, 5));
}

std::vector<ForcedText> some_texts(const ModelPtr& target, double temperature) {
  std::vector<ForcedText> texts;
  for (const std::vector<Token>& prompt : {std::vector<Token>{3, 1, 4}, {7, 7, 7, 7, 7, 2}, {9}}) {
    const Decode decode{
        .target = target,
        .options = {{"max_tokens", 5 + 4 * static_cast<int>(texts.size())}, {"temperature", temperature}},
        .prompt = prompt};
    texts.push_back({prompt, decode.run().tokens});
  }
  return texts;
}

/// The logits of a draft that skips layers, after committed tokens and a chain.
std::vector<float> drafted_row(const Model& target, TokenSpan committed, TokenSpan chain, LayerPart part) {
  const auto session = target.open(128);
  if (!committed.empty()) session->prefill(committed);
  std::vector<float> logits(static_cast<std::size_t>(target.config().vocab));
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::int32_t parent = static_cast<std::int32_t>(i) - 1, row = 0;
    Feed feed{session.get(), chain.subspan(i, 1), {&parent, 1}, {&row, 1}, logits.data()};
    feed.continues = i > 0;
    feed.layers = part;
    target.forward({&feed, 1});
  }
  return logits;
}

// Computes the acceptance chain by chain and token by token, each token with a session of its own.
std::vector<double> by_hand(const ModelPtr& target, const std::vector<ForcedText>& texts, std::size_t gamma,
                            double temperature, const std::vector<int>& kept) {
  std::vector<double> reached(gamma, 0), accepted(gamma, 0);
  const SamplingParams sampling{.temperature = temperature, .top_k = 0, .top_p = 1};
  for (const ForcedText& text : texts) {
    std::vector<Token> all = text.prompt;
    all.insert(all.end(), text.answer.begin(), text.answer.end());
    for (std::size_t begin = 0; begin < text.answer.size(); begin += gamma) {
      double mass = 1;
      for (std::size_t i = 0; i < gamma && begin + i < text.answer.size(); ++i) {
        const std::size_t first = text.prompt.size() + begin;  // of the chain
        Distribution p, q;
        q.assign_logits(drafted_row(*target, TokenSpan(all).first(first - 1),
                                    TokenSpan(all).subspan(first - 1, i + 1), LayerPart::only(kept)),
                        sampling, {}, 64);
        p.assign_logits(drafted_row(*target, TokenSpan(all).first(first + i - 1),
                                    TokenSpan(all).subspan(first + i - 1, 1), {}),
                        sampling, {}, 64);
        const double beta = overlap(p, q);
        reached[i] += mass;
        accepted[i] += mass * beta;
        mass *= beta;
      }
    }
  }
  for (std::size_t i = 0; i < gamma; ++i) accepted[i] = reached[i] > 0 ? accepted[i] / reached[i] : 0;
  return accepted;
}

TEST(ForcedAcceptance, IsThatOfDraftsOnTheTargetsOwnCache) {
  const ModelPtr target = four_layers();
  for (const double temperature : {0., 1.}) {
    double sum = 0;
    const std::vector<ForcedText> texts = some_texts(target, temperature);
    for (const int gamma : {1, 3}) {
      ForcedAcceptance measured(target, texts, gamma, temperature);
      // The second call must not see what the first one left in the cache.
      for (const std::vector<int>& skip : {std::vector<int>{0}, {1, 3}, {0}}) {
        std::vector<int> kept;
        for (int layer = 0; layer < 4; ++layer)
          if (std::ranges::find(skip, layer) == skip.end()) kept.push_back(layer);
        const std::vector<double> expected =
            by_hand(target, texts, static_cast<std::size_t>(gamma), temperature, kept);
        const std::vector<double> got = measured.of(skip);
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << temperature;
        EXPECT_LT(got[0], 1);
        sum += got[0];
      }
    }
    EXPECT_GT(sum, 0) << temperature;
  }
}

TEST(ForcedAcceptance, IsOneWhenNothingIsSkipped) {
  const ModelPtr target = four_layers();
  for (const double temperature : {0., 1.}) {
    ForcedAcceptance measured(target, some_texts(target, temperature), 4, temperature);
    for (const double a : measured.of({})) EXPECT_NEAR(a, 1, 1e-12);
  }
}

TEST(ForcedAcceptance, RefusesTextsAndSetsThatDoNotFit) {
  const ModelPtr target = four_layers();
  EXPECT_THROW(ForcedAcceptance(target, {{std::vector<Token>(300, 1), {2}}}, 2, 0), Error);
  ForcedAcceptance measured(target, some_texts(target, 0), 2, 0);
  EXPECT_THROW(measured.of(std::vector<int>{4}), Error);
  EXPECT_THROW(measured.of(std::vector<int>{0, 1, 2, 3}), Error);
}

class OptimizeLayers : public Speclab {
 protected:
  OptimizeLayers() {
    Shape shape = tiny_shape();
    shape.layers = 4;
    write_tiny_llama(dir() / "deep", shape, 5);
    std::ofstream(dir() / "prompts.jsonl") << R"({"id": "a", "split": "fit", "turns": ["1 2 3"]})"
                                              "\n"
                                              R"({"id": "b", "split": "measure", "turns": ["4 5", "6"]})"
                                              "\n"
                                              R"({"id": "c", "split": "fit", "turns": ["7"]})"
                                              "\n";
  }
  Result optimize(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"optimize", "layers"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  /// The arguments of a short search. `more` replaces some of them or adds others.
  static std::vector<std::string> search(const std::string& out, const std::vector<std::string>& more = {}) {
    std::map<std::string, std::string> values = {
        {"--model", "deep"}, {"--prompts", "prompts.jsonl"}, {"--out", out},        {"--tokens", "12"},
        {"--gamma", "3"},    {"--t", "1:1,4:1.3"},           {"--per-layer", ".2"}, {"--threads", "1"}};
    for (std::size_t i = 0; i < more.size(); ++i) {
      const bool has_value = i + 1 < more.size() && !more[i + 1].starts_with("--");
      values[more[i]] = has_value ? more[i + 1] : "";
      i += has_value;
    }
    std::vector<std::string> words;
    for (const auto& [name, value] : values) {
      words.push_back(name);
      if (!value.empty()) words.push_back(value);
    }
    return words;
  }
};

TEST_F(OptimizeLayers, SearchesAndWritesAFileThatCanBeDraftedWith) {
  const Result first = optimize(search("skip.json", {"--split", "fit"}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("Best: skip ["));
  const json found = read_json_file(dir() / "skip.json");
  EXPECT_EQ(found["format"], "speclab skip 1");
  EXPECT_EQ(found["prompts"], json({"a", "c"}));
  EXPECT_EQ(found["layers"], json({0, 1, 2, 3}));
  EXPECT_GE(found["evaluations"], 4) << "each layer alone";
  EXPECT_LE(found["evaluations"], 14) << "all sets of four layers";
  const json predicted = found["predicted"];
  EXPECT_EQ(predicted["skip"], found["skip"]);
  const int gamma = predicted["gamma"];
  const auto acceptance = predicted["acceptance"].get<std::vector<double>>();
  const double tau =
      theory::positional_expected_tokens(std::span(acceptance).first(static_cast<std::size_t>(gamma)));
  const double c = 1 - .2 * static_cast<double>(found["skip"].size());
  EXPECT_NEAR(predicted["speedup"].get<double>(), tau / (gamma * c + 1 + .1 * gamma), 1e-12);
  for (const json& choice : found["by_size"]) EXPECT_LE(choice["speedup"], predicted["speedup"]);

  json drafted = config();
  drafted["target"] = "deep";
  drafted["drafts"] = json::object();
  drafted["cases"] = {{{"strategy", "self_speculation"}, {"skip_file", "skip.json"}},
                      {{"strategy", "self_speculation"}, {"draft_by", "early_exit"}}};
  write(drafted);
  const Result ran = run({"run", "a.json", "--out", "drafted", "-q"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json summary = read_json_file(dir() / "drafted/summary.json");
  EXPECT_EQ(summary["cases"].size(), 3u);
  for (const json& one : summary["cases"]) {
    EXPECT_EQ(one["metrics"]["matches_reference"], true) << one["id"];
    if (one["strategy"] != "self_speculation") continue;
    EXPECT_GT(one["metrics"]["draft_calls"], 0) << one["id"];
    EXPECT_GT(one["metrics"]["c"], 0) << one["id"];
    EXPECT_GT(one["predictions"].size(), 0u) << one["id"];
  }
}

TEST_F(OptimizeLayers, GoesOnFromTheSetsOfAnInterruptedSearch) {
  ASSERT_EQ(optimize(search("whole.json", {"--evaluations", "6"})).code, 0);
  const std::string log = Cli::read(dir() / "whole.json.evaluations.jsonl");
  std::size_t end = 0;
  for (int line = 0; line < 3; ++line) end = log.find('\n', end) + 1;
  // The file then has the settings and two sets. A changed number shows that they are not measured again.
  std::string part = log.substr(0, end);
  std::ofstream(dir() / "part.json.evaluations.jsonl") << part;
  ASSERT_EQ(optimize(search("part.json", {"--evaluations", "6", "--resume"})).code, 0);
  EXPECT_EQ(read_json_file(dir() / "part.json"), read_json_file(dir() / "whole.json"));
  EXPECT_EQ(Cli::read(dir() / "part.json.evaluations.jsonl"), log);
  const auto lines = read_json_lines(dir() / "whole.json.evaluations.jsonl");
  EXPECT_EQ(lines.size(), 7u);
  json changed = lines[1];
  changed["acceptance"] = {1, 1, 1};
  std::ofstream(dir() / "part.json.evaluations.jsonl") << lines[0].dump() << "\n" << changed.dump() << "\n";
  ASSERT_EQ(optimize(search("part.json", {"--evaluations", "6", "--resume"})).code, 0);
  EXPECT_EQ(read_json_file(dir() / "part.json")["by_size"][0]["skip"], changed["skip"]);
  expect_error(optimize(search("part.json", {"--evaluations", "6", "--resume", "--tokens", "9"})),
               {"other settings"});
  expect_error(optimize(search("part.json", {"--evaluations", "6", "--resume", "--per-layer", ".01"})),
               {"other settings"});
}

TEST_F(OptimizeLayers, SaysWhatIsWrong) {
  expect_error(optimize({"--model", "deep", "--prompts", "prompts.jsonl"}), {"no --out"});
  expect_error(optimize({"--model", "deep", "--out", "s.json"}), {"prompts"});
  expect_error(optimize({"--prompts", "prompts.jsonl", "--out", "s.json"}), {"model"});
  expect_error(optimize(search("s.json", {"--gamma", "0"})), {"--gamma", "1 to 64"});
  expect_error(optimize(search("s.json", {"--split", "both"})), {"--split", "fit or measure"});
  expect_error(optimize(search("s.json", {"--per-layer", "2"})), {"--per-layer", "0 to 1"});
  expect_error(optimize(search("s.json", {"--width", "3"})), {"--width"});
  expect_error(optimize(search("s.json", {"--tokens", "9000"})), {"positions"});
  expect_error(run({"optimize", "layers", "a.json", "--out", "s.json"}), {"a.json"});
  expect_error(run({"optimize", "tree", "a.json", "--out", "s.json", "--evaluations", "3"}),
               {"--evaluations"});
}

}  // namespace
}  // namespace speclab::layer_choice_test
