#include "core/model/files/gguf_family.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr TensorNames kLlamaNames{.layer = "blk.{}.",
                                  .token_embedding = "token_embd",
                                  .position_embedding = "position_embd",
                                  .final_norm = "output_norm",
                                  .head = "output",
                                  .attn_norm = "attn_norm",
                                  .attn_post_norm = "post_attention_norm",
                                  .ffn_norm = "ffn_norm",
                                  .ffn_post_norm = "post_ffw_norm",
                                  .q_norm = "attn_q_norm",
                                  .k_norm = "attn_k_norm",
                                  .q = "attn_q",
                                  .k = "attn_k",
                                  .v = "attn_v",
                                  .attn_out = "attn_output",
                                  .gate = "ffn_gate",
                                  .up = "ffn_up",
                                  .down = "ffn_down"};

constexpr TensorNames fused(bool gate_up) {
  TensorNames names = kLlamaNames;
  names.q = names.k = names.v = "attn_qkv";
  names.qkv = TensorNames::Fused::kStacked;
  names.fused_gate_up = gate_up;
  return names;
}

/// Layers with layer % pattern == pattern - 1 see all positions, the others only the window.
void set_windows(const GgufSettings& settings, int pattern, ModelConfig& config) {
  if (settings.has("attention.sliding_window_pattern"))
    pattern = settings.integer("attention.sliding_window_pattern", 1, INT32_MAX);
  const int window = settings.integer("attention.sliding_window", 1, INT32_MAX);
  config.windows.clear();
  for (int i = 0; i < config.layers; ++i) config.windows.push_back((i + 1) % pattern == 0 ? 0 : window);
}

void read_llama(const GgufSettings& settings, ModelConfig& config) {
  if (!settings.has("attention.sliding_window")) return;
  const int window = settings.integer("attention.sliding_window", 0, INT32_MAX);
  if (window > 0) config.windows.assign(static_cast<std::size_t>(config.layers), window);
}

void read_qwen2(const GgufSettings& settings, ModelConfig& config) {
  read_llama(settings, config);
  config.qkv_bias = true;
}

void read_qwen3(const GgufSettings& settings, ModelConfig& config) {
  read_llama(settings, config);
  config.qk_norm = true;
}

void read_smollm3(const GgufSettings& settings, ModelConfig& config) {
  read_llama(settings, config);
  for (int i = 3; i < config.layers; i += 4) config.rope_of[static_cast<std::size_t>(i)] = -1;
}

void read_gpt2(const GgufSettings&, ModelConfig& config) {
  config.activation = Activation::kGeluTanh;
  config.gated = false;
  config.qkv_bias = config.attn_out_bias = config.ffn_bias = true;
  config.position_rows = config.context;
}

void read_gpt_neox(const GgufSettings& settings, ModelConfig& config) {
  config.activation = Activation::kGelu;
  config.gated = false;
  config.qkv_bias = config.attn_out_bias = config.ffn_bias = true;
  config.parallel = settings.file().flag(settings.key("use_parallel_residual"));
}

/// `large` is the number of layers of the 27B model. That model scales attention scores by 1 / sqrt(hidden /
/// heads), all other models by 1 / sqrt(head_dim).
void read_gemma(const GgufSettings& settings, int large, ModelConfig& config) {
  config.activation = Activation::kGeluTanh;
  config.norm_offset = 1;
  config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  const int width = config.layers == large ? config.hidden / config.heads : config.head_dim;
  config.attention_scale = settings.positive_or("attention.scale", 1 / std::sqrt(static_cast<float>(width)));
}

void read_gemma2(const GgufSettings& settings, ModelConfig& config) {
  read_gemma(settings, 46, config);
  config.attention_soft_cap = settings.positive_or("attn_logit_softcapping", 50);
  config.logit_soft_cap = settings.positive_or("final_logit_softcapping", 30);
  set_windows(settings, 2, config);
}

void read_gemma3(const GgufSettings& settings, ModelConfig& config) {
  read_gemma(settings, 62, config);
  config.qk_norm = true;
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (settings.has(name)) settings.refuse(name, "a soft cap", "none", "Gemma 3 has none.");
  }
  set_windows(settings, 6, config);
  Rope local;
  local.dims = config.head_dim;
  local.theta = settings.positive_or("rope.freq_base_swa", 10000);
  config.ropes.push_back(local);
  for (int i = 0; i < config.layers; ++i)
    config.rope_of[static_cast<std::size_t>(i)] = config.window(i) > 0 ? 1 : 0;
}

constexpr const char* kShortFactors = "rope_factors_short.weight";
constexpr const char* kLongFactors = "rope_factors_long.weight";

constexpr std::array kFamilies{
    GgufFamily{"llama", kLlamaNames, true, true, true, false, 10000, read_llama},
    GgufFamily{"qwen2", kLlamaNames, false, true, true, false, 0, read_qwen2},
    GgufFamily{"qwen3", kLlamaNames, false, true, true, false, 0, read_qwen3},
    GgufFamily{"gpt2", fused(false), false, false, false, false, 0, read_gpt2},
    GgufFamily{"gptneox", fused(false), false, false, true, true, 10000, read_gpt_neox},
    GgufFamily{"gemma2", kLlamaNames, false, true, true, false, 10000, read_gemma2},
    GgufFamily{"gemma3", kLlamaNames, false, true, true, false, 0, read_gemma3},
    GgufFamily{"phi3", fused(true), false, true, true, true, 10000, read_llama},
    GgufFamily{"smollm3", kLlamaNames, true, true, true, false, 0, read_smollm3},
};

/// Reads a list with one factor for each rotated pair.
std::vector<float> read_divisors(const GgufSettings& settings, const char* name, int count) {
  const StoredTensor* tensor = settings.tensor(name);
  const std::string what = fmt::format("{}: tensor {}", settings.file_name(), name);
  if (tensor == nullptr)
    throw Error({what, "nothing", fmt::format("F32 [{}], because LongRoPE needs two lists of factors", count),
                 "The file is incomplete; convert the model again."});
  if (tensor->type != TensorType::kF32 || tensor->shape != std::vector<std::int64_t>{count}) {
    throw Error({what, fmt::format("{} [{}]", tensor->type_name, fmt::join(tensor->shape, ", ")),
                 fmt::format("F32 [{}], one factor for each rotated pair", count), ""});
  }
  std::vector<float> out(static_cast<std::size_t>(count));
  dequantize(TensorType::kF32, tensor->data.data(), count, out.data());
  for (const float divisor : out) {
    if (!(divisor > 0) || !std::isfinite(divisor))
      throw Error({what, fmt::format("{}", divisor), "positive factors", ""});
  }
  return out;
}

}  // namespace

GgufSettings::GgufSettings(const GgufFile& file, std::string file_name)
    : file_(file), file_name_(std::move(file_name)), architecture_(file.text("general.architecture")) {}

void GgufSettings::refuse(const std::string& name, std::string got, std::string expected,
                          std::string advice) const {
  throw Error({fmt::format("{}: metadata {}", file_name_, key(name)), std::move(got), std::move(expected),
               std::move(advice)});
}

float GgufSettings::positive(const std::string& name) const {
  const double number = file_.real(key(name));
  const auto value = static_cast<float>(number);
  if (!(value > 0) || !std::isfinite(value)) refuse(name, fmt::format("{}", number), "a positive number", "");
  return value;
}

const StoredTensor* GgufSettings::tensor(const char* name) const {
  const auto& tensors = file_.tensors();
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

bool is_rope_tensor(const std::string& name) {
  return name == "rope_freqs.weight" || name == kShortFactors || name == kLongFactors;
}

const GgufFamily& gguf_family(const GgufSettings& settings) {
  std::string known;
  for (const GgufFamily& family : kFamilies) {
    if (settings.architecture() == family.architecture) return family;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", family.architecture);
  }
  throw Error({settings.file_name() + ": metadata general.architecture",
               fmt::format("\"{}\"", settings.architecture()), known,
               "Other architectures are not supported."});
}

Rope read_gguf_rope(const GgufSettings& settings, const GgufFamily& family, ModelConfig& config) {
  Rope rope;
  // llama.cpp assumes 10,000 for every architecture. But models of some architectures have another base,
  // which some converters drop; for these architectures a missing base is an error.
  rope.theta = family.default_theta > 0 ? settings.positive_or("rope.freq_base", family.default_theta)
                                        : settings.positive("rope.freq_base");
  rope.dims = config.head_dim;
  if (settings.has("rope.dimension_count")) {
    const int dims = settings.integer("rope.dimension_count", 0, INT32_MAX);
    const bool fits =
        family.partial_rope ? dims >= 2 && dims % 2 == 0 && dims <= config.head_dim : dims == config.head_dim;
    if (!fits) {
      settings.refuse("rope.dimension_count", fmt::format("{}", dims),
                      fmt::format("{}the width of a head, {}",
                                  family.partial_rope ? "an even number up to " : "", config.head_dim),
                      "Other widths are not supported.");
    }
    rope.dims = dims;
  }
  const bool longrope = settings.tensor(kShortFactors) != nullptr ||
                        settings.tensor(kLongFactors) != nullptr;  // files need not state the type
  const std::string type = settings.has("rope.scaling.type")
                               ? std::string(settings.file().text(settings.key("rope.scaling.type")))
                               : "none";
  if (type == "linear") {
    rope.scaling = Rope::Scaling::kLinear;
    rope.factor = settings.positive("rope.scaling.factor");
  } else if (type == "yarn") {
    if (rope.theta <= 1)
      settings.refuse("rope.freq_base", fmt::format("{}", rope.theta), "a base above 1 with YaRN", "");
    rope.scaling = Rope::Scaling::kYarn;
    rope.factor = settings.positive("rope.scaling.factor");
    rope.original_context = settings.integer("rope.scaling.original_context_length", 1, INT32_MAX);
    rope.attention_factor =
        rope.factor <= 1 ? 1 : static_cast<float>(0.1 * std::log(static_cast<double>(rope.factor)) + 1);
    for (const char* name : {"attn_factor", "yarn_attn_factor", "yarn_ext_factor", "yarn_log_multiplier",
                             "yarn_beta_fast", "yarn_beta_slow"}) {
      const std::string key = fmt::format("rope.scaling.{}", name);
      if (settings.has(key))
        settings.refuse(key, "a value", "nothing", "Only YaRN with its usual constants is supported.");
    }
    config.context = std::max(
        config.context, static_cast<int>(std::min(static_cast<double>(rope.factor) * rope.original_context,
                                                  static_cast<double>(INT32_MAX))));
  } else if (type != "none" && !(type == "longrope" && longrope)) {
    settings.refuse("rope.scaling.type", fmt::format("\"{}\"", type),
                    "\"none\", \"linear\", \"yarn\", or \"longrope\" with its two tensors",
                    "This RoPE scaling is not supported: use a model without it.");
  }
  for (const char* name : {"rope.scale_linear", "rope.scaling.factor"}) {
    if (rope.scaling != Rope::Scaling::kNone || !settings.has(name)) continue;
    const double factor = settings.file().real(settings.key(name));
    if (factor != 1. && factor != 0.)
      settings.refuse(name, fmt::format("{}", factor), "1, unless rope.scaling.type is linear or yarn",
                      "State the type of the scaling.");
  }
  const bool listed = settings.tensor("rope_freqs.weight") != nullptr;
  if (!listed && !longrope) return rope;
  const char* name = listed ? "rope_freqs.weight" : kShortFactors;
  if (rope.scaling != Rope::Scaling::kNone || (listed && longrope)) {
    throw Error({fmt::format("{}: tensor {}", settings.file_name(), name), "factors of a second RoPE scaling",
                 "only one RoPE scaling in a file", ""});
  }
  rope.scaling = Rope::Scaling::kListed;
  rope.divisors = read_divisors(settings, name, rope.dims / 2);
  if (longrope) {
    rope.long_divisors = read_divisors(settings, kLongFactors, rope.dims / 2);
    rope.original_context = settings.integer("rope.scaling.original_context_length", 1, INT32_MAX);
    rope.attention_factor = settings.positive("rope.scaling.attn_factor");
  }
  return rope;
}

}  // namespace speclab
