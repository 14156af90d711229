#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "core/base/error.h"
#include "core/model/files/checkpoint.h"
#include "core/model/net/rope_table.h"
#include "core/model/net/session.h"
#include "tests/model/files/gguf_files.h"

// The golden models of tests/golden/families as GGUF files, with the names and metadata of llama.cpp's
// converter, give the same logits as their Hugging Face directories. family_oracle_test.cpp compares those
// with transformers.

namespace speclab::gguf_family_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using W = GgufWriter;
namespace fs = std::filesystem;

Checkpoint directory(const std::string& name) {
  return Checkpoint::open(fs::path(SPECLAB_SOURCE_DIR) / "tests/golden/families" / name);
}

std::vector<float> values(const Checkpoint& from, const std::string& tensor, std::int64_t rows,
                          std::int64_t columns) {
  std::vector<float> out(static_cast<std::size_t>(rows * columns));
  from.read_f32(tensor, 0, rows, out.data());
  return out;
}

/// Fuses tensors of the checkpoint into one tensor of the file: BF16 matrices, and
/// F32 vectors as in converted files.
void add(W& to, const Checkpoint& from, const std::string& file_name, const std::vector<std::string>& parts,
         int interleaved_heads = 0) {
  std::vector<float> all;
  std::vector<std::uint64_t> shape;
  for (const std::string& part : parts) {
    const auto info = std::find_if(from.tensors().begin(), from.tensors().end(),
                                   [&](const auto& t) { return t.name == part; });
    const bool vector = info->shape.size() == 1;
    const std::int64_t rows = vector ? 1 : info->shape[0], columns = info->shape.back();
    const std::vector<float> own = values(from, part, rows, columns);
    const float offset = part.ends_with("norm") ? from.config().norm_offset : 0;
    for (const float value : own) all.push_back(value + offset);
    if (shape.empty())
      shape = vector ? std::vector<std::uint64_t>{0}
                     : std::vector<std::uint64_t>{static_cast<std::uint64_t>(columns), 0};
    shape.back() += static_cast<std::uint64_t>(vector ? columns : rows);
  }
  if (interleaved_heads > 0) {
    const std::vector<float> halves = all;
    const std::size_t columns = shape[0], width = shape[1] / static_cast<std::size_t>(interleaved_heads);
    for (std::size_t row = 0; row < shape[1]; ++row) {
      const std::size_t i = row % width, at = row - i + 2 * (i % (width / 2)) + i / (width / 2);
      std::copy_n(halves.begin() + static_cast<std::ptrdiff_t>(row * columns), columns,
                  all.begin() + static_cast<std::ptrdiff_t>(at * columns));
    }
  }
  const std::string type = shape.size() == 1 ? "F32" : "BF16";
  to.tensors.push_back({file_name, shape, ggml_type(type), encode(all, type)});
}

/// The tensors of all architectures. `fused`: attn_qkv as one tensor; `gate_up`: gate and up as one tensor
/// too.
W writer(const Checkpoint& from, const std::string& architecture, bool fused = false,
         bool interleaved = false, bool gate_up = false) {
  const ModelConfig& c = from.config();
  W out;
  out.add("general.architecture", architecture.c_str());
  const auto number = [&](const char* key, int value) {
    out.add(architecture + "." + key, static_cast<std::uint32_t>(value));
  };
  number("embedding_length", c.hidden);
  number("block_count", c.layers);
  number("feed_forward_length", c.ffn);
  number("context_length", c.context);
  number("attention.head_count", c.heads);
  number("attention.head_count_kv", c.kv_heads);
  number("attention.key_length", c.head_dim);
  out.add(architecture + (c.norm == NormKind::kRms ? ".attention.layer_norm_rms_epsilon"
                                                   : ".attention.layer_norm_epsilon"),
          c.norm_eps);
  if (!c.ropes.empty()) {
    number("rope.dimension_count", c.ropes[0].dims);
    out.add(architecture + ".rope.freq_base", c.rope_theta);
  }
  const auto copy = [&](const std::string& file_name, std::vector<std::string> parts, int heads = 0) {
    add(out, from, file_name + ".weight", parts, heads);
    for (std::string& part : parts) part += ".bias";
    if (from.has(parts[0])) add(out, from, file_name + ".bias", parts);
  };
  copy("token_embd", {"token_embedding"});
  if (from.has("position_embedding")) copy("position_embd", {"position_embedding"});
  if (from.has("head")) copy("output", {"head"});
  copy("output_norm", {"final_norm"});
  for (int layer = 0; layer < c.layers; ++layer) {
    const std::string own = "layers." + std::to_string(layer) + ".",
                      file = "blk." + std::to_string(layer) + ".";
    if (fused) copy(file + "attn_qkv", {own + "attn_q", own + "attn_k", own + "attn_v"});
    if (gate_up) copy(file + "ffn_up", {own + "ffn_gate", own + "ffn_up"});
    for (const auto& [name, file_name] :
         std::vector<std::pair<std::string, std::string>>{{"attn_norm", "attn_norm"},
                                                          {"attn_q", "attn_q"},
                                                          {"attn_k", "attn_k"},
                                                          {"attn_v", "attn_v"},
                                                          {"attn_q_norm", "attn_q_norm"},
                                                          {"attn_k_norm", "attn_k_norm"},
                                                          {"attn_out", "attn_output"},
                                                          {"attn_post_norm", "post_attention_norm"},
                                                          {"ffn_norm", "ffn_norm"},
                                                          {"ffn_post_norm", "post_ffw_norm"},
                                                          {"ffn_gate", "ffn_gate"},
                                                          {"ffn_up", "ffn_up"},
                                                          {"ffn_down", "ffn_down"}}) {
      if (!from.has(own + name)) continue;
      if (fused && (name == "attn_q" || name == "attn_k" || name == "attn_v")) continue;
      if (gate_up && (name == "ffn_gate" || name == "ffn_up")) continue;
      const int heads = !interleaved ? 0 : name == "attn_q" ? c.heads : name == "attn_k" ? c.kv_heads : 0;
      copy(file + file_name, {own + name}, heads);
    }
  }
  return out;
}

std::vector<float> logits(const Checkpoint& checkpoint, int capacity) {
  const auto model = Model::load(checkpoint, make_cpu_backend({1, "f32"}), {});
  const auto session = model->open(capacity);
  std::vector<Token> tokens(40);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>((i * 29 + 3) % 112);
  std::vector<std::int32_t> parents(tokens.size()), rows(tokens.size());
  std::iota(parents.begin(), parents.end(), -1);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> out(tokens.size() * static_cast<std::size_t>(model->config().vocab));
  session->forward(tokens, parents, rows, out.data());
  return out;
}

void expect_same(const Checkpoint& from, const W& file, double tolerance = 0, int capacity = 40) {
  TempDir dir;
  write_file(dir.path() / "m.gguf", file.file());
  const std::vector<float> expected = logits(from, capacity),
                           got = logits(Checkpoint::open(dir.path() / "m.gguf"), capacity);
  ASSERT_EQ(expected.size(), got.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    worst = std::max<double>(worst, std::abs(got[i] - expected[i]));
    largest = std::max<double>(largest, std::abs(expected[i]));
  }
  EXPECT_LE(worst, tolerance * largest);
}

TEST(GgufFamily, Qwen) {
  expect_same(directory("qwen2"), writer(directory("qwen2"), "qwen2"));
  expect_same(directory("qwen3"), writer(directory("qwen3"), "qwen3"));
}

TEST(GgufFamily, Gpt2) {
  W file = writer(directory("gpt2"), "gpt2", true);
  expect_same(directory("gpt2"), file);
  file.erase("gpt2.attention.head_count_kv");  // converters leave it out
  file.erase("gpt2.attention.key_length");
  expect_same(directory("gpt2"), file);
}

TEST(GgufFamily, GptNeox) {
  for (const char* name : {"pythia", "neox_sequential"}) {
    W file = writer(directory(name), "gptneox", true);
    file.add("gptneox.use_parallel_residual", W::kBool,
             std::string(1, directory(name).config().parallel ? '\1' : '\0'));
    expect_same(directory(name), file);
    file.erase("gptneox.rope.freq_base");  // the converter writes none, and all such models have 10,000
    expect_same(directory(name), file);
  }
}

TEST(GgufFamily, Gemma) {
  W two = writer(directory("gemma2"), "gemma2");
  two.add("gemma2.attention.sliding_window", 6u);
  two.add("gemma2.attn_logit_softcapping", 3.f);
  two.add("gemma2.final_logit_softcapping", 30.f);
  two.add("gemma2.attention.scale", 1 / std::sqrt(24.f));
  expect_same(directory("gemma2"), two);
  W three = writer(directory("gemma3"), "gemma3");
  three.add("gemma3.attention.sliding_window", 6u);
  three.add("gemma3.attention.sliding_window_pattern", 3u);
  three.add("gemma3.attention.scale", 1 / std::sqrt(24.f));
  three.add("gemma3.rope.scaling.type", "linear");
  three.add("gemma3.rope.scaling.factor", 8.f);
  expect_same(directory("gemma3"), three);

  // Without the keys: the constants of the released models.
  TempDir dir;
  for (const char* key :
       {"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping", "gemma2.attention.scale"})
    two.erase(key);
  write_file(dir.path() / "m.gguf", two.file());
  const ModelConfig c = Checkpoint::open(dir.path() / "m.gguf").config();
  EXPECT_EQ(c.attention_soft_cap, 50);
  EXPECT_EQ(c.logit_soft_cap, 30);
  EXPECT_EQ(c.attention_scale, .25f);  // heads of 16
  EXPECT_THAT(c.windows, ElementsAre(6, 0));
}

TEST(GgufFamily, Phi3) {
  W file = writer(directory("phi3"), "phi3", true, false, true);
  file.add("phi3.attention.sliding_window", 11u);
  expect_same(directory("phi3"), file);
}

TEST(GgufFamily, SmolLM3RotatesThreeOfFourLayers) {
  W file = writer(directory("smollm3"), "smollm3", false, true);
  const std::size_t count = file.tensors.size();
  for (std::size_t i = 0; i < count; ++i) {  // a fourth layer like the first
    W::Tensor tensor = file.tensors[i];
    if (!tensor.name.starts_with("blk.0.")) continue;
    tensor.name.replace(0, 6, "blk.3.");
    file.tensors.push_back(tensor);
  }
  file.set("smollm3.block_count", 4u);
  TempDir dir;
  write_file(dir.path() / "m.gguf", file.file());
  const Checkpoint checkpoint = Checkpoint::open(dir.path() / "m.gguf");
  EXPECT_THAT(checkpoint.config().rope_of, ElementsAre(0, 0, 0, -1));
  EXPECT_EQ(values(checkpoint, "layers.3.attn_q", 32, 32),
            values(directory("smollm3"), "layers.0.attn_q", 32, 32));
}

TEST(GgufFamily, LlamaWithAWindowAndScaledRope) {
  W mistral = writer(directory("mistral"), "llama", false, true);
  mistral.add("llama.attention.sliding_window", 7u);
  expect_same(directory("mistral"), mistral);

  W linear = writer(directory("llama_linear"), "llama", false, true);
  linear.add("llama.rope.scaling.type", "linear");
  linear.add("llama.rope.scaling.factor", 4.f);
  expect_same(directory("llama_linear"), linear);

  W yarn = writer(directory("llama_yarn"), "llama", false, true);
  yarn.add("llama.rope.scaling.type", "yarn");
  yarn.add("llama.rope.scaling.factor", 4.f);
  yarn.add("llama.rope.scaling.original_context_length", 16u);
  expect_same(directory("llama_yarn"), yarn);

  // Llama 3.1 and later: the divisor of each frequency.
  const Rope scaled = directory("llama_llama3").config().ropes[0];
  Rope plain = scaled;
  plain.scaling = Rope::Scaling::kNone;
  const std::vector<float> from = rope_frequencies(plain, 1), to = rope_frequencies(scaled, 1);
  std::vector<float> factors(from.size());
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = from[i] / to[i];
  EXPECT_GT(factors.back(), 7);
  W llama3 = writer(directory("llama_llama3"), "llama", false, true);
  llama3.tensors.push_back({"rope_freqs.weight", {factors.size()}, 0, encode(factors, "F32")});
  expect_same(directory("llama_llama3"), llama3, 1e-5);
}

TEST(GgufFamily, Phi3WithLongRope) {
  const Checkpoint from = directory("phi3_longrope");
  const Rope& rope = from.config().ropes[0];
  W file = writer(from, "phi3", true, false, true);
  file.add("phi3.rope.scaling.original_context_length", 44u);
  file.add("phi3.rope.scaling.attn_factor", rope.attention_factor);
  const auto list = [&](const char* name, const std::vector<float>& factors) {
    file.tensors.push_back({name, {factors.size()}, 0, encode(factors, "F32")});
  };
  list("rope_factors_long.weight", rope.long_divisors);
  W half = file;
  list("rope_factors_short.weight", rope.divisors);
  for (const int capacity : {44, 45}) expect_same(from, file, 0, capacity);
  file.add("phi3.rope.scaling.type", "longrope");  // written by newer converters
  expect_same(from, file);

  const auto error = [](const W& changed) {
    TempDir dir;
    write_file(dir.path() / "m.gguf", changed.file());
    try {
      Checkpoint::open(dir.path() / "m.gguf");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error(half), HasSubstr("tensor rope_factors_short.weight: got nothing"));
  list("rope_freqs.weight", rope.divisors);
  EXPECT_THAT(error(file), HasSubstr("tensor rope_freqs.weight: got factors of a second RoPE scaling"));
}

std::string error(const char* family, const char* architecture, bool fused,
                  const std::function<void(W&)>& change) {
  W file = writer(directory(family), architecture, fused);
  change(file);
  TempDir dir;
  write_file(dir.path() / "m.gguf", file.file());
  try {
    Checkpoint::open(dir.path() / "m.gguf");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GgufFamily, RefusesWhatIsNotComputed) {
  EXPECT_THAT(error("qwen3", "qwen3", false, [](W& w) { w.add("qwen3.expert_count", 8u); }),
              HasSubstr("metadata qwen3.expert_count: got experts"));
  EXPECT_THAT(error("qwen3", "qwen2", false, [](W&) {}),
              HasSubstr("tensor blk.0.attn_q.bias: got no such tensor"));
  EXPECT_THAT(error("qwen2", "qwen2", false, [](W& w) { w.erase("qwen2.rope.freq_base"); }),
              HasSubstr("qwen2.rope.freq_base: got no such key"));
  EXPECT_THAT(error("qwen2", "qwen2", false, [](W& w) { w.add("qwen2.rope.scaling.type", "longrope"); }),
              HasSubstr("metadata qwen2.rope.scaling.type: got \"longrope\""));
  EXPECT_THAT(error("qwen2", "qwen2", false, [](W& w) { w.add("qwen2.rope.scaling.type", "linear"); }),
              HasSubstr("qwen2.rope.scaling.factor: got no such key"));
  EXPECT_THAT(error("pythia", "gptneox", true, [](W&) {}),
              HasSubstr("gptneox.use_parallel_residual: got no such key"));
  EXPECT_THAT(error("gemma3", "gemma3", false, [](W&) {}),
              HasSubstr("gemma3.attention.sliding_window: got no such key"));
  EXPECT_THAT(error("gpt2", "gpt2", true,
                    [](W& w) { w.tensors.push_back({"rope_freqs.weight", {4}, 0, std::string(16, 0)}); }),
              HasSubstr("tensor rope_freqs.weight"));
  EXPECT_THAT(error("phi3", "phi3", true, [](W& w) { w.set("phi3.rope.dimension_count", 18u); }),
              HasSubstr("dimension_count: got 18, expected an even number up to the width of a head, 16"));
}

}  // namespace
}  // namespace speclab::gguf_family_test
