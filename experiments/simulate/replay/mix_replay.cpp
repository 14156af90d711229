#include "experiments/simulate/replay/mix_replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/table.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_mix(const std::string& got, const std::string& expected, const std::string& advice) {
  throw Error({.what = "--mix", .got = got, .expected = expected, .advice = advice});
}

/// The index of the trace whose case has this id, or the only one whose id contains this text.
std::size_t trace_named(const std::string& name, std::span<const Trace> traces) {
  std::vector<std::string> ids, found;
  std::size_t index = 0;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const std::string id = traces[i].data->id();
    if (id == name) return i;
    ids.push_back(id);
    if (name.empty() || id.find(name) == std::string::npos) continue;
    found.push_back(id);
    index = i;
  }
  if (found.size() == 1) return index;
  refuse_mix(found.empty() ? "\"" + name + "\""
                           : fmt::format("\"{}\", which is a part of {}", name, fmt::join(found, " and ")),
             "a part of the id of one trace", fmt::format("The traces are: {}.", fmt::join(ids, ", ")));
}

MixPart parse_part(const std::string& text, std::span<const Trace> traces) {
  const std::size_t colon = text.rfind(':');
  const std::string number = colon == std::string::npos ? "" : text.substr(colon + 1);
  MixPart part;
  part.trace = trace_named(text.substr(0, colon), traces);
  const int longest = longest_draft(traces[part.trace]);
  part.gamma = longest;
  if (colon == std::string::npos) return part;
  const bool digits =
      !number.empty() && number.size() <= 4 && number.find_first_not_of("0123456789") == std::string::npos;
  part.gamma = digits ? std::stoi(number) : 0;
  if (part.gamma < 1 || part.gamma > longest)
    refuse_mix("\"" + text + "\"", fmt::format("a draft length from 1 to {} after the colon", longest),
               "A replay can only shorten the drafts of a trace.");
  return part;
}

std::size_t part_count(const MixReplayed& counts) { return counts.by_part.size(); }

MixReplayed nothing_replayed(const Mix& mix) {
  return {.by_part = std::vector<Replayed>(mix.parts.size()), .asked = std::vector<double>(mix.parts.size())};
}

void count_step(Replayed& counts, int drafted, int accepted, int emitted) {
  const auto length = static_cast<std::size_t>(drafted);
  if (counts.lengths.size() <= length) counts.lengths.resize(length + 1);
  counts.lengths[length] += 1;
  counts.steps += 1, counts.tokens += emitted, counts.drafted += drafted, counts.accepted += accepted;
}

/// The prices of the parts; absent if a part has no calibrated costs.
std::optional<std::vector<StepPrices>> prices_of(std::span<const Trace> traces, const Mix& mix,
                                                 const json& calibration) {
  std::vector<StepPrices> out;
  for (const MixPart& part : mix.parts) {
    const auto costs = calibration_of(*traces[part.trace].data, calibration);
    if (!costs) return std::nullopt;
    out.emplace_back(*costs, part.gamma);
  }
  return out;
}

json mix_row(std::span<const Trace> traces, const Mix& mix, const json& calibration) {
  const Trace& first = traces[mix.parts.front().trace];
  std::vector<MixReplayed> by_prompt;
  for (const PromptTexts& prompt : texts_by_prompt(first))
    by_prompt.push_back(replay_mix(traces, mix, prompt.texts));
  const auto sum_of = [&](std::span<const std::size_t> prompts) {
    MixReplayed sum = nothing_replayed(mix);
    for (const std::size_t i : prompts) add_replayed(sum, by_prompt[i]);
    return sum;
  };
  std::vector<std::size_t> every(by_prompt.size());
  std::iota(every.begin(), every.end(), std::size_t{0});
  const MixReplayed sum = sum_of(every);
  const Replayed all = sum.all();
  json row = {{"mix", mix.name},
              {"certainty", std::string(to_string(Certainty::exact))},
              {"parts", json::array()},
              {"tau", nullptr},
              {"tau_ci95", nullptr},
              {"drafted_per_step", nullptr},
              {"draft_utilization", nullptr},
              {"speedup", nullptr},
              {"speedup_ci95", nullptr},
              {"ms_per_token", nullptr}};
  if (all.steps == 0) return row;
  for (std::size_t i = 0; i < mix.parts.size(); ++i) {
    row["parts"].push_back({{"case", traces[mix.parts[i].trace].data->id()},
                            {"gamma", mix.parts[i].gamma},
                            {"steps", sum.by_part[i].steps / all.steps}});
  }
  const auto interval = [&](const auto& value) {
    return interval_json(stats::bootstrap_interval(
        every.size(),
        [&](std::span<const std::size_t> drawn) {
          const MixReplayed sample = sum_of(drawn);
          return sample.all().steps > 0 ? value(sample) : std::numeric_limits<double>::quiet_NaN();
        },
        first.data->bootstrap()));
  };
  row["tau"] = all.tau();
  row["tau_ci95"] = interval([](const MixReplayed& counts) { return counts.all().tau(); });
  row["drafted_per_step"] = all.drafted / all.steps;
  if (all.drafted > 0) row["draft_utilization"] = all.accepted / all.drafted;
  const auto prices = prices_of(traces, mix, calibration);
  if (!prices) return row;
  const auto speedup = [&](const MixReplayed& counts) {
    return counts.all().tokens * prices->front().reference() / mix_time(counts, *prices);
  };
  row["speedup"] = speedup(sum);
  row["speedup_ci95"] = interval(speedup);
  row["ms_per_token"] = 1e-6 * mix_time(sum, *prices) / all.tokens;
  return row;
}

}  // namespace

Mix parse_mix(const std::string& text, std::span<const Trace> traces) {
  Mix mix{.name = text, .parts = {}};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    mix.parts.push_back(parse_part(text.substr(begin, end - begin), traces));
    begin = end + 1;
  }
  if (mix.parts.size() < 2)
    refuse_mix("\"" + text + "\"", "two or more drafters, joined by +",
               "For example --mix prompt_lookup:5+speculative_sampling:3.");
  for (const MixPart& part : mix.parts) {
    const Trace &one = traces[mix.parts.front().trace], &other = traces[part.trace];
    if (same_texts(one, other)) continue;
    refuse_mix(fmt::format("{} and {}, which have different texts", one.data->id(), other.data->id()),
               "traces of the same texts",
               "Above temperature 0, record the trace with \"coins\": \"gumbel\". Then all drafters have the "
               "text of autoregressive decoding.");
  }
  return mix;
}

Replayed MixReplayed::all() const {
  Replayed sum;
  for (const Replayed& one : by_part) add_replayed(sum, one);
  return sum;
}

void add_replayed(MixReplayed& sum, const MixReplayed& one) {
  SPECLAB_CHECK(part_count(sum) == part_count(one), "mixes of {} and {} parts", part_count(sum),
                part_count(one));
  for (std::size_t i = 0; i < one.by_part.size(); ++i) {
    add_replayed(sum.by_part[i], one.by_part[i]);
    sum.asked[i] += one.asked[i];
  }
}

MixReplayed replay_mix(std::span<const Trace> traces, const Mix& mix, std::span<const std::size_t> texts) {
  MixReplayed out = nothing_replayed(mix);
  for (const std::size_t text : texts) {
    const std::size_t count = traces[mix.parts.front().trace].texts[text].drafts.size();
    for (std::size_t i = 0; i < count;) {
      std::size_t part = 0;
      int drafted = 0, matching = 0;
      for (; part < mix.parts.size(); ++part) {
        const TracedDraft& draft = traces[mix.parts[part].trace].texts[text].drafts[i];
        drafted = std::min(mix.parts[part].gamma, draft.drafted());
        matching = draft.matching;
        if (drafted > 0 || part + 1 == mix.parts.size()) break;
        out.asked[part] += 1;
      }
      const int left = static_cast<int>(count - i), accepted = std::min({drafted, matching, left}),
                emitted = std::min(accepted + 1, left);
      count_step(out.by_part[part], drafted, accepted, emitted);
      i += static_cast<std::size_t>(emitted);
    }
  }
  return out;
}

double mix_time(const MixReplayed& counts, std::span<const StepPrices> prices) {
  double sum = 0;
  for (std::size_t i = 0; i < counts.by_part.size(); ++i) {
    if (counts.by_part[i].steps > 0) sum += prices[i].time(counts.by_part[i]);
    sum += counts.asked[i] * prices[i].asked();
  }
  return sum;
}

json replayed_mixes(std::span<const Trace> traces, const json& calibration, const std::vector<Mix>& mixes) {
  json out = json::array();
  for (const Mix& mix : mixes) out.push_back(mix_row(traces, mix, calibration));
  return out;
}

std::string replayed_mixes_text(const json& mixes) {
  std::string text =
      "Mixes of drafters, replayed from a trace: no model ran. The first drafter that finds anything drafts. "
      "tau is exact. The times assume that the caches of all drafters follow the text for free.\n";
  Table table{
      .header = {"mix", "share of steps", "tau", "drafted", "utilization", "predicted speedup", "ms/token"},
      .rows = {},
      .right = {false, false, true, true, true, true, true}};
  for (const json& row : mixes) {
    std::vector<std::string> shares;
    for (const json& part : row["parts"]) shares.push_back(number_text(part["steps"], 2));
    table.rows.push_back({row["mix"], fmt::format("{}", fmt::join(shares, " + ")), interval_text(row, "tau"),
                          number_text(row["drafted_per_step"]), number_text(row["draft_utilization"]),
                          interval_text(row, "speedup"), number_text(row["ms_per_token"])});
  }
  return text + to_text(table);
}

}  // namespace speclab
