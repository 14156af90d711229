#include "core/model/net/taps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/backend/cuda_kernels.h"
#include "core/base/error.h"
#include "core/model/net/session.h"
#include "tests/model/files/model_files.h"
#include "tests/model/net/family_logits.h"

// Hidden states of every family on the CPU and on the simulated GPU: taps change no bit of the logits, a
// state has the same bits in a tree, a chain, a forward that continues another and a prompt in chunks, and
// the output head, the embedding and forwards from embeddings give the bits of whole forwards.
// tests/model/net/hidden_oracle_test.cpp compares the states with transformers.

namespace speclab::taps_test {
namespace {

using namespace speclab::fixtures;

struct Kind {
  const char* name;
  std::shared_ptr<Backend> (*make)();
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

using Case = std::tuple<Kind, std::string>;

class Taps : public testing::TestWithParam<Case> {
 protected:
  Taps()
      : model_(Model::load(Checkpoint::open(family_folder() / std::get<1>(GetParam())),
                           std::get<0>(GetParam()).make(), {})),
        hidden_(static_cast<std::size_t>(model_->config().hidden)),
        vocab_(static_cast<std::size_t>(model_->config().vocab)) {
    const std::vector<Token> all = family_tokens(std::get<1>(GetParam()));
    prompt_.assign(all.begin(), all.begin() + 11);
    for (int layer = kFinalNorm; layer <= model_->config().layers; ++layer) layers_.push_back(layer);
  }

  std::unique_ptr<Session> open(int scratch = 32) const {
    return model_->open(std::min(64, model_->config().context), scratch);
  }

  // States of each layer: [rows, hidden].
  using States = std::vector<std::vector<float>>;
  struct Result {
    std::vector<float> logits;
    States states;
  };
  std::vector<Tap> taps_into(States& states, std::size_t rows, std::span<const std::int32_t> nodes = {}) {
    states.assign(layers_.size(), std::vector<float>(rows * hidden_));
    std::vector<Tap> taps;
    for (std::size_t i = 0; i < layers_.size(); ++i) taps.push_back({layers_[i], states[i].data(), nodes});
    return taps;
  }
  // A forward with logits and taps of all nodes.
  Result forward(Session& session, TokenSpan tokens, std::span<const std::int32_t> parents,
                 bool continues = false) {
    Result out;
    out.logits.resize(tokens.size() * vocab_);
    std::vector<std::int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    const std::vector<Tap> taps = taps_into(out.states, tokens.size());
    Feed feed{&session, tokens, parents, rows, out.logits.data(), taps};
    feed.continues = continues;
    model_->forward({&feed, 1});
    return out;
  }
  PromptTaps prompt_taps(States& states, std::vector<int>* begins = nullptr) {
    states.assign(layers_.size(), {});
    return {layers_, [this, &states, begins](const PromptStates& chunk) {
              if (begins != nullptr) begins->push_back(chunk.begin);
              for (std::size_t i = 0; i < layers_.size(); ++i) {
                ASSERT_EQ(states[i].size(), static_cast<std::size_t>(chunk.begin) * hidden_);
                const float* from = chunk.layers[i];
                states[i].insert(states[i].end(), from,
                                 from + static_cast<std::size_t>(chunk.count) * hidden_);
              }
            }};
  }
  std::vector<float> row(const std::vector<float>& states, std::size_t index) const {
    const auto at = states.begin() + static_cast<std::ptrdiff_t>(index * hidden_);
    return {at, at + static_cast<std::ptrdiff_t>(hidden_)};
  }

  std::shared_ptr<const Model> model_;
  std::size_t hidden_, vocab_;
  std::vector<Token> prompt_;
  std::vector<int> layers_;  // all of them, kFinalNorm first
  const std::vector<Token> tree_{3, 7, 9, 4, 4, 1};
  const std::vector<std::int32_t> parents_{-1, 0, 0, 1, 2, 3};
};

TEST_P(Taps, ChangeNoLogitsAndAreRowInvariant) {
  const auto plain = open(), tapped = open();
  std::vector<float> prompt_logits(vocab_), with_taps(vocab_);
  States prompt_states;
  const PromptTaps taps = prompt_taps(prompt_states);
  plain->prefill(prompt_, prompt_logits.data());
  tapped->prefill(prompt_, with_taps.data(), &taps);
  EXPECT_EQ(prompt_logits, with_taps);

  std::vector<std::int32_t> rows(tree_.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> expected(tree_.size() * vocab_);
  plain->forward(tree_, parents_, rows, expected.data());
  const Result tree = forward(*tapped, tree_, parents_);
  EXPECT_EQ(tree.logits, expected);

  // Each path alone, token by token, in forwards that continue each other.
  for (std::size_t leaf : {std::size_t{4}, std::size_t{5}}) {
    std::vector<std::size_t> path;
    for (auto node = static_cast<std::int32_t>(leaf); node >= 0;
         node = parents_[static_cast<std::size_t>(node)])
      path.insert(path.begin(), static_cast<std::size_t>(node));
    const auto chain = open();
    chain->prefill(prompt_);
    for (std::size_t i = 0; i < path.size(); ++i) {
      const std::int32_t parent = static_cast<std::int32_t>(i) - 1;
      const Result one = forward(*chain, {&tree_[path[i]], 1}, {&parent, 1}, i > 0);
      for (std::size_t layer = 0; layer < layers_.size(); ++layer)
        EXPECT_EQ(one.states[layer], row(tree.states[layer], path[i])) << layers_[layer] << " " << path[i];
    }
  }

  // A prompt token by token.
  const auto steps = open();
  for (std::size_t i = 0; i < prompt_.size(); ++i) {
    const std::int32_t root = -1;
    const Result one = forward(*steps, {&prompt_[i], 1}, {&root, 1});
    steps->commit(std::vector<int>{0});
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      EXPECT_EQ(one.states[layer], row(prompt_states[layer], i)) << layers_[layer] << " " << i;
  }
}

TEST_P(Taps, PromptsComeChunkByChunk) {
  States whole, pieces;
  std::vector<int> begins;
  const PromptTaps of_whole = prompt_taps(whole), of_pieces = prompt_taps(pieces, &begins);
  open()->prefill(prompt_, nullptr, &of_whole);
  const auto session = open(4);
  session->prefill(prompt_, nullptr, &of_pieces);
  EXPECT_EQ(begins, (std::vector<int>{0, 4, 8}));
  EXPECT_EQ(whole, pieces);
  EXPECT_EQ(session->work().hidden_bytes,
            static_cast<double>(layers_.size() * prompt_.size() * hidden_ * sizeof(float)));
}

TEST_P(Taps, OfChosenNodesStayOnTheBackendUntilFetched) {
  const auto session = open();
  session->prefill(prompt_);
  const Result all = forward(*session, tree_, parents_);
  const std::vector<std::int32_t> nodes{4, 0, 2};
  States chosen;
  const std::vector<Tap> taps = taps_into(chosen, nodes.size(), nodes);
  const double before = session->work().hidden_bytes;
  session->forward(tree_, parents_, {}, nullptr, taps);
  const double row_bytes = static_cast<double>(hidden_ * sizeof(float));
  EXPECT_EQ(session->work().hidden_bytes - before, 3 * static_cast<double>(layers_.size()) * row_bytes);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const auto node = static_cast<std::size_t>(nodes[i]);
      EXPECT_EQ(row(chosen[layer], i), row(all.states[layer], node)) << layers_[layer] << " " << node;
    }
  }

  Buffer<float> kept = model_->backend().allocate_buffer<float>(tree_.size() * hidden_);
  const Tap stays{layers_.back(), kept.data(), {}, Memory::kBackend};
  const double counted = session->work().hidden_bytes;
  session->forward(tree_, parents_, {}, nullptr, {&stays, 1});
  EXPECT_EQ(session->work().hidden_bytes, counted);
  std::vector<float> fetched(nodes.size() * hidden_);
  session->fetch_states(kept.data(), nodes, fetched.data());
  EXPECT_EQ(fetched, chosen.back());
  EXPECT_EQ(session->work().hidden_bytes, counted + 3 * row_bytes);
}

TEST_P(Taps, TheHeadOnThemGivesTheLogits) {
  const auto session = open();
  session->prefill(prompt_);
  const Result all = forward(*session, tree_, parents_);
  const int n = static_cast<int>(tree_.size());
  std::vector<float> logits(all.logits.size());
  model_->head(all.states.front().data(), n, FinalNorm::kDone, logits.data());
  EXPECT_EQ(logits, all.logits);
  std::ranges::fill(logits, 0.f);
  model_->head(all.states.back().data(), n, FinalNorm::kApply, logits.data());
  EXPECT_EQ(logits, all.logits);
  const Work work = model_->head_work(n);
  EXPECT_EQ(work.logit_rows, n);
  EXPECT_EQ(work.calls, 0);
  EXPECT_EQ(work.flops, 2.0 * n * static_cast<double>(vocab_ * hidden_));
  EXPECT_EQ(work.weight_bytes, 2.0 * static_cast<double>(vocab_ * hidden_));
}

TEST_P(Taps, EmbeddingsInPlaceOfTokensGiveTheSameBits) {
  std::vector<float> embedded(tree_.size() * hidden_), of_prompt(prompt_.size() * hidden_);
  model_->embed(tree_, embedded.data());
  model_->embed(prompt_, of_prompt.data());
  const auto session = open(), from_embeddings = open(4);
  std::vector<float> last(vocab_), last_from_embeddings(vocab_);
  States states, states_from_embeddings;
  const PromptTaps taps = prompt_taps(states), other_taps = prompt_taps(states_from_embeddings);
  session->prefill(prompt_, last.data(), &taps);
  from_embeddings->prefill_embeddings(of_prompt.data(), static_cast<int>(prompt_.size()), Memory::kHost,
                                      last_from_embeddings.data(), &other_taps);
  EXPECT_EQ(last, last_from_embeddings);
  EXPECT_EQ(states, states_from_embeddings);
  if (model_->config().position_rows == 0) {
    EXPECT_EQ(states[1], of_prompt);
  }

  // Two sequences of tokens, and between them this one with the embeddings, in memory of host and backend.
  const auto with_tokens = forward(*open(), tree_, parents_);
  const Result expected = forward(*session, tree_, parents_);
  Buffer<float> there = model_->backend().allocate_buffer<float>(embedded.size());
  model_->backend().upload(embedded.data(), embedded.size() * sizeof(float), there.data());
  const auto first = open(), last_one = open();
  const std::vector<std::int32_t> rows{0, 5};
  std::vector<float> logits(3 * 2 * vocab_);
  for (const Memory memory : {Memory::kHost, Memory::kBackend}) {
    std::ranges::fill(logits, 0.f);
    States got;
    const std::vector<Tap> got_taps = taps_into(got, tree_.size());
    std::vector<Feed> feeds(3);
    for (std::size_t i = 0; i < 3; ++i) {
      feeds[i].tokens = tree_, feeds[i].parents = parents_, feeds[i].rows = rows;
      feeds[i].logits = logits.data() + i * 2 * vocab_;
    }
    feeds[0].session = first.get(), feeds[2].session = last_one.get();
    feeds[1].tokens = {};
    feeds[1].embeddings = memory == Memory::kHost ? embedded.data() : there.data();
    feeds[1].embeddings_in = memory;
    feeds[1].taps = got_taps;
    const auto larger = open();  // the other session has no room for so many rows in flight
    larger->copy(*from_embeddings);
    feeds[1].session = larger.get();
    model_->forward(feeds);
    EXPECT_EQ(got, expected.states);
    for (std::size_t i = 0; i < 3; ++i) {
      const Result& of = i == 1 ? expected : with_tokens;
      for (std::size_t r = 0; r < 2; ++r) {
        const auto node = static_cast<std::size_t>(rows[r]);
        EXPECT_TRUE(std::equal(of.logits.begin() + static_cast<std::ptrdiff_t>(node * vocab_),
                               of.logits.begin() + static_cast<std::ptrdiff_t>((node + 1) * vocab_),
                               logits.begin() + static_cast<std::ptrdiff_t>((i * 2 + r) * vocab_)))
            << i << " " << node;
      }
    }
  }
}

std::shared_ptr<Backend> cpu() { return make_cpu_backend({2, "f32"}); }
std::shared_ptr<Backend> cpu_kv16() { return make_cpu_backend({1, "f32-kv16"}); }
std::shared_ptr<Backend> simulated() { return make_cuda_backend({.simulated = true}); }
std::shared_ptr<Backend> persistent() {
  return make_cuda_backend({.simulated = true}, CudaKernels::kPersistent);
}

const auto kName = [](const auto& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
};
INSTANTIATE_TEST_SUITE_P(Cpu, Taps,
                         testing::Combine(testing::Values(Kind{"f32", cpu}, Kind{"kv16", cpu_kv16}),
                                          testing::Values("llama", "qwen3", "gpt2", "opt", "pythia", "gemma2",
                                                          "gemma3", "phi3", "mistral")),
                         kName);
INSTANTIATE_TEST_SUITE_P(HostSimt, Taps,
                         testing::Combine(testing::Values(Kind{"launches", simulated},
                                                          Kind{"persistent", persistent}),
                                          testing::Values("llama", "gpt2", "gemma2")),
                         kName);

// In a part of the model a layer keeps its number.
TEST(TapsOfLayers, CountTheLayersOfTheWholeModel) {
  const auto whole = Model::load(Checkpoint::open(family_folder() / "gemma3"), cpu(), {});
  const auto part = Model::with_layers(whole, {1});
  const std::vector<Token> token{5};
  const std::vector<std::int32_t> root{-1};
  const auto hidden = static_cast<std::size_t>(whole->config().hidden);
  const auto states_of = [&](const Model& model) {
    std::vector<std::vector<float>> states(4, std::vector<float>(hidden));
    std::vector<Tap> taps;
    for (int layer = 0; layer < 4; ++layer)
      taps.push_back({layer, states[static_cast<std::size_t>(layer)].data(), {}});
    model.open(8)->forward(token, root, {}, nullptr, taps);
    return states;
  };
  const auto of_part = states_of(*part), of_whole = states_of(*whole);
  EXPECT_EQ(of_part[0], of_whole[0]);
  EXPECT_EQ(of_part[1], of_part[0]);
  EXPECT_NE(of_part[2], of_part[1]);
  EXPECT_EQ(of_part[3], of_part[2]);
  EXPECT_NE(of_whole[1], of_whole[0]);
}

TEST(TapsOfLayers, RefuseLayersAndTokensThatAreNotThere) {
  const auto model = Model::load(Checkpoint::open(family_folder() / "llama"), cpu(), {});
  const std::vector<Token> token{5};
  const std::vector<std::int32_t> root{-1}, second{1};
  std::vector<float> out(static_cast<std::size_t>(model->config().hidden));
  const Tap layer{3, out.data(), {}}, node{0, out.data(), second};
  EXPECT_THROW(model->open(8)->forward(token, root, {}, nullptr, {&layer, 1}), std::logic_error);
  EXPECT_THROW(model->open(8)->forward(token, root, {}, nullptr, {&node, 1}), std::logic_error);
  EXPECT_THROW(model->embed(std::vector<Token>{model->config().vocab}, out.data()), Error);
}

// The states of several layers after a prompt, [layers][positions, hidden], and the first position of each
// chunk that they came in.
struct PromptRead {
  std::vector<std::vector<float>> states;
  std::vector<int> begins;
};
PromptRead read_prompt(const Model& model, const std::vector<Token>& prompt, const std::vector<int>& layers,
                       int scratch) {
  PromptRead out;
  out.states.resize(layers.size());
  const auto hidden = static_cast<std::size_t>(model.config().hidden);
  const PromptTaps taps{layers, [&](const PromptStates& chunk) {
                          ASSERT_EQ(chunk.layers.size(), layers.size());
                          out.begins.push_back(chunk.begin);
                          for (std::size_t i = 0; i < layers.size(); ++i) {
                            const float* from = chunk.layers[i];
                            out.states[i].insert(out.states[i].end(), from,
                                                 from + static_cast<std::size_t>(chunk.count) * hidden);
                          }
                        }};
  model.open(static_cast<int>(prompt.size()), scratch)->prefill(prompt, nullptr, &taps);
  return out;
}

std::vector<Token> some_prompt(std::size_t count, std::size_t vocab) {
  std::vector<Token> prompt(count);
  for (std::size_t i = 0; i < count; ++i) prompt[i] = static_cast<Token>((i * i * 7 + 3 * i) % vocab);
  return prompt;
}

// A prompt of two chunks of the usual size: the states of several layers are those of a single chunk, and of
// forwards of one token each.
TEST(TapsOfLayers, APromptOfTwoChunksIsThatOfSteps) {
  TempDir dir;
  write_huggingface(dir.path(), random_llama(tiny_shape(), 9));
  const std::vector<Token> prompt = some_prompt(150, 64);
  const std::vector<int> layers{0, 2, 1, kFinalNorm};
  for (const Kind& kind : {Kind{"f32", cpu}, Kind{"kv16", cpu_kv16}}) {
    SCOPED_TRACE(kind.name);
    const auto model = Model::load(Checkpoint::open(dir.path()), kind.make(), {});
    const auto hidden = static_cast<std::size_t>(model->config().hidden);
    const PromptRead two = read_prompt(*model, prompt, layers, 128),
                     one = read_prompt(*model, prompt, layers, 150);
    EXPECT_EQ(two.begins, (std::vector<int>{0, 128}));
    EXPECT_EQ(one.begins, std::vector<int>{0});
    EXPECT_EQ(two.states, one.states);

    std::vector<std::vector<float>> steps(layers.size());
    const auto session = model->open(150);
    const std::int32_t root = -1;
    for (const Token token : prompt) {
      std::vector<std::vector<float>> of_token(layers.size(), std::vector<float>(hidden));
      std::vector<Tap> taps;
      for (std::size_t i = 0; i < layers.size(); ++i) taps.push_back({layers[i], of_token[i].data(), {}});
      session->forward({&token, 1}, {&root, 1}, {}, nullptr, taps);
      session->commit(std::vector<int>{0});
      for (std::size_t i = 0; i < layers.size(); ++i)
        steps[i].insert(steps[i].end(), of_token[i].begin(), of_token[i].end());
    }
    EXPECT_EQ(two.states, steps);
    for (std::size_t i = 1; i < layers.size(); ++i) EXPECT_NE(steps[i], steps[i - 1]) << layers[i];
  }
}

// A library multiplies the rows of several chunks together, here 32 and then 18 of them.
TEST(TapsOfLayers, OfAPromptOfALibraryDoNotDependOnTheChunks) {
  const auto model = Model::load(Checkpoint::open(family_folder() / "llama"),
                                 make_cuda_backend({.simulated = true, .cublaslt = true}), {});
  const std::vector<Token> prompt = some_prompt(50, 112);
  std::vector<int> layers{kFinalNorm};
  for (int layer = 0; layer <= model->config().layers; ++layer) layers.push_back(layer);
  const PromptRead few = read_prompt(*model, prompt, layers, 7),
                   many = read_prompt(*model, prompt, layers, 50);
  EXPECT_EQ(few.begins, (std::vector<int>{0, 32}));
  EXPECT_EQ(few.states, many.states);
  std::vector<float> embedded(few.states[1].size());
  model->embed(prompt, embedded.data());
  EXPECT_EQ(few.states[1], embedded);
}

// A prompt whose products go through a library: the states are those that its logits come from.
TEST(TapsOfLayers, OfAPromptOfALibraryFitItsLogits) {
  const auto model = Model::load(Checkpoint::open(family_folder() / "llama"),
                                 make_cuda_backend({.simulated = true, .cublaslt = true}), {});
  std::vector<Token> prompt(50);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<Token>(i * 7 % 112);
  const auto hidden = static_cast<std::size_t>(model->config().hidden),
             vocab = static_cast<std::size_t>(model->config().vocab);
  std::vector<float> plain(vocab), tapped(vocab), from_state(vocab), states;
  model->open(60, 7)->prefill(prompt, plain.data());
  const int layers[] = {model->config().layers};
  const PromptTaps taps{layers, [&](const PromptStates& chunk) {
                          const float* from = chunk.layers[0];
                          states.insert(states.end(), from,
                                        from + static_cast<std::size_t>(chunk.count) * hidden);
                        }};
  model->open(60, 7)->prefill(prompt, tapped.data(), &taps);
  EXPECT_EQ(plain, tapped);
  ASSERT_EQ(states.size(), prompt.size() * hidden);
  model->head(states.data() + 49 * hidden, 1, FinalNorm::kApply, from_state.data());
  EXPECT_EQ(from_state, tapped);
}

}  // namespace
}  // namespace speclab::taps_test
