#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/model/files/huggingface_family.h"

namespace speclab {
namespace {

constexpr std::array<std::string_view, 17> kKnown{"rope_type",
                                                  "type",
                                                  "rope_theta",
                                                  "factor",
                                                  "low_freq_factor",
                                                  "high_freq_factor",
                                                  "original_max_position_embeddings",
                                                  "attention_factor",
                                                  "beta_fast",
                                                  "beta_slow",
                                                  "mscale",
                                                  "mscale_all_dim",
                                                  "truncate",
                                                  "partial_rotary_factor",
                                                  "finetuned",
                                                  "short_factor",
                                                  "long_factor"};

std::string rope_type(const ConfigValues& rope) {
  const std::string old = rope.text_or("type", "default");
  const std::string type = rope.text_or("rope_type", old);
  if (rope.has("rope_type") && rope.has("type") && type != old)
    rope.refuse("type", fmt::format("\"{}\", as rope_type says", type), "Correct one of the two.");
  return type;
}

const char* type_key(const ConfigValues& rope) { return rope.has("rope_type") ? "rope_type" : "type"; }

void lengthen(const ConfigValues& rope, ModelConfig& config, double context) {
  if (context > INT32_MAX) rope.refuse("factor", "a context of less than 2^31 positions", "");
  config.context = std::max(config.context, static_cast<int>(context));
}

void read_yarn(const ConfigValues& rope, ModelConfig& config, Rope& out) {
  out.scaling = Rope::Scaling::kYarn;
  out.factor = rope.has("factor")
                   ? rope.positive("factor")
                   : static_cast<float>(config.context) / static_cast<float>(out.original_context);
  if (rope.has("beta_fast")) out.beta_fast = rope.positive("beta_fast");
  if (rope.has("beta_slow")) out.beta_slow = rope.positive("beta_slow");
  out.truncate = rope.flag_or("truncate", true);
  // Peng et al. 2023, equation 22: q and k are each scaled by sqrt(1/t) = 0.1 ln(s) + 1.
  const auto temperature = [&](double weight) {
    return out.factor <= 1 ? 1.0 : 0.1 * weight * std::log(static_cast<double>(out.factor)) + 1.0;
  };
  if (rope.has("attention_factor")) {
    out.attention_factor = rope.positive("attention_factor");
  } else if (rope.has("mscale") && rope.has("mscale_all_dim")) {
    out.attention_factor = static_cast<float>(temperature(rope.positive("mscale")) /
                                              temperature(rope.positive("mscale_all_dim")));
  } else {
    out.attention_factor = static_cast<float>(temperature(1));
  }
  lengthen(rope, config, static_cast<double>(out.factor) * out.original_context);
}

std::vector<float> read_divisors(const ConfigValues& rope, const char* key, int count) {
  const std::string expected =
      fmt::format("a list of {} positive numbers, one for each rotated pair of dimensions", count);
  const auto& list = rope.at(key);
  if (!list.is_array() || list.size() != static_cast<std::size_t>(count)) rope.refuse(key, expected, "");
  std::vector<float> out;
  for (const auto& number : list) {
    const float value = number.is_number() ? number.get<float>() : 0;
    if (!(value > 0) || !std::isfinite(value)) throw Error({rope.name(key), number.dump(), expected, ""});
    out.push_back(value);
  }
  return out;
}

// LongRoPE (Ding et al. 2024) in Phi-3's form: a list of divisors for texts within the original context,
// another list for longer texts, and one attention factor for both lists.
void read_longrope(const ConfigValues& rope, const ConfigValues& settings, const ModelConfig& config,
                   Rope& out) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  out.scaling = Rope::Scaling::kListed;
  out.original_context = (settings.has(kOriginal) ? settings : rope).integer(kOriginal, 2, INT32_MAX);
  out.divisors = read_divisors(rope, "short_factor", out.dims / 2);
  out.long_divisors = read_divisors(rope, "long_factor", out.dims / 2);
  const double factor = rope.has("factor") ? rope.positive("factor")
                                           : static_cast<double>(config.context) / out.original_context;
  if (rope.has("attention_factor")) out.attention_factor = rope.positive("attention_factor");
  else if (factor > 1)
    out.attention_factor =
        static_cast<float>(std::sqrt(1 + std::log(factor) / std::log(out.original_context)));
}

// Sets the scaling that `rope` describes.
void read_scaling(const ConfigValues& rope, const ConfigValues& settings, ModelConfig& config, Rope& out,
                  bool longrope = false) {
  for (const auto& [key, value] : rope.json().items()) {
    if (std::find(kKnown.begin(), kKnown.end(), key) == kKnown.end() && !value.is_null()) {
      rope.refuse(key.c_str(), "no such key", "This kind of RoPE is not supported.");
    }
  }
  const std::string type = rope_type(rope);
  const auto original = [&] {
    constexpr const char* kKey = "original_max_position_embeddings";
    return settings.has(kKey) ? settings.integer(kKey, 1, INT32_MAX)
                              : rope.integer_or(kKey, config.context, 1, INT32_MAX);
  };
  if (type == "default") return;
  if (longrope) {
    if (type != "longrope" && type != "su" && type != "yarn") {
      rope.refuse(type_key(rope), "\"default\", \"longrope\", \"su\" or \"yarn\"",
                  "This RoPE scaling is not supported in this family: use a model without it.");
    }
    return read_longrope(rope, settings, config, out);
  }
  if (type == "linear") {
    out.scaling = Rope::Scaling::kLinear;
    out.factor = rope.positive("factor");
  } else if (type == "dynamic") {
    if (out.dims <= 2)
      rope.refuse(type_key(rope), "another type, because this one needs more than 2 rotated dimensions", "");
    out.scaling = Rope::Scaling::kDynamic;
    out.factor = rope.positive("factor");
    if (out.factor < 1) rope.refuse("factor", "at least 1", "");
    out.original_context = config.context;
    lengthen(rope, config, static_cast<double>(out.factor) * config.context);
  } else if (type == "llama3") {
    out.scaling = Rope::Scaling::kLlama3;
    out.factor = rope.positive("factor");
    out.low_freq_factor = rope.positive("low_freq_factor");
    out.high_freq_factor = rope.positive("high_freq_factor");
    if (out.high_freq_factor <= out.low_freq_factor)
      rope.refuse("high_freq_factor", "more than low_freq_factor", "");
    out.original_context = original();
  } else if (type == "yarn") {
    if (out.theta <= 1) rope.refuse(type_key(rope), "another type, because YaRN needs a base above 1", "");
    out.original_context = original();
    read_yarn(rope, config, out);
  } else {
    rope.refuse(type_key(rope), "\"default\", \"linear\", \"dynamic\", \"llama3\" or \"yarn\"",
                "This RoPE scaling is not supported: use a model without it.");
  }
}

int rotated_dims(const ConfigValues& where, const char* key, float share, int head_dim) {
  const int dims = static_cast<int>(static_cast<double>(head_dim) * share +
                                    1e-4);  // the share is a float: .7 is stored as a little less
  if (share > 1 || dims < 2 || dims % 2 != 0) {
    where.refuse(
        key,
        fmt::format("a share up to 1; share * head_dim, here head_dim = {}, must be even and at least 2",
                    head_dim),
        "RoPE rotates pairs.");
  }
  return dims;
}

}  // namespace

Rope read_huggingface_rope(const ConfigValues& settings, ModelConfig& config, const RopeKeys& keys) {
  Rope out;
  out.dims = config.head_dim;
  const auto read_partial = [&](const ConfigValues& from, const char* key) {
    if (!from.has(key)) return false;
    const float share = from.positive(key);
    if (keys.partial == nullptr && share != 1)
      from.refuse(key, "1", "Rotating a part of a head is not supported in this family.");
    out.dims = rotated_dims(from, key, share, config.head_dim);
    return true;
  };
  bool partial = read_partial(settings, keys.partial != nullptr ? keys.partial : "partial_rotary_factor");
  if (settings.has("rope_parameters")) {
    const ConfigValues rope = settings.object("rope_parameters");
    partial = read_partial(rope, "partial_rotary_factor") || partial;
    if (rope.has("rope_theta")) out.theta = rope.positive("rope_theta");
  }
  if (!partial && keys.default_partial != 1) {
    throw Error({settings.name(keys.partial), "nothing, neither here nor in rope_parameters",
                 "the share of a head that is rotated", "Write the value that the model was trained with."});
  }
  if (settings.has(keys.theta)) {
    const float top = settings.positive(keys.theta);
    if (out.theta != 0 && out.theta != top) {
      settings.refuse(keys.theta, fmt::format("{}, as in rope_parameters", out.theta),
                      "Correct one of the two.");
    }
    out.theta = top;
  }
  if (out.theta == 0) {
    throw Error(
        {.what = settings.name(keys.theta),
         .got = "nothing, neither here nor in rope_parameters",
         .expected = "the base of the rotary embedding",
         .advice = "Write the value that the model was trained with; a wrong one ruins its text silently."});
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!settings.has(key)) continue;
    const ConfigValues rope = settings.object(key);
    const std::string type = rope_type(rope);
    if (out.scaling != Rope::Scaling::kNone && type != rope_type(settings.object("rope_scaling"))) {
      rope.refuse(type_key(rope), "the same as in rope_scaling", "Correct one of the two.");
    }
    if (out.scaling == Rope::Scaling::kNone) read_scaling(rope, settings, config, out, keys.longrope);
  }
  return out;
}

Rope read_rope_object(const ConfigValues& rope, const ConfigValues& settings, ModelConfig& config) {
  Rope out;
  out.dims = config.head_dim;
  out.theta = rope.positive("rope_theta");
  if (rope.has("partial_rotary_factor") && rope.positive("partial_rotary_factor") != 1)
    rope.refuse("partial_rotary_factor", "1", "Rotating a part of a head is not supported in this family.");
  read_scaling(rope, settings, config, out);
  return out;
}

}  // namespace speclab
