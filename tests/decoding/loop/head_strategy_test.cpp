#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/model/heads/head_runner.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/model/heads/head_fixture.h"

// A strategy that drafts with a random head on hidden states of the target, as EAGLE does (Li et al. 2024):
// fc(embedding ++ state) -> a decoder layer with its own KV cache -> the target's output head. Its text and
// rows are those of autoregressive decoding bit for bit, and the states that it reads, of the prompt and of
// every step, are those of a fresh prefill of the text.

namespace speclab::head_strategy_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

constexpr int kHidden = 32;
constexpr int kWidth = 8;  // children of the pending token: some of them are accepted now and then

/// What the strategy saw of one sequence.
struct Seen {
  std::vector<std::vector<float>> states;  // by entry of Reads::hidden: [committed positions, hidden]
  std::vector<int> chunks;                 // where each piece of the prompt began
  std::size_t fetched = 0;                 // nodes of steps whose states came
};

class RandomHead final : public Strategy {
 public:
  static inline std::filesystem::path file;
  static inline Reads wanted;
  static inline bool plans = false;        // says that a device may run whole steps
  static inline std::map<int, Seen> seen;  // by slot

  explicit RandomHead(const Resources& resources) : resources_(resources) {
    const HeadFile head = HeadFile::open(file);
    Backend& backend = resources.target->backend();
    fc_ = head.linear(backend, "fc", {kHidden, kHidden}, kHidden, Bias::kPresent);
    const ModelConfig config = decoder_layers_of(resources.target->config());
    layer_ = head.decoder_layers(resources.target->shared_backend(), config, "layers.{}.");
    slots_.resize(static_cast<std::size_t>(resources.batch));
  }

  Reads reads() const override { return wanted; }
  std::optional<DevicePlan> device_plan(const SamplingParams&) const override {
    return plans ? std::optional(DevicePlan()) : std::nullopt;
  }

  void observe_prompt(const Sequence& sequence, const PromptStates& states) override {
    Slot& slot = slots_[static_cast<std::size_t>(sequence.slot)];
    Seen& seen_here = seen[sequence.slot];
    if (states.begin == 0) {
      seen_here = Seen();
      seen_here.states.resize(wanted.hidden.size());
      if (!slot.runner) slot.runner = resources_.open_heads();
      if (!slot.session) slot.session = resources_.open_session(*layer_);
      slot.session->rewind(0);
    }
    seen_here.chunks.push_back(states.begin);
    for (std::size_t i = 0; i < states.layers.size(); ++i)
      keep(seen_here, i, {states.layers[i], static_cast<std::size_t>(states.count * kHidden)});
  }
  void begin(const Sequence&) override {}

  void draft(std::span<const Sequence* const> sequences, std::span<Draft* const> drafts) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) draft_one(*sequences[i], *drafts[i]);
  }
  void observe(std::span<const Sequence* const> sequences, std::span<const Outcome> outcomes) override {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Seen& seen_here = seen[sequences[i]->slot];
      const Outcome& outcome = outcomes[i];
      for (int k = 0; k < outcome.emitted; ++k) {  // the committed nodes: the pending token, then the path
        const int node = k == 0 ? 0 : outcome.acceptance->path[static_cast<std::size_t>(k) - 1];
        for (std::size_t layer = 0; layer < wanted.hidden.size(); ++layer)
          keep(seen_here, layer, outcome.states.of(layer, node));
      }
      for (const std::int32_t row : outcome.states.row_of) seen_here.fetched += row >= 0;
    }
  }

 private:
  struct Slot {
    std::unique_ptr<HeadRunner> runner;
    std::unique_ptr<Session> session;  // position p holds the token at p + 1 and the state at p
    HeadRows embedded, state, x, y, logits;
  };

  static void keep(Seen& to, std::size_t layer, std::span<const float> states) {
    to.states[layer].insert(to.states[layer].end(), states.begin(), states.end());
  }

  // Runs the layer over x, and gives the logits behind its last row.
  std::vector<float> run(Slot& slot) const {
    const int rows = slot.x.rows();
    std::vector<std::int32_t> parents(static_cast<std::size_t>(rows));
    std::vector<int> path(parents.size());
    for (int i = 0; i < rows; ++i)
      parents[static_cast<std::size_t>(i)] = i - 1, path[static_cast<std::size_t>(i)] = i;
    const std::vector<std::int32_t> last{rows - 1};
    const Tap tap{kFinalNorm, slot.runner->room(slot.y, 1, kHidden), last, Memory::kBackend};
    Feed feed;
    feed.session = slot.session.get();
    feed.parents = parents;
    feed.embeddings = slot.x.data();
    feed.embeddings_in = Memory::kBackend;
    feed.taps = {&tap, 1};
    layer_->forward({&feed, 1});
    slot.session->commit(path);
    slot.runner->logits(slot.y, FinalNorm::kDone, slot.logits);
    std::vector<float> logits(static_cast<std::size_t>(slot.logits.width()));
    slot.runner->get(slot.logits, logits.data());
    return logits;
  }

  void draft_one(const Sequence& sequence, Draft& draft) {
    Slot& slot = slots_[static_cast<std::size_t>(sequence.slot)];
    const std::vector<float>& states = seen[sequence.slot].states.back();
    const int have = slot.session->length(), committed = static_cast<int>(sequence.tokens.size()) - 1;
    if (sequence.depth_limit < 2 || draft.tree.size() != 1) return;
    slot.runner->embed(TokenSpan(sequence.tokens).subspan(static_cast<std::size_t>(have) + 1), slot.embedded);
    slot.runner->put(states.data() + static_cast<std::size_t>(have * kHidden), committed - have, kHidden,
                     slot.state);
    slot.runner->linear(fc_, {&slot.embedded, &slot.state}, slot.x);
    const std::vector<float> first = run(slot);
    std::vector<Token> order(first.size());
    for (std::size_t t = 0; t < order.size(); ++t) order[t] = static_cast<Token>(t);
    std::ranges::stable_sort(order, [&](Token a, Token b) {
      return first[static_cast<std::size_t>(a)] > first[static_cast<std::size_t>(b)];
    });
    draft.source = "draft";
    for (int k = 0; k < kWidth; ++k) draft.add(order[static_cast<std::size_t>(k)], 0);
    // One token deeper: the layer's own output stands for the state that is not known yet.
    slot.runner->embed({&order[0], 1}, slot.embedded);
    slot.runner->linear(fc_, {&slot.embedded, &slot.y}, slot.x);
    const std::vector<float> second = run(slot);
    draft.add(static_cast<Token>(std::ranges::max_element(second) - second.begin()), 1);
    slot.session->rewind(committed);
  }

  Resources resources_;
  HeadLinear fc_;
  std::shared_ptr<const Model> layer_;
  std::vector<Slot> slots_;
};

const StrategyEntry kRandomHead =
    local_entry([](const void*, const Resources& resources) -> std::unique_ptr<Strategy> {
      return std::make_unique<RandomHead>(resources);
    });

class HeadStrategy : public testing::TestWithParam<const char*> {
 protected:
  HeadStrategy() {
    Tensors tensors = layer_tensors(random_llama(one_layer(), 21));
    std::mt19937_64 random(22);
    tensors["fc.weight"] = random_tensor(random, {kHidden, 2 * kHidden}, 0, .12);
    tensors["fc.bias"] = random_tensor(random, {kHidden}, 0, .1);
    RandomHead::file = dir_.path() / "head.safetensors";
    write_head(RandomHead::file, tensors);
    RandomHead::wanted = {.hidden = {0, 1, kFinalNorm}, .prompt = true};
    RandomHead::seen.clear();
    target_ = load_tiny_on(std::string(GetParam()) == "host-simt" ? make_cuda_backend({.simulated = true})
                                                                  : make_cpu_backend({2, GetParam()}),
                           random_llama(tiny_shape(), 20));
  }
  static Shape one_layer() {
    Shape shape = tiny_shape();
    shape.layers = 1;
    return shape;
  }
  Decode decode(bool with_head) const {
    return {.target = target_,
            .strategy = with_head ? StrategyChoice(kRandomHead) : choose("autoregressive"),
            .options = {{"max_tokens", tokens_}, {"temperature", 0}},
            .prompt = {5, 9, 2, 33, 7, 1, 60, 12, 8, 8, 41}};
  }
  bool on_device() const { return !target_->backend().host_memory(); }
  // Decodes three prompts together, and compares their texts, rows and states.
  void expect_states_in_a_batch(const char* device_loop) const {
    std::vector<Decode> decodes(3, decode(true));
    decodes[1].prompt = {1, 2, 3};
    decodes[2].prompt = {40, 3, 3, 3, 9, 10, 50};
    RandomHead::wanted.nodes = Reads::Nodes::kCommitted;
    LoopOptions options;
    options.batch = 3;
    options.capacity = 256;
    DecodeLoop loop(target_, nullptr, StrategyChoice(kRandomHead), options);
    std::vector<Request> requests;
    for (Decode& one : decodes) {
      one.options["device_loop"] = device_loop;
      requests.push_back(one.request());
    }
    const std::vector<GenerationRecord> records = loop.run(requests);
    const bool verifies = on_device() && std::string(device_loop) != "off";
    for (std::size_t i = 0; i < 3; ++i) {
      Decode alone = decode(false);
      alone.prompt = decodes[i].prompt;
      const GenerationRecord plain = alone.run();
      EXPECT_EQ(records[i].tokens, plain.tokens) << i;
      EXPECT_EQ(records[i].row_hashes, plain.row_hashes) << i;
      EXPECT_EQ(records[i].verified_steps, verifies ? static_cast<int>(records[i].steps.size()) : 0) << i;
      expect_states_of(alone.prompt, records[i], static_cast<int>(i));
    }
  }
  // All states of the text, from one fresh prefill.
  std::vector<std::vector<float>> states_of(const std::vector<Token>& text) const {
    std::vector<std::vector<float>> states(RandomHead::wanted.hidden.size());
    const PromptTaps taps{RandomHead::wanted.hidden, [&](const PromptStates& chunk) {
                            for (std::size_t i = 0; i < states.size(); ++i)
                              states[i].insert(states[i].end(), chunk.layers[i],
                                               chunk.layers[i] + chunk.count * kHidden);
                          }};
    target_->open(256)->prefill(text, nullptr, &taps);
    return states;
  }
  void expect_states_of(const std::vector<Token>& prompt, const GenerationRecord& record, int slot) const {
    std::vector<Token> text = prompt;
    text.insert(text.end(), record.tokens.begin(), record.tokens.end() - 1);  // the last one is never fed
    EXPECT_EQ(RandomHead::seen.at(slot).states, states_of(text)) << "slot " << slot;
  }

  TempDir dir_;
  std::shared_ptr<const Model> target_;
  int tokens_ = std::string(GetParam()) == "host-simt" ? 40 : 90;
};

TEST_P(HeadStrategy, ARandomHeadIsLossless) {
  const GenerationRecord plain = decode(false).run();
  for (const auto nodes : {Reads::Nodes::kAll, Reads::Nodes::kCommitted}) {
    RandomHead::wanted.nodes = nodes;
    const Decode with_head = decode(true);
    const GenerationRecord record = with_head.run();
    EXPECT_EQ(record.tokens, plain.tokens);
    EXPECT_EQ(record.row_hashes, plain.row_hashes);
    EXPECT_GT(total(record, &StepRecord::accepted), 0) << "the test shows nothing where nothing is accepted";
    expect_states_of(with_head.prompt, record, 0);
    // Only what was asked for came to the host.
    const double state = kHidden * sizeof(float) * 3;
    const auto steps = static_cast<double>(record.steps.size());
    const double committed = static_cast<double>(record.tokens.size()) - 1;
    const double all = steps + drafted(record);
    EXPECT_EQ(record.target.hidden_bytes, (nodes == Reads::Nodes::kAll ? all : committed) * state);
    EXPECT_EQ(static_cast<double>(RandomHead::seen.at(0).fetched),
              nodes == Reads::Nodes::kAll ? all : committed);
    EXPECT_EQ(record.target_prefill.hidden_bytes, static_cast<double>(with_head.prompt.size()) * state);
    EXPECT_EQ(plain.target.hidden_bytes, 0);
    const auto steps_and_drafts = record.target.calls + record.draft.calls;
    const auto later = nodes == Reads::Nodes::kAll ? 0 : static_cast<std::int64_t>(record.steps.size());
    EXPECT_EQ(record.round_trips, target_->backend().host_memory() ? 0 : steps_and_drafts + later);
    // The head's work is the draft's.
    EXPECT_GT(record.draft.keys, 0);        // of the decoder layer's session
    EXPECT_GT(record.draft.logit_rows, 0);  // of the modules
    EXPECT_EQ(record.draft_prefill.calls, 0);
    EXPECT_GT(record.observe_prompt_ns, 0);
    EXPECT_LE(record.observe_prompt_ns, record.draft_prefill_ns);
  }
}

TEST_P(HeadStrategy, PromptsComeInChunksAndTreesAsPrefixes) {
  const GenerationRecord plain = decode(false).run();
  Decode prefixes = decode(true);
  prefixes.loop.verify = VerifyWith::batch_of_prefixes;
  GenerationRecord record = prefixes.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  expect_states_of(prefixes.prompt, record, 0);
  Decode small = decode(true);
  small.loop.scratch = 10;
  record = small.run();
  EXPECT_EQ(RandomHead::seen.at(0).chunks, (std::vector<int>{0, 10}));
  EXPECT_EQ(record.tokens, plain.tokens);
  expect_states_of(small.prompt, record, 0);
}

TEST_P(HeadStrategy, SequencesOfABatchKeepTheirStates) { expect_states_in_a_batch("off"); }

// A device that verifies keeps the states of the step until the host fetches those that the strategy reads.
// Each step then waits twice: for the verdict and for the states.
TEST_P(HeadStrategy, ADeviceThatVerifiesHandsOverTheStates) {
  const GenerationRecord plain = decode(false).run();
  for (const auto nodes : {Reads::Nodes::kAll, Reads::Nodes::kCommitted}) {
    RandomHead::wanted.nodes = nodes;
    Decode with_head = decode(true);
    with_head.options["device_loop"] = "auto";
    with_head.options["device_graph"] = nodes == Reads::Nodes::kAll ? "off" : "round";
    const GenerationRecord record = with_head.run();
    EXPECT_EQ(record.tokens, plain.tokens);
    EXPECT_EQ(record.row_hashes, plain.row_hashes);
    EXPECT_GT(total(record, &StepRecord::accepted), 0) << "the test shows nothing where nothing is accepted";
    EXPECT_EQ(record.verified_steps, on_device() ? static_cast<int>(record.steps.size()) : 0);
    expect_states_of(with_head.prompt, record, 0);
    const auto steps = static_cast<std::int64_t>(record.steps.size());
    const double committed = static_cast<double>(record.tokens.size()) - 1,
                 all = static_cast<double>(steps) + drafted(record),
                 read = nodes == Reads::Nodes::kAll ? all : committed;
    EXPECT_EQ(record.target.hidden_bytes, read * kHidden * sizeof(float) * 3);
    EXPECT_EQ(static_cast<double>(RandomHead::seen.at(0).fetched), read);
    EXPECT_EQ(record.round_trips, on_device() ? 2 * steps + record.draft.calls : 0);
  }
}

TEST_P(HeadStrategy, ADeviceVerifiesTheSequencesOfABatch) {
  tokens_ = 16;
  expect_states_in_a_batch("auto");
}

// A prompt that another case has prefilled is prefilled again where its states are wanted.
TEST_P(HeadStrategy, SharedPrefillsDoNotHidePromptStates) {
  Decode first = decode(false), second = decode(true);
  first.loop.prefills = second.loop.prefills = std::make_shared<PrefillCache>();
  const GenerationRecord plain = first.run(), record = second.run();
  EXPECT_EQ(record.tokens, plain.tokens);
  EXPECT_EQ(record.row_hashes, plain.row_hashes);
  expect_states_of(second.prompt, record, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, HeadStrategy, testing::Values("f32", "host-simt"), [](const auto& info) {
  return std::string(info.param) == "f32" ? "cpu" : "host_simt";
});

// A device runs no whole steps of a strategy that reads states, because the strategy needs them in each step.
// It verifies the drafts. Several devices that share a tree have only parts of the states, and the error says
// so.
TEST_P(HeadStrategy, WaysOfVerifyingThatHaveNoStatesAreRefused) {
  tokens_ = 12;
  Decode planned = decode(true), divided = decode(true);
  const auto message = [](const Decode& decode) -> std::string {
    try {
      decode.run();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  planned.options["device_loop"] = "auto";
  RandomHead::plans = true;
  const GenerationRecord record = planned.run();
  RandomHead::plans = false;
  EXPECT_EQ(record.tokens, decode(false).run().tokens);
  EXPECT_EQ(record.planned_steps, 0);
  EXPECT_EQ(record.verified_steps, on_device() ? static_cast<int>(record.steps.size()) : 0);
  planned.options["device_loop"] = "on";
  EXPECT_THAT(message(planned), HasSubstr(on_device() ? "no error" : "backend cpu runs no steps by itself"));
  divided.loop.devices = 2;
  EXPECT_THAT(message(divided), HasSubstr("local reads hidden states"));
}

/// Drafts nothing. kExits: it declares early exits of the target. kStates: it declares that it reads hidden
/// states.
template <bool kExits, bool kStates>
struct Early final : Strategy {
  Reads reads() const override {
    Reads out;
    if (kStates) out.hidden = {1};
    return out;
  }
  TargetUse target_use() const override {
    return {.drafts = kExits, .exits = kExits ? std::vector<int>{1} : std::vector<int>()};
  }
  void begin(const Sequence&) override {}
  void draft(std::span<const Sequence* const>, std::span<Draft* const>) override {}
};

/// The error of the constructor of a decode loop with such a strategy.
template <bool kExits, bool kStates>
std::string error_of_early() {
  const StrategyEntry entry = local_entry([](const void*, const Resources&) -> std::unique_ptr<Strategy> {
    return std::make_unique<Early<kExits, kStates>>();
  });
  try {
    const DecodeLoop loop(tiny_target(), ModelPtr(), StrategyChoice(entry), {.capacity = 64});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(EarlyExits, AStrategyThatAlsoReadsHiddenStatesIsRefusedBeforeItRuns) {
  const std::string error = error_of_early<true, true>();
  EXPECT_THAT(error, HasSubstr("strategy local: got early exits of the target together with hidden states"));
  EXPECT_THAT(error, HasSubstr("Draft without early exits"));
  EXPECT_EQ((error_of_early<true, false>()), "no error");
  EXPECT_EQ((error_of_early<false, true>()), "no error");
}

// What was not asked for is not there, and asking for it is a bug that the message explains.
TEST(StepStates, WhoLooksAtHiddenStatesSaysSo) {
  const float row[] = {1, 2};
  const float* layers[] = {row};
  const std::int32_t row_of[] = {0, -1};
  const StepStates states{layers, row_of, 2};
  EXPECT_EQ(states.of(0, 0)[1], 2);
  EXPECT_THROW(states.of(0, 1), Bug);
  EXPECT_THROW(states.of(1, 0), Bug);
  EXPECT_THROW(StepStates().of(0, 0), Bug);
}

}  // namespace
}  // namespace speclab::head_strategy_test
