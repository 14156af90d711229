#include "experiments/analysis/lookahead_devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>

#include "core/base/token.h"
#include "core/theory/lookahead.h"
#include "experiments/analysis/lookahead_fit.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/analysis/table.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Sums over all steps of all lines and repeats.
struct Sums {
  double steps = 0, tokens = 0, decode_ns = 0, slowest_ns = 0, other_ns = 0;
  std::vector<double> rows, ns;        ///< [devices]
  std::map<int, double> steps_of_max;  ///< number of steps by the rows of the step's largest part
};

void add(const StepRecord& step, Sums& sums) {
  sums.steps += 1;
  sums.other_ns += static_cast<double>(step.times.total() - step.times[Phase::target]);
  sums.rows.resize(std::max(sums.rows.size(), step.parts.size()));
  sums.ns.resize(sums.rows.size());
  DevicePart most;
  for (std::size_t i = 0; i < step.parts.size(); ++i) {
    const DevicePart& part = step.parts[i];
    sums.rows[i] += part.rows, sums.ns[i] += static_cast<double>(part.ns);
    most = {std::max(most.rows, part.rows), std::max(most.ns, part.ns)};
  }
  sums.slowest_ns += static_cast<double>(most.ns);
  sums.steps_of_max[most.rows] += 1;
}

Sums sums_of(const CaseData& data) {
  Sums sums;
  for (std::size_t repeat = 0; repeat < common_repeats(data); ++repeat) {
    for_each_line(data, repeat, [&](std::size_t, const LineRecord& line) {
      sums.tokens += emitted_tokens(line);
      sums.decode_ns += static_cast<double>(line.decode_ns());
      for (const GenerationRecord& turn : line.turns) {
        for (const StepRecord& step : turn.steps) add(step, sums);
      }
    });
  }
  return sums;
}

double ns_per_token(const CaseData& data) {
  const Sums sums = sums_of(data);
  return sums.tokens > 0 ? sums.decode_ns / sums.tokens : 0;
}

/// Mean over steps of t(rows of the largest part).
double time_of_largest(const theory::RowTimes& target, const Sums& sums) {
  double time = 0;
  for (const auto& [rows, steps] : sums.steps_of_max) time += steps / sums.steps * target.ratio(rows);
  return time;
}

json per_step(std::vector<double> sums, double unit) {
  for (double& sum : sums) sum /= unit;
  return sums;
}

const CaseData* undivided(std::span<const std::shared_ptr<CaseData>> cases, const CaseData& data) {
  for (const auto& other : cases) {
    if (other->config["strategy"] == data.config["strategy"] && other->devices() == 1 &&
        other->options() == data.options() && other->config["verify"] == data.config["verify"] &&
        other->reference == data.reference && !other->lines.empty()) {
      return other.get();
    }
  }
  return nullptr;
}

}  // namespace

double gather_ns(const Link& link, int devices, double bytes) {
  const auto messages = static_cast<double>(std::bit_width(static_cast<unsigned>(devices - 1)));
  const double received = bytes * (devices - 1) / devices;
  return 1e3 * link.latency_us * messages +
         (link.gigabytes_per_second > 0 ? received / link.gigabytes_per_second : 0);
}

json lookahead_devices(std::span<const std::shared_ptr<CaseData>> cases, const json& calibration,
                       const Link& link) {
  json out = json::array();
  for (const auto& data : cases) {
    const int devices = data->devices();
    if (data->config["strategy"] != "lookahead" || devices == 1 || !data->reference) continue;
    const Sums sums = sums_of(*data);
    const double base = ns_per_token(*data->reference);
    if (sums.steps == 0 || base == 0) continue;
    const json& options = data->options();
    const theory::LookaheadShape shape = lookahead_shape(options);
    const double tau = sums.tokens / sums.steps, bytes = sizeof(Token) * (devices * tau + shape.W),
                 exchange_ns = gather_ns(link, devices, bytes),
                 step_ns = (sums.slowest_ns + sums.other_ns) / sums.steps + exchange_ns;
    json speedup = nullptr, whole_speedup = nullptr, predicted = nullptr;
    if (!data->unequal()) {
      speedup = base * tau / step_ns;
      if (const CaseData* whole = undivided(cases, *data)) whole_speedup = base / ns_per_token(*whole);
      if (!calibration.is_null()) {
        const theory::RowTimes times = calibrated_row_times(calibration);
        predicted = tau / (time_of_largest(times, sums) + exchange_ns / times.at(1));
      }
    }
    out.push_back({{"case", data->id()},
                   {"devices", devices},
                   {"tau", tau},
                   {"rows", per_step(sums.rows, sums.steps)},
                   {"most_rows", shape.G < 0 ? json() : json(theory::lookahead_device_rows(shape, devices))},
                   {"device_ms", per_step(sums.ns, 1e6 * sums.steps)},
                   {"slowest_ms", sums.slowest_ns / sums.steps / 1e6},
                   {"other_ms", sums.other_ns / sums.steps / 1e6},
                   {"exchange_bytes", bytes},
                   {"exchange_ms", exchange_ns / 1e6},
                   {"speedup", speedup},
                   {"undivided_speedup", whole_speedup},
                   {"predicted_speedup", predicted},
                   {"equal", !data->unequal()}});
  }
  return out;
}

std::string lookahead_devices_text(const json& devices) {
  if (devices.empty()) return "";
  Table table{.header = {"divided over devices", "D", "equal", "rows of each", "at most", "slowest ms",
                         "other ms", "exchange ms", "speedup", "predicted", "undivided"},
              .rows = {},
              .right = {false, true, false, false, false, true, true, true, true, true, true}};
  const auto list = [](const json& values) {
    std::vector<std::string> words;
    for (const json& value : values) words.push_back(fmt::format("{:.0f}", value.get<double>()));
    return fmt::format("{}", fmt::join(words, " "));
  };
  for (const json& row : devices) {
    table.rows.push_back({row["case"], row["devices"].dump(), row["equal"].get<bool>() ? "yes" : "NO",
                          list(row["rows"]), list(row["most_rows"]), number_text(row["slowest_ms"]),
                          number_text(row["other_ms"]), number_text(row["exchange_ms"]),
                          number_text(row["speedup"]), number_text(row["predicted_speedup"]),
                          number_text(row["undivided_speedup"])});
  }
  return "Lookahead parallelism over D devices, which were measured here one after the other. Only the time "
         "of their exchange comes from a model. rows of each: mean rows of each device per step; at most: "
         "rows of each device if the guesses share no prefix, without accepted tokens that are fed again.\n" +
         to_text(table) + "\n";
}

}  // namespace speclab
