#include "experiments/simulate/timeline_table.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/simulate/timelines/event_simulation.h"
#include "core/simulate/timelines/overlap.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics.h"
#include "experiments/simulate/case_pricing.h"
#include "experiments/simulate/run_shapes.h"

namespace speclab {
namespace {

using nlohmann::json;
using simulate::OverlapChoice;
using simulate::Timeline;

constexpr int kMostDraftTokens = 32;             ///< longest gamma or lookahead that is tried
constexpr int kMostVerifyRows = 256;             ///< largest target forward that is priced
constexpr std::int64_t kPlayedTokens = 100'000;  ///< tokens of the played text
constexpr std::size_t kMostSegments = 2'000;     ///< enough for the picture
constexpr double kPictureSteps = 8;              ///< length of the picture, in autoregressive steps
constexpr std::size_t kPictureCells = 64;        ///< width of the picture in characters
constexpr std::uint32_t kCoinSeed = 20260101;

/// The acceptance of a draft and the times on the device. `draft` and `verify` (by rows of the target's
/// forward) are in nanoseconds, c is a ratio.
struct DraftCosts {
  double alpha = 0, c = 0, draft = 0;
  theory::RowTimes verify;
};

DraftCosts costs_of(const LongestChain& chain, const SimulatedDevice& device, const ModelShapes& shapes) {
  const Pricing pricing{device, shapes, 1, mean_context(*chain.data)};
  const theory::Calibration costs = device_costs(PricedSteps(*chain.data), pricing);
  const double outside = costs.t_ar - costs.target.at(1);
  std::map<int, double> verify;
  for (int rows = 1; rows <= kMostVerifyRows; rows += rows < 64 ? 1 : 16)
    verify[rows] = pricing.forward_ns("", rows) + outside;
  DraftCosts out;
  out.alpha = chain.metrics->at("alpha");
  out.c = simulated_c(costs, chain.gamma);
  out.draft = out.c * costs.target.at(1);
  out.verify = theory::RowTimes(std::move(verify)).monotone();
  return out;
}

/// Plays the timeline, and writes its speedup and its segments to `row`.
void play(const DraftCosts& costs, Timeline timeline, const OverlapChoice& choice, json& row) {
  std::uint32_t coin = 0;
  const auto accept = [&] {
    const PhiloxCounter word = philox4x32({coin++, 0, 0, 0}, {kCoinSeed, 0});
    return uniform_of(word[0], word[1]) < costs.alpha;
  };
  const simulate::TimelineSetting setting{.timeline = timeline,
                                          .tokens = std::max(1, choice.tokens),
                                          .servers = choice.servers,
                                          .draft = costs.draft,
                                          .verify = costs.verify};
  const simulate::TimelineRun run = simulate::play_timeline(setting, accept, kPlayedTokens, kMostSegments);
  const double horizon = kPictureSteps * costs.verify.at(1);
  row["played"] = costs.verify.at(1) * static_cast<double>(run.tokens) / run.time;
  row["horizon_us"] = horizon / 1e3;
  for (const simulate::TimelineSegment& segment : run.segments) {
    if (segment.start >= horizon) continue;
    row["segments"].push_back({{"device", segment.device},
                               {"start_us", segment.start / 1e3},
                               {"end_us", std::min(segment.end, horizon) / 1e3},
                               {"rows", segment.rows},
                               {"wasted", segment.wasted}});
  }
}

OverlapChoice choice_of(const DraftCosts& costs, Timeline timeline, const TimelineWish& wish) {
  switch (timeline) {
    case Timeline::serial:
      return simulate::best_serial(costs.alpha, costs.draft, costs.verify, kMostDraftTokens);
    case Timeline::pearl:
      return simulate::best_pearl(costs.alpha, costs.draft, costs.verify, kMostDraftTokens);
    case Timeline::post_verify:
      return simulate::best_post_verify(costs.alpha, costs.draft, costs.verify, kMostDraftTokens);
    case Timeline::amusd: return {1, 1, simulate::amusd_token_time(costs.alpha, costs.draft, costs.verify)};
    case Timeline::dsi: break;
  }
  if (wish.lookahead == 0)
    return simulate::best_dsi(costs.alpha, costs.draft, costs.verify, wish.servers, kMostDraftTokens);
  const double verify = costs.verify.at(wish.lookahead);
  const int servers =
      wish.servers > 0 ? wish.servers : simulate::dsi_servers(wish.lookahead, costs.draft, verify);
  return {wish.lookahead, servers,
          simulate::dsi_token_time(costs.alpha, wish.lookahead, servers, costs.draft, verify)};
}

json timeline_row(Timeline timeline, const std::string& draft, const LongestChain& chain,
                  const SimulatedDevice& device, const ModelShapes& shapes, const TimelineWish& wish) {
  json row = {{"timeline", std::string(simulate::to_string(timeline))},
              {"draft", draft},
              {"case", chain.data->id()},
              {"alpha", chain.metrics->value("alpha", json())},
              {"c", nullptr},
              {"tokens", nullptr},
              {"devices", nullptr},
              {"us_per_token", nullptr},
              {"speedup", nullptr},
              {"played", nullptr},
              {"horizon_us", nullptr},
              {"segments", json::array()},
              {"problem", nullptr}};
  if (!row["alpha"].is_number()) return row["problem"] = "the case has no alpha", row;
  try {
    const DraftCosts costs = costs_of(chain, device, shapes);
    row["c"] = costs.c;
    const OverlapChoice choice = choice_of(costs, timeline, wish);
    if (choice.tokens == 0)
      return row["problem"] = "no draft length is faster than autoregressive decoding", row;
    if (timeline != Timeline::amusd) row["tokens"] = choice.tokens;
    row["devices"] = timeline == Timeline::serial ? 1 : 1 + choice.servers;
    row["us_per_token"] = choice.token_time / 1e3;
    row["speedup"] = costs.verify.at(1) / choice.token_time;
    play(costs, timeline, choice, row);
  } catch (const Error& error) {
    row["problem"] = error.what();
  }
  return row;
}

/// A line for each device: "=" works, "x" works for nothing, "." waits.
std::string picture(const json& row) {
  std::map<int, std::string> lines;
  const double cell = row["horizon_us"].get<double>() / static_cast<double>(kPictureCells);
  for (const json& segment : row["segments"]) {
    const int device = segment["device"];
    const double start = segment["start_us"], end = segment["end_us"];
    std::string& line = lines.emplace(device, std::string(kPictureCells, '.')).first->second;
    for (std::size_t i = 0; i < kPictureCells; ++i) {
      const double middle = (static_cast<double>(i) + .5) * cell;
      if (middle >= start && middle < end) line[i] = segment["wasted"].get<bool>() ? 'x' : '=';
    }
  }
  std::string text;
  for (const auto& [device, line] : lines)
    text += fmt::format("  {:<9} {}\n", device == 0 ? "draft" : fmt::format("target {}", device), line);
  return text;
}

}  // namespace

json timelines(const RunData& run, const SimulatedDevice& device, const TimelineWish& wish) {
  std::vector<json> metrics;
  for (const auto& data : run.cases) metrics.push_back(compute_metrics(*data, {"alpha", "acceptance_at"}));
  const std::map<std::string, LongestChain> chains = longest_chains(run, metrics);
  if (chains.empty()) {
    throw Error({.what = "--timeline",
                 .got = "a run in which no case drafts chains of constant length with a draft model alone",
                 .expected = "one case of this kind for each draft model",
                 .advice = "For example a run of configs/gamma_sweep.json."});
  }
  std::vector<Timeline> kinds = {Timeline::serial};
  switch (wish.shown) {
    case ShownTimelines::serial: break;
    case ShownTimelines::overlap: kinds.insert(kinds.end(), {Timeline::pearl, Timeline::amusd}); break;
    case ShownTimelines::dsi: kinds.push_back(Timeline::dsi); break;
  }
  const ModelShapes shapes = run_shapes(run.environment, device.weight_bytes, device.kv_bytes);
  json out = {{"device", device.name},   {"kind", to_string(device.kind)},
              {"source", device.source}, {"error", device.error},
              {"simulation", true},      {"timelines", json::array()}};
  for (const auto& [draft, chain] : chains) {
    for (const Timeline kind : kinds)
      out["timelines"].push_back(timeline_row(kind, draft, chain, device, shapes, wish));
  }
  return out;
}

std::string timelines_text(const json& simulation) {
  std::string text = fmt::format(
      "Simulated on {}. The column \"devices\" says how many such devices a timeline uses. Each token is "
      "accepted independently, with the alpha of the run. The times come from the device.\n"
      "Source of the times: {}\n",
      simulation["device"].get<std::string>(), simulation["source"].get<std::string>());
  if (const std::string error = simulation["error"]; !error.empty())
    text += "How far off the times may be: " + error + "\n";
  Table table{.header = {"timeline", "draft", "alpha of the run", "simulated c", "tokens", "devices",
                         "simulated us/token", "simulated speedup", "speedup, event by event"},
              .rows = {},
              .right = {false, false, true, true, true, true, true, true, true}};
  std::string problems, pictures;
  for (const json& row : simulation["timelines"]) {
    const std::string name =
        fmt::format("{}, {}", row["timeline"].get<std::string>(), row["draft"].get<std::string>());
    if (!row["problem"].is_null()) {
      problems += fmt::format("{}: {}\n", name, row["problem"].get<std::string>());
      continue;
    }
    table.rows.push_back({row["timeline"], row["draft"], number_text(row["alpha"]), number_text(row["c"]),
                          row["tokens"].is_null() ? "—" : row["tokens"].dump(), row["devices"].dump(),
                          number_text(row["us_per_token"]), number_text(row["speedup"]),
                          number_text(row["played"])});
    pictures += name + "\n" + picture(row);
  }
  text += "\n" + to_text(table);
  if (!pictures.empty())
    text += fmt::format(
        "\n\nThe picture covers the time that {} autoregressive steps take. =: works, x: works for nothing, "
        ".: waits.\n{}",
        kPictureSteps, pictures);
  if (!problems.empty()) text += "\n\nNot simulated:\n" + problems;
  return text;
}

}  // namespace speclab
