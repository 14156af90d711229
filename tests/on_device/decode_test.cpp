#include <fmt/format.h>
#include <malloc.h>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/decoding/registry.h"
#include "tests/model/heads/random_heads.h"
#include "tests/model/net/family_logits.h"
#include "tests/model/net/part_life.h"
#include "tests/model/net/session_life.h"
#include "tests/model/net/target_model.h"
#include "tests/on_device/on_device.h"
#include "tests/decoding/loop/loop_fixture.h"

// Whole models on the device: close to the CPU, the same bits for every batch, the same text with every
// strategy, and no memory leak.

namespace speclab::on_device::decode_test {
namespace {

using namespace speclab::fixtures;

class OnDeviceModel : public OnDevice {};

TEST_F(OnDeviceModel, EveryFamilyIsNearTheCpu) {
  const auto exact = make_cpu_backend({1, "f32"}), rounding = make_cpu_backend({1, "amx-bf16-emulated"});
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(family_folder())) {
    if (++families > size(2, 1000)) break;
    const std::string family = entry.path().filename();
    const std::vector<Token> tokens = family_tokens(family);
    const auto logits = family_logits(family, backend(), tokens);
    EXPECT_LE(apart(logits, family_logits(family, exact, tokens)), .04f) << family;
    EXPECT_LE(apart(logits, family_logits(family, rounding, tokens)), .01f) << family;
  }
  EXPECT_GE(families, 2);
}

TEST_F(OnDeviceModel, RowsHaveTheBitsOfAFreshPrefill) {
  const std::vector<std::size_t> which =
      on_gpu() ? std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
               : std::vector<std::size_t>{1, 9};
  for (const std::size_t model : which) {
    for (unsigned seed = 1; seed <= size(1u, 3u); ++seed) {
      Life life(kDeviceUnderTest, model, 1, seed);
      for (int step = 0; step < size(4, 12); ++step)
        ASSERT_TRUE(life.step()) << kLifeModels[model] << ", seed " << seed << ", step " << step;
    }
  }
}

TEST_F(OnDeviceModel, PartsOfTheModelAndOfTheCacheHaveTheBitsOfTheWhole) {
  const std::vector<std::size_t> which =
      on_gpu() ? std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 13, 14}
               : std::vector<std::size_t>{6};
  for (const std::size_t model : which) {
    for (unsigned seed = 1; seed <= size(1u, 3u); ++seed) {
      PartLife life(kDeviceUnderTest, model, 1, seed);
      for (int step = 0; step < size(4, 16); ++step)
        ASSERT_EQ(life.step(), "") << kLifeModels[model] << ", seed " << seed << ", step " << step;
    }
  }
}

struct Models {
  std::string name;
  ModelPtr target, draft;
  std::vector<Token> prompt;
  int tokens;
};

/// A tiny model with its first layer as draft. On a GPU also the real target with the shipped draft, if
/// present.
const std::vector<Models>& models() {
  static const auto* const all = [] {
    auto* made = new std::vector<Models>;
    const ModelPtr tiny = load_tiny_on(backend(), random_llama(tiny_shape(), 3));
    made->push_back(
        {"tiny", tiny, Model::with_layers(tiny, {0}), {3, 1, 4, 1, 5, 9, 2, 6, 3, 1}, size(16, 70)});
    if (on_gpu() && std::filesystem::exists(target_file())) {
      const ModelPtr target = Model::load(Checkpoint::open(target_file()), backend(), {});
      const ModelPtr draft = Model::load(
          Checkpoint::open(std::filesystem::path(SPECLAB_SOURCE_DIR) / "models/draft/smollm2-135m-instruct"),
          backend(), {{}, target});
      made->push_back(
          {"SmolLM2-135M", target, draft,
           target->tokenizer()->encode("The quick brown fox jumps over the lazy dog. The quick brown"), 64});
    }
    return made;
  }();
  return *all;
}

struct Setting {
  std::string strategy;
  json options = json::object();
};
/// On a GPU: every registered strategy that a GPU can run and that needs no file and no other program, and
/// chains and trees of many sizes.
std::vector<Setting> settings() {
  std::vector<Setting> all{{"speculative_sampling", {{"gamma", 3}}},
                           {"prompt_lookup", {{"candidates", 3}, {"ngram_min", 1}}},
                           {"lookahead", {{"W", 3}, {"N", 3}, {"G", 3}}}};
  if (!on_gpu()) return all;
  for (const StrategyEntry& entry : strategies()) {
    const StrategyInfo& info = entry.info;
    if (info.needs_file.empty() && !info.drafts_ahead && !info.needs_program)
      all.push_back({std::string(info.name)});
  }
  for (const int gamma : {1, 2, 7, 8, 15, 16}) all.push_back({"speculative_sampling", {{"gamma", gamma}}});
  for (const int window : {7, 15, 25}) all.push_back({"lookahead", {{"W", window}, {"N", 4}, {"G", window}}});
  return all;
}

class OnDeviceDecoding : public OnDevice {
 protected:
  static Decode decode(const Models& models, const Setting& setting, json options,
                       Coins coins = Coins(7, 3)) {
    options["max_tokens"] = models.tokens;
    Decode out{.target = models.target,
               .draft = models.draft,
               .strategy = choose(setting.strategy, setting.options),
               .options = std::move(options),
               .prompt = models.prompt,
               .coins = coins};
    Decode plain = out;
    plain.strategy = choose("autoregressive");
    out.reference = plain.run().tokens;
    return out;
  }
};

TEST_F(OnDeviceDecoding, GreedyTextAndLogitsAreThoseOfAutoregressiveDecoding) {
  for (const Models& each : models()) {
    for (const Setting& setting : settings()) {
      SCOPED_TRACE(each.name + ", " + setting.strategy + " " + setting.options.dump());
      const Decode fast = decode(each, setting, json::object());
      Decode plain = fast;
      plain.strategy = choose("autoregressive");
      const GenerationRecord expected = plain.run(), record = fast.run();
      EXPECT_EQ(record.tokens, expected.tokens);
      EXPECT_EQ(record.row_hashes, expected.row_hashes);
    }
  }
}

// Steps that the device runs by itself, launched one by one, as graphs, and as one graph that repeats them.
TEST_F(OnDeviceDecoding, PlannedStepsAreThoseOfTheHost) {
  for (const Models& each : models()) {
    const Setting copies{"prompt_lookup", {{"candidates", 3}, {"ngram_min", 1}}};
    for (const Setting& setting : {Setting{"autoregressive"}, Setting{"speculative_sampling", {{"gamma", 3}}},
                                   copies, Setting{"ngram_model"}}) {
      const bool drafts = setting.strategy == "prompt_lookup" ||
                          setting.strategy == "ngram_model";  // the host drafts, the device verifies
      for (const json& options : {json{{"temperature", .8}, {"top_p", .9}}, json{{"temperature", 0}}}) {
        if (!on_gpu() && (options["temperature"] == 0 || setting.strategy == "autoregressive"))
          continue;  // tests/decoding covers them
        const Decode host = decode(each, setting, options);
        const GenerationRecord expected = host.run();
        for (const char* graph : {"off", "round", "loop"}) {
          if (!on_gpu() && std::string(graph) != "loop") continue;
          SCOPED_TRACE(each.name + ", " + setting.strategy + " " + options.dump() + ", graph " + graph);
          Decode planned = host;
          planned.options.update({{"device_loop", "on"}, {"device_graph", graph}});
          const GenerationRecord record = planned.run();
          EXPECT_EQ(record.tokens, expected.tokens);
          EXPECT_EQ(record.row_hashes, expected.row_hashes);
          EXPECT_EQ(record.steps.size(), expected.steps.size());
          EXPECT_EQ(record.planned_steps, drafts ? 0 : static_cast<int>(record.steps.size()));
          EXPECT_EQ(record.verified_steps, drafts ? static_cast<int>(record.steps.size()) : 0);
          EXPECT_EQ(record.stamped_ns == 0, drafts);
        }
      }
    }
  }
}

// Acceptance rules, among them those with kernels of their own, on drafts of a model: whole steps on the
// device, on chains for rules that refuse trees. The host drafts independent paths for a rule that judges no
// other trees, and the device verifies them.
TEST_F(OnDeviceDecoding, RulesJudgeAsOnTheHost) {
  for (const Models& each : models()) {
    for (const AcceptanceRule& rule : acceptance_rules()) {
      const bool own_kernel = rule.name == "traversal" || rule.name == "block" ||
                              rule.name == "typical_longest" || rule.name == "k_seq" ||
                              rule.name == "multi_path_block";
      if (rule.device_form == nullptr || (!on_gpu() && !own_kernel)) continue;
      const Setting tree{"tree_speculation", {{"widths", {3, 2}}}},
          chain{"speculative_sampling", {{"gamma", 3}}},
          paths{"tree_speculation", {{"sequences", 3}, {"length", 3}}};
      json options{{"temperature", .9}, {"top_p", .95}, {"rule", rule.name}};
      if (rule.coins == CoinUse::gumbel) options["coins"] = "gumbel";
      SCOPED_TRACE(fmt::format("{}, {}", each.name, rule.name));
      const bool verifies = rule.independent_paths_only;
      Decode decoding = decode(each, verifies ? paths : rule.require == nullptr ? tree : chain, options);
      const GenerationRecord expected = decoding.run();
      decoding.options["device_loop"] = "on";
      const GenerationRecord record = decoding.run();
      EXPECT_EQ(record.tokens, expected.tokens);
      EXPECT_EQ(record.row_hashes, expected.row_hashes);
      EXPECT_EQ(record.steps.size(), expected.steps.size());
      EXPECT_EQ(verifies ? record.verified_steps : record.planned_steps,
                static_cast<int>(record.steps.size()));
    }
  }
}

// The device verifies the drafts of random heads. The hidden states that the heads read come after the
// verdict.
TEST_F(OnDeviceDecoding, DraftsOfHeadsAreVerifiedAsOnTheHost) {
  const Models& tiny = models().front();
  const std::vector<std::string> kinds =
      on_gpu() ? std::vector<std::string>{"blockwise", "medusa",      "hydra", "mlp_speculator",
                                          "eagle",     "block_draft", "pass"}
               : std::vector<std::string>{"block_draft"};
  TempDir dir;
  for (const std::string& kind : kinds) {
    const std::string head = write_random_head(dir.path() / kind, kind, tiny.target->config());
    for (const char* rule : {"rejection", "block", "traversal"}) {
      if (!on_gpu() && std::string(rule) != "traversal") continue;  // tests/strategies/heads covers them
      SCOPED_TRACE(kind + ", " + rule);
      const std::vector<int> widths =
          std::string(rule) == "block" ? std::vector<int>{1, 1, 1} : std::vector<int>{4, 2};
      json options = {{"head", head}, {"widths", widths}, {"children", "without_replacement"}};
      if (kind == "eagle") options["shape"] = "fixed";
      Decode decoding{.target = tiny.target,
                      .strategy = choose(kind, options),
                      .options = {{"temperature", 1}, {"rule", rule}, {"max_tokens", size(8, 24)}},
                      .prompt = tiny.prompt};
      const GenerationRecord expected = decoding.run();
      decoding.options["device_loop"] = "on";
      const GenerationRecord record = decoding.run();
      EXPECT_EQ(record.tokens, expected.tokens);
      EXPECT_EQ(record.row_hashes, expected.row_hashes);
      EXPECT_EQ(record.steps.size(), expected.steps.size());
      EXPECT_EQ(record.verified_steps, static_cast<int>(record.steps.size()));
      EXPECT_EQ(record.target.hidden_bytes, expected.target.hidden_bytes);
      EXPECT_EQ(record.round_trips, expected.round_trips);
    }
  }
}

TEST_F(OnDeviceDecoding, CoupledTextFollowsTheSeedAlone) {
  for (const Models& each : models()) {
    std::vector<std::vector<Token>> texts;
    for (std::uint64_t seed = 1; seed <= size(2u, 5u); ++seed) {
      for (const Setting& setting : settings()) {
        SCOPED_TRACE(each.name + ", " + setting.strategy + " " + setting.options.dump());
        const Decode fast = decode(each, setting, {{"temperature", 1}, {"coins", "gumbel"}}, Coins(seed, 3));
        EXPECT_EQ(fast.run().tokens, fast.reference);
        if (texts.size() < seed) texts.push_back(fast.reference);
      }
    }
    EXPECT_NE(texts[0], texts[1]) << each.name;
  }
}

TEST_F(OnDeviceDecoding, SampledTextRepeatsItself) {
  for (const Models& each : models()) {
    const Decode sampled = decode(each, settings().front(), {{"temperature", 1}});
    const GenerationRecord first = sampled.run(), second = sampled.run();
    EXPECT_EQ(first.tokens, second.tokens);
    EXPECT_EQ(first.row_hashes, second.row_hashes);
  }
}

// Steps that the device runs by itself, if it can, give the same text, rows and steps.
TEST_F(OnDeviceDecoding, TheDevicesOwnLoopGivesTheSameText) {
  std::vector<Setting> planned{{"autoregressive"}};
  for (const int gamma : on_gpu() ? std::vector<int>{1, 2, 4, 8} : std::vector<int>{3})
    planned.push_back({"speculative_sampling", {{"gamma", gamma}}});
  for (const Models& each : models()) {
    for (const Setting& setting : planned) {
      for (const json& options : {json{{"temperature", 0}}, json{{"temperature", 1}},
                                  json{{"temperature", 1}, {"coins", "gumbel"}}}) {
        SCOPED_TRACE(each.name + ", " + setting.strategy + " " + setting.options.dump() + options.dump());
        json alone = options;
        alone["device_loop"] = "on";
        const GenerationRecord expected = decode(each, setting, options).run(),
                               record = decode(each, setting, alone).run();
        EXPECT_EQ(record.tokens, expected.tokens);
        EXPECT_EQ(record.row_hashes, expected.row_hashes);
        EXPECT_EQ(record.steps.size(), expected.steps.size());
        EXPECT_EQ(record.planned_steps, static_cast<int>(record.steps.size()));
      }
    }
  }
}

class OnDeviceLeaks : public OnDevice {
 protected:
  /// Memory of the device; for the simulated one, memory of the process.
  static std::int64_t used() {
    if (on_gpu()) return -static_cast<std::int64_t>(cuda::gpu_free_bytes(ordinal()));
    const struct mallinfo2 heap = mallinfo2();
    return static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
  }
};

// Each generation opens its sessions and closes them.
TEST_F(OnDeviceLeaks, AThousandGenerationsLeaveNothing) {
  const int generations = size(30, 1000);
  const std::int64_t block =
      size(std::int64_t{16} << 10, std::int64_t{2} << 20);  // block size of the allocator
  const Models& tiny = models().front();
  const auto generate = [&](int i) {
    Decode one{.target = tiny.target,
               .draft = tiny.draft,
               .strategy = choose("speculative_sampling", {{"gamma", 1 + i % 3}}),
               .options = {{"max_tokens", 4}, {"temperature", i % 2}},
               .prompt = tiny.prompt};
    one.coins = Coins(static_cast<std::uint64_t>(i), 1);
    one.run();
  };
  for (int i = 0; i < 12; ++i) generate(i);
  const std::int64_t before = used();
  for (int i = 0; i < generations; ++i) generate(i);
  EXPECT_LT(used() - before, block) << "bytes more than before " << generations << " generations";
}

}  // namespace
}  // namespace speclab::on_device::decode_test
