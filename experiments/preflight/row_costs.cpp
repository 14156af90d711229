#include "experiments/preflight/row_costs.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr double kRowNoise = .02;         // of a calibrated t(n), in units of t(1)
constexpr double kStretchParameters = 3;  // where a further stretch begins, and its line
constexpr std::size_t kLeastInStretch = 2;

using RowPoints = std::vector<std::pair<int, double>>;  // n and t(n)

/// The line through some points by least squares.
struct RowLine {
  double constant = 0, slope = 0;
  double misfit = 0;  // sum of the squared distances of the points, in units of the squared noise
  double at(int rows) const { return constant + slope * rows; }
};

/// The line of points[first] to points[end - 1].
RowLine line_over(const RowPoints& points, std::size_t first, std::size_t end) {
  const auto count = static_cast<double>(end - first);
  double x = 0, y = 0, xx = 0, xy = 0;
  for (std::size_t i = first; i < end; ++i) x += points[i].first / count, y += points[i].second / count;
  for (std::size_t i = first; i < end; ++i) {
    const double dx = points[i].first - x;
    xx += dx * dx, xy += dx * (points[i].second - y);
  }
  RowLine line;
  line.slope = xx > 0 ? xy / xx : 0;
  line.constant = y - line.slope * x;
  for (std::size_t i = first; i < end; ++i) {
    const double distance = (points[i].second - line.at(points[i].first)) / kRowNoise;
    line.misfit += distance * distance;
  }
  return line;
}

/// The first point of each stretch, in order.
std::vector<std::size_t> stretch_begins(const RowPoints& points) {
  const std::size_t count = points.size(), least = std::min(kLeastInStretch, count);
  const double penalty = kStretchParameters * std::log(static_cast<double>(count));
  // Entry i is about the points before point i: the least cost, and where their last stretch begins.
  std::vector<double> cost(count + 1, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> last(count + 1, 0);
  cost[0] = 0;
  for (std::size_t end = least; end <= count; ++end) {
    for (std::size_t first = 0; first + least <= end; ++first) {
      const double all = cost[first] + line_over(points, first, end).misfit + (first > 0 ? penalty : 0.0);
      if (all < cost[end]) cost[end] = all, last[end] = first;
    }
  }
  std::vector<std::size_t> begins;
  for (std::size_t end = count; end > 0; end = last[end]) begins.push_back(last[end]);
  std::reverse(begins.begin(), begins.end());
  return begins;
}

/// As a percentage of a forward over one row. A value that rounds to 0 has no sign.
std::string percent_of_forward(double cost) {
  const double percent = 100 * cost;
  return fmt::format("{:.1f} %", std::abs(percent) < .05 ? 0.0 : percent);
}

}  // namespace

std::vector<RowStretch> row_stretches(const std::map<int, double>& t) {
  if (t.empty()) return {};
  const RowPoints points(t.begin(), t.end());
  const std::vector<std::size_t> begins = stretch_begins(points);
  std::vector<RowStretch> out;
  RowLine before;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::size_t first = begins[i], end = i + 1 < begins.size() ? begins[i + 1] : points.size();
    const RowLine line = line_over(points, first, end);
    RowStretch stretch;
    stretch.from = points[first].first;
    stretch.to = points[end - 1].first;
    stretch.row_cost = line.slope;
    if (i > 0) stretch.first_row_cost = line.at(stretch.from) - before.at(out.back().to);
    out.push_back(stretch);
    before = line;
  }
  return out;
}

json row_costs(const CaseData& reference, const json& calibration) {
  std::map<int, double> times;
  for (const auto& [rows, ns] : calibration.at("t_n_ns").items()) times[std::stoi(rows)] = ns.get<double>();
  const double one = times.at(1);
  for (auto& [rows, time] : times) time /= one;
  json out = {{"t1_ms", 1e-6 * one},       {"bytes", nullptr},      {"bandwidth", nullptr},
              {"floor_ms", nullptr},       {"over_floor", nullptr}, {"change_points", json::array()},
              {"stretches", json::array()}};
  const Work work = target_work(reference);
  if (work.calls > 0 && work.weight_bytes > 0)
    out["bytes"] = (work.weight_bytes + work.kv_bytes) / static_cast<double>(work.calls);
  const auto measured = reference.environment.find("read_bandwidth_bytes_per_second");
  if (measured != reference.environment.end() && measured->is_number() && measured->get<double>() > 0)
    out["bandwidth"] = *measured;
  if (out["bytes"].is_number() && out["bandwidth"].is_number()) {
    const double floor_ms = 1e3 * out["bytes"].get<double>() / out["bandwidth"].get<double>();
    out["floor_ms"] = floor_ms;
    out["over_floor"] = 1e-6 * one / floor_ms;
  }
  for (const RowStretch& stretch : row_stretches(times)) {
    if (!out["stretches"].empty()) out["change_points"].push_back(stretch.from);
    out["stretches"].push_back({{"from", stretch.from},
                                {"to", stretch.to},
                                {"row_cost", stretch.row_cost},
                                {"first_row_cost", stretch.first_row_cost}});
  }
  return out;
}

std::string row_costs_text(const json& costs) {
  std::string text =
      fmt::format("A target forward over one token takes {} ms.", number_text(costs.at("t1_ms")));
  if (costs.at("floor_ms").is_number()) {
    text += fmt::format(
        " Its {} MB take {} ms at the measured bandwidth of {} GB/s (the floor), so it takes {} times its "
        "floor.",
        number_text(1e-6 * costs["bytes"].get<double>()), number_text(costs["floor_ms"]),
        number_text(1e-9 * costs["bandwidth"].get<double>()), number_text(costs["over_floor"]));
  } else {
    text += " Its floor is not known: the record lacks the bytes or the bandwidth.";
  }
  text += "\n";
  bool first = true;
  for (const json& stretch : costs.at("stretches")) {
    const int from = stretch["from"], to = stretch["to"];
    const double each = stretch["row_cost"];
    if (std::exchange(first, false)) {
      text += fmt::format("t(n) from 1 to {} rows: each further row takes {} of a forward over one row.", to,
                          percent_of_forward(each));
      continue;
    }
    text += fmt::format(" Change point at {} rows: this row adds {}", from,
                        percent_of_forward(stretch["first_row_cost"].get<double>()));
    text += to > from
                ? fmt::format(", and each further row up to {} rows adds {}.", to, percent_of_forward(each))
                : std::string(".");
  }
  return text + "\n";
}

}  // namespace speclab
