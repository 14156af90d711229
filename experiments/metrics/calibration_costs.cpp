#include "experiments/metrics/calibration_costs.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/measure/stats.h"
#include "experiments/metrics/noise/machine_drift.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Predictions are sums of times, so they need means and not medians. The mean is trimmed, because a run has
/// a few pauses of a tenth of a second. Among the few measurements of a calibration, such a pause would
/// weigh a hundred times as much as it does among the steps of the lines.
double mean_of(const std::vector<double>& samples) { return stats::trimmed_mean(samples, 0.05); }

json as_json(const LinearCost& cost) { return {{"constant", cost.constant}, {"slope", cost.slope}}; }

using Times = std::map<int, std::vector<double>>;  ///< ns by number of rows

constexpr int kMostCount = 1'000'000;  ///< largest number of rows or tokens of one forward

[[noreturn]] void refuse(const std::string& got, const std::string& expected) {
  throw Error({.what = "calibration.jsonl",
               .got = got,
               .expected = expected,
               .advice = "The record is damaged; delete this file and resume the run with --resume."});
}

/// Adds the times of a round, each divided by `slow`, which says how slow the machine was in this round.
/// Without the division, sizes and cases that few rounds measured would get the speed that the machine had in
/// just those seconds.
void add(Times& times, const json& round, double slow) {
  for (const auto& [n, ns] : round.items()) {
    int rows = 0;
    const auto [end, error] = std::from_chars(n.data(), n.data() + n.size(), rows);
    if (error != std::errc() || end != n.data() + n.size() || rows < 1 || rows > kMostCount)
      refuse(printable(n, 40), "a number of rows");
    times[rows].push_back(ns.get<double>() / slow);
  }
}

/// The times of a forward of one row.
const std::vector<double>& of_one_row(const Times& times) {
  const auto found = times.find(1);
  if (found == times.end()) refuse("no time of one row", "times of 1, 2, ... rows");
  return found->second;
}

int count_of(const json& step, const char* name) {
  const json& count = step.at(name);
  if (!count.is_number_integer() || count < 0 || count > kMostCount)
    refuse(
        fmt::format("{} {}", name, printable(count.dump(-1, ' ', false, json::error_handler_t::replace), 40)),
        "a number of tokens");
  return count.get<int>();
}

json means(const Times& times, double unit = 1) {
  json out = json::object();
  for (const auto& [n, samples] : times) out[std::to_string(n)] = mean_of(samples) / unit;
  return out;
}

/// The steps of a case in one round: [{"drafted", "accepted", "ns": {phase: ns}}].
struct StepsOfRound {
  const json* steps;
  double slow;  ///< see round_factors
};

json step_costs(const std::vector<StepsOfRound>& rounds) {
  std::multimap<int, double> draft, accept, other;
  double wall = 0;
  for (const auto& [steps, slow] : rounds) {
    if (steps->is_null()) return nullptr;
    for (const json& step : *steps) {
      const json& ns = step.at("ns");
      draft.emplace(count_of(step, "drafted"), ns.at("draft").get<double>() / slow);
      accept.emplace(count_of(step, "accepted") + 1, ns.at("accept").get<double>() / slow);
      other.emplace(0, ns.at("other").get<double>() / slow);
      wall += ns.at("step").get<double>() / slow;
    }
  }
  if (other.empty()) return nullptr;
  const auto steps = static_cast<double>(other.size());
  return {{"draft_ns", as_json(fit_cost(draft))},
          {"accept_ns", as_json(fit_cost(accept))},
          {"other_ns", fit_cost(other).constant},
          {"step_ns", wall / steps},
          {"steps", steps}};
}

/// The times of forwards by one clock: {"t_n_ns", "t_n", "drafts"}.
json forward_costs(const std::vector<const json*>& rounds, const std::vector<double>& factors,
                   bool of_device) {
  Times target;
  std::map<std::string, Times> drafts;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    const json& measured = of_device ? rounds[i]->at("device") : *rounds[i];
    const double slow = factors[i] > 0 ? factors[i] : 1;
    add(target, measured.at("t_n_ns"), slow);
    for (const auto& [name, times] : measured.at("drafts").items()) add(drafts[name], times, slow);
  }
  const double one = mean_of(of_one_row(target));
  json out = {{"t_n_ns", means(target)}, {"t_n", means(target, one)}, {"drafts", json::object()}};
  for (const auto& [name, times] : drafts)
    out["drafts"][name] = {{"n_ns", means(times)}, {"c", mean_of(of_one_row(times)) / one}};
  return out;
}

/// The costs of cases that draft ahead: {case: {"t_n_ns", "draft_ns", "draft_draw_ns", "draft_alone_ns"}}.
/// Empty if no round has such costs. A case has no draft_draw_ns if a round has none, as in records of
/// earlier versions.
json overlap_costs(const std::vector<const json*>& rounds, const std::vector<double>& factors) {
  struct Samples {
    Times target;
    std::vector<double> draft, draw, alone;
  };
  std::map<std::string, Samples> cases;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (!rounds[i]->contains("ahead")) continue;
    const double slow = factors[i] > 0 ? factors[i] : 1;
    for (const auto& [id, times] : rounds[i]->at("ahead").items()) {
      Samples& samples = cases[id];
      add(samples.target, times.at("t_n_ns"), slow);
      samples.draft.push_back(times.at("draft_ns").get<double>() / slow);
      if (times.contains("draft_draw_ns"))
        samples.draw.push_back(times.at("draft_draw_ns").get<double>() / slow);
      samples.alone.push_back(times.at("draft_alone_ns").get<double>() / slow);
    }
  }
  json out = json::object();
  for (const auto& [id, samples] : cases) {
    of_one_row(samples.target);  // throws if there is no such time
    out[id] = {{"t_n_ns", means(samples.target)},
               {"draft_ns", mean_of(samples.draft)},
               {"draft_alone_ns", mean_of(samples.alone)}};
    if (samples.draw.size() == samples.draft.size()) out[id]["draft_draw_ns"] = mean_of(samples.draw);
  }
  return out;
}

json costs_of(const std::vector<const json*>& rounds) {
  std::map<std::string, std::vector<StepsOfRound>> cases;
  const std::vector<double> factors = round_factors(rounds);
  json out = forward_costs(rounds, factors, false);
  bool device = true;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    const double slow = factors[i] > 0 ? factors[i] : 1;
    for (const auto& [id, steps] : rounds[i]->at("cases").items()) cases[id].push_back({&steps, slow});
    device = device && rounds[i]->contains("device");
  }
  out["context_length"] = rounds.front()->at("context_length");
  out["rounds"] = rounds.size();
  out["cases"] = json::object();
  for (const auto& [id, of_rounds] : cases) out["cases"][id] = step_costs(of_rounds);
  if (json ahead = overlap_costs(rounds, factors); !ahead.empty()) out["ahead"] = std::move(ahead);
  if (device) out["device"] = forward_costs(rounds, round_factors(rounds, true), true);
  return out;
}

}  // namespace

LinearCost fit_cost(const std::multimap<int, double>& samples) {
  std::map<int, std::vector<double>> groups;
  for (const auto& [count, ns] : samples) groups[count].push_back(ns);
  if (groups.empty()) return {};
  if (groups.size() == 1) {
    const auto& [count, times] = *groups.begin();
    const double mean = mean_of(times);
    return count == 0 ? LinearCost{mean, 0} : LinearCost{0, mean / count};
  }
  double weight = 0, x_sum = 0, y_sum = 0, xx = 0, xy = 0;
  for (const auto& [count, times] : groups) {
    const double w = static_cast<double>(times.size()), x = count, y = mean_of(times);
    weight += w, x_sum += w * x, y_sum += w * y, xx += w * x * x, xy += w * x * y;
  }
  const double spread = xx - x_sum * x_sum / weight;
  double slope = (xy - x_sum * y_sum / weight) / spread, constant = (y_sum - slope * x_sum) / weight;
  if (slope < 0) slope = 0, constant = y_sum / weight;
  if (constant < 0) constant = 0, slope = xx > 0 ? xy / xx : 0;
  return {constant, slope};
}

json calibration_costs(std::span<const json> rounds) {
  if (rounds.empty()) return nullptr;
  std::vector<const json*> all;
  for (const json& round : rounds) all.push_back(&round);
  return costs_of(all);
}

std::vector<json> resampled_costs(std::span<const json> rounds, int count) {
  std::vector<json> tables;
  if (rounds.size() < 2) return tables;
  // The tables are the result; the statistic of the bootstrap is not used.
  const auto keep = [&](std::span<const std::size_t> drawn) {
    std::vector<const json*> sample;
    for (const std::size_t i : drawn) sample.push_back(&rounds[i]);
    tables.push_back(costs_of(sample));
    return 0.0;
  };
  stats::bootstrap_interval(rounds.size(), keep, {.resamples = count});
  return tables;
}

json costs_as_paid(const json& table, const RowsStay& own, const RowsStay& reference) {
  if (table.is_null() || !table.contains("device")) return table;
  const json& device = table["device"];
  json paid = table;
  if (own.target) paid["t_n_ns"] = device["t_n_ns"], paid["t_n"] = device["t_n"];
  if (own.draft) paid["drafts"] = device["drafts"];
  const auto one = [](const json& times) { return times.at("1").get<double>(); };
  for (auto& [name, draft] : paid["drafts"].items()) draft["c"] = one(draft["n_ns"]) / one(paid["t_n_ns"]);
  paid["reference_ns"] = one(reference.target ? device["t_n_ns"] : table["t_n_ns"]);
  return paid;
}

json costs_beside_drafting(const json& table, const std::string& case_id, const std::string& draft) {
  if (table.is_null() || !table.contains("ahead") || !table.at("ahead").contains(case_id)) return table;
  const json& ahead = table.at("ahead").at(case_id);
  const double one = ahead.at("t_n_ns").at("1").get<double>();
  json paid = table;
  if (!paid.contains("reference_ns")) paid["reference_ns"] = table.at("t_n_ns").at("1");
  paid["t_n_ns"] = ahead.at("t_n_ns");
  paid["t_n"] = json::object();
  for (const auto& [n, ns] : ahead.at("t_n_ns").items()) paid["t_n"][n] = ns.get<double>() / one;
  if (paid["drafts"].contains(draft)) {
    // The draft times of other cases do not contain the draw of the token, so it is taken off here.
    const double forward = ahead.at("draft_ns").get<double>() - ahead.value("draft_draw_ns", 0.0);
    paid["drafts"][draft] = {{"n_ns", {{"1", forward}}}, {"c", forward / one}};
  }
  return paid;
}

std::optional<double> cost_of_drafting(const json& table, const std::string& case_id) {
  if (table.is_null()) return std::nullopt;
  const json& cases = table.at("cases");
  const auto found = cases.find(case_id);
  if (found == cases.end() || found->is_null()) return std::nullopt;
  return found->at("draft_ns").at("slope").get<double>() / table.at("t_n_ns").at("1").get<double>();
}

theory::RowTimes calibrated_row_times(const json& calibration) {
  std::map<int, double> times;
  for (const auto& [n, ns] : calibration.at("t_n_ns").items()) times[std::stoi(n)] = ns.get<double>();
  const int largest = times.rbegin()->first;
  double count = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [n, ns] : times) {
    if (4 * n < largest) continue;
    count += 1, x += n, y += ns, xx += static_cast<double>(n) * n, xy += n * ns;
  }
  const double spread = xx - x * x / count;
  const double slope = spread > 0 ? std::max(0.0, (xy - x * y / count) / spread) : 0;
  const int beyond = 2 * largest;
  times[beyond] = times[largest] + slope * (beyond - largest);
  return theory::RowTimes(std::move(times));
}

int measured_rows(const json& calibration) {
  int largest = 0;
  for (const auto& [n, ns] : calibration.at("t_n_ns").items()) largest = std::max(largest, std::stoi(n));
  return largest;
}

}  // namespace speclab
