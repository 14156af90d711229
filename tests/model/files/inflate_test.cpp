// An inflated model computes the same function as its original, with the bytes and operations of its own
// shape.
#include "core/model/files/inflate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/error.h"
#include "core/model/net/rope_table.h"
#include "core/model/net/session.h"
#include "tests/model/files/model_files.h"
#include "tests/model/net/target_model.h"

namespace speclab::inflate_test {
namespace {

namespace fs = std::filesystem;
using namespace speclab::fixtures;
using ::testing::HasSubstr;

using ModelPtr = std::shared_ptr<const Model>;

ModelPtr load(const fs::path& path, const InflateShape& shape = {}, ModelPtr target = nullptr,
              std::shared_ptr<Backend> backend = nullptr) {
  Checkpoint checkpoint = Checkpoint::open(path);
  if (shape.any()) checkpoint.inflate(shape);
  return Model::load(checkpoint, backend ? backend : make_cpu_backend({2, "f32"}), {{}, std::move(target)});
}

std::vector<Token> some_tokens(int count, int vocab) {
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<Token>((i * i * 7 + 3) % static_cast<std::size_t>(vocab));
  return tokens;
}

/// Logits of the first `vocab` ids after every token: a prefill of the first half, then single steps.
/// [tokens, vocab]
std::vector<float> logits_of(const Model& model, const std::vector<Token>& tokens, int vocab) {
  const auto width = static_cast<std::size_t>(model.config().head_rows());
  const auto session = model.open(static_cast<int>(tokens.size()), 32);
  const TokenSpan all(tokens);
  std::vector<float> row(width), out;
  for (std::size_t at = 0; at < tokens.size();) {
    const std::size_t count = at == 0 ? tokens.size() / 2 : 1;
    session->prefill(all.subspan(at, count), row.data());
    out.insert(out.end(), row.begin(), row.begin() + vocab);
    at += count;
  }
  return out;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float most = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::isfinite(b[i]) ? std::abs(a[i] - b[i]) : INFINITY);
    largest = std::max(largest, std::abs(a[i]));
  }
  return a.size() == b.size() ? most / largest : INFINITY;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The original: hidden 32, 2 layers, 4 heads of 8 with 2 key/value heads, feed-forward 64, 64 tokens. All
// shapes have four times the channels, so that norms multiply by powers of two and every float must be the
// same.
const InflateShape kExactShapes[] = {
    {.hidden = 128},
    {.layers = 7},
    {.heads = 8},                 // more heads on each key/value head
    {.heads = 6, .kv_heads = 3},  // more groups of the same size
    {.heads = 8, .kv_heads = 8},  // no groups: the original key/value heads are repeated
    {.heads = 15, .kv_heads = 5},
    {.head_dim = 20},
    {.ffn = 101},
    {.vocab = 99},
    {.hidden = 128, .layers = 5, .heads = 12, .kv_heads = 4, .head_dim = 16, .ffn = 200, .vocab = 80},
};

TEST(Inflate, LogitsAreBitForBitThoseOfTheOriginal) {
  for (const bool tied : {false, true}) {
    TempDir dir;
    Shape shape = tiny_shape();
    shape.tied_head = tied;
    write_tiny_llama(dir.path(), shape, 3);
    const std::vector<Token> tokens = some_tokens(40, shape.vocab);
    const std::vector<float> expected = logits_of(*load(dir.path()), tokens, shape.vocab);
    for (const InflateShape& to : kExactShapes) {
      const std::vector<float> got = logits_of(*load(dir.path(), to), tokens, shape.vocab);
      EXPECT_TRUE(same_bits(expected, got))
          << "hidden " << to.hidden << ", heads " << to.heads << ", kv " << to.kv_heads << ", head_dim "
          << to.head_dim << ", layers " << to.layers << ": " << largest_difference(expected, got);
    }
  }
}

TEST(Inflate, OtherWidthsAreWithinRounding) {
  TempDir dir;
  write_tiny_llama(dir.path(), tiny_shape(), 4);
  const std::vector<Token> tokens = some_tokens(40, 64);
  const std::vector<float> expected = logits_of(*load(dir.path()), tokens, 64);
  for (const int hidden : {33, 50, 96}) {
    EXPECT_LT(
        largest_difference(expected, logits_of(*load(dir.path(), {.hidden = hidden, .ffn = 70}), tokens, 64)),
        1e-5f)
        << hidden;
  }
}

TEST(Inflate, EveryFamilyKeepsItsFunction) {
  int wide = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(SPECLAB_SOURCE_DIR) / "tests/golden/families")) {
    const ModelPtr original = load(entry.path());
    const ModelConfig& c = original->config();
    InflateShape to{.layers = 2 * c.layers + 1,
                    .heads = 3 * c.heads,
                    .kv_heads = 3 * c.kv_heads,
                    .head_dim = c.head_dim + 6,
                    .ffn = c.ffn + 9,
                    .vocab = c.vocab + 5};
    if (c.norm == NormKind::kRms) to.hidden = c.hidden + 10, ++wide;
    const std::vector<Token> tokens = some_tokens(std::min(40, c.context), c.vocab);
    EXPECT_LT(largest_difference(logits_of(*original, tokens, c.vocab),
                                 logits_of(*load(entry.path(), to), tokens, c.vocab)),
              2e-5f)
        << entry.path();
  }
  EXPECT_GE(wide, 10);
}

TEST(Inflate, AddedIdsAreMaskedAndAddedWeightsAreNoZeros) {
  TempDir dir;
  write_tiny_llama(dir.path(), tiny_shape(), 5);
  const InflateShape to{
      .hidden = 48, .layers = 3, .heads = 6, .kv_heads = 3, .head_dim = 12, .ffn = 80, .vocab = 70};
  const ModelPtr twin = load(dir.path(), to);
  std::vector<float> row(70);
  twin->open(8, 8)->prefill(some_tokens(5, 64), row.data());
  for (int id = 0; id < 70; ++id) EXPECT_EQ(std::isfinite(row[static_cast<std::size_t>(id)]), id < 64) << id;
  EXPECT_EQ(row[69], -INFINITY);
  EXPECT_EQ(twin->config().tokens(), 64);

  Checkpoint checkpoint = Checkpoint::open(dir.path());
  checkpoint.inflate(to);
  const auto zeros = [&](const std::string& name, std::int64_t rows, std::int64_t columns, int from_row,
                         int from_column) {
    std::vector<Bf16> values(static_cast<std::size_t>(rows * columns)),
        again(static_cast<std::size_t>(columns));
    checkpoint.read_bf16(name, 0, rows, values.data());
    checkpoint.read_bf16(name, rows - 1, rows, again.data());
    EXPECT_TRUE(std::equal(again.begin(), again.end(), values.end() - columns))
        << name << ": another number the second time";
    int count = 0;
    for (std::int64_t r = from_row; r < rows; ++r) {
      for (std::int64_t c = from_column; c < columns; ++c)
        count += values[static_cast<std::size_t>(r * columns + c)] == 0;
    }
    return count;
  };
  for (const char* layer : {"layers.0.", "layers.1.", "layers.2."}) {  // 0 and 1 are the original ones
    const std::string at = layer;
    EXPECT_EQ(zeros(at + "attn_q", 72, 48, 0, 32), 0);  // added input columns
    EXPECT_EQ(zeros(at + "attn_q", 72, 48, 48, 0), 0);  // the added group
    EXPECT_EQ(zeros(at + "attn_v", 36, 48, 0, 32), 0);
    EXPECT_EQ(zeros(at + "attn_k", 36, 48, 24, 0), 0);
    EXPECT_EQ(zeros(at + "ffn_gate", 80, 48, 64, 0), 0);
    EXPECT_EQ(zeros(at + "ffn_up", 80, 48, 0, 32), 0);
    EXPECT_EQ(zeros(at + "attn_out", 48, 72, 32, 0), 16 * 72) << "an added residual channel is written";
    EXPECT_EQ(zeros(at + "ffn_down", 48, 80, 32, 0), 16 * 80) << "an added residual channel is written";
  }
  EXPECT_EQ(zeros("layers.2.attn_out", 48, 72, 0, 0), 48 * 72) << "an added layer writes";
  EXPECT_EQ(zeros("head", 70, 48, 0, 32), 0);
  EXPECT_EQ(zeros("head", 70, 48, 64, 0), 0);
}

// A twin is made from random numbers when its rows are read. Records of earlier runs stay comparable only if
// these numbers keep their bits, whatever rows are read together.
TEST(Inflate, TheNumbersOfATwinKeepTheirBits) {
  TempDir dir;
  write_huggingface(dir.path(), random_llama(tiny_shape(), 4));
  const auto hash_of = [&](const InflateShape& shape, std::int64_t together) {
    Checkpoint twin = Checkpoint::open(dir.path());
    twin.inflate(shape);
    std::uint64_t hash = 14695981039346656037u;  // FNV-1a
    const auto add = [&](std::uint32_t bits) { hash = (hash ^ bits) * 1099511628211u; };
    for (const Checkpoint::TensorInfo& tensor : twin.tensors()) {
      const bool matrix = tensor.shape.size() == 2;
      const std::int64_t rows = matrix ? tensor.shape[0] : 1, columns = tensor.shape.back();
      for (std::int64_t row = 0, end = 0; row < rows; row = end) {
        end = std::min(rows, row + together);
        std::vector<float> floats(static_cast<std::size_t>((end - row) * columns));
        twin.read_f32(tensor.name, row, end, floats.data());
        for (const float value : floats) add(std::bit_cast<std::uint32_t>(value));
        if (!matrix) continue;
        std::vector<Bf16> numbers(floats.size());
        twin.read_bf16(tensor.name, row, end, numbers.data());
        for (std::size_t i = 0; i < numbers.size(); ++i)
          EXPECT_EQ(numbers[i], float_to_bf16(floats[i])) << tensor.name;
      }
    }
    return hash;
  };
  const InflateShape odd{
      .hidden = 75, .layers = 5, .heads = 12, .kv_heads = 6, .head_dim = 22, .ffn = 203, .vocab = 71},
      wide{.hidden = 512, .layers = 3, .heads = 8, .kv_heads = 4, .head_dim = 32, .ffn = 1024, .vocab = 300};
  for (const std::int64_t together : {1, 7, 1000}) {
    EXPECT_EQ(hash_of(odd, together), 13190660863714858797u);
    EXPECT_EQ(hash_of(wide, together), 6468903997164026661u);
  }
}

TEST(Inflate, BytesAndOperationsAreThoseOfTheShape) {
  TempDir dir;
  write_tiny_llama(dir.path(), tiny_shape(), 6);
  const ModelPtr twin =
      load(dir.path(),
           {.hidden = 48, .layers = 3, .heads = 6, .kv_heads = 3, .head_dim = 12, .ffn = 80, .vocab = 70});
  const double weights = 3 * (48 * (2 * 72 + 2 * 36) + 3 * 48 * 80) + 70 * 48;
  EXPECT_EQ(static_cast<double>(twin->weight_bytes()), 2 * weights);
  const auto session = twin->open(8, 8);
  std::vector<float> row(70);
  session->prefill(some_tokens(1, 64), row.data());
  EXPECT_EQ(session->work().weight_bytes, 2 * weights);
  EXPECT_EQ(session->work().flops, 2 * weights + 4 * 72 * 3);
  EXPECT_EQ(session->work().kv_bytes,
            3 * 2 * 2 * 36 * 4);  // of three layers written and read, keys and values, float
  EXPECT_EQ(twin->name(), "72k inflated from " + load(dir.path())->name());
  Checkpoint checkpoint = Checkpoint::open(dir.path());
  checkpoint.inflate({.layers = 3});
  double parameters = 0;
  for (const auto& tensor : checkpoint.tensors())
    parameters += std::accumulate(tensor.shape.begin(), tensor.shape.end(), 1.0, std::multiplies<>());
  EXPECT_EQ(parameters, 3 * (32 * (2 * 32 + 2 * 16) + 3 * 32 * 64 + 2 * 32) + 2 * 64 * 32 + 32);
}

TEST(Inflate, DraftsOfTheOriginalServeTheTwin) {
  TempDir dir;
  const Shape shape = tiny_shape();
  write_tiny_llama(dir.path() / "target", shape, 7);
  write_huggingface(dir.path() / "draft", random_llama(tiny_draft_shape(shape), 8));
  write_tiny_llama(dir.path() / "whole", shape, 9);  // independent, with a head over all ids of the original
  const ModelPtr target = load(dir.path() / "target"),
                 twin = load(dir.path() / "target", {.hidden = 40, .ffn = 70, .vocab = 90});
  EXPECT_EQ(target->embedding_sha256(), twin->embedding_sha256());
  const std::vector<Token> tokens = some_tokens(20, 64);
  const ModelPtr draft = load(dir.path() / "draft", {}, target),
                 of_twin = load(dir.path() / "draft", {}, twin);
  EXPECT_TRUE(same_bits(logits_of(*draft, tokens, 32), logits_of(*of_twin, tokens, 32)));
  EXPECT_EQ(draft->weight_bytes(), of_twin->weight_bytes());
  EXPECT_EQ(of_twin->config().vocab, 90);
  EXPECT_EQ(draft->embedding_bytes(), 0u);
  EXPECT_EQ(of_twin->embedding_bytes(), 2u * 64 * 32)
      << "the original embedding is in memory beside the twin's";
  const ModelPtr whole = load(dir.path() / "whole", {}, twin);
  EXPECT_EQ(whole->config().head_ids.size(), 64u);
  EXPECT_TRUE(same_bits(logits_of(*load(dir.path() / "whole"), tokens, 64), logits_of(*whole, tokens, 64)));
  // A draft may be inflated itself.
  const ModelPtr wide = load(dir.path() / "draft", {.hidden = 64, .layers = 2, .ffn = 50}, target);
  EXPECT_TRUE(same_bits(logits_of(*draft, tokens, 32), logits_of(*wide, tokens, 32)));
  EXPECT_GT(wide->weight_bytes(), draft->weight_bytes());
}

TEST(Inflate, PairsOfALargerHeadKeepTheirRows) {
  Rope rope;
  rope.theta = 10'000;
  rope.dims = 6;
  const RopeTable original = make_rope_table(rope, 30);
  rope.inflated_dims = 10;
  const RopeTable twin = make_rope_table(rope, 30),
                  grown = make_rope_table(rope, 30, make_rope_table(rope, 11));
  EXPECT_EQ(twin.dims, 10);
  EXPECT_EQ(twin.cos, grown.cos);
  EXPECT_EQ(twin.sin, grown.sin);
  ASSERT_EQ(twin.sin.size(), 30u * 5);
  for (std::size_t position = 0; position < 30; ++position) {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(twin.sin[position * 5 + i], original.sin[position * 3 + i]);
    EXPECT_EQ(twin.sin[position * 5 + 4] == 0, position == 0) << "an added pair does not turn";
  }
}

TEST(Inflate, LayerSkipDraftsUseTheLayersOfTheTwin) {
  TempDir dir;
  Shape shape = tiny_shape();
  shape.layers = 3;
  write_tiny_llama(dir.path(), shape, 10);
  const ModelPtr original = load(dir.path()), twin = load(dir.path(), {.hidden = 128, .layers = 6});
  const std::vector<Token> tokens = some_tokens(20, 64);
  // Layers 0, 1, 2 of the original are layers 0, 2, 4 of the inflated model.
  EXPECT_TRUE(same_bits(logits_of(*Model::with_layers(original, {0, 2}), tokens, 64),
                        logits_of(*Model::with_layers(twin, {0, 4}), tokens, 64)));
  EXPECT_TRUE(same_bits(logits_of(*Model::with_layers(original, {0, 2}), tokens, 64),
                        logits_of(*Model::with_layers(twin, {0, 1, 4}), tokens, 64)));
  EXPECT_FALSE(same_bits(logits_of(*Model::with_layers(original, {0, 2}), tokens, 64),
                         logits_of(*Model::with_layers(twin, {0, 2}), tokens, 64)));
}

TEST(Inflate, RefusesShapesThatCannotContainTheModel) {
  TempDir dir;
  write_tiny_llama(dir.path() / "m", tiny_shape(), 11);
  write_huggingface(dir.path() / "draft", random_llama(tiny_draft_shape(tiny_shape()), 8));
  const auto message = [](const fs::path& path, const InflateShape& to) -> std::string {
    try {
      Checkpoint::open(path).inflate(to);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  const fs::path m = dir.path() / "m";
  EXPECT_THAT(message(m, {}), HasSubstr("inflate: got no sizes"));
  EXPECT_THAT(message(m, {.hidden = 31}), HasSubstr("inflate.hidden: got 31, expected at least 32"));
  EXPECT_THAT(message(m, {.layers = 1}), HasSubstr("inflate.layers: got 1, expected at least 2"));
  EXPECT_THAT(message(m, {.heads = 3}), HasSubstr("inflate.heads: got 3"));
  EXPECT_THAT(message(m, {.kv_heads = 1}), HasSubstr("inflate.kv_heads: got 1"));
  EXPECT_THAT(message(m, {.head_dim = 6}), HasSubstr("inflate.head_dim: got 6"));
  EXPECT_THAT(message(m, {.head_dim = 9}), HasSubstr("even"));
  EXPECT_THAT(message(m, {.ffn = 63}), HasSubstr("inflate.ffn: got 63"));
  EXPECT_THAT(message(m, {.vocab = 63}), HasSubstr("inflate.vocab: got 63"));
  EXPECT_THAT(message(m, {.heads = 5}), HasSubstr("a multiple of the key/value heads"));
  EXPECT_THAT(message(m, {.heads = 4, .kv_heads = 4}), "taken");
  EXPECT_THAT(message(m, {.layers = 20'000}), HasSubstr("at most 10000"));
  EXPECT_THAT(message(dir.path() / "draft", {.vocab = 80}), HasSubstr("inflate.vocab"));
  Shape grouped = tiny_shape();
  grouped.heads = 6;
  write_tiny_llama(dir.path() / "grouped", grouped, 11);  // 3 query heads on each
  EXPECT_THAT(message(dir.path() / "grouped", {.heads = 6, .kv_heads = 3}),
              HasSubstr("at least 4, because each of the 2"));
  EXPECT_THAT(message(fs::path(SPECLAB_SOURCE_DIR) / "tests/golden/families/gpt2", {.hidden = 1024}),
              HasSubstr("layer norm"));
  Checkpoint twice = Checkpoint::open(m);
  twice.inflate({.ffn = 70});
  EXPECT_THROW(twice.inflate({.ffn = 80}), Error);
}

std::vector<Token> greedy(const Model& model, TokenSpan prompt, int count) {
  const auto session = model.open(static_cast<int>(prompt.size()) + count, 64);
  std::vector<float> row(static_cast<std::size_t>(model.config().vocab));
  std::vector<Token> text;
  session->prefill(prompt, row.data());
  for (int i = 0; i < count; ++i) {
    text.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
    session->prefill({&text.back(), 1}, row.data());
  }
  return text;
}

TEST(Inflate, RealModelWritesTheSameText) {
  SPECLAB_NEEDS_TARGET();
  const ModelPtr target = target_model();
  const InflateShape to{
      .hidden = 640, .layers = 32, .heads = 16, .kv_heads = 4, .head_dim = 80, .ffn = 1792, .vocab = 50'000};
  const ModelPtr twin = load(target_file(), to, nullptr, make_cpu_backend({0, "f32"}));
  EXPECT_EQ(twin->name(), "208M inflated from SmolLM2-135M-Instruct.Q4_1");
  EXPECT_EQ(target->embedding_sha256(), twin->embedding_sha256());
  const std::vector<Token> prompt =
      Checkpoint::open(target_file()).tokenizer()->encode("The history of the bicycle begins");
  EXPECT_EQ(greedy(*target, prompt, 64), greedy(*twin, prompt, 64));
  const std::vector<Token> tokens = greedy(*target, prompt, 16);
  EXPECT_LT(largest_difference(logits_of(*target, tokens, 49'152), logits_of(*twin, tokens, 49'152)), 1e-4f);
  for (const auto& entry : fs::directory_iterator(fs::path(SPECLAB_SOURCE_DIR) / "models/draft")) {
    const ModelPtr draft = load(entry.path(), {}, target), of_twin = load(entry.path(), {}, twin);
    const int rows = draft->config().head_rows();
    EXPECT_TRUE(same_bits(logits_of(*draft, tokens, rows), logits_of(*of_twin, tokens, rows)))
        << entry.path();
    EXPECT_EQ(of_twin->embedding_bytes(), 2u * 49'152 * 576);
  }
}

}  // namespace
}  // namespace speclab::inflate_test
