#include "experiments/analysis/trees/device_times.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "experiments/analysis/trees/tree_inputs.h"
#include "experiments/simulate/case_pricing.h"
#include "experiments/simulate/device_file.h"
#include "experiments/simulate/run_match.h"
#include "experiments/simulate/run_shapes.h"
#include "experiments/simulate/table_holes.h"

namespace speclab {
namespace {

constexpr const char* kOption = "--for-device";

/// Throws Error if `name` is the folder of a run whose models differ from those of `run`.
void require_same_models(const RunData& run, const std::string& draft, const std::string& name) {
  const MatchedRun matched = with_models_of_device(run, name);
  if (std::ranges::any_of(matched.run.cases, [&](const auto& one) { return one->config["draft"] == draft; }))
    return;
  throw Error({.what = kOption,
               .got = fmt::format("{}: {}", name, fmt::join(matched.notes, " ")),
               .expected = fmt::format("a device with times of the same draft {}", draft),
               .advice = ""});
}

/// The largest number of rows to price: `nodes`, or fewer if the device's table of times ends before.
int most_rows(const std::map<std::string, std::vector<int>>& measured, int nodes, const std::string& name) {
  const auto target = measured.find("");
  if (target == measured.end() || target->second.empty()) return nodes;
  const int most = target->second.back();
  if (most < 2) {
    throw Error({.what = kOption,
                 .got = fmt::format("{}: target forwards of one row only", name),
                 .expected = "times of forwards of several rows",
                 .advice = "A tree is verified in one forward of several rows."});
  }
  return std::min(most, nodes);
}

}  // namespace

DeviceTimes device_times(const RunData& run, const TreeWish& wish, const std::string& name) {
  const CaseData& trees = *tree_cases(run, wish).front();
  const std::string draft = trees.config["draft"];
  const SimulatedDevice device = open_device(name);
  require_same_models(run, draft, name);
  const auto measured = measured_rows_of(device_content(name));
  const int most = most_rows(measured, wish.nodes, name);
  const ModelShapes shapes = run_shapes(run.environment, device.weight_bytes, device.kv_bytes);
  const Pricing pricing{
      .device = device, .shapes = shapes, .context = trees.reference ? mean_context(trees) : 0};
  std::map<int, double> times;
  for (int rows = 1; rows <= most; ++rows) times[rows] = pricing.forward_ns("", rows);
  return {.machine = device.name + " (simulated)",
          .target = theory::RowTimes(std::move(times)),
          .c = pricing.forward_ns(draft, 1) / pricing.forward_ns("", 1),
          .notes = hole_notes(measured, {{"", most}, {draft, 1}})};
}

}  // namespace speclab
