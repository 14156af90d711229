#include "core/model/files/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "tests/model/files/model_files.h"
#include "tests/base/error_text.h"

namespace speclab::checkpoint_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace speclab::fixtures;

std::string open_error(const std::filesystem::path& path) {
  return message_of([&] { Checkpoint::open(path); });
}

std::vector<float> read_all(const Checkpoint& checkpoint, const std::string& name, const TinyTensor& like) {
  std::vector<float> out(like.values.size());
  checkpoint.read_f32(name, 0, like.shape.size() == 1 ? 1 : like.shape[0], out.data());
  return out;
}

void expect_same(const Checkpoint& checkpoint, const TinyModel& model) {
  EXPECT_EQ(checkpoint.tensors().size(), model.tensors.size());
  for (const auto& [name, tensor] : model.tensors) {
    ASSERT_TRUE(checkpoint.has(name)) << name;
    EXPECT_EQ(read_all(checkpoint, name, tensor), tensor.values) << name;
  }
}

TEST(CheckpointHuggingFace, ReadsEveryTensorInEveryTypeAndSharding) {
  for (const char* dtype : {"F32", "F16", "BF16"}) {
    for (const int shards : {1, 3}) {
      TempDir dir;
      TinyModel model = random_llama(tiny_shape(), 7);
      if (std::string(dtype) ==
          "F16") {  // bf16 has more exponents than half; keep the values that half can hold
        for (auto& [name, tensor] : model.tensors) {
          for (float& value : tensor.values) value = std::round(value * 64) / 64;
        }
      }
      write_huggingface(dir.path(), model, {.dtype = dtype, .shards = shards});
      const Checkpoint checkpoint = Checkpoint::open(dir.path());
      expect_same(checkpoint, model);
      EXPECT_EQ(checkpoint.tensors()[0].type, dtype);
    }
  }
}

TEST(CheckpointHuggingFace, ReadsTheConfiguration) {
  TempDir dir;
  write_tiny_llama(dir.path(), tiny_shape(), 1);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  const ModelConfig& config = checkpoint.config();
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.hidden, 32);
  EXPECT_EQ(config.embedding_dim, 32);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.ffn, 64);
  EXPECT_EQ(config.vocab, 64);
  EXPECT_EQ(config.context, 256);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.rope_theta, 10'000.f);
  EXPECT_FALSE(config.tied_head);
  EXPECT_TRUE(config.final_norm);
  EXPECT_FALSE(config.embedding_of_target);
  EXPECT_THAT(config.head_ids, IsEmpty());
  EXPECT_EQ(checkpoint.chat_template(), "");
}

TEST(CheckpointHuggingFace, ReadsRowRangesAsFloatAndBf16) {
  TempDir dir;
  TinyModel model = random_llama(tiny_shape(), 3);
  auto& values = model.tensors["layers.1.ffn_down"].values;  // [32, 64]
  for (float& value : values) value *= 1.001f;               // no longer representable in bf16
  write_huggingface(dir.path(), model, {.dtype = "F32"});
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  std::vector<float> floats(3 * 64);
  std::vector<Bf16> halves(3 * 64);
  checkpoint.read_f32("layers.1.ffn_down", 5, 8, floats.data());
  checkpoint.read_bf16("layers.1.ffn_down", 5, 8, halves.data());
  for (std::size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(floats[i], values[5 * 64 + i]) << i;
    ASSERT_EQ(halves[i], float_to_bf16(values[5 * 64 + i])) << i;
  }
}

TEST(CheckpointHuggingFace, ReadsATiedHead) {
  TempDir dir;
  Shape shape = tiny_shape();
  shape.tied_head = true;
  const TinyModel model = write_tiny_llama(dir.path(), shape, 1);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  EXPECT_TRUE(checkpoint.config().tied_head);
  EXPECT_FALSE(checkpoint.has("head"));
  expect_same(checkpoint, model);

  std::vector<RawTensor> tensors = huggingface_tensors(model);  // with a copy of the head, as in some files
  RawTensor head = tensors.back();
  head.name = "lm_head.weight";
  tensors.push_back(head);
  write_file(dir.path() / "model.safetensors", safetensors_file(tensors));
  EXPECT_FALSE(Checkpoint::open(dir.path()).has("head"));

  std::erase_if(tensors, [](const RawTensor& t) {
    return t.name == "model.embed_tokens.weight";
  });  // the embedding is in one of the two files only
  write_file(dir.path() / "model.safetensors", safetensors_file(tensors));
  expect_same(Checkpoint::open(dir.path()), model);
}

TEST(CheckpointHuggingFace, ReadsADraft) {
  TempDir dir;
  Shape shape = tiny_draft_shape(tiny_shape());
  shape.target_embedding_sha256 = std::string(64, 'a');
  shape.target_tokenizer_sha256 = std::string(64, '0');
  const TinyModel model = write_tiny_llama(dir.path(), shape, 2);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  expect_same(checkpoint, model);
  const ModelConfig& config = checkpoint.config();
  EXPECT_TRUE(config.embedding_of_target);
  EXPECT_EQ(config.hidden, 16);
  EXPECT_EQ(config.embedding_dim, 32);
  EXPECT_EQ(config.vocab, 64);
  EXPECT_EQ(config.head_ids, shape.head_ids);
  EXPECT_EQ(config.head_rows(), 32);
  EXPECT_EQ(config.target_embedding_sha256, std::string(64, 'a'));
  EXPECT_EQ(config.target_tokenizer_sha256, std::string(64, '0'));
  EXPECT_FALSE(checkpoint.has("token_embedding"));
}

TEST(CheckpointHuggingFace, ReadsAZeroLayerTable) {
  TempDir dir;
  const TinyModel model = markov_table(3, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  write_huggingface(dir.path(), model);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  expect_same(checkpoint, model);
  EXPECT_EQ(checkpoint.config().layers, 0);
  EXPECT_FALSE(checkpoint.config().final_norm);
  std::vector<float> head(9);
  checkpoint.read_f32("head", 0, 3, head.data());
  EXPECT_THAT(head, ::testing::ElementsAre(0, 3, 6, 1, 4, 7, 2, 5, 8));
}

TEST(CheckpointHuggingFace, HashesTheWeights) {
  TempDir dir;
  const TinyModel model = random_llama(tiny_shape(), 1);
  write_huggingface(dir.path(), model);
  const std::string bytes = safetensors_file(huggingface_tensors(model));
  EXPECT_EQ(Checkpoint::open(dir.path()).sha256(), sha256_hex(bytes));
  EXPECT_EQ(Checkpoint::open(dir.path()).file_bytes(), bytes.size());
}

TEST(CheckpointHuggingFace, FindsTheChatTemplate) {
  TempDir dir;
  write_tiny_llama(dir.path(), tiny_shape(), 1);
  write_file(dir.path() / "tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(Checkpoint::open(dir.path()).chat_template(), "one");
  write_file(
      dir.path() / "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": "two"}]})");
  EXPECT_EQ(Checkpoint::open(dir.path()).chat_template(), "two");
  write_file(dir.path() / "chat_template.jinja", "three");
  EXPECT_EQ(Checkpoint::open(dir.path()).chat_template(), "three");
}

/// A directory whose config.json is changed by the test.
std::string config_error(const std::function<void(Json&)>& change, Shape shape = tiny_shape()) {
  TempDir dir;
  write_tiny_llama(dir.path(), shape, 1);
  Json config = huggingface_config(shape);
  change(config);
  write_file(dir.path() / "config.json", config.dump());
  return open_error(dir.path());
}

TEST(CheckpointHuggingFace, RopeBaseIsReadFromEitherPlaceAndNeverAssumed) {
  const auto theta = [](const std::function<void(Json&)>& change) {
    TempDir dir;
    write_tiny_llama(dir.path(), tiny_shape(), 1);
    Json config = huggingface_config(tiny_shape());
    change(config);
    write_file(dir.path() / "config.json", config.dump());
    return Checkpoint::open(dir.path()).config().rope_theta;
  };
  EXPECT_EQ(theta([](Json& c) { c["rope_theta"] = 500'000; }), 500'000.f);
  EXPECT_EQ(theta([](Json& c) {
              c.erase("rope_theta");
              c["rope_parameters"] = {{"rope_theta", 100'000.0}, {"rope_type", "default"}};
            }),
            100'000.f);
  EXPECT_EQ(theta([](Json& c) { c["rope_scaling"] = nullptr; }), 10'000.f);
  EXPECT_EQ(theta([](Json& c) { c["rope_scaling"] = {{"type", "default"}}; }), 10'000.f);
  EXPECT_THAT(config_error([](Json& c) { c.erase("rope_theta"); }),
              AllOf(HasSubstr("config.json: rope_theta"), HasSubstr("neither here nor in rope_parameters")));
  EXPECT_THAT(config_error([](Json& c) { c["rope_parameters"] = {{"rope_theta", 5.0}}; }),
              AllOf(HasSubstr("rope_theta: got 10000.0"), HasSubstr("5, as in rope_parameters")));
  EXPECT_THAT(config_error([](Json& c) { c["rope_scaling"] = {{"rope_type", "longrope"}, {"factor", 8}}; }),
              AllOf(HasSubstr("rope_scaling: rope_type: got \"longrope\""), HasSubstr("not supported")));
  EXPECT_THAT(
      config_error([](Json& c) { c["rope_parameters"] = {{"rope_theta", 1e4}, {"rope_type", "axial"}}; }),
      HasSubstr("rope_parameters: rope_type: got \"axial\""));
  EXPECT_THAT(config_error([](Json& c) { c["rope_scaling"] = {{"type", "su"}, {"factor", 2}}; }),
              HasSubstr("rope_scaling: type: got \"su\""));
  EXPECT_THAT(config_error([](Json& c) {
                c["rope_parameters"] = {{"rope_theta", 1e4}, {"partial_rotary_factor", .5}};
              }),
              HasSubstr("rope_parameters: partial_rotary_factor: got 0.5"));
  EXPECT_THAT(config_error([](Json& c) { c["rope_theta"] = -1; }), HasSubstr("a positive number"));
}

TEST(CheckpointHuggingFace, RefusesABadConfiguration) {
  const auto set = [](const char* key, Json value) { return config_error([&](Json& c) { c[key] = value; }); };
  EXPECT_THAT(set("architectures", {"GPT2LMHeadModel"}),
              AllOf(HasSubstr("architectures: got GPT2LMHeadModel")));
  EXPECT_THAT(set("architectures", 3), HasSubstr("expected LlamaForCausalLM"));
  EXPECT_THAT(config_error([](Json& c) { c.erase("architectures"), c.erase("model_type"); }),
              HasSubstr("architectures: got nothing, expected LlamaForCausalLM"));
  EXPECT_EQ(config_error([](Json& c) { c.erase("architectures"); }), "no error");
  EXPECT_THAT(set("model_type", "mixtral"), HasSubstr("model_type: got \"mixtral\""));
  EXPECT_THAT(set("hidden_act", "gelu"), HasSubstr("hidden_act: got \"gelu\""));
  EXPECT_THAT(set("attention_bias", true), HasSubstr("attention_bias: got true"));
  EXPECT_THAT(set("mlp_bias", "no"), HasSubstr("mlp_bias: got \"no\", expected true or false"));
  EXPECT_THAT(set("quantization_config", {{"bits", 4}}), HasSubstr("quantization_config: got a JSON object"));
  EXPECT_THAT(set("partial_rotary_factor", .5), HasSubstr("partial_rotary_factor: got 0.5"));
  EXPECT_THAT(set("hidden_size", 0), HasSubstr("hidden_size: got 0, expected a whole number from 1"));
  EXPECT_THAT(set("hidden_size", 32.5), HasSubstr("hidden_size: got 32.5"));
  EXPECT_THAT(set("hidden_size", "32"), HasSubstr("hidden_size: got \"32\""));
  EXPECT_THAT(set("hidden_size", nullptr), HasSubstr("hidden_size: got nothing"));
  EXPECT_THAT(set("num_hidden_layers", -1), HasSubstr("num_hidden_layers: got -1"));
  EXPECT_THAT(set("vocab_size", 18446744073709551615ull), HasSubstr("vocab_size: got 18446744073709551615"));
  EXPECT_THAT(set("num_key_value_heads", 3), HasSubstr("num_key_value_heads: got 3, expected a divisor of"));
  EXPECT_THAT(set("head_dim", 7), HasSubstr("head_dim: got 7, expected an even number"));
  EXPECT_THAT(set("head_dim", 1 << 23), HasSubstr("num_attention_heads: got 4, expected heads * head_dim"));
  EXPECT_THAT(config_error([](Json& c) {
                c.erase("head_dim");
                c["num_attention_heads"] = c["num_key_value_heads"] = 5;
              }),
              HasSubstr("num_attention_heads: got 5, expected a divisor of hidden_size = 32"));
  EXPECT_THAT(set("rms_norm_eps", "small"), HasSubstr("rms_norm_eps: got \"small\""));
  EXPECT_THAT(set("max_position_embeddings", Json::array({1})),
              HasSubstr("max_position_embeddings: got a JSON array"));
  EXPECT_THAT(set("speclab_table", true),
              HasSubstr("num_hidden_layers: got 2, expected 0 with speclab_table"));
}

TEST(CheckpointHuggingFace, HeadWidthDefaultsToHiddenOverHeads) {
  EXPECT_EQ(config_error([](Json& c) { c["head_dim"] = nullptr; }), "no error");
  EXPECT_EQ(config_error([](Json& c) { c.erase("head_dim"); }), "no error");
  Shape wide = tiny_shape();
  wide.head_dim = 16;  // 4 * 16 is not the hidden width
  EXPECT_EQ(config_error([](Json&) {}, wide), "no error");
}

TEST(CheckpointHuggingFace, JsonErrorsGiveLineAndColumn) {
  TempDir dir;
  write_tiny_llama(dir.path(), tiny_shape(), 1);
  write_file(dir.path() / "config.json", "{\n  \"hidden_size\": 32,\n  \"vocab_size\" 64\n}");
  EXPECT_THAT(open_error(dir.path()), HasSubstr("config.json: line 3, column 17: got syntax error"));
  write_file(dir.path() / "config.json", "{\"a\": 1, \"a\": 2}");
  EXPECT_THAT(open_error(dir.path()), HasSubstr("got the key \"a\" twice"));
  write_file(dir.path() / "config.json", "[]");
  EXPECT_THAT(open_error(dir.path()), HasSubstr("config.json: got a JSON array, expected a JSON object"));
  write_file(dir.path() / "config.json", "");
  EXPECT_THAT(open_error(dir.path()), HasSubstr("config.json: line 1, column 1"));
}

TEST(CheckpointHuggingFace, ShapesMustAgreeWithTheConfiguration) {
  EXPECT_THAT(config_error([](Json& c) { c["intermediate_size"] = 48; }),
              AllOf(HasSubstr("tensor model.layers.0.mlp.gate_proj.weight: got shape [64, 32]"),
                    HasSubstr("expected [48, 32], as config.json says")));
  EXPECT_THAT(config_error([](Json& c) { c["num_hidden_layers"] = 3; }),
              AllOf(HasSubstr("tensor model.layers.2.input_layernorm.weight: got no such tensor"),
                    HasSubstr("expected shape [32]")));
  EXPECT_THAT(config_error([](Json& c) { c["num_hidden_layers"] = 1; }),
              AllOf(HasSubstr("tensor model.layers.1."), HasSubstr("not part of this model")));
  EXPECT_THAT(config_error([](Json& c) { c["vocab_size"] = 65; }),
              HasSubstr("model.embed_tokens.weight: got shape [64, 32]"));
  Shape tied = tiny_shape();
  tied.tied_head = true;
  EXPECT_THAT(config_error([](Json& c) { c["tie_word_embeddings"] = false; }, tied),
              HasSubstr("tensor lm_head.weight: got no such tensor"));
}

std::string tensors_error(const std::function<void(std::vector<RawTensor>&)>& change,
                          const Shape& shape = tiny_shape()) {
  TempDir dir;
  const TinyModel model = write_tiny_llama(dir.path(), shape, 1);
  std::vector<RawTensor> tensors = huggingface_tensors(model);
  change(tensors);
  write_file(dir.path() / "model.safetensors", safetensors_file(tensors));
  return open_error(dir.path());
}

RawTensor& named(std::vector<RawTensor>& tensors, const std::string& name) {
  for (RawTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no " + name);
}

TEST(CheckpointHuggingFace, RefusesTensorsOfTheWrongTypeOrUnknown) {
  EXPECT_THAT(
      tensors_error([](auto& t) { named(t, "model.norm.weight").dtype = "I16"; }),
      AllOf(HasSubstr("tensor model.norm.weight: got type I16"), HasSubstr("expected F32, F16, BF16")));
  EXPECT_THAT(tensors_error([](auto& t) { named(t, "model.norm.weight").name = "model.norm.wait"; }),
              HasSubstr("tensor model.norm.weight: got no such tensor"));
  EXPECT_THAT(
      tensors_error(
          [](auto& t) { t.push_back({"model.layers.0.self_attn.q_proj.bias", "BF16", {1}, "12"}); }),
      HasSubstr("tensor model.layers.0.self_attn.q_proj.bias: got a tensor that is not part of this model"));
  EXPECT_EQ(tensors_error([](auto& t) {
              t.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}, "1234"});
            }),
            "no error");
}

TEST(CheckpointHuggingFace, RefusesABadDraft) {
  const Shape draft = tiny_draft_shape(tiny_shape());
  const auto set_ids = [&](std::vector<std::int32_t> ids) {
    return tensors_error(
        [&](auto& t) {
          RawTensor& tensor = named(t, "draft_vocab");
          tensor.shape = {static_cast<std::int64_t>(ids.size())};
          tensor.bytes.clear();
          for (const auto id : ids) append(tensor.bytes, id);
        },
        draft);
  };
  std::vector<std::int32_t> ids(draft.head_ids.begin(), draft.head_ids.end());
  EXPECT_EQ(set_ids(ids), "no error");
  ids[5] = ids[4];
  EXPECT_THAT(set_ids(ids),
              AllOf(HasSubstr("draft_vocab, element 5: got 8"), HasSubstr("ascending token ids below")));
  ids[5] = 10, ids[31] = 64;
  EXPECT_THAT(set_ids(ids), HasSubstr("draft_vocab, element 31: got 64"));
  ids[31] = 63, ids[0] = -1;
  EXPECT_THAT(set_ids(ids), HasSubstr("draft_vocab, element 0: got -1"));
  EXPECT_THAT(set_ids({1, 2, 3}), HasSubstr("lm_head.weight: got shape [32, 16], expected [3, 16]"));
  EXPECT_THAT(set_ids({}), HasSubstr("tensor draft_vocab: got I32 [0]"));
  EXPECT_THAT(tensors_error([](auto& t) { named(t, "draft_vocab").dtype = "U32"; }, draft),
              HasSubstr("got U32 [32]"));
  EXPECT_THAT(config_error([](Json& c) { c["speclab_draft"]["embedding"] = "own"; }, draft),
              HasSubstr("speclab_draft: embedding: got something else, expected \"target\""));
  EXPECT_THAT(config_error([](Json& c) { c["speclab_draft"]["target_embedding_sha256"] = "abc"; }, draft),
              HasSubstr("target_embedding_sha256: got \"abc\", expected 64 lower-case"));
  EXPECT_THAT(
      config_error([](Json& c) { c["speclab_draft"]["target_tokenizer_sha256"] = std::string(64, 'A'); },
                   draft),
      HasSubstr("target_tokenizer_sha256: got \"AAAA"));
  EXPECT_THAT(config_error([](Json& c) { c["speclab_draft"] = 1; }, draft),
              HasSubstr("speclab_draft: got a JSON number"));
  EXPECT_THAT(config_error([](Json& c) { c["speclab_draft"].erase("embedding_dim"); }, draft),
              HasSubstr("speclab_draft: embedding_dim: got nothing"));
  EXPECT_THAT(config_error([](Json& c) { c["tie_word_embeddings"] = true; }, draft),
              HasSubstr("tie_word_embeddings: got true, expected false with speclab_draft"));
}

TEST(CheckpointHuggingFace, RefusesABadIndex) {
  const auto index_error = [](const std::function<void(const std::filesystem::path&, Json&)>& change) {
    TempDir dir;
    write_huggingface(dir.path(), random_llama(tiny_shape(), 1), {.shards = 2});
    const std::filesystem::path file = dir.path() / "model.safetensors.index.json";
    std::ifstream stream(file);
    Json index = Json::parse(stream);
    change(dir.path(), index);
    write_file(file, index.dump());
    return open_error(dir.path());
  };
  EXPECT_EQ(index_error([](const auto&, Json&) {}), "no error");
  EXPECT_THAT(
      index_error([](const auto&, Json& i) { i["weight_map"]["lm_head.weight"] = "../model-0.safetensors"; }),
      HasSubstr("weight_map: lm_head.weight: got \"../model-0.safetensors\", expected the name of a file"));
  EXPECT_THAT(index_error([](const auto&, Json& i) { i["weight_map"]["lm_head.weight"] = 7; }),
              HasSubstr("got 7"));
  EXPECT_THAT(index_error([](const auto&, Json& i) { i.erase("weight_map"); }),
              HasSubstr("weight_map: got nothing"));
  EXPECT_THAT(index_error([](const auto&, Json& i) { i["weight_map"]["extra"] = "model-0.safetensors"; }),
              HasSubstr("model-0.safetensors: tensor extra: got no such tensor, expected the tensor here"));
  EXPECT_THAT(index_error([](const auto&, Json& i) {
                Json& file = i["weight_map"]["lm_head.weight"];
                file = file == "model-0.safetensors" ? "model-1.safetensors" : "model-0.safetensors";
              }),
              AllOf(HasSubstr("tensor lm_head.weight: got the tensor in model-"),
                    HasSubstr("expected the tensor here")));
  EXPECT_THAT(
      index_error([](const auto& dir, Json&) { std::filesystem::remove(dir / "model-1.safetensors"); }),
      HasSubstr("model-1.safetensors: got No such file or directory"));
  EXPECT_THAT(index_error([](const auto& dir, Json&) {
                std::filesystem::copy_file(dir / "model-0.safetensors", dir / "model-1.safetensors",
                                           std::filesystem::copy_options::overwrite_existing);
              }),
              HasSubstr("got a tensor that is also in model-0.safetensors"));
}

TEST(CheckpointHuggingFace, ReadsTheTokenizerAndItsIds) {
  TempDir dir;
  Shape shape = tiny_shape();
  write_tiny_llama(dir.path(), shape, 1);
  EXPECT_EQ(Checkpoint::open(dir.path()).tokenizer(), std::nullopt);
  write_byte_tokenizer(dir.path());
  std::filesystem::remove(dir.path() / "generation_config.json");
  const Checkpoint small = Checkpoint::open(dir.path());
  EXPECT_THAT(message_of([&] { small.tokenizer(); }),
              AllOf(HasSubstr("tokenizer: got 258 tokens, expected at most 64")));

  shape.vocab = 300;  // more rows than tokens, as in padded vocabularies
  write_tiny_llama(dir.path(), shape, 1);
  write_byte_tokenizer(dir.path());
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  const auto tokenizer = checkpoint.tokenizer();
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("a\n\xff"), (std::vector<Token>{'a', '\n', 0xef, 0xbf, 0xbd}));
  EXPECT_EQ(tokenizer->eos(), 257);
  EXPECT_EQ(tokenizer->bos(), 256);
  EXPECT_EQ(checkpoint.chat_template(), kChatMl);

  Json config = huggingface_config(shape);
  config["eos_token_id"] = {7, 8};
  config["bos_token_id"] = 5;
  write_file(dir.path() / "config.json", config.dump());
  EXPECT_EQ(checkpoint.tokenizer()->eos(), 257);  // generation_config.json has priority
  EXPECT_THAT(checkpoint.tokenizer()->end_of_generation(), ::testing::ElementsAre(7, 8, 257));
  std::filesystem::remove(dir.path() / "generation_config.json");
  EXPECT_EQ(checkpoint.tokenizer()->eos(), 7);
  EXPECT_EQ(checkpoint.tokenizer()->bos(), 5);
  for (const Json& pad : {Json(-1), Json(4294967295), Json(300)}) {  // all mean none
    config["pad_token_id"] = pad;
    write_file(dir.path() / "config.json", config.dump());
    EXPECT_EQ(checkpoint.tokenizer()->pad(), std::nullopt) << pad;
  }
  config["pad_token_id"] = 9;
  write_file(dir.path() / "config.json", config.dump());
  EXPECT_EQ(checkpoint.tokenizer()->pad(), 9);
  write_file(dir.path() / "generation_config.json", R"({"pad_token_id": -1})");
  EXPECT_EQ(checkpoint.tokenizer()->pad(), std::nullopt) << "the later file says that there is none";
  std::filesystem::remove(dir.path() / "generation_config.json");
  config["pad_token_id"] = "nine";
  write_file(dir.path() / "config.json", config.dump());
  EXPECT_THAT(message_of([&] { checkpoint.tokenizer(); }), HasSubstr("config.json: pad_token_id"));
  config.erase("pad_token_id");

  config["eos_token_id"] = {7, 300};
  write_file(dir.path() / "config.json", config.dump());
  EXPECT_THAT(message_of([&] { checkpoint.tokenizer(); }),
              HasSubstr("config.json: eos_token_id: element: got 300"));
  config["eos_token_id"] = 300;
  write_file(dir.path() / "config.json", config.dump());
  EXPECT_THAT(message_of([&] { checkpoint.tokenizer(); }), HasSubstr("config.json: eos_token_id: got 300"));
}

TEST(CheckpointOpen, RefusesWhatIsNoModel) {
  TempDir dir;
  EXPECT_THAT(open_error(dir.path() / "absent"), HasSubstr("absent: got No such file or directory"));
  EXPECT_THAT(open_error(dir.path()), HasSubstr("got a directory without config.json"));
  write_file(dir.path() / "config.json", huggingface_config(tiny_shape()).dump());
  EXPECT_THAT(open_error(dir.path()), HasSubstr("got no weights, expected model.safetensors"));
  std::filesystem::create_directory(dir.path() / "model.safetensors");
  EXPECT_THAT(open_error(dir.path()),
              HasSubstr("model.safetensors: got Is a directory, expected a regular file"));
}

TEST(CheckpointOpen, ReadingOutsideATensorIsABug) {
  TempDir dir;
  write_tiny_llama(dir.path(), tiny_shape(), 1);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  float value = 0;
  EXPECT_THROW(checkpoint.read_f32("no_such", 0, 1, &value), Bug);
  EXPECT_THROW(checkpoint.read_f32("head", 64, 65, &value), Bug);
  EXPECT_THROW(checkpoint.read_f32("head", -1, 0, &value), Bug);
}

}  // namespace
}  // namespace speclab::checkpoint_test
