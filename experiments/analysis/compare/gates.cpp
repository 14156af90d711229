#include "experiments/analysis/compare/gates.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "experiments/metrics/metrics.h"

namespace speclab {
namespace {

using nlohmann::json;

struct GateMetric {
  const char* gate;
  const char* metric;
  bool count;  ///< true for a count per token: the metric times "tokens" is a whole number
};
constexpr GateMetric kGates[] = {
    {"tau", "tau", false},           {"alpha", "alpha", false},      {"rows", "target_rows", true},
    {"calls", "target_calls", true}, {"calls", "draft_calls", true},
};

// Equal counts give ratios that differ by rounding alone. Ratios of different counts up to 10^5 are at least
// 10^-10 apart.
constexpr double kRounding = 1e-12;

Better better_of(const char* metric) {
  const auto all = metrics();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Metric& one) { return one.name == metric; });
  SPECLAB_CHECK(found != all.end(), "no metric {}", metric);
  return found->better;
}

json value_of(const GateMetric& one, const json& metrics) {
  const json& value = metrics.at(one.metric);
  if (!one.count || !value.is_number()) return value;
  return std::llround(value.get<double>() * metrics.at("tokens").get<double>());
}

GateResult compare_metric(const GateMetric& one, const json& base, const json& fresh) {
  GateResult result{one.gate, one.metric, value_of(one, base), value_of(one, fresh), "changed"};
  if (result.base == result.fresh) {
    result.change = "equal";
  } else if (result.base.is_number() && result.fresh.is_number()) {
    // Counts are compared per token too, because a longer text has more of them.
    const double was = base.at(one.metric), is = fresh.at(one.metric);
    const bool near = std::abs(is - was) <= kRounding * std::max(std::abs(is), std::abs(was));
    if (near && !one.count) result.change = "equal";
    if (!near) result.change = (is > was) == (better_of(one.metric) == Better::higher) ? "better" : "worse";
  }
  return result;
}

}  // namespace

std::vector<std::string> parse_gates(const std::string& text) {
  std::vector<std::string> known, gates;
  for (const GateMetric& one : kGates) {
    if (known.empty() || known.back() != one.gate) known.emplace_back(one.gate);
  }
  std::istringstream in(text);
  for (std::string name; std::getline(in, name, ',');) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw Error({.what = "--gate",
                   .got = fmt::format("\"{}\"", name),
                   .expected = "one or more of tau, alpha, rows, calls, separated by commas",
                   .advice = nearest_name(name, known).empty() ? "" : suggest(name, known)});
    }
    if (std::find(gates.begin(), gates.end(), name) == gates.end()) gates.push_back(name);
  }
  if (gates.empty()) {
    throw Error({.what = "--gate",
                 .got = "no name",
                 .expected = "one or more of tau, alpha, rows, calls, separated by commas",
                 .advice = "For example --gate tau,rows."});
  }
  return gates;
}

std::optional<std::vector<GateResult>> compare_gates(const std::vector<std::string>& gates, const json& base,
                                                     const json& fresh) {
  std::vector<GateResult> results;
  for (const GateMetric& one : kGates) {
    if (std::find(gates.begin(), gates.end(), one.gate) == gates.end()) continue;
    for (const json* metrics : {&base, &fresh}) {
      if (!metrics->contains(one.metric)) return std::nullopt;
      if (one.count && !(metrics->contains("tokens") && (*metrics)["tokens"].is_number()))
        return std::nullopt;
    }
    results.push_back(compare_metric(one, base, fresh));
  }
  return results;
}

}  // namespace speclab
