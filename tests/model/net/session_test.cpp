#include "core/model/net/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/backend/cpu/kernels.h"
#include "tests/model/files/model_files.h"
#include "tests/model/net/double_decoder.h"

namespace speclab::session_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

std::shared_ptr<const Model> load(const TinyModel& tiny, int threads = 2,
                                  std::shared_ptr<const Model> target = nullptr,
                                  const char* numerics = "f32") {
  TempDir dir;
  write_huggingface(dir.path(), tiny);
  return Model::load(Checkpoint::open(dir.path()), make_cpu_backend({threads, numerics}), {{}, target});
}

std::vector<Token> random_tokens(std::size_t count, int vocab, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(generator() % static_cast<unsigned>(vocab));
  return tokens;
}

std::vector<float> chain_logits(Session& session, TokenSpan tokens) {
  std::vector<std::int32_t> parents(tokens.size()), rows(tokens.size());
  std::iota(parents.begin(), parents.end(), -1);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(tokens.size() * static_cast<std::size_t>(session.model().config().head_rows()));
  session.forward(tokens, parents, rows, logits.data());
  return logits;
}

void expect_close(const std::vector<float>& logits, const std::vector<std::vector<double>>& expected) {
  double most = 0;
  for (const auto& row : expected)
    for (double value : row) most = std::max(most, std::abs(value));
  std::size_t at = 0;
  for (const auto& row : expected)
    for (double value : row) ASSERT_NEAR(logits[at++], value, 2e-5 * most);
  ASSERT_EQ(at, logits.size());
}

TEST(Forward, AgreesWithDoubleForEveryHeadAndEmbedding) {
  for (const bool tied : {false, true}) {
    Shape shape = tiny_shape();
    shape.tied_head = tied;
    if (tied) shape.head_dim = 12;  // not a multiple of the vector width
    const TinyModel tiny = random_llama(shape, 1);
    const auto model = load(tiny);
    const auto tokens = random_tokens(40, shape.vocab, 2);
    expect_close(chain_logits(*model->open(64), tokens), reference(tiny, tokens, {0, 1}));
    expect_close(chain_logits(*Model::with_layers(model, {1})->open(64), tokens),
                 reference(tiny, tokens, {1}));

    const TinyModel tiny_draft = random_llama(tiny_draft_shape(shape), 3);
    TempDir dir;
    write_huggingface(dir.path(), tiny_draft);
    const auto draft = Model::load(Checkpoint::open(dir.path()), make_cpu_backend({1, "f32"}), {{}, model});
    expect_close(chain_logits(*draft->open(64), tokens), reference(tiny_draft, tokens, {0}, &tiny));
  }
}

TEST(Forward, ATableGivesItsRows) {
  const std::vector<float> table{0.5f, -1, 2, 0, 1, -0.25f, 3, 0, -8};
  const auto model = load(markov_table(3, table));
  const auto session = model->open(8);
  const std::vector<Token> tokens{2, 0, 1};
  EXPECT_EQ(chain_logits(*session, tokens), (std::vector<float>{3, 0, -8, 0.5f, -1, 2, 0, 1, -0.25f}));
}

TEST(Forward, WeightsAreRoundedToBf16WhateverTheFile) {
  TinyModel tiny = random_llama(tiny_shape(), 23);
  for (auto& [name, tensor] : tiny.tensors) {
    for (float& value : tensor.values) value *= 1.001f;
  }
  TempDir dir;
  write_huggingface(dir.path(), tiny, {.dtype = "F32"});
  const auto wide = Model::load(Checkpoint::open(dir.path()), make_cpu_backend({1, "f32"}), {});
  const auto tokens = random_tokens(9, 64, 24);
  EXPECT_EQ(chain_logits(*wide->open(16), tokens), chain_logits(*load(tiny)->open(16), tokens));
}

// Compares the cache with a fresh prefill bit for bit, after random trees, commits, rewinds and forks.
TEST(Session, EqualsRePrefillUnderRandomOperations) {
  Shape shape = tiny_shape();
  shape.head_dim = 12;  // not a multiple of the vector width
  for (const char* numerics : {"f32", "f32-kv16"}) {
    const auto model = load(random_llama(shape, 4), 2, nullptr, numerics);
    const auto one_thread = load(random_llama(shape, 4), 1, nullptr, numerics);
    const auto vocab = static_cast<std::size_t>(shape.vocab);
    std::mt19937 random(5);
    std::vector<Token> text = random_tokens(9, shape.vocab, 6);
    auto session = model->open(200);
    session->prefill(text);
    for (int step = 0; step < 60; ++step) {
      const int n = 1 + static_cast<int>(random() % 12);
      const auto tokens = random_tokens(static_cast<std::size_t>(n), shape.vocab, random());
      std::vector<std::int32_t> parents{-1}, rows;
      for (int i = 1; i < n; ++i)
        parents.push_back(static_cast<int>(random() % static_cast<unsigned>(i + 1)) - 1);
      for (int i = 0; i < n; ++i)
        if (random() % 2) rows.push_back(i);
      std::vector<float> logits(rows.size() * vocab);
      session->forward(tokens, parents, rows, logits.data());
      for (std::size_t r = 0; r < rows.size(); ++r) {
        std::vector<Token> sequence;
        for (int node = rows[r]; node >= 0; node = parents[static_cast<std::size_t>(node)])
          sequence.insert(sequence.begin(), tokens[static_cast<std::size_t>(node)]);
        sequence.insert(sequence.begin(), text.begin(), text.end());
        const auto fresh = one_thread->open(200, 7);  // another chunk size too
        std::vector<float> expected(vocab);
        fresh->prefill(sequence, expected.data());
        ASSERT_EQ(0, std::memcmp(expected.data(), logits.data() + r * vocab, vocab * sizeof(float)))
            << numerics << " step " << step << " row " << rows[r];
      }
      if (random() % 4 == 0) session = session->fork();
      std::vector<int> path;
      for (int node = static_cast<int>(random() % static_cast<unsigned>(n)); node >= 0;
           node = parents[static_cast<std::size_t>(node)])
        path.insert(path.begin(), node);
      if (text.size() + path.size() > 60) {
        text.resize(5 + random() % 20);
        session->rewind(static_cast<int>(text.size()));
      } else if (random() % 8 != 0) {
        session->commit(path);
        for (const int node : path) text.push_back(tokens[static_cast<std::size_t>(node)]);
      }
      ASSERT_EQ(session->length(), static_cast<int>(text.size()));
    }
  }
}

TEST(Session, SequencesOfABatchDoNotTouchEachOther) {
  const TinyModel tiny = random_llama(tiny_shape(), 7);
  const auto model = load(tiny);
  const auto a = random_tokens(5, 64, 8), b = random_tokens(17, 64, 9);
  auto first = model->open(64), second = model->open(64);
  const auto alone_a = chain_logits(*first, a), alone_b = chain_logits(*second, b);
  std::vector<std::int32_t> parents(17), rows_a{1, 4}, rows_b{16};
  std::iota(parents.begin(), parents.end(), -1);
  std::vector<float> got_a(2 * 64), got_b(64), hidden_a(2 * 32), hidden_b(32), hidden_alone(32);
  const Tap tap_a{.out = hidden_a.data(), .nodes = rows_a}, tap_b{.out = hidden_b.data(), .nodes = rows_b},
      tap_alone{.out = hidden_alone.data(), .nodes = rows_b};
  second->forward(b, parents, rows_b, got_b.data(), {&tap_alone, 1});
  const std::vector<Feed> feeds{
      {first.get(), a, std::span(parents).first(5), rows_a, got_a.data(), {&tap_a, 1}},
      {second.get(), b, parents, rows_b, got_b.data(), {&tap_b, 1}}};
  model->forward(feeds);
  EXPECT_EQ(0, std::memcmp(got_a.data(), alone_a.data() + 64, 64 * sizeof(float)));
  EXPECT_EQ(0, std::memcmp(got_a.data() + 64, alone_a.data() + 4 * 64, 64 * sizeof(float)));
  EXPECT_EQ(0, std::memcmp(got_b.data(), alone_b.data() + 16 * 64, 64 * sizeof(float)));
  EXPECT_EQ(hidden_b, hidden_alone);
  const std::vector<float>& head = tiny.tensors.at("head").values;
  for (std::size_t token = 0; token < 64; ++token) {  // the input of the head
    EXPECT_NEAR(std::inner_product(hidden_b.begin(), hidden_b.end(),
                                   head.begin() + static_cast<std::ptrdiff_t>(32 * token), 0.0),
                got_b[token], 1e-4);
  }
}

std::vector<float> largest_of_blocks(const std::vector<float>& logits, int rows) {
  const std::size_t width = logits.size() / static_cast<std::size_t>(rows);
  std::vector<float> out;
  for (auto row = logits.begin(); row != logits.end(); row += static_cast<std::ptrdiff_t>(width)) {
    for (std::size_t i = 0; i < width; i += kMaximumOf)
      out.push_back(*std::max_element(row + static_cast<std::ptrdiff_t>(i),
                                      row + static_cast<std::ptrdiff_t>(std::min(width, i + kMaximumOf))));
  }
  return out;
}

TEST(Session, MaximaOfLogitsGoToThoseWhoAsk) {
  Shape shape = tiny_shape();
  shape.vocab = 150;
  const auto model = load(random_llama(shape, 7));
  auto first = model->open(64), second = model->open(64), third = model->open(64);
  const auto tokens = random_tokens(5, 64, 8), others = random_tokens(5, 64, 9);
  const std::vector<std::int32_t> parents{-1, 0, 0, 1, 3}, two{1, 4}, one{2};
  std::vector<float> a(2 * 150), b(150), c(2 * 150), of_a{1}, of_c{2}, of_none{3};
  const std::vector<Feed> feeds{{first.get(), tokens, parents, two, a.data(), {}, &of_a},
                                {second.get(), tokens, parents, one, b.data()},
                                {third.get(), others, parents, two, c.data(), {}, &of_c}};
  model->forward(feeds);
  EXPECT_EQ(of_a, largest_of_blocks(a, 2));
  EXPECT_EQ(of_c, largest_of_blocks(c, 2));
  const Feed alone{second.get(), tokens, parents, two, c.data(), {}, &of_c};
  model->forward({&alone, 1});
  EXPECT_EQ(of_c, largest_of_blocks(c, 2));
  const Feed nothing{second.get(), tokens, parents, {}, nullptr, {}, &of_none};
  model->forward({&nothing, 1});
  EXPECT_TRUE(of_none.empty());
}

// There are no maxima if they would not match the logits.
TEST(Session, NoMaximaOfWhatIsNoPlainProduct) {
  const auto maxima = [](const std::shared_ptr<const Model>& model) {
    auto session = model->open(32);
    const std::vector<Token> token{1};
    const std::vector<std::int32_t> parent{-1}, row{0};
    std::vector<float> logits(static_cast<std::size_t>(model->config().vocab)), out(9);
    const Feed feed{session.get(), token, parent, row, logits.data(), {}, &out};
    model->forward({&feed, 1});
    return out;
  };
  const TinyModel tiny = random_llama(tiny_shape(), 7);
  EXPECT_EQ(maxima(load(tiny)).size(), 1u);
  TempDir dir;
  write_huggingface(dir.path(), tiny);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  EXPECT_TRUE(maxima(Model::load(checkpoint, make_cuda_backend({.simulated = true}), {})).empty());
  const auto gemma =
      Checkpoint::open(std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/families/gemma2");
  const auto soft = Model::load(gemma, make_cpu_backend({1, "f32"}), {});
  ASSERT_GT(soft->config().logit_soft_cap, 0);
  EXPECT_TRUE(maxima(soft).empty());
  Checkpoint twin = Checkpoint::open(dir.path());
  twin.inflate({.vocab = 100});
  EXPECT_TRUE(maxima(Model::load(twin, make_cpu_backend({1, "f32"}), {})).empty());
}

TEST(Session, CountsItsWork) {
  const auto model = load(random_llama(tiny_shape(), 10));
  const auto session = model->open(64);
  session->prefill(random_tokens(10, 64, 11));
  const Work before = session->work();
  EXPECT_EQ(before.calls, 1);
  EXPECT_EQ(before.rows, 10);
  EXPECT_EQ(before.logit_rows, 0);
  EXPECT_EQ(before.keys, 55);
  chain_logits(*session, random_tokens(3, 64, 12));
  const Work step = session->work() - before;
  // hidden 32, q 32, kv 16, ffn 64, 2 layers, head 64 x 32; keys 11 + 12 + 13.
  constexpr double kBody = 2 * (32 * (2 * 32 + 2 * 16) + 3 * 32 * 64), kHead = 64 * 32;
  EXPECT_EQ(step.keys, 36);
  EXPECT_DOUBLE_EQ(step.flops, 2 * 3 * (kBody + kHead) + 4.0 * 2 * 32 * 36);
  EXPECT_DOUBLE_EQ(step.weight_bytes, 2 * (kBody + kHead));
  EXPECT_DOUBLE_EQ(step.kv_bytes, 2.0 * 2 * 16 * 4 * (10 + 3 + 3));

  const Work chain = session->work();
  session->forward(random_tokens(3, 64, 12), std::vector<std::int32_t>{-1, 0, 0}, {}, nullptr);
  EXPECT_EQ((session->work() - chain).keys, 11 + 12 + 12);  // siblings do not see each other

  const auto chunks = model->open(64, 7);
  std::vector<float> logits(64);
  chunks->prefill(random_tokens(10, 64, 11), logits.data());
  EXPECT_EQ(chunks->work().calls, 2);
  EXPECT_EQ(chunks->work().logit_rows, 1);  // of the last token alone
}

TEST(Session, RefusesWhatDoesNotFit) {
  const auto model = load(random_llama(tiny_shape(), 13));
  EXPECT_THROW(model->open(257), Error);  // context 256
  const auto session = model->open(256);
  EXPECT_THROW(session->prefill(random_tokens(257, 64, 14)), Error);
  session->prefill(random_tokens(255, 64, 15));
  EXPECT_THROW(chain_logits(*session, random_tokens(2, 64, 16)), Error);  // position 256
  EXPECT_NO_THROW(chain_logits(*session, random_tokens(1, 64, 16)));
  EXPECT_THROW(chain_logits(*session, std::vector<Token>{64}), Error);
  EXPECT_THROW(chain_logits(*session, std::vector<Token>{-1}), Error);

  const auto small = model->open(8, 4);  // less than the context
  EXPECT_THROW(small->prefill(random_tokens(9, 64, 14)), Error);
  small->prefill(random_tokens(7, 64, 14));
  EXPECT_THROW(chain_logits(*small, random_tokens(5, 64, 14)), Bug);  // room for 4 in flight
  chain_logits(*small, random_tokens(2, 64, 14));
  EXPECT_THROW(small->commit(std::vector<int>{0, 1}), Bug);
  small->commit(std::vector<int>{0});
  EXPECT_EQ(small->length(), 8);
}

// The first feed is in order. The second one has a token that does not exist, or one beyond the context.
TEST(Session, AForwardThatIsRefusedLeavesNoRowsInFlight) {
  Shape shape = tiny_shape();
  shape.context = 10;
  const auto model = load(random_llama(shape, 17));
  const auto first = model->open(10, 8), second = model->open(10, 8);
  first->prefill(std::vector<Token>{1, 2, 3});
  second->prefill(std::vector<Token>{1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<Token> tree{4, 5, 6};
  first->forward(tree, std::vector<std::int32_t>{-1, 0, 0}, {}, nullptr);
  const std::vector<Token> good{7}, wrong{9, shape.vocab, 9}, chain{9, 9, 9};
  const std::vector<std::int32_t> child{2}, of_chain{-1, 0, 1};
  for (const std::vector<Token>& tokens : {wrong, chain}) {
    const std::int64_t calls = first->work().calls + second->work().calls;
    std::vector<Feed> feeds{{first.get(), good, child, {}}, {second.get(), tokens, of_chain, {}}};
    feeds[0].continues = true;
    EXPECT_THROW(model->forward(feeds), Error);
    EXPECT_EQ(first->in_flight(), 3);
    EXPECT_EQ(second->in_flight(), 0);
    EXPECT_EQ(first->work().calls + second->work().calls, calls) << "nothing ran";
  }
  // Rows that are not deeper fit, however many they are. A row below them does not.
  const std::vector<Token> wide{1, 2, 3, 4};
  EXPECT_NO_THROW(second->forward(wide, std::vector<std::int32_t>{-1, 0, 0, -1}, {}, nullptr));
  std::vector<Feed> below{{second.get(), good, child, {}}};
  below[0].continues = true;
  EXPECT_THROW(model->forward(below), Error);
  EXPECT_EQ(second->in_flight(), 4);
  // The tree of the first session can still be committed. Its cache is that of a fresh prefill.
  first->commit(std::vector<int>{0, 2});
  const auto fresh = model->open(10, 8);
  fresh->prefill(std::vector<Token>{1, 2, 3, 4, 6});
  EXPECT_EQ(chain_logits(*first, good), chain_logits(*fresh, good));
}

TEST(Session, CommitTakesOnlyAPathFromARoot) {
  const auto model = load(random_llama(tiny_shape(), 17));
  const auto session = model->open(64);
  const std::vector<Token> tokens{1, 2, 3};
  session->forward(tokens, std::vector<std::int32_t>{-1, 0, 0}, {}, nullptr);
  EXPECT_THROW(session->commit(std::vector<int>{1}), Bug);
  EXPECT_THROW(session->commit(std::vector<int>{0, 1, 2}), Bug);
  EXPECT_THROW(session->commit(std::vector<int>{0, 3}), Bug);
  session->commit(std::vector<int>{0, 2});
  EXPECT_EQ(session->length(), 2);
  EXPECT_THROW(session->commit(std::vector<int>{0}), Bug);  // nothing in flight any more
  EXPECT_THROW(session->rewind(3), Bug);
  session->forward(tokens, std::vector<std::int32_t>{-1, 0, 0}, {}, nullptr);
  session->rewind(1);
  EXPECT_EQ(session->length(), 1);
  EXPECT_THROW(session->commit(std::vector<int>{0}), Bug);  // it belonged to the longer sequence
}

TEST(Model, RefusesADraftOfAnotherTarget) {
  const TinyModel target = random_llama(tiny_shape(), 18), other = random_llama(tiny_shape(), 19);
  TinyModel draft = random_llama(tiny_draft_shape(tiny_shape()), 20);
  const auto right = load(target), wrong = load(other);
  draft.config.target_embedding_sha256 = right->embedding_sha256();
  EXPECT_NO_THROW(load(draft, 1, right));
  EXPECT_THROW(load(draft, 1, wrong), Error);
  EXPECT_THROW(load(draft, 1, nullptr), Error);
  Shape larger = tiny_shape();
  larger.vocab = 66;
  EXPECT_THROW(load(random_llama(larger, 21), 1, right), Error);  // another vocabulary
  Shape narrower = tiny_draft_shape(tiny_shape());
  narrower.embedding_dim = 16;
  EXPECT_THROW(load(random_llama(narrower, 23), 1, right), Error);  // the target's rows have 32
}

TEST(Model, TheHashOfAnEmbeddingIsThatOfItsBf16Bytes) {
  const TinyModel tiny = random_llama(tiny_shape(), 18);
  EXPECT_EQ(load(tiny)->embedding_sha256(),
            sha256_hex(encode(tiny.tensors.at("token_embedding").values, "BF16")));
}

TEST(Model, RefusesADraftOfAnotherTokenizer) {
  Shape shape = tiny_shape();
  shape.vocab = kByteVocab;
  const auto load_with_tokenizer = [](const TinyModel& tiny, std::shared_ptr<const Model> target) {
    TempDir dir;
    write_huggingface(dir.path(), tiny);
    write_byte_tokenizer(dir.path());
    return Model::load(Checkpoint::open(dir.path()), make_cpu_backend({1, "f32"}), {{}, target});
  };
  const auto target = load_with_tokenizer(random_llama(shape, 24), nullptr);
  ASSERT_EQ(target->tokenizer_sha256().size(), 64u);
  TinyModel draft = random_llama(tiny_draft_shape(shape), 25);
  EXPECT_NO_THROW(load(draft, 1, target));
  EXPECT_NO_THROW(load_with_tokenizer(draft, target));
  draft.config.target_tokenizer_sha256 = target->tokenizer_sha256();
  EXPECT_NO_THROW(load(draft, 1, target));
  draft.config.target_tokenizer_sha256 = std::string(64, '0');
  EXPECT_THROW(load(draft, 1, target), Error);
  EXPECT_THROW(load_with_tokenizer(draft, target),
               Error);  // bound to the tokenizer of its training, not to the file beside it
}

TEST(Model, SaysWhichTokenIdsOfADraftDisagree) {
  Shape shape = tiny_shape();
  shape.vocab = kByteVocab + 2;  // two rows more than tokens
  const auto load_with = [&](std::uint64_t seed, const std::function<void(Json&)>& change,
                             std::shared_ptr<const Model> target) {
    TempDir dir;
    write_huggingface(dir.path(), random_llama(shape, seed));
    write_byte_tokenizer(dir.path());
    std::ifstream file(dir.path() / "tokenizer.json");
    Json tokenizer = Json::parse(file);
    file.close();
    change(tokenizer);
    write_file(dir.path() / "tokenizer.json", tokenizer.dump());
    return Model::load(Checkpoint::open(dir.path()), make_cpu_backend({1, "f32"}), {{}, target});
  };
  const auto same = [](Json&) {};
  const auto target = load_with(26, same, nullptr);
  EXPECT_NO_THROW(load_with(27, same, target));
  // Other merges, and another token in a row for which the target has none: the ids agree, the files differ.
  const auto other_file = [](Json& json) {
    for (const Json& token : json["added_tokens"])
      json["model"]["vocab"][token["content"].get<std::string>()] = token["id"];
    json["model"]["vocab"]["ab"] = kByteVocab;
    json["model"]["merges"] = Json::array({"a b"});
  };
  EXPECT_NO_THROW(load_with(28, other_file, target));
  const auto swap = [](Json& json) {
    Json& vocab = json["model"]["vocab"];
    std::swap(vocab["a"], vocab["b"]);
    std::swap(vocab["\""], vocab["y"]);
  };
  try {
    load_with(29, swap, target);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("tokenizer of the draft: got 4 token ids (of 258 compared) that stand for other "
                          "tokens: 34 is \"y\" in the draft "
                          "and \"\\\"\" in the target, 97 is \"b\" in the draft and \"a\" in the target, "));
    EXPECT_THAT(error.what(), HasSubstr(", ..., expected the tokens of its target"));
  }
}

TEST(Model, ADraftMayBePaddedOtherwiseThanItsTarget) {
  const auto load_with = [](int vocab, bool tied, bool tokenizer, std::shared_ptr<const Model> target) {
    Shape shape = tiny_shape();
    shape.vocab = kByteVocab + 8;
    shape.tied_head = tied;
    TinyModel model = random_llama(shape, 31);
    model.config.vocab = vocab;  // the same token rows, with more or fewer rows after them
    for (auto& [name, tensor] : model.tensors) {
      if (tensor.shape[0] != shape.vocab) continue;
      tensor.shape[0] = vocab;
      tensor.values.resize(static_cast<std::size_t>(vocab * shape.hidden), .5f);
    }
    TempDir dir;
    write_huggingface(dir.path(), model);
    if (tokenizer) write_byte_tokenizer(dir.path());
    return Model::load(Checkpoint::open(dir.path()), make_cpu_backend({1, "f32"}), {{}, target});
  };
  const auto rows_of = [](const Model& model) {
    const auto session = model.open(16, 8);
    const std::vector<Token> prompt{3, 70, 9};
    session->prefill(prompt);
    std::vector<float> logits(static_cast<std::size_t>(model.config().vocab));
    session->forward(std::vector<Token>{5}, std::vector<std::int32_t>{-1}, std::vector<std::int32_t>{0},
                     logits.data());
    return logits;
  };
  for (const bool tied : {true, false}) {
    const auto target = load_with(kByteVocab + 4, tied, true, nullptr);
    const std::vector<float> expected = rows_of(*target);
    for (const int vocab : {kByteVocab, kByteVocab + 2, kByteVocab + 8}) {
      const auto draft = load_with(vocab, tied, true, target);
      const std::vector<float> got = rows_of(*draft);
      ASSERT_EQ(got.size(), expected.size());
      for (int id = 0; id < target->config().vocab; ++id)
        EXPECT_EQ(got[static_cast<std::size_t>(id)],
                  id < vocab ? expected[static_cast<std::size_t>(id)] : -INFINITY)
            << vocab << " " << id;
    }
    EXPECT_THROW(load_with(kByteVocab - 1, tied, true, target), Error);   // a token is missing
    EXPECT_THROW(load_with(kByteVocab + 2, tied, false, target), Error);  // the extra rows have no meaning
  }
}

TEST(Model, RefusesLayersThatItDoesNotHave) {
  const auto model = load(random_llama(tiny_shape(), 22));
  EXPECT_THROW(Model::with_layers(model, {}), Error);
  EXPECT_THROW(Model::with_layers(model, {2}), Error);
  EXPECT_THROW(Model::with_layers(model, {1, 0}), Error);
  EXPECT_EQ(Model::with_layers(model, {0})->layers().size(), 1u);
}

}  // namespace
}  // namespace speclab::session_test
