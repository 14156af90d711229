#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/model/files/checkpoint.h"
#include "core/model/files/dequantize.h"
#include "tests/model/files/gguf_files.h"

namespace speclab::checkpoint_gguf_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace speclab::fixtures;
using W = GgufWriter;

std::string open_error(const std::string& bytes) {
  TempDir dir;
  write_file(dir.path() / "m.gguf", bytes);
  try {
    Checkpoint::open(dir.path() / "m.gguf");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string changed(const std::function<void(W&)>& change) {
  W writer = gguf_writer(random_llama(tiny_shape(), 1));
  change(writer);
  return open_error(writer.file());
}

TEST(CheckpointGguf, ReadsEveryTensorWithQAndKInHalves) {
  TempDir dir;
  const TinyModel model = random_llama(tiny_shape(), 5);
  for (const char* dtype : {"F32", "BF16"}) {
    write_gguf(dir.path() / "m.gguf", model, dtype);
    const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
    EXPECT_EQ(checkpoint.tensors().size(), model.tensors.size());
    for (const auto& [name, tensor] : model.tensors) {
      ASSERT_TRUE(checkpoint.has(name)) << name;
      std::vector<float> values(tensor.values.size());
      checkpoint.read_f32(name, 0, tensor.shape.size() == 1 ? 1 : tensor.shape[0], values.data());
      EXPECT_EQ(values, tensor.values) << name;
    }
    EXPECT_EQ(checkpoint.tensors()[1].name, "layers.0.attn_norm");
    EXPECT_EQ(checkpoint.tensors()[1].file_name, "blk.0.attn_norm.weight");
    EXPECT_EQ(checkpoint.tensors()[2].type, dtype);
  }
}

TEST(CheckpointGguf, ReadsRowRangesOfPermutedMatrices) {
  TempDir dir;
  const TinyModel model = random_llama(tiny_shape(), 5);
  write_gguf(dir.path() / "m.gguf", model);
  const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
  const auto& q = model.tensors.at("layers.1.attn_q").values;  // [32, 32], heads of 8 rows
  std::vector<Bf16> rows(7 * 32);
  checkpoint.read_bf16("layers.1.attn_q", 5, 12, rows.data());
  for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], float_to_bf16(q[5 * 32 + i])) << i;
}

/// The converter's order for a head of 4: rows 0 1 2 3 are stored as 0 2 1 3.
TEST(CheckpointGguf, InterleavedRowsAreThoseOfTheConverter) {
  TempDir dir;
  Shape shape = tiny_shape();
  shape.layers = 1, shape.heads = shape.kv_heads = 1, shape.head_dim = 4;
  W writer = gguf_writer(random_llama(shape, 1), "F32");
  for (W::Tensor& tensor : writer.tensors) {
    if (tensor.name != "blk.0.attn_q.weight") continue;
    std::vector<float> rows(4 * 32);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i / 32);
    tensor.bytes = encode(rows, "F32");
  }
  write_file(dir.path() / "m.gguf", writer.file());
  const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
  std::vector<float> q(4 * 32);
  checkpoint.read_f32("layers.0.attn_q", 0, 4, q.data());
  EXPECT_EQ(q[0], 0);
  EXPECT_EQ(q[32], 2);
  EXPECT_EQ(q[64], 1);
  EXPECT_EQ(q[96], 3);
}

TEST(CheckpointGguf, ReadsQuantisedRowsFromSeveralThreads) {
  TempDir dir;
  W writer = gguf_writer(random_llama(tiny_shape(), 1));
  std::string blocks;  // Q4_1 [64, 32]: one block a row, d = row, m = 1, nibbles 3 and 5
  for (int row = 0; row < 64; ++row) {
    append(blocks, to_half(static_cast<float>(row)));
    append(blocks, to_half(1));
    blocks += std::string(16, '\x53');
  }
  for (W::Tensor& tensor : writer.tensors) {
    if (tensor.name == "output.weight") tensor.type = 3, tensor.bytes = blocks;
  }
  write_file(dir.path() / "m.gguf", writer.file());
  const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
  EXPECT_EQ(checkpoint.tensors().back().type, "Q4_1");
  EXPECT_EQ(checkpoint.tensors().back().bytes, 64u * 20);
  std::vector<Bf16> head(64 * 32);
  std::thread other([&] { checkpoint.read_bf16("head", 32, 64, head.data() + 32 * 32); });
  checkpoint.read_bf16("head", 0, 32, head.data());
  other.join();
  for (int i = 0; i < 64 * 32; ++i) {
    const int row = i / 32, nibble = i % 32 < 16 ? 3 : 5;
    ASSERT_EQ(bf16_to_float(head[static_cast<std::size_t>(i)]),
              bf16_to_float(float_to_bf16(static_cast<float>(row * nibble + 1))));
  }
}

TEST(CheckpointGguf, ReadsTheConfiguration) {
  TempDir dir;
  Shape shape = tiny_shape();
  shape.rope_theta = 123'456;
  shape.norm_eps = 1e-6f;
  W writer = gguf_writer(random_llama(shape, 1));
  writer.add("tokenizer.chat_template", "{{ messages }}");
  const std::string bytes = writer.file();
  write_file(dir.path() / "m.gguf", bytes);
  const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
  const ModelConfig& config = checkpoint.config();
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.name, "m");  // the file, not its general.name
  EXPECT_EQ(config.hidden, 32);
  EXPECT_EQ(config.embedding_dim, 32);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.ffn, 64);
  EXPECT_EQ(config.vocab, 64);
  EXPECT_EQ(config.context, 256);
  EXPECT_EQ(config.rope_theta, 123'456.f);
  EXPECT_EQ(config.norm_eps, 1e-6f);
  EXPECT_FALSE(config.tied_head);
  EXPECT_TRUE(config.final_norm);
  EXPECT_EQ(checkpoint.chat_template(), "{{ messages }}");
  EXPECT_EQ(checkpoint.file_bytes(), bytes.size());
  EXPECT_EQ(checkpoint.sha256(), sha256_hex(bytes));
}

/// Like open_error, but also reads the tokenizer.
std::string tokenizer_error(const std::function<void(W&)>& change) {
  Shape shape = tiny_shape();
  shape.vocab = kByteVocab;
  W writer = gguf_writer(random_llama(shape, 1));
  add_byte_tokenizer(writer);
  change(writer);
  TempDir dir;
  write_file(dir.path() / "m.gguf", writer.file());
  try {
    const auto tokenizer = Checkpoint::open(dir.path() / "m.gguf").tokenizer();
    return tokenizer ? "no error" : "no tokenizer";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(CheckpointGguf, ReadsTheTokenizer) {
  TempDir dir;
  Shape shape = tiny_shape();
  shape.vocab = kByteVocab;
  W writer = gguf_writer(random_llama(shape, 1));
  write_file(dir.path() / "bare.gguf", writer.file());
  EXPECT_EQ(Checkpoint::open(dir.path() / "bare.gguf").tokenizer(), std::nullopt);

  add_byte_tokenizer(writer);
  writer.add("tokenizer.ggml.eot_token_id", 9u);
  writer.add("tokenizer.ggml.eom_token_id", 10u);
  writer.add("tokenizer.ggml.add_bos_token", W::kBool, "\1");
  write_file(dir.path() / "m.gguf", writer.file());
  const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
  const auto tokenizer = checkpoint.tokenizer();
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->vocab_size(), kByteVocab);
  EXPECT_EQ(tokenizer->encode("hi <|im_end|>", true), (std::vector<Token>{'h', 'i', ' ', 257}));
  EXPECT_EQ(tokenizer->bos(), 256);
  EXPECT_EQ(tokenizer->eos(), 257);
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_THAT(tokenizer->end_of_generation(), ElementsAre(9, 10, 257));
  EXPECT_EQ(checkpoint.chat_template(), kChatMl);

  write_tiny_llama(dir.path() / "hf", shape, 1);
  write_byte_tokenizer(dir.path() / "hf");
  EXPECT_EQ(tokenizer->sha256(), Checkpoint::open(dir.path() / "hf").tokenizer()->sha256());
}

TEST(CheckpointGguf, RefusesABadTokenizer) {
  EXPECT_EQ(tokenizer_error([](W&) {}), "no error");
  EXPECT_THAT(tokenizer_error([](W& w) { w.set("tokenizer.ggml.model", "bert"); }),
              HasSubstr("tokenizer.ggml.model: got \"bert\""));
  EXPECT_THAT(tokenizer_error([](W& w) { w.set("tokenizer.ggml.tokens", "a"); }),
              HasSubstr("tokens: got a string, expected an array"));
  EXPECT_THAT(tokenizer_error([](W& w) {
                w.erase("tokenizer.ggml.tokens");
                w.add("tokenizer.ggml.tokens", W::kArray, W::array(W::kU8, 258, std::string(258, 'a')));
              }),
              HasSubstr("tokens: got an array of another type, expected an array of strings"));
  EXPECT_THAT(tokenizer_error([](W& w) {
                w.erase("tokenizer.ggml.token_type");
                w.add("tokenizer.ggml.token_type", W::kArray,
                      W::array(W::kF32, 258, std::string(4 * 258, 'a')));
              }),
              HasSubstr("token_type: got an array of another type, expected an array of integers"));
  EXPECT_THAT(tokenizer_error([](W& w) { w.erase("tokenizer.ggml.model"); }),
              HasSubstr("tokenizer.ggml.model: got no such key"));
  EXPECT_THAT(tokenizer_error([](W& w) { w.erase("tokenizer.ggml.merges"); }),
              HasSubstr("tokenizer.ggml.merges: got no such key"));
}

/// Values that only a wide array can hold: an invalid type and an invalid id.
TEST(CheckpointGguf, ReadsOddTokenNumbersAsNone) {
  Shape shape = tiny_shape();
  shape.vocab = kByteVocab;
  W writer = gguf_writer(random_llama(shape, 1));
  add_byte_tokenizer(writer);
  std::string types;
  for (int i = 0; i < kByteVocab; ++i)
    append(types, i == 0 ? (std::int64_t{1} << 32) + 3 : i == 1 ? -1 : i < 256 ? 1 : 3);
  writer.erase("tokenizer.ggml.token_type");
  writer.add("tokenizer.ggml.token_type", W::kArray, W::array(W::kI64, kByteVocab, types));
  std::string minus;
  append(minus, std::int32_t{-1});
  writer.add("tokenizer.ggml.padding_token_id", W::kI32, minus);
  writer.set("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(kByteVocab));
  writer.add("tokenizer.ggml.add_eos_token", W::kBool, "\1");
  TempDir dir;
  write_file(dir.path() / "m.gguf", writer.file());
  const Tokenizer tokenizer = Checkpoint::open(dir.path() / "m.gguf").tokenizer().value();
  EXPECT_EQ(tokenizer.pad(), std::nullopt);
  EXPECT_EQ(tokenizer.eos(), std::nullopt);
  EXPECT_FALSE(tokenizer.is_special(0));
  EXPECT_THAT(
      tokenizer.assumed(),
      ElementsAre(
          "tokenizer.ggml.eos_token_id is 258, which is no token: read as if it were missing",
          "tokenizer.ggml.padding_token_id is -1, which is no token: read as if it were missing",
          "tokenizer.ggml.add_eos_token is true: ignored, because the model has to continue the prompt",
          "tokenizer.ggml.token_type is not 1..6 for 2 of 258 tokens: they are text"));
}

TEST(CheckpointGguf, Llama2WithoutABaseOfRotationsHasTheUsualOne) {
  W writer = gguf_writer(random_llama(tiny_shape(), 1));
  writer.erase("llama.rope.freq_base");
  TempDir dir;
  write_file(dir.path() / "m.gguf", writer.file());
  const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
  EXPECT_EQ(checkpoint.config().rope_theta, 10000);
  EXPECT_THAT(checkpoint.assumed(), ElementsAre("llama.rope.freq_base is missing: 10000 is used"));
  write_gguf(dir.path() / "complete.gguf", random_llama(tiny_shape(), 1));
  EXPECT_THAT(Checkpoint::open(dir.path() / "complete.gguf").assumed(), ElementsAre());
}

TEST(CheckpointGguf, NoOutputMatrixMeansATiedHead) {
  TempDir dir;
  Shape shape = tiny_shape();
  shape.tied_head = true;
  write_gguf(dir.path() / "m.gguf", random_llama(shape, 1));
  const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
  EXPECT_TRUE(checkpoint.config().tied_head);
  EXPECT_FALSE(checkpoint.has("head"));
}

TEST(CheckpointGguf, OptionalKeysHaveTheirDefaults) {
  EXPECT_EQ(changed([](W&) {}), "no error");
  EXPECT_EQ(changed([](W& w) { w.erase("llama.attention.key_length"); }), "no error");
  EXPECT_EQ(changed([](W& w) { w.erase("llama.rope.dimension_count"); }), "no error");
  EXPECT_EQ(changed([](W& w) { w.set("llama.vocab_size", 64u); }), "no error");
  EXPECT_EQ(changed([](W& w) { w.set("llama.rope.scaling.type", "none"); }), "no error");
}

TEST(CheckpointGguf, RefusesOtherArchitectures) {
  EXPECT_THAT(changed([](W& w) { w.set("general.architecture", "mamba"); }),
              AllOf(HasSubstr("m.gguf: metadata general.architecture: got \"mamba\", expected \"llama\"")));
  EXPECT_THAT(changed([](W& w) { w.set("split.count", 2u); }),
              HasSubstr("split.count: got 2, expected one file"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.expert_count", 8u); }),
              HasSubstr("llama.expert_count: got experts"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.rope.scaling.type", "longrope"); }),
              HasSubstr("rope.scaling.type: got \"longrope\""));
  EXPECT_THAT(changed([](W& w) { w.set("llama.rope.scale_linear", 2.f); }),
              HasSubstr("rope.scale_linear: got 2"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.rope.scaling.factor", 4.f); }),
              HasSubstr("rope.scaling.factor: got 4"));
  EXPECT_THAT(changed([](W& w) { w.tensors.push_back({"rope_freqs.weight", {4}, 0, std::string(16, 0)}); }),
              HasSubstr("tensor rope_freqs.weight: got 0, expected positive factors"));
  EXPECT_THAT(changed([](W& w) { w.tensors.push_back({"blk.0.attn_q.bias", {4}, 0, std::string(16, 0)}); }),
              HasSubstr("tensor blk.0.attn_q.bias: got a tensor that is not part of this model"));
}

TEST(CheckpointGguf, RefusesABadConfiguration) {
  EXPECT_THAT(changed([](W& w) { w.set("llama.rope.freq_base", -1.f); }),
              HasSubstr("freq_base: got -1, expected a positive"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.rope.freq_base", INFINITY); }),
              HasSubstr("freq_base: got inf, expected a positive"));
  for (const char* key : {"embedding_length", "block_count", "feed_forward_length", "context_length",
                          "attention.head_count", "attention.head_count_kv"}) {
    EXPECT_THAT(changed([&](W& w) { w.set("llama." + std::string(key), 0u); }),
                HasSubstr(std::string(key) + ": got 0, expected a number from 1"));
  }
  EXPECT_THAT(changed([](W& w) { w.set("llama.block_count", 4'000'000'000u); }),
              HasSubstr("block_count: got 4000000000"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.attention.head_count", "four"); }),
              HasSubstr("head_count: got a string"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.attention.head_count_kv", 3u); }),
              HasSubstr("head_count_kv: got 3, expected a divisor of head_count = 4"));
  EXPECT_THAT(changed([](W& w) {
                w.erase("llama.attention.key_length");
                w.set("llama.attention.head_count", 3u);
                w.set("llama.attention.head_count_kv", 3u);
              }),
              HasSubstr("head_count: got 3, expected a number that divides the embedding length 32"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.attention.key_length", 7u); }),
              HasSubstr("got 4 heads of 7 dimensions, expected an even number of dimensions in a head"));
  EXPECT_THAT(
      changed([](W& w) { w.set("llama.attention.key_length", 1u << 23); }),
      HasSubstr(
          "got 4 heads of 8388608 dimensions, expected an even number of dimensions in a head, and at most "
          "16777216 in all heads together"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.attention.value_length", 4u); }),
              HasSubstr("value_length: got 4, expected the width"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.rope.dimension_count", 4u); }),
              HasSubstr("dimension_count: got 4"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.vocab_size", 63u); }),
              HasSubstr("vocab_size: got 63 tokens, expected 64"));
  EXPECT_THAT(changed([](W& w) { w.add("tokenizer.ggml.tokens", W::kArray, W::strings({"a"})); }),
              HasSubstr("tokenizer.ggml.tokens: got 1 tokens, expected 64"));
}

TEST(CheckpointGguf, TensorsMustAgreeWithTheMetadata) {
  EXPECT_THAT(
      changed([](W& w) { w.set("llama.feed_forward_length", 32u); }),
      HasSubstr("tensor blk.0.ffn_gate.weight: got shape [64, 32], expected [32, 32], as its metadata says"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.block_count", 3u); }),
              HasSubstr("tensor blk.2.attn_norm.weight: got no such tensor"));
  EXPECT_THAT(changed([](W& w) { w.set("llama.block_count", 1u); }), HasSubstr("tensor blk.1."));
  EXPECT_THAT(changed([](W& w) {
                std::erase_if(w.tensors, [](const auto& t) { return t.name == "token_embd.weight"; });
              }),
              HasSubstr("tensor token_embd.weight: got no such tensor"));
}

}  // namespace
}  // namespace speclab::checkpoint_gguf_test
