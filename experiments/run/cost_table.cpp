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

[[noreturn]] void bad_table(const std::string& where, const std::string& got) {
  throw Error({where + ": step_costs", got, "positive times in ns by number of rows, 1 row among them",
               "Take the table of another run, or leave --costs out to measure it."});
}

}  // namespace

json measure_cost_table(const Model& target, int repeats) {
  const int room = target.config().context / 2;
  const int context = std::min(kContext, room);
  std::vector<int> sizes;
  for (const int n : kSizes) {
    if (n <= std::max(1, room)) sizes.push_back(n);
  }
  const ForwardSamples samples = sample_forwards(target, context, sizes, repeats);
  std::map<int, double> medians;
  for (const auto& [n, times] : samples.device.empty() ? samples.host : samples.device)
    medians[n] = stats::median(times);
  const theory::RowTimes times = theory::RowTimes(medians).monotone();
  json target_ns = json::object();
  for (const auto& [n, unused] : medians) target_ns[fmt::to_string(n)] = times.at(n);
  return {{"context", context}, {"target_ns", target_ns}};
}

json read_cost_table(const std::filesystem::path& run) {
  const json environment = read_json_file(run / "environment.json");
  if (!environment.contains("step_costs")) {
    throw Error({(run / "environment.json").string(), "no \"step_costs\"", "a run that measured them",
                 "Runs with a case whose \"budget\" is \"auto\" measure them."});
  }
  return environment["step_costs"];
}

std::shared_ptr<const StepCosts> step_costs(const json& table, const std::string& where) {
  std::map<int, double> measured;
  try {
    for (const auto& [rows, ns] : table.at("target_ns").items()) {
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
  StepCosts costs;
  for (int n = 1; n <= times.largest_measured(); ++n) costs.target_ns.push_back(times.at(n));
  return std::make_shared<const StepCosts>(std::move(costs));
}

}  // namespace speclab
