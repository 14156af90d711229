#include "experiments/simulate/replay/search.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "core/base/error.h"
#include "core/base/thread_pool.h"
#include "core/decoding/budget/step_costs.h"
#include "core/decoding/drafting/schedules/controller.h"
#include "core/measure/clock.h"
#include "experiments/analysis/table.h"
#include "experiments/simulate/replay/step_prices.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr std::size_t kAllDevices = static_cast<std::size_t>(-1);

/// A replay, and where its results go.
struct SearchJob {
  std::size_t trace, schedule;
  int gamma;
  std::size_t device;  // kAllDevices: the replay is the same for all
  std::size_t first;   // place of its first result
};

/// A device that prices one trace.
struct PricedDevice {
  std::size_t device;
  StepPrices prices;
  std::shared_ptr<const StepCosts> forwards;  // for schedules that look at costs
};

/// The middles of `count` equal parts of [0, most].
std::vector<double> middles(int count, double most) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) out.push_back(most * (i + .5) / count);
  return out;
}

double largest_root_of_entropy(const Trace& trace) {
  double most = 0;
  for (const TracedText& text : trace.texts) {
    for (const TracedDraft& draft : text.drafts) {
      for (const double entropy : draft.entropy) most = std::max(most, entropy);
    }
  }
  return std::sqrt(most);
}

/// The gammas that the schedule may have with this trace.
std::vector<int> lengths_for(const SearchedSchedule& schedule, const SearchWish& wish, int longest) {
  const int most =
      schedule.options.info().exceeds_gamma ? std::min(longest, schedule.options.gamma_max) : longest;
  std::vector<int> out;
  for (const int gamma : wish.gammas) {
    if (gamma <= most) out.push_back(gamma);
  }
  return out;
}

void price_job(const SearchJob& job, const Trace& trace, const Search& search,
               std::span<const PricedDevice> devices, std::span<SearchResult> results) {
  ReplaySetting setting{job.gamma, search.schedules[job.trace][job.schedule].options};
  for (const PricedDevice& device : devices) {
    if (device.device == job.device) setting.costs = device.forwards;
  }
  Schedule schedule(setting.schedule, setting.gamma, setting.costs.get());
  Replayed counts;
  for (const TracedText& text : trace.texts) add_replayed(counts, replay_one(text, schedule));
  std::size_t place = job.first;
  for (const PricedDevice& device : devices) {
    if (job.device != kAllDevices && device.device != job.device) continue;
    SearchResult& result = results[place++];
    result = {.trace = job.trace,
              .device = device.device,
              .schedule = job.schedule,
              .gamma = job.gamma,
              .tau = counts.tau(),
              .drafted_per_step = counts.drafted / counts.steps,
              .ns_per_token = device.prices.time(counts) / counts.tokens};
    result.speedup = device.prices.reference() / result.ns_per_token;
  }
}

json result_json(std::span<const Trace> traces, const Search& search, const SearchResult& result) {
  const SearchedSchedule& schedule = search.schedules[result.trace][result.schedule];
  return {{"case", traces[result.trace].data->id()},
          {"certainty", std::string(to_string(traces[result.trace].certainty))},
          {"schedule", std::string(schedule.options.info().name)},
          {"controller", schedule.options.controller.empty() ? json() : json(schedule.options.controller)},
          {"gamma", result.gamma},
          {"parameter", schedule.parameter},
          {"value", schedule.parameter.empty() ? json() : json(schedule.value)},
          {"tau", result.tau},
          {"drafted_per_step", result.drafted_per_step},
          {"ms_per_token", 1e-6 * result.ns_per_token},
          {"speedup", result.speedup}};
}

}  // namespace

std::vector<SearchedSchedule> searched_schedules(const Trace& trace, const SearchWish& wish, bool costs) {
  std::vector<SearchedSchedule> out;
  const int longest = longest_draft(trace);
  for (const ScheduleInfo& info : schedules()) {
    ScheduleOptions base;
    base.schedule = info.rule;
    base.gamma_max = std::min(base.gamma_max, longest);
    if (!info.needs_controller && !why_left_out(trace, base, costs).empty()) continue;
    const auto add = [&](const char* name, double ScheduleOptions::* parameter, double most) {
      for (const double value : middles(wish.thresholds, most)) {
        SearchedSchedule& one = out.emplace_back(SearchedSchedule{base, name, value});
        one.options.*parameter = value;
      }
    };
    switch (info.rule) {
      case ScheduleRule::confidence:
      case ScheduleRule::roc_confidence:
        add("confidence_threshold", &ScheduleOptions::confidence_threshold, 1);
        break;
      case ScheduleRule::product: add("product_threshold", &ScheduleOptions::product_threshold, 1); break;
      case ScheduleRule::entropy:
        add("entropy_threshold", &ScheduleOptions::entropy_threshold, largest_root_of_entropy(trace));
        break;
      case ScheduleRule::adaptive_confidence:
      case ScheduleRule::adaptive_entropy:
        add("wanted_acceptance", &ScheduleOptions::wanted_acceptance, 1);
        break;
      case ScheduleRule::bandit: add("exploration", &ScheduleOptions::exploration, 2); break;
      case ScheduleRule::goodput: add("goodput_memory", &ScheduleOptions::goodput_memory, 1); break;
      case ScheduleRule::disco:
      case ScheduleRule::specdec_pp:
        for (const std::string& file : wish.controllers) {
          if (Controller::read(file).schedule() != info.rule) continue;
          base.controller = file;
          if (!why_left_out(trace, base, costs).empty()) continue;
          add("controller_threshold", &ScheduleOptions::controller_threshold, 1);
        }
        break;
      case ScheduleRule::heuristic:
      case ScheduleRule::heuristic_transient:
        for (const int most : wish.gammas) {
          if (most > longest) continue;
          SearchedSchedule& one =
              out.emplace_back(SearchedSchedule{base, "gamma_max", static_cast<double>(most)});
          one.options.gamma_max = most;
        }
        break;
      case ScheduleRule::constant: out.push_back({.options = base}); break;
    }
  }
  return out;
}

Search search_replay(std::span<const Trace> traces, std::span<const SearchDevice> devices,
                     const SearchWish& wish) {
  SPECLAB_CHECK(wish.thresholds >= 1 && wish.threads >= 1, "{} thresholds, {} threads", wish.thresholds,
                wish.threads);
  const std::int64_t begun = wall_now_ns();
  Search search;
  std::vector<std::vector<PricedDevice>> priced(traces.size());  // [traces]
  std::vector<SearchJob> jobs;
  std::size_t count = 0;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const int longest = longest_draft(traces[t]);
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (const auto& costs = devices[d].costs[t])
        priced[t].push_back({d, StepPrices(*costs, longest), forwards_of(*costs, longest + 1)});
    }
    search.schedules.push_back(searched_schedules(traces[t], wish, !priced[t].empty()));
    if (priced[t].empty() || traced_positions(traces[t]) == 0) continue;
    for (std::size_t s = 0; s < search.schedules[t].size(); ++s) {
      const SearchedSchedule& schedule = search.schedules[t][s];
      for (const int gamma : lengths_for(schedule, wish, longest)) {
        if (!schedule.options.info().needs_costs) {
          jobs.push_back({t, s, gamma, kAllDevices, count});
          count += priced[t].size();
          continue;
        }
        for (const PricedDevice& device : priced[t]) jobs.push_back({t, s, gamma, device.device, count++});
      }
    }
  }
  search.results.resize(count);
  // Chunks of neighbouring jobs, several for each thread, because schedules differ in cost.
  const std::size_t per_chunk = std::max<std::size_t>(1, jobs.size() / 4096);
  const auto chunks = static_cast<int>((jobs.size() + per_chunk - 1) / per_chunk);
  ThreadPool pool(wish.threads);
  pool.parallel(chunks, [&](int chunk, int) {
    const std::size_t first = static_cast<std::size_t>(chunk) * per_chunk,
                      last = std::min(jobs.size(), first + per_chunk);
    for (std::size_t i = first; i < last; ++i)
      price_job(jobs[i], traces[jobs[i].trace], search, priced[jobs[i].trace], search.results);
  });
  search.seconds = 1e-9 * static_cast<double>(wall_now_ns() - begun);
  return search;
}

std::vector<SearchResult> fastest(const Search& search, std::size_t device, std::size_t count) {
  std::vector<SearchResult> own;
  for (const SearchResult& result : search.results) {
    if (result.device == device) own.push_back(result);
  }
  std::ranges::stable_sort(own, {}, &SearchResult::ns_per_token);
  if (own.size() > count) own.resize(count);
  return own;
}

std::string search_csv(std::span<const Trace> traces, std::span<const SearchDevice> devices,
                       const Search& search) {
  std::string text =
      "device,simulated,case,certainty,schedule,gamma,parameter,value,tau,drafted_per_step,ms_per_token,"
      "speedup,controller\n";
  for (const SearchResult& result : search.results) {
    const SearchedSchedule& schedule = search.schedules[result.trace][result.schedule];
    const SearchDevice& device = devices[result.device];
    text += fmt::format("{},{},{},{},{},{},{},{},{:.7g},{:.7g},{:.7g},{:.7g},{}\n", csv_field(device.name),
                        device.simulated ? "yes" : "no", csv_field(traces[result.trace].data->id()),
                        to_string(traces[result.trace].certainty), schedule.options.info().name, result.gamma,
                        schedule.parameter,
                        schedule.parameter.empty() ? std::string() : fmt::format("{:.7g}", schedule.value),
                        result.tau, result.drafted_per_step, 1e-6 * result.ns_per_token, result.speedup,
                        csv_field(schedule.options.controller));
  }
  return text;
}

json search_json(std::span<const Trace> traces, std::span<const SearchDevice> devices, const Search& search,
                 std::size_t count) {
  json out = {
      {"configurations", search.results.size()}, {"seconds", search.seconds}, {"devices", json::array()}};
  for (std::size_t d = 0; d < devices.size(); ++d) {
    json best = json::array();
    for (const SearchResult& result : fastest(search, d, count))
      best.push_back(result_json(traces, search, result));
    out["devices"].push_back(
        {{"device", devices[d].name}, {"simulated", devices[d].simulated}, {"best", best}});
  }
  return out;
}

std::string search_text(const json& search) {
  std::string text = fmt::format(
      "{} configurations in {:.1f} s. No model ran, and there are no intervals: the fastest of many is "
      "partly "
      "luck. Test the choice on other prompts.\n",
      search["configurations"].get<std::size_t>(), search["seconds"].get<double>());
  for (const json& device : search["devices"]) {
    const bool simulated = device["simulated"];
    Table table{.header = {"case", "schedule", "gamma", "parameter", "tau", "tau is", "drafted",
                           simulated ? "simulated speedup" : "predicted speedup",
                           simulated ? "simulated ms/token" : "predicted ms/token"},
                .rows = {},
                .right = {false, false, true, false, true, false, true, true, true}};
    for (const json& row : device["best"]) {
      const std::string name = row["parameter"];
      std::string rule = row["schedule"];
      if (row["controller"].is_string()) rule += " " + row["controller"].get<std::string>();
      table.rows.push_back({row["case"], rule, row["gamma"].dump(),
                            name.empty() ? name : fmt::format("{} {}", name, number_text(row["value"])),
                            number_text(row["tau"]), row["certainty"], number_text(row["drafted_per_step"]),
                            number_text(row["speedup"]), number_text(row["ms_per_token"])});
    }
    text += fmt::format("\n{}{}\n{}", device["device"].get<std::string>(), simulated ? " (simulated)" : "",
                        device["best"].empty() ? "nothing can be priced\n" : to_text(table));
  }
  return text;
}

}  // namespace speclab
