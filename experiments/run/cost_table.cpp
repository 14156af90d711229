#include "experiments/run/cost_table.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <span>
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
constexpr int kLongContext = 1024;  // for the time of a cached position
const std::vector<int> kSizes = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
/// A draft model runs over one row for each depth of a chain, over the rows of a level of a tree, and over
/// the tokens that it has missed.
const std::vector<int> kDraftSizes = {1, 2, 4, 8, 16, 32};
/// Number of untimed forwards of the same size before each timed forward of at most kMostRowsAgain rows,
/// because the steps of a text follow steps of a similar size. Right after a forward of many rows, which
/// computes more than it reads, a forward of one row is faster than in a text: 7.8 instead of 9.3 ms for
/// SmolLM2-135M on a Zen 5 with two cores.
constexpr int kForwardsBefore = 4;

int context_of(const Model& model) { return std::min(kContext, model.config().context / 2); }

[[noreturn]] void bad_table(const std::string& where, const std::string& got) {
  throw Error({where + ": step_costs", got, "positive times in ns by number of rows, 1 row among them",
               "Take the table of another run, or leave --costs out to measure it."});
}

/// The median times of forwards by number of rows. They do not fall as rows grow.
json measured_ns(const Model& model, const std::vector<int>& all_sizes, int repeats) {
  const int room = model.config().context / 2;
  std::vector<int> sizes;
  // A simulated device is slow, and its times say nothing about a device.
  const int most = std::min(model.backend().simulated() ? 2 : all_sizes.back(), std::max(1, room));
  for (const int n : all_sizes) {
    if (n <= most) sizes.push_back(n);
  }
  const bool simulated = model.backend().simulated();
  const ForwardSamples samples = sample_forwards(model, context_of(model), sizes, simulated ? 1 : repeats, {},
                                                 simulated ? 0 : kForwardsBefore);
  std::map<int, double> medians;
  for (const auto& [n, times] : samples.device.empty() ? samples.host : samples.device)
    medians[n] = stats::median(times);
  const theory::RowTimes times = theory::RowTimes(medians).monotone();
  json ns = json::object();
  for (const auto& [n, unused] : medians) ns[fmt::to_string(n)] = times.at(n);
  return ns;
}

/// The median time of a forward over one row.
double time_of_one_row(const Model& model, int context, int repeats) {
  const bool simulated = model.backend().simulated();
  const ForwardSamples samples =
      sample_forwards(model, context, {1}, simulated ? 1 : repeats, {}, simulated ? 0 : kForwardsBefore);
  return stats::median((samples.device.empty() ? samples.host : samples.device).at(1));
}

/// Adds the times for strategies that draft with the target itself. Negative times are noise and become 0.
void measure_own_drafts(const Model& target, int repeats, json& table) {
  const int context = context_of(target);
  const double whole = time_of_one_row(target, context, repeats);
  const std::span<const int> layers = target.layers();
  table["layer_ns"] = 0;
  if (layers.size() >= 2) {
    const std::vector<int> half(layers.begin(),
                                layers.begin() + static_cast<std::ptrdiff_t>(layers.size() / 2));
    const auto part = Model::with_layers(target.shared_from_this(), half);
    const double left_out = static_cast<double>(layers.size() - half.size());
    table["layer_ns"] = std::max(0.0, (whole - time_of_one_row(*part, context, repeats)) / left_out);
  }
  if (target.backend().simulated()) return;
  const int longer = std::min(kLongContext, target.config().context - 1);
  table["position_ns"] =
      longer > context
          ? std::max(0.0, (time_of_one_row(target, longer, repeats) - whole) / (longer - context))
          : 0.0;
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

json measure_cost_table(const Model& target, const std::map<std::string, const Model*>& drafts,
                        bool own_drafts, int repeats) {
  json table = {{"context", context_of(target)}, {"target_ns", measured_ns(target, kSizes, repeats)}};
  for (const auto& [name, draft] : drafts)
    table["draft_ns"][name] = measured_ns(*draft, kDraftSizes, repeats);
  if (own_drafts) measure_own_drafts(target, repeats, table);
  return table;
}

json read_cost_table(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return read_json_file(path);  // step_costs() checks it
  const json environment = read_json_file(path / "environment.json");
  if (!environment.contains("step_costs")) {
    throw Error(
        {(path / "environment.json").string(), "no \"step_costs\"", "a run that measured them",
         "Runs with a case whose \"budget\" is \"auto\", or whose schedule is bandit, measure them."});
  }
  return environment["step_costs"];
}

CostsByDrafts step_costs(const json& table, const std::string& where,
                         const std::set<std::vector<std::string>>& drafts) {
  StepCosts costs;
  if (!table.is_object() || !table.contains("target_ns")) bad_table(where, "no \"target_ns\"");
  costs.target_ns = filled(table["target_ns"], where + ": target_ns");
  const auto number = [&](const char* name, double missing) {
    if (!table.contains(name)) return missing;
    if (!table[name].is_number() || table[name].get<double>() < 0)
      bad_table(where, fmt::format("\"{}\": {}", name, table[name].dump()));
    return table[name].get<double>();
  };
  costs.layer_ns = number("layer_ns", -1);
  costs.position_ns = number("position_ns", 0);
  costs.context = static_cast<int>(std::min(number("context", 0), 1e9));
  CostsByDrafts all;
  all[std::vector<std::string>()] = std::make_shared<const StepCosts>(costs);
  const json none = json::object();
  const json& of_drafts = table.contains("draft_ns") ? table["draft_ns"] : none;
  if (!of_drafts.is_object()) bad_table(where, "\"draft_ns\" without names of drafts");
  const auto times = [&](const std::string& name) {
    return of_drafts.contains(name) ? filled(of_drafts[name], where + ": draft_ns, " + name)
                                    : std::vector<double>();
  };
  for (const std::vector<std::string>& names : drafts) {
    if (names.empty()) continue;
    StepCosts own = costs;
    own.draft_ns = times(names.front());
    for (std::size_t i = 1; i < names.size(); ++i) own.further_draft_ns.push_back(times(names[i]));
    all[names] = std::make_shared<const StepCosts>(std::move(own));
  }
  return all;
}

}  // namespace speclab
