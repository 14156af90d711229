#include "core/decoding/drafting/schedules/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/exp_log.h"
#include "core/base/utf8.h"
#include "core/decoding/drafting/schedule.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr std::size_t kMostFeatures = 32, kMostUnits = 64, kMostLayers = 4;
constexpr const char* kTrainController = "Train one with scripts/fit/fit_controller.py.";

[[noreturn]] void refuse_controller(const std::string& place, const json& found,
                                    const std::string& expected) {
  const std::string got = found.is_null()
                              ? std::string("nothing")
                              : printable(found.dump(-1, ' ', false, json::error_handler_t::replace), 57);
  throw Error({place, got, expected, kTrainController});
}

/// The member with this name; null if there is none.
const json& controller_part(const json& of, const char* name) {
  static const json nothing;
  const auto found = of.find(name);
  return found == of.end() ? nothing : *found;
}

bool is_finite_number(const json& value) { return value.is_number() && std::isfinite(value.get<double>()); }

std::vector<double> controller_numbers(const json& list, std::size_t count, const std::string& place) {
  const bool fits = list.is_array() && list.size() == count &&
                    std::ranges::all_of(list, [](const json& value) { return is_finite_number(value); });
  if (!fits) refuse_controller(place, list, fmt::format("a list of {} finite numbers", count));
  return list.get<std::vector<double>>();
}

std::optional<ControllerFeature> feature_named(const std::string& name) {
  using Kind = ControllerFeature::Kind;
  constexpr std::array<std::pair<std::string_view, Kind>, 5> kNames{{{"confidence", Kind::confidence},
                                                                     {"entropy", Kind::entropy},
                                                                     {"margin", Kind::margin},
                                                                     {"position", Kind::position},
                                                                     {"product", Kind::product}}};
  for (const auto& [known, kind] : kNames) {
    if (name == known) return ControllerFeature{kind, 0};
  }
  constexpr std::string_view kTop = "top_";
  if (!name.starts_with(kTop)) return std::nullopt;
  int rank = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kTop.size(), end, rank);
  if (error != std::errc() || stop != end || rank < 1 || rank > Controller::kMostTop) return std::nullopt;
  return ControllerFeature{Kind::top, rank};
}

std::vector<ControllerFeature> controller_features(const json& list, const std::string& place) {
  if (!list.is_array() || list.empty() || list.size() > kMostFeatures)
    refuse_controller(place, list, fmt::format("a list of 1 to {} names of features", kMostFeatures));
  std::vector<ControllerFeature> out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto feature = list[i].is_string() ? feature_named(list[i].get<std::string>()) : std::nullopt;
    if (!feature) {
      refuse_controller(fmt::format("{}/{}", place, i), list[i],
                        fmt::format("confidence, entropy, margin, position, product, or top_1 to top_{}",
                                    Controller::kMostTop));
    }
    out.push_back(*feature);
  }
  return out;
}

/// The schedule with this name. Throws Error if it has no controller.
ScheduleRule controlled_schedule(const json& name, const std::string& place) {
  std::string known;
  for (const ScheduleInfo& info : schedules()) {
    if (!info.needs_controller) continue;
    if (name == json(info.name)) return info.rule;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : " or ", info.name);
  }
  refuse_controller(place, name, known);
}

double top_entry(const ControllerInput& input, int rank) {
  const auto at = static_cast<std::size_t>(rank - 1);
  return at < input.top.size() ? static_cast<double>(input.top[at]) : 0;
}

double value_of(const ControllerFeature& feature, const ControllerInput& input) {
  switch (feature.kind) {
    case ControllerFeature::Kind::confidence: return input.confidence;
    case ControllerFeature::Kind::entropy: return input.entropy;
    case ControllerFeature::Kind::margin: return top_entry(input, 1) - top_entry(input, 2);
    case ControllerFeature::Kind::position: return input.position;
    case ControllerFeature::Kind::product: return input.product;
    case ControllerFeature::Kind::top: break;
  }
  return top_entry(input, feature.rank);
}

double logistic(double z) {
  if (z >= 0) return 1 / (1 + exact_exp(-z));
  const double e = exact_exp(z);
  return e / (1 + e);
}

}  // namespace

Controller Controller::read(const std::filesystem::path& path) {
  return of_json(read_json_file(path), path.string());
}

Controller Controller::of_json(const json& file, const std::string& where) {
  const auto place = [&](const char* name) { return fmt::format("{}: /{}", where, name); };
  const json& format = controller_part(file, "format");
  if (format != kControllerFormat)
    refuse_controller(place("format"), format, fmt::format("\"{}\"", kControllerFormat));
  const json& version = controller_part(file, "version");
  if (version != json(kControllerVersion))
    refuse_controller(place("version"), version, fmt::format("{}", kControllerVersion));
  Controller out;
  out.where_ = where;
  out.schedule_ = controlled_schedule(controller_part(file, "schedule"), place("schedule"));

  const json& draft = controller_part(file, "draft");
  if (!file.contains("draft") || !(draft.is_null() || draft.is_object()))
    refuse_controller(place("draft"), draft, "the draft's name and SHA-256, or null for any draft");
  if (draft.is_object()) {
    const json &name = controller_part(draft, "name"), &sha256 = controller_part(draft, "sha256");
    if (!name.is_string() || name.get<std::string>().empty())
      refuse_controller(place("draft/name"), name, "the name of the draft model");
    if (!sha256.is_string()) refuse_controller(place("draft/sha256"), sha256, "the SHA-256 of the model");
    out.draft_name_ = name.get<std::string>();
    out.draft_sha256_ = sha256.get<std::string>();
  }

  out.features_ = controller_features(controller_part(file, "features"), place("features"));
  for (const ControllerFeature& feature : out.features_) {
    const int needed = feature.kind == ControllerFeature::Kind::margin ? 2 : feature.rank;
    out.top_ = std::max(out.top_, needed);
  }
  out.mean_ = controller_numbers(controller_part(file, "mean"), out.features_.size(), place("mean"));
  const json& scale = controller_part(file, "scale");
  out.scale_ = controller_numbers(scale, out.features_.size(), place("scale"));
  if (std::ranges::any_of(out.scale_, [](double value) { return value <= 0; }))
    refuse_controller(place("scale"), scale, "numbers above 0");

  const json& layers = controller_part(file, "layers");
  if (!layers.is_array() || layers.empty() || layers.size() > kMostLayers)
    refuse_controller(place("layers"), layers, fmt::format("a list of 1 to {} layers", kMostLayers));
  std::size_t inputs = out.features_.size();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string own = fmt::format("{}: /layers/{}", where, i);
    const json &weights = controller_part(layers[i], "weights"), &bias = controller_part(layers[i], "bias");
    const bool last = i + 1 == layers.size();
    if (!weights.is_array() || weights.empty() || weights.size() > kMostUnits ||
        (last && weights.size() != 1)) {
      refuse_controller(own + "/weights", weights,
                        last ? std::string("one row of weights, because the last layer has one output")
                             : fmt::format("1 to {} rows of weights", kMostUnits));
    }
    Layer& layer = out.layers_.emplace_back();
    for (std::size_t row = 0; row < weights.size(); ++row) {
      const std::vector<double> numbers =
          controller_numbers(weights[row], inputs, fmt::format("{}/weights/{}", own, row));
      layer.weights.insert(layer.weights.end(), numbers.begin(), numbers.end());
    }
    layer.bias = controller_numbers(bias, weights.size(), own + "/bias");
    inputs = weights.size();
  }

  const json& threshold = controller_part(file, "threshold");
  if (!is_finite_number(threshold) || threshold.get<double>() < 0 || threshold.get<double>() > 1)
    refuse_controller(place("threshold"), threshold, "a number from 0 to 1");
  out.threshold_ = threshold.get<double>();
  return out;
}

double Controller::acceptance(const ControllerInput& input) const {
  std::array<double, kMostUnits> values{}, next{};
  std::size_t count = features_.size();
  for (std::size_t i = 0; i < count; ++i) values[i] = (value_of(features_[i], input) - mean_[i]) / scale_[i];
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    const bool last = l + 1 == layers_.size();
    for (std::size_t row = 0; row < layer.bias.size(); ++row) {
      double sum = layer.bias[row];
      for (std::size_t i = 0; i < count; ++i) sum += layer.weights[row * count + i] * values[i];
      next[row] = last ? sum : std::max(sum, 0.0);
    }
    values = next;
    count = layer.bias.size();
  }
  return logistic(values[0]);
}

void Controller::require_draft(std::string_view name, std::string_view sha256) const {
  if (draft_name_.empty()) return;
  const bool same_file = sha256.empty() || draft_sha256_.empty() || sha256 == draft_sha256_;
  if (name == draft_name_ && same_file) return;
  throw Error({where_,
               name == draft_name_
                   ? fmt::format("a controller of another file of the draft {} (SHA-256 {}...)", draft_name_,
                                 draft_sha256_.substr(0, 12))
                   : fmt::format("a controller of the draft {}", draft_name_),
               name == draft_name_
                   ? fmt::format("a controller of the draft with the SHA-256 {}...", sha256.substr(0, 12))
                   : fmt::format("a controller of the draft {}", name),
               "Train one for this draft with scripts/fit/fit_controller.py."});
}

}  // namespace speclab
