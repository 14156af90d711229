#include "experiments/analysis/case_iid.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/theory/alpha_estimators.h"
#include "experiments/analysis/case_costs.h"

namespace speclab {

using nlohmann::json;

json iid_tests(const CaseData& data) {
  if (feeds_probes(data)) return nullptr;
  const std::vector<PromptRounds> run = data.rounds();
  json out = json::object();
  if (const auto test = theory::iid_position_test(run)) out["positions"] = {{"p_value", test->p_value}};
  if (const auto prompts = theory::prompt_dispersion(run))
    out["prompts"] = {{"dispersion", prompts->factor}, {"p_value", prompts->chi2.p_value}};
  if (const auto drift = theory::alpha_drift(run))
    out["thirds"] = {{"alpha", drift->alpha}, {"p_value", drift->chi2.p_value}};
  if (constant_gamma(data, theory::draft_length_counts(run))) {
    if (const auto steps = theory::serial_correlation(run)) {
      out["steps"] = {
          {"lag1", steps->lag1}, {"lags", steps->ljung_box.degrees}, {"p_value", steps->ljung_box.p_value}};
    }
  }
  return out.empty() ? json(nullptr) : out;
}

std::string iid_text(const json& tests) {
  std::string text = "acceptance: is it the same everywhere, and independent?";
  const auto number = [&](const char* test, const char* name) { return tests[test][name].get<double>(); };
  if (tests.contains("positions"))
    text += fmt::format(" Positions in the draft: p = {:.3g}.", number("positions", "p_value"));
  if (tests.contains("prompts")) {
    text += fmt::format(" Prompts: dispersion {:.2f} (1 = chance), p = {:.3g}.",
                        number("prompts", "dispersion"), number("prompts", "p_value"));
  }
  if (tests.contains("thirds")) {
    const json& alpha = tests["thirds"]["alpha"];
    text +=
        fmt::format(" Thirds of the texts: alpha {:.3f}, {:.3f}, {:.3f}, p = {:.3g}.", alpha[0].get<double>(),
                    alpha[1].get<double>(), alpha[2].get<double>(), number("thirds", "p_value"));
  }
  if (tests.contains("steps")) {
    text += fmt::format(" Neighbouring steps: correlation {:+.3f}, p = {:.3g} (Ljung-Box, {:.0f} lags).",
                        number("steps", "lag1"), number("steps", "p_value"), number("steps", "lags"));
  }
  return text + " A small p says no.";
}

}  // namespace speclab
