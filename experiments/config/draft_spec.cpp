#include "experiments/config/draft_spec.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "core/base/error.h"
#include "core/base/options_json.h"
#include "experiments/config/config_value.h"
#include "experiments/config/toy_spec.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Layer numbers with ranges for consecutive ones: "0-4,29".
std::string layer_text(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    if (i > 0) text += ',';
    text += end > i ? fmt::format("{}-{}", layers[i], layers[end]) : fmt::format("{}", layers[i]);
    i = end + 1;
  }
  return text;
}

}  // namespace

std::vector<int> spread_layers(int keep, int count) {
  if (keep < 1 || keep > count) {
    throw Error({.what = "draft: layers to keep",
                 .got = std::to_string(keep),
                 .expected = fmt::format("1 to {}, the layers of the target", count),
                 .advice = ""});
  }
  std::vector<int> layers;
  for (int i = 0; i < keep; ++i)
    layers.push_back(
        keep == 1 ? 0 : static_cast<int>((static_cast<long>(i) * (count - 1) + (keep - 1) / 2) / (keep - 1)));
  return layers;
}

InflateShape parse_inflate(const json& value, const std::string& where) {
  InflateShape shape;
  parse_options(option_fields(shape), value, where);
  if (!shape.any())
    wrong_value(where, value, "at least one of hidden, layers, heads, kv_heads, head_dim, ffn, vocab");
  return shape;
}

json to_json(const InflateShape& shape) {
  InflateShape copy = shape;
  json all = echo_options(option_fields(copy)), out = json::object();
  for (const auto& [key, size] : all.items()) {
    if (size != 0) out[key] = size;
  }
  return out;
}

DraftSpec parse_draft(const json& value, std::string name, const std::string& where,
                      const toy::MarkovSpec* toy_target) {
  DraftSpec draft;
  draft.name = std::move(name);
  if (value.is_object() && value.contains("markov") && value.size() == 1) {
    const json& markov = value["markov"];
    if (toy_target == nullptr) {
      wrong_value(where + "/markov", markov,
                  "a draft of another kind: a \"markov\" draft needs a \"markov\" target");
    }
    draft.markov = parse_markov_draft(markov, where + "/markov", *toy_target);
    if (draft.name.empty()) draft.name = markov_name(markov);
    return draft;
  }
  const bool inflated = value.is_object() && value.contains("model") && value.contains("inflate");
  const bool from = value.is_object() && value.contains("model") && value.contains("from");
  if (!value.is_object() || value.size() != 1u + inflated + from ||
      !(value.contains("model") || value.contains("layers"))) {
    wrong_value(
        where, value,
        "{\"model\": PATH}, {\"model\": PATH, \"inflate\": {...}}, {\"layers\": [0, 1, ...]}, {\"layers\": "
        "{\"keep\": N}} or {\"markov\": {...}}");
  }
  if (inflated) {
    if (draft.name.empty())
      wrong_value(where + "/inflate", value["inflate"],
                  "an inflated draft in \"drafts\", so that it has a name");
    draft.inflate = parse_inflate(value["inflate"], where + "/inflate");
  }
  if (value.contains("model")) {
    if (from) draft.from = read_from(value, where);
    const json& model = value["model"];
    if (!model.is_string() || model.get_ref<const std::string&>().empty())
      wrong_value(where + "/model", model, "a path");
    draft.model = model.get<std::string>();
    std::filesystem::path path = std::filesystem::path(draft.model).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (draft.name.empty()) draft.name = path.filename().string();
    return draft;
  }
  const json& layers = value["layers"];
  constexpr int kMostLayers = 10'000;  // also the limit of a checkpoint; keeps numbers within an int
  if (layers.is_object() && layers.size() == 1 && layers.contains("keep") &&
      layers["keep"].is_number_integer() && layers["keep"] > 0 && layers["keep"] <= kMostLayers) {
    draft.keep = layers["keep"].get<int>();
    if (draft.name.empty()) draft.name = fmt::format("keep{}", draft.keep);
    return draft;
  }
  const bool list = layers.is_array() && !layers.empty() &&
                    std::all_of(layers.begin(), layers.end(),
                                [](const json& layer) { return is_natural(layer) && layer < kMostLayers; });
  if (list) draft.layers = layers.get<std::vector<int>>();
  if (!list || std::adjacent_find(draft.layers.begin(), draft.layers.end(), std::greater_equal<>()) !=
                   draft.layers.end()) {
    wrong_value(where + "/layers", layers,
                "an ascending list of layer numbers, or {\"keep\": N} with N from 1 to 10000");
  }
  if (draft.name.empty()) draft.name = "layers" + layer_text(draft.layers);
  return draft;
}

}  // namespace speclab
