#include "experiments/simulate/sweep.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/simulate/timelines/batch.h"
#include "core/theory/cost.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/lookahead_fit.h"
#include "experiments/analysis/table.h"
#include "experiments/simulate/case_pricing.h"
#include "experiments/simulate/run_shapes.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr double kLeastOpsPerByte = .25, kMostOpsPerByte = 1024, kStepsPerDoubling = 2;
constexpr int kMostFreeRows = 1024;
constexpr double kRatioDigits = 1e-3;  ///< relative width at which the search for a ratio ends
constexpr int kShownPoints = 6;        ///< points that the text shows

/// Where a case pays within the points of the axis: nowhere, everywhere, or on one side of the break-even.
enum class Pays { never, always, above, below };
NLOHMANN_JSON_SERIALIZE_ENUM(
    Pays, {{Pays::never, "never"}, {Pays::always, "always"}, {Pays::above, "above"}, {Pays::below, "below"}})

const char* name_of(SweepAxis axis) {
  switch (axis) {
    case SweepAxis::ridge: return "ridge";
    case SweepAxis::rows: return "rows";
    case SweepAxis::batch: break;
  }
  return "batch";
}

const char* unit_of(SweepAxis axis) {
  switch (axis) {
    case SweepAxis::ridge: return "peak operations / bandwidth, operations per byte";
    case SweepAxis::rows: return "free rows";
    case SweepAxis::batch: break;
  }
  return "sequences";
}

std::vector<double> points_of(SweepAxis axis) {
  std::vector<double> points;
  if (axis == SweepAxis::ridge) {
    const auto steps =
        static_cast<int>(std::lround(kStepsPerDoubling * std::log2(kMostOpsPerByte / kLeastOpsPerByte)));
    for (int i = 0; i <= steps; ++i) points.push_back(kLeastOpsPerByte * std::exp2(i / kStepsPerDoubling));
    return points;
  }
  for (int x = 1; x <= (axis == SweepAxis::rows ? kMostFreeRows : kMostSequences); x *= 2)
    points.push_back(x);
  return points;
}

/// The speedup of a case at a point of the axis.
using SpeedupAt = std::function<double(double)>;

/// The case with the costs of its own calibration, but with the given number of free rows.
SpeedupAt at_free_rows(const PricedSteps& steps) {
  auto costs = calibration_of(steps.data(), steps.data().calibration);
  if (!costs) {
    throw Error({.what = steps.data().id(),
                 .got = "a calibration without costs of this case and its reference",
                 .expected = "a run whose calibration has both",
                 .advice = ""});
  }
  const double one_row = costs->target.at(1), other_ar = costs->t_ar - one_row;
  return [&steps, costs = *costs, one_row, other_ar](double rows) mutable {
    std::map<int, double> times;
    const theory::RowTimes free = free_row_times(static_cast<int>(rows));
    for (int n = 1; n <= steps.most_rows(); ++n) times[n] = one_row * free.at(n);
    costs.target = theory::RowTimes(std::move(times));
    costs.t_ar = one_row + other_ar;
    return steps.at(costs).value().speedup;
  };
}

SpeedupAt at_point(SweepAxis axis, const PricedSteps& steps, const SimulatedDevice& device,
                   const ModelShapes& shapes) {
  if (axis == SweepAxis::rows) return at_free_rows(steps);
  const double context = mean_context(steps.data());
  if (axis == SweepAxis::batch) {
    return [&steps, &device, &shapes, context](double batch) {
      const Pricing pricing{device, shapes, static_cast<int>(batch), context};
      return steps.at(device_costs(steps, pricing)).value().speedup;
    };
  }
  return [&steps, &device, &shapes, context](double ratio) {
    SimulatedDevice changed = device;
    changed.rates->flops_per_second = ratio * changed.rates->bytes_per_second;
    changed.device = std::make_shared<simulate::Roofline>(*changed.rates, device.name);
    return steps.at(device_costs(steps, {changed, shapes, 1, context})).value().speedup;
  };
}

/// The batches that pay by simulate::paying_batches(), for a case with a single draft model, on one device
/// with a plain roofline: [from, to], where null stands for no end. Null for other cases and devices.
json closed_form(const PricedSteps& steps, const SimulatedDevice& device, const ModelShapes& shapes) {
  const auto works = draft_works(steps.data());
  if (!device.rates || device.rates->host || device.rates->experts || device.rates->devices > 1)
    return nullptr;
  if (works.size() != 1 || !shapes.contains("") || !shapes.contains(works.front().first)) return nullptr;
  const simulate::RooflineRates& rates = *device.rates;
  double count = 0, rows = 0;
  for (const FedRows& one : steps.fed()) {
    count += one.steps;
    for (std::size_t n = 0; n < one.rows.size(); ++n) rows += one.rows[n] * static_cast<double>(n);
  }
  const double context = mean_context(steps.data());
  const auto forward = [&](const theory::DecoderShape& shape) {
    return theory::forward_cost(shape, {.context = context, .keys = theory::causal_keys(context, 1)});
  };
  const auto ns = [](double amount, double rate) { return 1e9 * amount / rate; };
  const auto floor = [&](const theory::DecoderShape& shape) {
    return rates.forward_floor_ns + shape.layers * rates.layer_floor_ns;
  };
  const theory::DecoderShape &target = shapes.at(""), &draft = shapes.at(works.front().first);
  const theory::ForwardCost of_target = forward(target), of_draft = forward(draft);
  const double calls = static_cast<double>(works.front().second.calls) / count;
  const auto range = simulate::paying_batches(
      {.floor = floor(target) + rates.step_ns,
       .weights = ns(of_target.weight_bytes, rates.bytes_per_second),
       .cache = ns(of_target.bytes() - of_target.weight_bytes, rates.bytes_per_second),
       .row = ns(of_target.flops(), rates.flops_per_second),
       .draft = calls * (ns(of_draft.weight_bytes, rates.bytes_per_second) + floor(draft)),
       .draft_sequence = calls * ns(of_draft.bytes() - of_draft.weight_bytes, rates.bytes_per_second)},
      steps.tau(), rows / count);
  return {range.from, std::isfinite(range.to) ? json(range.to) : json()};
}

/// The point `good` pays, and its neighbour `bad` does not. Returns the last value from `good` on that pays.
double crossing(SweepAxis axis, const SpeedupAt& speedup, double good, double bad) {
  if (axis != SweepAxis::ridge) {  // the last whole number that pays
    while (std::abs(bad - good) > 1) {
      const double middle = std::floor((good + bad) / 2);
      (speedup(middle) >= 1 ? good : bad) = middle;
    }
    return good;
  }
  while (std::abs(bad / good - 1) > kRatioDigits) {
    const double middle = std::sqrt(good * bad);
    (speedup(middle) >= 1 ? good : bad) = middle;
  }
  return good;
}

json swept_case(SweepAxis axis, const PricedSteps& steps, const SimulatedDevice& device,
                const ModelShapes& shapes, const std::vector<double>& points) {
  json row = {{"case", steps.data().id()}, {"tau", nullptr},  {"speedup", nullptr},
              {"break_even", nullptr},     {"pays", nullptr}, {"closed_form", nullptr},
              {"problem", nullptr}};
  if (steps.tau() == 0) return row["problem"] = "no steps", row;
  try {
    const SpeedupAt speedup = at_point(axis, steps, device, shapes);
    std::vector<double> values;
    for (const double x : points) values.push_back(speedup(x));
    row["tau"] = steps.tau();
    row["speedup"] = values;
    if (axis == SweepAxis::batch) row["closed_form"] = closed_form(steps, device, shapes);
    // Walks from the end where the machine has most to spare to the first point that does not pay.
    const bool from_above = axis != SweepAxis::batch;
    const auto at = [&](std::size_t i) { return from_above ? points.size() - 1 - i : i; };
    std::size_t good = 0;
    while (good < points.size() && values[at(good)] >= 1) ++good;
    if (good == 0) {
      row["pays"] = Pays::never;
    } else if (good == points.size()) {
      row["pays"] = Pays::always;
    } else {
      row["pays"] = from_above ? Pays::above : Pays::below;
      row["break_even"] = crossing(axis, speedup, points[at(good - 1)], points[at(good)]);
    }
  } catch (const Error& error) {
    row["problem"] = error.what();
  }
  return row;
}

std::string point_text(double x) { return number_text(json(x)); }

std::string range_text(const json& range) {
  if (range.is_null()) return "—";
  if (range[1].is_null())
    return range[0] == 0 ? "at every batch" : "from " + point_text(range[0].get<double>());
  return range[1] == 0 ? "never" : "up to " + point_text(range[1].get<double>());
}

std::string sentence(const json& row, const std::vector<double>& points) {
  const auto pays = row["pays"].get<Pays>();
  if (pays == Pays::never) return "never";
  if (pays == Pays::always)
    return fmt::format("from {} to {}", point_text(points.front()), point_text(points.back()));
  const std::string at = point_text(row["break_even"].get<double>());
  return pays == Pays::above ? "from " + at : "up to " + at;
}

}  // namespace

SimulatedDevice ideal_device() {
  SimulatedDevice out;
  out.name = "a device without floors";
  out.kind = DeviceKind::roofline;
  out.source =
      "Roofline model: the longer of bytes / bandwidth and operations / peak. Nothing else takes time.";
  // The rates cancel in a speedup; the sweep changes the peak.
  out.rates = simulate::RooflineRates{.bytes_per_second = 1e12, .flops_per_second = 1e12};
  out.device = std::make_shared<simulate::Roofline>(*out.rates, out.name);
  return out;
}

json swept(const RunData& run, SweepAxis axis, const SimulatedDevice& device) {
  if (axis == SweepAxis::ridge && !device.rates) {
    throw Error({.what = device.name,
                 .got = fmt::format("a device of kind {}", to_string(device.kind)),
                 .expected = "a device with a roofline, whose peak the sweep can change",
                 .advice = "For example --device h100, or no device."});
  }
  const std::vector<double> points = points_of(axis);
  const ModelShapes shapes = run_shapes(run.environment, device.weight_bytes, device.kv_bytes);
  const bool own = axis == SweepAxis::rows;
  json out = {{"sweep", name_of(axis)},
              {"unit", unit_of(axis)},
              {"device", own ? json() : json(device.name)},
              {"source", own ? json() : json(device.source)},
              {"simulation", true},
              {"points", points},
              {"cases", json::array()}};
  for (const auto& data : run.cases) {
    if (!data->reference) continue;
    const PricedSteps steps(*data);
    out["cases"].push_back(swept_case(axis, steps, device, shapes, points));
  }
  return out;
}

std::string swept_text(const json& sweep) {
  const std::vector<double> points = sweep["points"];
  const std::string device =
      sweep["device"].is_null() ? "this run's machine with another t(n)" : sweep["device"].get<std::string>();
  std::string text =
      fmt::format("Simulated on {}: speedup by {}.\n", device, sweep["unit"].get<std::string>());
  if (!sweep["source"].is_null()) text += "Source: " + sweep["source"].get<std::string>() + "\n";
  Table table{.header = {"case", "tau"}, .rows = {}, .right = {false, true}};
  std::vector<std::size_t> shown;
  for (int i = 0; i < kShownPoints; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * (points.size() - 1) / (kShownPoints - 1);
    shown.push_back(at);
    table.header.push_back(point_text(points[at]));
    table.right.push_back(true);
  }
  table.header.push_back("pays");
  const bool forms =
      std::ranges::any_of(sweep["cases"], [](const json& row) { return !row["closed_form"].is_null(); });
  if (forms) table.header.push_back("pays, closed form");
  std::string problems;
  for (const json& row : sweep["cases"]) {
    if (!row["problem"].is_null()) {
      problems += fmt::format("{}: {}\n", row["case"].get<std::string>(), row["problem"].get<std::string>());
      continue;
    }
    std::vector<std::string> cells = {row["case"], number_text(row["tau"])};
    for (const std::size_t at : shown) cells.push_back(number_text(row["speedup"][at]));
    cells.push_back(sentence(row, points));
    if (forms) cells.push_back(range_text(row["closed_form"]));
    table.rows.push_back(std::move(cells));
  }
  text += "\n" + to_text(table);
  if (!problems.empty()) text += "\n\nNot simulated:\n" + problems;
  return text;
}

}  // namespace speclab
