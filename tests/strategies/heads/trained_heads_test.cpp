// Strategies with trained heads, here with random weights: the text and the rows are those of autoregressive
// decoding bit for bit, and a draft depends on the committed text alone, as if the head had read it afresh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/model/files/inflate.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/model/heads/random_heads.h"

namespace speclab::trained_heads_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Form {
  const char* name;
  const char* strategy;
  RandomHead head;
  json options;
};

// Most tokens of the vocabulary are children of the pending token, so that the target accepts some.
std::vector<Form> forms() {
  std::vector<Token> most;
  for (Token id = 0; id < 64; ++id)
    if (id % 4 != 2) most.push_back(id);
  const json drawn = {{"widths", {40, 1}}, {"children", "without_replacement"}};
  const auto fixed = [](json options) {
    options["shape"] = "fixed";
    return options;
  };
  return {{"blockwise", "blockwise", {}, {{"widths", {40, 1, 1}}}},
          {"blockwise_two_phase", "blockwise", {}, {{"widths", {40, 1, 1}}, {"phases", "two_phase"}}},
          {"blockwise_drawn", "blockwise", {}, drawn},
          {"blockwise_two_phase_drawn",
           "blockwise",
           {},
           {{"widths", {40, 1}}, {"children", "without_replacement"}, {"phases", "two_phase"}}},
          {"medusa", "medusa", {}, {{"widths", {40, 1, 1}}}},
          {"medusa_two_blocks", "medusa", {.heads = 2, .blocks = 2, .ids = most}, {{"widths", {36, 2}}}},
          {"medusa_drawn", "medusa", {}, drawn},
          {"hydra", "hydra", {.blocks = 2}, {{"widths", {40, 1, 1}}}},
          {"hydra_prefix", "hydra", {.prefix = true, .ids = most}, {{"widths", {36, 1, 1}}}},
          {"hydra_prefix_drawn", "hydra", {.prefix = true}, drawn},
          {"mlp_speculator", "mlp_speculator", {.scale_input = true}, {{"widths", {40, 1, 1}}}},
          {"mlp_speculator_tied", "mlp_speculator", {.tied = true, .ids = most}, {{"widths", {36, 2}}}},
          {"mlp_speculator_drawn", "mlp_speculator", {.heads = 4}, drawn},
          {"eagle_fixed", "eagle", {}, fixed({{"widths", {40, 1, 1}}})},
          {"eagle_drawn", "eagle", {}, fixed(drawn)},
          {"eagle_dynamic", "eagle", {}, {{"branches", 40}, {"expand", 4}, {"depth", 3}, {"nodes", 60}}},
          {"eagle3_fixed", "eagle", {.version = 3, .ids = most}, fixed({{"widths", {36, 1, 1}}})},
          {"eagle3_drawn", "eagle", {.version = 3}, fixed(drawn)},
          {"eagle3_dynamic",
           "eagle",
           {.version = 3, .ids = most},
           {{"branches", 36}, {"expand", 4}, {"depth", 3}, {"nodes", 60}}},
          {"mtp", "mtp", {}, {{"widths", {40, 1, 1}}}},
          {"mtp_reduced", "mtp", {.ids = most}, {{"widths", {36, 2}}}},
          {"mtp_three_modules", "mtp", {.blocks = 3}, {{"widths", {24, 2, 1}}}},
          {"mtp_two_modules_drawn", "mtp", {.blocks = 2, .ids = most}, drawn},
          {"parallel_eagle", "parallel_eagle", {.blocks = 2}, {{"widths", {40, 1, 1}}}},
          {"parallel_eagle_reduced", "parallel_eagle", {.heads = 2, .ids = most}, {{"widths", {36, 2}}}},
          {"parallel_eagle_drawn", "parallel_eagle", {.heads = 2}, drawn},
          {"falcon", "falcon", {.heads = 2}, {{"widths", {40, 1, 1}}}},
          {"falcon_reduced", "falcon", {.heads = 2, .ids = most}, {{"widths", {36, 2}}}},
          {"falcon_of_one_drawn", "falcon", {.heads = 1}, drawn},
          {"block_draft", "block_draft", {.blocks = 2}, {{"widths", {40, 1, 1}}}},
          {"block_draft_reduced", "block_draft", {.heads = 2, .ids = most}, {{"widths", {36, 2}}}},
          {"block_draft_drawn", "block_draft", {}, drawn},
          {"block_draft_queries", "block_draft", {.queries = true}, {{"widths", {40, 1, 1}}}},
          {"block_draft_queries_drawn", "block_draft", {.blocks = 2, .queries = true}, drawn},
          {"pass", "pass", {}, {{"widths", {1, 20, 1, 1}}}},
          {"pass_best", "pass", {.heads = 1}, {{"widths", {2, 20}}, {"children", "best"}}}};
}

class TrainedHeads : public testing::TestWithParam<std::size_t> {
 protected:
  static Form form() { return forms()[GetParam()]; }
  Decode decode(const ModelPtr& target, const json& more = json::object(),
                const json& more_of_strategy = json::object()) const {
    const Form& of = form_;
    json options = of.options;
    options.update(more_of_strategy);
    options["head"] = write_random_head(dir_.path() / of.name, of.strategy, target->config(), of.head);
    json all = {{"max_tokens", 50}, {"temperature", 0}};
    all.update(more);
    return {.target = target,
            .strategy = choose(of.strategy, options),
            .options = all,
            .prompt = {5, 9, 2, 33, 7, 1, 60, 12, 8, 8, 41}};
  }
  static GenerationRecord plain(Decode decode) {
    decode.strategy = choose("autoregressive");
    return decode.run();
  }

  TempDir dir_;
  Form form_ = form();
};

TEST_P(TrainedHeads, AreLossless) {
  const Decode with_head = decode(load_tiny(random_llama(tiny_shape(), 20)), {{"max_tokens", 90}});
  const GenerationRecord expected = plain(with_head), record = with_head.run();
  EXPECT_EQ(record.tokens, expected.tokens);
  EXPECT_EQ(record.row_hashes, expected.row_hashes);
  EXPECT_GT(total(record, &StepRecord::accepted), 0) << "the test shows nothing";
  EXPECT_GT(record.draft.flops, 0);  // the work of the head is the draft's
  for (const StepRecord& step : record.steps) EXPECT_EQ(step.source, step.drafted.empty() ? "" : "heads");
}

TEST_P(TrainedHeads, AreLosslessOnADevice) {
  const ModelPtr target =
      load_tiny_on(make_cuda_backend({.simulated = true}), random_llama(tiny_shape(), 20));
  const bool dynamic = form_.options.contains("branches");
  const json small =
      dynamic ? json{{"branches", 4}, {"expand", 2}, {"depth", 2}, {"nodes", 8}} : json{{"widths", {4, 2}}};
  const Decode with_head = decode(target, {{"max_tokens", 12}}, small);
  const GenerationRecord expected = plain(with_head), record = with_head.run();
  EXPECT_EQ(record.tokens, expected.tokens);
  EXPECT_EQ(record.row_hashes, expected.row_hashes);
  EXPECT_GT(drafted(record), static_cast<int>(record.steps.size()));
}

// A twin with more ids than its original takes the heads of the original. The ids that it adds are never
// drafted, so it gets the same drafts and decodes the same text.
TEST_P(TrainedHeads, ServeATwinWithMoreIds) {
  const TinyModel tiny = random_llama(tiny_shape(), 20);
  write_huggingface(dir_.path() / "model", tiny);
  Checkpoint checkpoint = Checkpoint::open(dir_.path() / "model");
  checkpoint.inflate({.vocab = 99});
  const Decode of_original = decode(load_tiny(tiny), {{"max_tokens", 90}});
  Decode of_twin = of_original;
  of_twin.target = Model::load(checkpoint, make_cpu_backend({1, "f32"}), {});
  const GenerationRecord expected = of_original.run(), record = of_twin.run();
  EXPECT_EQ(record.tokens, expected.tokens);
  EXPECT_EQ(record.row_hashes, plain(of_twin).row_hashes);
  EXPECT_GT(total(record, &StepRecord::accepted), 0);
  ASSERT_EQ(record.steps.size(), expected.steps.size());
  for (std::size_t step = 0; step < record.steps.size(); ++step) {
    const std::vector<DraftedToken>&a = record.steps[step].drafted, &b = expected.steps[step].drafted;
    ASSERT_EQ(a.size(), b.size()) << step;
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].id, b[i].id) << step;
      EXPECT_EQ(a[i].parent, b[i].parent) << step;
    }
  }
}

// A head drafts from the target's states of committed positions, and the K/V of a prefix layer come from
// them. So after any history of accepted and rejected tokens, the draft is that of a sequence whose prompt is
// the text so far.
TEST_P(TrainedHeads, DraftsAreThoseOfAFreshStart) {
  const ModelPtr target = load_tiny(random_llama(tiny_shape(), 20));
  constexpr int kTokens = 60;
  const Decode whole = decode(target, {{"max_tokens", kTokens}});
  const GenerationRecord record = whole.run();
  std::size_t emitted = 1;  // the first token comes with the prompt
  int compared = 0;
  for (const StepRecord& step : record.steps) {
    Decode fresh = whole;
    fresh.prompt.insert(fresh.prompt.end(), record.tokens.begin(),
                        record.tokens.begin() + static_cast<std::ptrdiff_t>(emitted - 1));
    fresh.options["max_tokens"] = std::min(kTokens - static_cast<int>(emitted) + 1, 8);  // deep enough
    if (compared % 4 == 0 || step.accepted > 0) {
      const GenerationRecord again = fresh.run();
      ASSERT_FALSE(again.steps.empty()) << emitted;
      const std::vector<DraftedToken>&a = again.steps[0].drafted, &b = step.drafted;
      ASSERT_EQ(a.size(), b.size()) << emitted;
      for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].id, b[i].id) << emitted;
        EXPECT_EQ(a[i].parent, b[i].parent) << emitted;
        EXPECT_EQ(a[i].confidence, b[i].confidence) << emitted;
      }
    }
    ++compared;
    emitted += static_cast<std::size_t>(step.emitted);
  }
  EXPECT_EQ(emitted, record.tokens.size());
  EXPECT_GT(compared, 10);
}

// The states of a long prompt come in two chunks. The drafts after it are those after a single chunk, and
// those in a text of which the target computed the same positions step by step.
TEST_P(TrainedHeads, DraftsFollowAPromptOfTwoChunks) {
  const ModelPtr target = load_tiny(random_llama(tiny_shape(), 20));
  constexpr int kTokens = 160;
  const Decode steps = decode(target, {{"max_tokens", kTokens}});
  const GenerationRecord whole = steps.run();
  std::size_t emitted = 1, at = 0;  // the first token comes with the prompt; `at`: number of the step
  while (steps.prompt.size() + emitted < 150)
    emitted += static_cast<std::size_t>(whole.steps.at(at++).emitted);
  const std::vector<DraftedToken>& expected = whole.steps.at(at).drafted;
  ASSERT_FALSE(expected.empty());
  Decode fresh = steps;
  fresh.prompt.insert(fresh.prompt.end(), whole.tokens.begin(),
                      whole.tokens.begin() + static_cast<std::ptrdiff_t>(emitted - 1));
  ASSERT_GT(fresh.prompt.size(), 128u);
  fresh.options["max_tokens"] = 8;
  for (const int scratch : {128, 200, 125}) {  // positions of a chunk; drafts have at most 121 nodes
    SCOPED_TRACE(scratch);
    fresh.loop.scratch = scratch;
    const GenerationRecord record = fresh.run();
    ASSERT_FALSE(record.steps.empty());
    EXPECT_EQ(record.tokens.front(), whole.tokens[emitted - 1]);
    const std::vector<DraftedToken>& drafted = record.steps[0].drafted;
    ASSERT_EQ(drafted.size(), expected.size());
    for (std::size_t i = 0; i < drafted.size(); ++i) {
      EXPECT_EQ(drafted[i].id, expected[i].id) << i;
      EXPECT_EQ(drafted[i].parent, expected[i].parent) << i;
      EXPECT_EQ(drafted[i].confidence, expected[i].confidence) << i;
    }
  }
}

TEST_P(TrainedHeads, CoupledTextAndProcessedRowsAreTheTargets) {
  const ModelPtr target = load_tiny(random_llama(tiny_shape(), 20));
  for (const json& options :
       {json{{"temperature", 1}, {"coins", "gumbel"}},
        json{{"temperature", .8}, {"top_k", 9}, {"coins", "gumbel"}, {"repetition_penalty", 1.3}},
        json{{"repetition_penalty", 1.2}, {"banned_tokens", {0, 3, 4, 7, 11, 40}}}}) {
    SCOPED_TRACE(options.dump());
    const Decode with_head = decode(target, options);
    const GenerationRecord record = with_head.run();
    EXPECT_EQ(record.tokens, plain(with_head).tokens);
    EXPECT_GT(drafted(record), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TrainedHeads, testing::Range<std::size_t>(0, forms().size()),
                         [](const auto& info) { return forms()[info.param].name; });

class HeadStrategies : public testing::Test {
 protected:
  std::string head(const std::string& kind, const RandomHead& of = {}) const {
    return write_random_head(dir_.path() / kind, kind, target->config(), of);
  }
  std::string message(const std::string& strategy, const json& options) const {
    LoopOptions loop{.capacity = 64};
    loop.costs = std::make_shared<const StepCosts>(StepCosts{.target_ns = {1, 2}});
    try {
      DecodeLoop(target, nullptr, choose(strategy, options), loop);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  TempDir dir_;
  ModelPtr target = tiny_target(3);
};

// Head 2 does not know which token of head 1 is above it: both nodes have the same three children.
TEST_F(HeadStrategies, MedusaDraftsACartesianTree) {
  const Decode decode{.target = target,
                      .strategy = choose("medusa", {{"head", head("medusa")}, {"widths", {2, 3}}}),
                      .options = {{"max_tokens", 12}}};
  const GenerationRecord record = decode.run();
  const std::vector<DraftedToken>& drafted = record.steps.at(0).drafted;
  ASSERT_EQ(drafted.size(), 8u);
  const int parents[] = {0, 0, 1, 1, 1, 2, 2, 2};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(drafted[i].parent, parents[i]) << i;
  for (std::size_t i = 2; i < 5; ++i) EXPECT_EQ(drafted[i].id, drafted[i + 3].id) << i;
  EXPECT_NE(drafted[0].id, drafted[1].id);
  EXPECT_GE(drafted[2].confidence, drafted[3].confidence);
}

// A block draft, P-EAGLE, a block of Falcon and PaSS draft such trees too: their guesses do not know each
// other.
TEST_F(HeadStrategies, GuessesOfOneForwardAreACartesianTree) {
  for (const char* kind : {"block_draft", "parallel_eagle", "falcon", "pass"}) {
    const Decode decode{
        .target = target,
        .strategy = choose(kind, {{"head", head(kind)}, {"widths", {2, 3}}, {"children", "best"}}),
        .options = {{"max_tokens", 12}}};
    const GenerationRecord record = decode.run();
    const std::vector<DraftedToken>& drafted = record.steps.at(0).drafted;
    ASSERT_EQ(drafted.size(), 8u) << kind;
    for (std::size_t i = 2; i < 5; ++i) EXPECT_EQ(drafted[i].id, drafted[i + 3].id) << kind << i;
  }
}

// The first row of the forward that drafts is the target's own, with the bits of the row that verifies. So a
// token that was drawn from it is accepted, and each step emits two tokens or more. A step has one forward
// that drafts and one that verifies.
TEST_F(HeadStrategies, TheFirstTokenOfPassIsTheTargets) {
  const StrategyChoice pass = choose("pass", {{"head", head("pass", {.heads = 2})}});
  for (const json& options :
       {json{{"temperature", 0}}, json{{"temperature", 1}},
        json{{"temperature", .8}, {"top_k", 9}, {"repetition_penalty", 1.3}, {"rule", "block"}},
        json{{"temperature", 1}, {"coins", "gumbel"}}}) {
    SCOPED_TRACE(options.dump());
    json all = {{"max_tokens", 80}};
    all.update(options);
    Decode decode{.target = target, .strategy = pass, .options = all};
    decode.loop.row_details = true;
    const GenerationRecord record = decode.run();
    int drafts = 0;
    for (const StepRecord& step : record.steps) {
      if (step.drafted.empty()) continue;
      ++drafts;
      EXPECT_TRUE(step.drafted.front().accepted);
      EXPECT_GE(step.accepted, 1);
      if (options.value("temperature", 1.) > 0) {
        EXPECT_EQ(step.drafted.front().p, step.drafted.front().q);
      }
    }
    EXPECT_GT(drafts, 10);
    EXPECT_EQ(record.draft.calls, drafts);
  }
}

// In Hydra, in an MLP speculator and in modules for multi-token prediction, the children depend on the token
// above them.
TEST_F(HeadStrategies, SequentialHeadsReadTheDraftedTokens) {
  for (const auto& [kind, blocks] : std::vector<std::pair<std::string, int>>{
           {"hydra", 1}, {"mlp_speculator", 1}, {"mtp", 1}, {"mtp", 2}}) {
    const Decode decode{
        .target = target,
        .strategy = choose(kind, {{"head", head(kind, {.blocks = blocks})}, {"widths", {4, 3}}}),
        .options = {{"max_tokens", 12}}};
    const GenerationRecord record = decode.run();
    const std::vector<DraftedToken>& drafted = record.steps.at(0).drafted;
    ASSERT_EQ(drafted.size(), 16u) << kind;
    int different = 0;
    for (std::size_t i = 4; i < 7; ++i)
      for (std::size_t parent = 1; parent < 4; ++parent)
        different += drafted[i].id != drafted[i + 3 * parent].id;
    EXPECT_GT(different, 0) << kind;
  }
}

TEST_F(HeadStrategies, SayWhatDoesNotFit) {
  const std::string medusa = head("medusa"), hydra = head("hydra");
  EXPECT_EQ(message("medusa", {{"head", medusa}}), "no error");
  EXPECT_THAT(message("medusa", {{"head", hydra}}), AllOf(HasSubstr("hydra"), HasSubstr("medusa")));
  EXPECT_THAT(message("medusa", {{"head", (dir_.path() / "none").string()}}), HasSubstr("none"));
  EXPECT_THAT(message("medusa", {{"head", medusa}, {"widths", {1, 1, 1, 1}}}),
              AllOf(HasSubstr("medusa: widths"), HasSubstr("4 levels"), HasSubstr("at most 3")));
  EXPECT_THAT(message("medusa", {{"head", medusa}, {"children", "without_replacement"}, {"budget", "auto"}}),
              AllOf(HasSubstr("children, budget"), HasSubstr("fixed")));
  EXPECT_THAT(message("hydra", {{"head", head("hydra", {.ids = {1, 2}})}, {"widths", {3}}}),
              AllOf(HasSubstr("3 children"), HasSubstr("at most 2")));
}

// A chain is a special tree. The first level of a dynamic tree has the tokens of a fixed one, and the nodes
// are those with the largest products of the head's probabilities.
TEST_F(HeadStrategies, EagleDraftsTheMostLikelyNodes) {
  const auto first_draft = [&](const json& options) {
    json all = {{"head", head("eagle")}};
    all.update(options);
    const Decode decode{.target = target, .strategy = choose("eagle", all), .options = {{"max_tokens", 20}}};
    return decode.run().steps.at(0).drafted;
  };
  const std::vector<DraftedToken> whole = first_draft({{"shape", "fixed"}, {"widths", {3, 3, 2}}}),
                                  best = first_draft(
                                      {{"depth", 3}, {"branches", 3}, {"expand", 20}, {"nodes", 9}}),
                                  chain = first_draft({{"shape", "fixed"}});
  ASSERT_EQ(whole.size(), 30u);
  ASSERT_EQ(best.size(), 9u);
  ASSERT_EQ(chain.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(chain[i].parent, static_cast<int>(i));
  EXPECT_EQ(chain[0].id, whole[0].id);
  const auto path_of = [](const std::vector<DraftedToken>& drafted, int node) {
    std::vector<Token> path;
    for (; node > 0; node = drafted[static_cast<std::size_t>(node) - 1].parent)
      path.insert(path.begin(), drafted[static_cast<std::size_t>(node) - 1].id);
    return path;
  };
  const auto reach_of = [](const std::vector<DraftedToken>& drafted, int node) {
    double reach = 1;
    for (; node > 0; node = drafted[static_cast<std::size_t>(node) - 1].parent)
      reach *= drafted[static_cast<std::size_t>(node) - 1].confidence;
    return reach;
  };
  // The dynamic tree has the same confidence on the same paths, and no path of the fixed tree that it left
  // out is more likely than one that it kept.
  std::map<std::vector<Token>, double> kept;
  double least = 1;
  for (int node = 1; node <= 9; ++node) {
    kept[path_of(best, node)] = reach_of(best, node);
    least = std::min(least, reach_of(best, node));
  }
  int common = 0;
  for (int node = 1; node <= 30; ++node) {
    const auto found = kept.find(path_of(whole, node));
    if (found == kept.end()) {
      EXPECT_LE(reach_of(whole, node), least * (1 + 1e-6)) << node;
    } else {
      EXPECT_EQ(reach_of(whole, node), found->second) << node;
      ++common;
    }
  }
  EXPECT_GE(common, 3);
}

TEST_F(HeadStrategies, EagleSaysWhatDoesNotFit) {
  const std::string eagle = head("eagle");
  EXPECT_EQ(message("eagle", {{"head", eagle}}), "no error");
  EXPECT_THAT(message("eagle", {{"head", head("medusa")}}), AllOf(HasSubstr("medusa"), HasSubstr("eagle")));
  EXPECT_THAT(message("eagle", {{"head", eagle}, {"widths", {2}}}),
              AllOf(HasSubstr("eagle: widths, tree"), HasSubstr("fixed")));
  EXPECT_THAT(message("eagle", {{"head", eagle}, {"children", "without_replacement"}, {"budget", "fixed"}}),
              AllOf(HasSubstr("eagle: children"), HasSubstr("biases the text")));
  EXPECT_THAT(
      message("eagle",
              {{"head", eagle}, {"shape", "fixed"}, {"children", "without_replacement"}, {"budget", "auto"}}),
      AllOf(HasSubstr("children, budget"), HasSubstr("fixed")));
  EXPECT_THAT(message("eagle", {{"head", eagle}, {"depth", 100}, {"expand", 100}}),
              AllOf(HasSubstr("depth, expand"), HasSubstr("up to 9772 nodes")));  // 8 + 64 + 97 * 100
  EXPECT_EQ(message("eagle", {{"head", eagle}, {"depth", 100}, {"expand", 100}, {"branches", 1}}),
            "no error");
}

// SpecDec (Xia et al. 2023): a block draft with mask queries, judged by the rule `specdec`. With beta = 1 the
// text is that of greedy decoding. With a larger beta and gap, the tokens within both limits are accepted.
TEST_F(HeadStrategies, SpecDecIsABlockDraftUnderItsRule) {
  Shape shape = tiny_shape();
  shape.vocab = 6;  // so few tokens that a random head is often right
  target = load_tiny(random_llama(shape, 20));
  Decode decode{.target = target,
                .strategy = choose("block_draft", {{"head", head("block_draft", {.queries = true})}}),
                .options = {{"max_tokens", 80}, {"temperature", 0}, {"rule", "specdec"}, {"beta", 1}},
                .prompt = {5, 1, 2, 3, 4, 0, 2}};
  Decode plain = decode;
  plain.strategy = choose("autoregressive");
  EXPECT_EQ(decode.run().tokens, plain.run().tokens);
  decode.options.update({{"beta", 5}, {"gap", 30}});
  const GenerationRecord record = decode.run();
  int accepted = 0, not_best = 0;
  for (const StepRecord& step : record.steps) {
    EXPECT_LE(step.drafted.size(), 3u);
    for (const DraftedToken& token : step.drafted) {
      if (!token.tested) continue;
      EXPECT_EQ(token.accepted, token.rank < 5);
      accepted += token.accepted ? 1 : 0;
      not_best += token.accepted && token.rank > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(not_best, 0);
  decode.options.update({{"gap", 0}});  // only the best token is within this limit
  EXPECT_EQ(decode.run().tokens, plain.run().tokens);
}

TEST_F(HeadStrategies, ModulesAndMasksSayWhatDoesNotFit) {
  EXPECT_EQ(message("mtp", {{"head", head("mtp")}, {"widths", {1, 1, 1, 1, 1}}}), "no error");
  const std::string two = head("mtp", {.blocks = 2});
  EXPECT_EQ(message("mtp", {{"head", two}}), "no error");
  EXPECT_THAT(message("mtp", {{"head", two}, {"widths", {1, 1, 1}}}),
              AllOf(HasSubstr("mtp: widths"), HasSubstr("3 levels"), HasSubstr("at most 2")));
  EXPECT_THAT(message("mtp", {{"head", two}, {"children", "without_replacement"}, {"budget", "auto"}}),
              AllOf(HasSubstr("mtp: children, budget"), HasSubstr("fixed")));
  EXPECT_THAT(message("mtp", {{"head", head("eagle")}}), AllOf(HasSubstr("eagle"), HasSubstr("mtp")));
  const std::string parallel = head("parallel_eagle");
  EXPECT_THAT(message("parallel_eagle", {{"head", parallel}, {"widths", {1, 1, 1, 1}}}),
              AllOf(HasSubstr("parallel_eagle: widths"), HasSubstr("4 levels"), HasSubstr("at most 3")));
  EXPECT_THAT(message("eagle", {{"head", parallel}}), AllOf(HasSubstr("parallel_eagle"), HasSubstr("eagle")));
}

// Typical acceptance as in Medusa's code (Cai et al. 2024) judges the tree; it is lossy above temperature 0.
TEST_F(HeadStrategies, TypicalAcceptanceJudgesMedusasTree) {
  Decode decode{.target = target,
                .strategy = choose("medusa", {{"head", head("medusa")}, {"widths", {10, 4, 2}}}),
                .options = {{"max_tokens", 60}, {"temperature", .7}, {"rule", "typical_longest"}}};
  const GenerationRecord record = decode.run();
  EXPECT_EQ(record.tokens.size(), 60u);
  EXPECT_GT(total(record, &StepRecord::accepted), 0);
}

}  // namespace
}  // namespace speclab::trained_heads_test
