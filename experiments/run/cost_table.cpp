#include "experiments/run/cost_table.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/measure/run_result.h"
#include "core/measure/stats.h"
#include "core/theory/step_costs.h"
#include "experiments/run/forward_times.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kContext = 256;
const std::vector<int> kSizes = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
/// A draft model runs over one row for each depth of a chain, over the rows of a level of a tree, and over
/// the tokens that it has missed.
const std::vector<int> kDraftSizes = {1, 2, 4, 8, 16, 32};
/// Number of untimed forwards of the same size before each timed forward of at most kMostRowsAgain rows,
/// because the steps of a text follow steps of a similar size. Right after a forward of many rows, which
/// computes more than it reads, a forward of one row is faster than in a text: 7.8 instead of 9.3 ms for
/// SmolLM2-135M on a Zen 5 with two cores.
constexpr int kForwardsBefore = 4;

[[noreturn]] void bad_table(const std::string& where, const std::string& got) {
  throw Error({where + ": step_costs", got, "positive times in ns by number of rows, 1 row among them",
               "Take the table of another run, or leave --costs out to measure it."});
}

/// The median times of forwards by number of rows. They do not fall as rows grow.
json measured_ns(const Model& model, const std::vector<int>& all_sizes, int repeats) {
  const int room = model.config().context / 2;
  std::vector<int> sizes;
  // A simulated device is slow, and its times mean nothing.
  const int most = std::min(model.backend().simulated() ? 2 : all_sizes.back(), std::max(1, room));
  for (const int n : all_sizes) {
    if (n <= most) sizes.push_back(n);
  }
  const bool simulated = model.backend().simulated();
  const ForwardSamples samples = sample_forwards(
      model, std::min(kContext, room), sizes, simulated ? 1 : repeats, {}, simulated ? 0 : kForwardsBefore);
  std::map<int, double> medians;
  for (const auto& [n, times] : samples.device.empty() ? samples.host : samples.device)
    medians[n] = stats::median(times);
  const theory::RowTimes times = theory::RowTimes(medians).monotone();
  json ns = json::object();
  for (const auto& [n, unused] : medians) ns[fmt::to_string(n)] = times.at(n);
  return ns;
}

/// The times for 1, 2, 3, ... rows. `table` has the measured ones.
std::vector<double> filled(const json& table, const std::string& where) {
  std::map<int, double> measured;
  try {
    for (const auto& [rows, ns] : table.items()) {
      int n = 0;
      const auto [end, code] = std::from_chars(rows.data(), rows.data() + rows.size(), n);
      if (code != std::errc{} || end != rows.data() + rows.size() || n < 1 || n > 100000 ||
          !(ns.get<double>() > 0))
        bad_table(where, fmt::format("\"{}\": {}", rows, ns.dump()));
      measured[n] = ns.get<double>();
    }
  } catch (const json::exception& error) {
    bad_table(where, error.what());
  }
  if (!measured.contains(1)) bad_table(where, "no time of 1 row");
  const theory::RowTimes times = theory::RowTimes(measured).monotone();
  std::vector<double> out;
  for (int n = 1; n <= times.largest_measured(); ++n) out.push_back(times.at(n));
  return out;
}

}  // namespace

json measure_cost_table(const Model& target, const std::map<std::string, const Model*>& drafts, int repeats) {
  json table = {{"context", std::min(kContext, target.config().context / 2)},
                {"target_ns", measured_ns(target, kSizes, repeats)}};
  for (const auto& [name, draft] : drafts)
    table["draft_ns"][name] = measured_ns(*draft, kDraftSizes, repeats);
  return table;
}

json read_cost_table(const std::filesystem::path& run) {
  const json environment = read_json_file(run / "environment.json");
  if (!environment.contains("step_costs")) {
    throw Error({(run / "environment.json").string(), "no \"step_costs\"", "a run that measured them",
                 "Runs with a case whose \"budget\" is \"auto\" measure them."});
  }
  return environment["step_costs"];
}

CostsByDraft step_costs(const json& table, const std::string& where, const std::set<std::string>& drafts) {
  StepCosts costs;
  if (!table.is_object() || !table.contains("target_ns")) bad_table(where, "no \"target_ns\"");
  costs.target_ns = filled(table["target_ns"], where + ": target_ns");
  CostsByDraft all;
  all[""] = std::make_shared<const StepCosts>(costs);
  const json none = json::object();
  const json& of_drafts = table.contains("draft_ns") ? table["draft_ns"] : none;
  if (!of_drafts.is_object()) bad_table(where, "\"draft_ns\" without names of drafts");
  for (const std::string& name : drafts) {
    costs.draft_ns.clear();
    if (of_drafts.contains(name)) costs.draft_ns = filled(of_drafts[name], where + ": draft_ns, " + name);
    all[name] = std::make_shared<const StepCosts>(costs);
  }
  return all;
}

}  // namespace speclab
