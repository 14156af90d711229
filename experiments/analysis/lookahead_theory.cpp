// The theory of lookahead decoding as a StrategyTheory: the fitted law ("lookahead" of summary.json) and
// steps divided over devices ("lookahead_devices").
#include <nlohmann/json.hpp>

#include "experiments/analysis/lookahead_devices.h"
#include "experiments/analysis/lookahead_fit.h"
#include "experiments/analysis/strategy_theory.h"
#include "experiments/metrics/record_fields.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr const char* kFits = "lookahead";
constexpr const char* kDevicesKey = "lookahead_devices";

void require_fits(const json& fits, const std::string& where) {
  require_list(fits,
               {{"alpha", "number"},
                {"alpha_ci95", "array|null"},
                {"f", "number"},
                {"f_ci95", "array|null"},
                {"share", "number|null"},
                {"share_ci95", "?array|null"},
                {"held_out", "?array"},
                {"cells", "array"},
                {"machines", "array"}},
               where);
  const std::initializer_list<RecordField> setting = {
      {"W", "number"}, {"N", "number"}, {"G", "number"}, {"tau", "number"}, {"speedup", "number|null"}};
  for (const json& fit : fits) {
    require_intervals(fit, where);
    const std::string at = where + "/machines";
    require_list(fit["machines"],
                 {{"machine", "string"},
                  {"best", "object"},
                  {"degenerate", "boolean"},
                  {"published", "array"},
                  {"devices", "array"}},
                 at);
    for (const json& machine : fit["machines"]) {
      require_fields(machine["best"], setting, at + "/best");
      require_list(machine["published"], setting, at + "/published");
      require_list(machine["devices"], {{"speedup", "number|null"}}, at + "/devices");
    }
  }
}

void require_devices(const json& list, const std::string& where) {
  require_list(list,
               {{"case", "string"},
                {"devices", "number"},
                {"equal", "boolean"},
                {"rows", "array"},
                {"most_rows", "array|null"},
                {"slowest_ms", "number|null"},
                {"other_ms", "number|null"},
                {"exchange_ms", "number|null"},
                {"speedup", "number|null"},
                {"predicted_speedup", "number|null"},
                {"undivided_speedup", "number|null"}},
               where);
}

void require_options(const json& entry, const std::string& where) {
  if (entry["strategy"] != "lookahead") return;
  require_fields(entry["options"], {{"W", "number"}, {"N", "number"}, {"G", "number"}}, where);
}

void require_sections(json& summary, const std::string& where) {
  require_fields(summary, {{kFits, "?array"}, {kDevicesKey, "?array"}}, where);
  for (const char* name : {kFits, kDevicesKey}) summary.emplace(name, json::array());
  require_fits(summary[kFits], where + "/" + kFits);
  require_devices(summary[kDevicesKey], where + "/" + kDevicesKey);
}

json sections(std::span<const std::shared_ptr<CaseData>> cases, const json& calibration) {
  return {{kFits, lookahead_fits(cases, calibration)}, {kDevicesKey, lookahead_devices(cases, calibration)}};
}

json predictions(const json& sections, const std::string& case_id, const json& tau) {
  return lookahead_prediction(sections.value(kFits, json::array()), case_id, tau);
}

std::optional<TauPrediction> tau_of(const json& sections, const std::string& case_id) {
  std::optional<TauPrediction> out;
  const json all = predictions(sections, case_id, nullptr);
  for (const auto& [name, prediction] : all.items()) {
    out = TauPrediction{prediction["value"].get<double>(),
                        "Eq. 7 of Fu et al. 2024, " + prediction["assumptions"].get<std::string>()};
  }
  return out;
}

std::string text(const json& summary) {
  return lookahead_text(summary) + lookahead_devices_text(summary.value(kDevicesKey, json::array()));
}

}  // namespace

const StrategyTheory kLookaheadTheory = {require_options, require_sections, sections,
                                         predictions,     tau_of,           text};

}  // namespace speclab
