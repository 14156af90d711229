#include "experiments/metrics/run_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/nearest.h"
#include "core/base/utf8.h"
#include "experiments/metrics/best_chain.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/run/reference_check.h"
#include "experiments/metrics/record_files.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kResamples = 400;  ///< resamples of the calibration; ten lie beyond each end of a 95 % interval

double seconds(const LineRecord& line, bool with_prefill) {
  return static_cast<double>(line.decode_ns() + (with_prefill ? line.prefill_ns() : 0)) * 1e-9;
}

/// The number of repeats that every seed of the prompt has.
std::size_t repeats_of(const PromptLines& lines) {
  std::size_t repeats = SIZE_MAX;
  for (const auto& seed : lines) repeats = std::min(repeats, seed.size());
  return lines.empty() ? 0 : repeats;
}

std::vector<double> sums_of(const PromptLines& lines, std::size_t repeats,
                            const std::function<double(const LineRecord&)>& value) {
  std::vector<double> sums(repeats, 0.0);
  for (const auto& seed : lines) {
    for (std::size_t r = 0; r < repeats; ++r) sums[r] += value(seed[r]);
  }
  return sums;
}

/// True if both lists have the lines of the same seeds.
bool same_seeds(const PromptLines& a, const PromptLines& b) {
  return std::ranges::equal(a, b,
                            [](const auto& x, const auto& y) { return x.front().seed == y.front().seed; });
}

/// Sorts lines by prompt and seed into the case. Leaves out failed lines and repeats after a missing one.
void sort_lines(CaseData& data, std::vector<LineRecord> lines, const json& prompts) {
  std::map<std::string, std::map<std::uint64_t, std::map<int, LineRecord>>> sorted;
  for (LineRecord& line : lines) {
    if (!line.error.empty()) {
      data.errors.emplace_back(line.prompt, line.error);
      continue;
    }
    auto& slot = sorted[line.prompt][line.seed];
    slot.emplace(line.repeat, std::move(line));
  }
  for (const json& prompt : prompts) {
    const auto found = sorted.find(prompt.at("id"));
    if (found == sorted.end()) continue;
    auto of_prompt = std::make_shared<PromptLines>();
    for (auto& [seed, repeats] : found->second) {
      std::vector<LineRecord> ordered;
      for (auto& [repeat, line] : repeats) {
        if (repeat == static_cast<int>(ordered.size())) ordered.push_back(std::move(line));
      }
      if (!ordered.empty()) of_prompt->push_back(std::move(ordered));
    }
    if (of_prompt->empty()) continue;
    data.prompts.push_back(found->first);
    data.categories.push_back(prompt.value("category", ""));
    data.lines.push_back(std::move(of_prompt));
  }
}

}  // namespace

bool CaseData::unequal() const {
  for (const auto& prompt : lines) {
    for (const auto& seed : *prompt) {
      for (const LineRecord& line : seed) {
        if (line.matches_reference == false) return true;
      }
    }
  }
  return false;
}

std::vector<PromptRounds> CaseData::rounds() const {
  std::vector<PromptRounds> run;
  for (const auto& prompt : lines) {
    PromptRounds rounds;
    for (const auto& seed : *prompt) {
      for (const GenerationRecord& turn : seed.front().turns) {
        for (const StepRecord& step : turn.steps) {
          const std::optional<Round> round = chain_round(step);
          if (!round) return {};
          rounds.push_back(*round);
        }
      }
    }
    run.push_back(std::move(rounds));
  }
  return run;
}

stats::BootstrapOptions CaseData::bootstrap() const {
  stats::BootstrapOptions options;
  if (!intervals) options.resamples = 1;
  return options;
}

namespace {

std::shared_ptr<CaseData> part_of(const CaseData& whole, const std::string& name,
                                  std::vector<std::string> CaseData::* names) {
  auto part = std::make_shared<CaseData>(whole);
  part->prompts.clear();
  part->categories.clear();
  part->lines.clear();
  part->intervals = false;
  for (std::size_t i = 0; i < whole.prompts.size(); ++i) {
    if ((whole.*names)[i] != name) continue;
    part->prompts.push_back(whole.prompts[i]);
    part->categories.push_back(whole.categories[i]);
    part->lines.push_back(whole.lines[i]);
  }
  if (whole.reference) part->reference = part_of(*whole.reference, name, names);
  if (whole.best_chain) part->best_chain = part_of(*whole.best_chain, name, names);
  return part;
}

}  // namespace

std::shared_ptr<CaseData> CaseData::of_category(const std::string& category) const {
  return part_of(*this, category, &CaseData::categories);
}

std::shared_ptr<CaseData> CaseData::of_prompt(const std::string& prompt) const {
  return part_of(*this, prompt, &CaseData::prompts);
}

namespace {

/// The lines of a complete case: the prompts, seeds and repeats of a config.
class PlannedKeys {
 public:
  explicit PlannedKeys(const json& config) : repeats_(config.at("repeats").get<int>()) {
    for (const json& prompt : config.at("prompts")) prompts_.insert(prompt.at("id").get<std::string>());
    for (const json& seed : config.at("seeds")) seeds_.insert(seed.get<std::uint64_t>());
  }
  std::size_t count() const {
    return prompts_.size() * seeds_.size() * static_cast<std::size_t>(std::max(repeats_, 0));
  }
  /// Throws Error for a line that the config does not plan.
  void require(const std::filesystem::path& folder, const LineRecord& line) const {
    const bool prompt = prompts_.contains(line.prompt), seed = seeds_.contains(line.seed);
    if (prompt && seed && line.repeat < repeats_) return;
    throw Error({.what = fmt::format("{}: a line of {}", folder.string(), line.case_id),
                 .got = !prompt ? fmt::format("prompt \"{}\"", line.prompt)
                        : !seed ? fmt::format("seed {}", line.seed)
                                : fmt::format("repeat {}", line.repeat),
                 .expected = "prompts, seeds and repeats of config.json",
                 .advice = "The line belongs to another run. Take it out of the folder."});
  }

 private:
  std::set<std::string> prompts_;
  std::set<std::uint64_t> seeds_;
  int repeats_;
};

/// Adds the estimates in teacher.jsonl to the cases.
void add_teacher(const std::filesystem::path& file,
                 const std::map<std::string, std::shared_ptr<CaseData>>& by_id) {
  using Key = std::tuple<std::string, std::string, std::string, std::uint64_t>;
  std::set<Key> known;
  std::map<Key, std::string> failed;
  for (const json& line : read_json_lines(file)) {
    const std::string kind = line.at("kind"), id = line.at("case"), prompt = line.at("prompt");
    const auto seed = line.at("seed").get<std::uint64_t>();
    if (kind == "failed") {  // each attempt has added such a line
      const std::string estimate = line.at("estimate");
      failed[{estimate, id, prompt, seed}] = line.at("message").get<std::string>();
      continue;
    }
    if (!known.emplace(kind, id, prompt, seed).second) {
      throw Error({.what = file.string(),
                   .got = fmt::format("two lines of {} for case {}, prompt {}, seed {}", kind, id, prompt,
                                      line.at("seed").dump()),
                   .expected = "one line for each",
                   .advice = "Delete one of the two."});
    }
    const auto found = by_id.find(id);
    if (found == by_id.end()) continue;
    const bool alpha = kind == "alpha";
    auto& [sum, count] = (alpha ? found->second->alpha_forced : found->second->nll)[prompt];
    sum += line.at("sum").get<double>();
    count += line.at(alpha ? "positions" : "tokens").get<double>();
  }
  for (const auto& [key, message] : failed) {
    const auto& [estimate, id, prompt, seed] = key;
    const auto found = by_id.find(id);
    if (found == by_id.end() || known.contains(key)) continue;  // a later attempt succeeded
    found->second->failed_estimates.emplace_back(
        prompt, fmt::format("the estimate of {} for seed {}: {}", estimate, seed, message));
  }
}

/// Which rows stayed on the device in most steps of these lines.
RowsStay rows_stay(const std::vector<LineRecord>& lines) {
  std::int64_t steps = 0, planned = 0, verified = 0;
  for (const LineRecord& line : lines) {
    for (const GenerationRecord& turn : line.turns) {
      steps += static_cast<std::int64_t>(turn.steps.size());
      planned += turn.planned_steps;
      verified += turn.verified_steps;
    }
  }
  return {.target = 2 * (planned + verified) > steps, .draft = 2 * planned > steps};
}

}  // namespace

RunData load_run(const std::filesystem::path& folder) {
  if (!path_exists(folder / "config.json")) {
    const bool several = path_exists(folder / "targets.json");
    throw Error(
        {.what = folder.string(),
         .got = several ? "runs of several targets" : "no run",
         .expected = "a folder that speclab run wrote, with config.json",
         .advice = several ? "Name the subfolder of one target; scripts/report.py reads all targets." : ""});
  }
  RunData run;
  run.config = read_run_config(folder);
  run.environment = read_run_environment(folder);
  std::map<std::string, std::shared_ptr<CaseData>> by_id;
  try {
    const std::vector<json> rounds = read_json_lines(folder / "calibration.jsonl");
    run.calibration = calibration_costs(rounds);
    const auto resampled = std::make_shared<const std::vector<json>>(resampled_costs(rounds, kResamples));
    const auto drift = rounds.empty() ? nullptr : std::make_shared<const MachineDrift>(rounds);
    const PlannedKeys planned(run.config);
    std::map<std::string, std::vector<LineRecord>> lines;
    std::map<std::string, std::string> reference_of;
    for (const json& entry : run.config.at("cases")) {
      const auto id = entry.at("id").get<std::string>();
      lines[id] = read_case_lines(folder, id);
      for (const LineRecord& line : lines[id]) planned.require(folder, line);
      if (lines[id].size() < planned.count()) run.complete = false;
      reference_of[id] = entry.at("reference").is_null() ? id : entry.at("reference").get<std::string>();
    }
    check_record(lines, reference_of);
    std::map<std::string, RowsStay> stay;
    for (const auto& [id, of_case] : lines) stay[id] = rows_stay(of_case);
    for (const json& entry : run.config.at("cases")) {
      auto data = std::make_shared<CaseData>();
      data->config = entry;
      data->environment = run.environment;
      const RowsStay own = stay[data->id()], reference = stay[reference_of[data->id()]];
      const auto paid_by_case = [&](const json& table) {
        const json& draft = entry.at("draft");
        return costs_beside_drafting(costs_as_paid(table, own, reference), data->id(),
                                     draft.is_string() ? draft.get<std::string>() : "");
      };
      data->calibration = paid_by_case(run.calibration);
      data->resampled_calibrations = resampled;
      // Without device times, all cases share one table, except those that draft ahead.
      if (run.calibration.contains("device") || data->calibration != run.calibration) {
        auto paid = std::make_shared<std::vector<json>>();
        for (const json& table : *resampled) paid->push_back(paid_by_case(table));
        data->resampled_calibrations = paid;
      }
      data->drift = drift;
      sort_lines(*data, std::move(lines[data->id()]), run.config.at("prompts"));
      by_id[data->id()] = data;
      run.cases.push_back(std::move(data));
    }
    add_teacher(folder / "teacher.jsonl", by_id);
    for (auto& [id, bounds] : read_bounds(folder / "bounds.jsonl")) {
      if (const auto found = by_id.find(id); found != by_id.end())
        found->second->bounds =
            std::make_shared<std::map<std::string, std::vector<RecordedStep>>>(std::move(bounds));
    }
    for (const auto& data : run.cases) {
      const json& reference = data->config["reference"];
      if (reference.is_null()) continue;
      const auto found = by_id.find(reference);
      if (found != by_id.end() && !found->second->lines.empty()) data->reference = found->second;
    }
    find_best_chains(run.cases);
  } catch (const json::exception& error) {
    throw Error({.what = folder.string(),
                 .got = error.what(),
                 .expected = "the record of a run",
                 .advice = "See results/SCHEMA.md."});
  }
  return run;
}

RunData run_of_category(const RunData& run, const std::string& category) {
  std::set<std::string> known;
  for (const auto& data : run.cases) known.insert(data->categories.begin(), data->categories.end());
  known.erase("");  // prompts without a category
  if (!known.contains(category)) {
    const std::vector<std::string> names(known.begin(), known.end());
    throw Error({.what = "category of prompts",
                 .got = "\"" + printable(category, 80) + "\"",
                 .expected = "a category of the prompts of the run",
                 .advice = names.empty() ? "Its prompts have no categories." : suggest(category, names)});
  }
  RunData part = run;
  for (std::shared_ptr<CaseData>& data : part.cases) {
    data = data->of_category(category);
    data->intervals = true;
  }
  return part;
}

void require_lines(const RunData& run, const std::filesystem::path& folder) {
  bool failed = false;
  for (const auto& data : run.cases) {
    if (!data->lines.empty()) return;
    failed = failed || !data->errors.empty();
  }
  const std::string name = folder.string();
  if (!path_exists(folder / "cases")) {
    throw Error({.what = name,
                 .got = "a record without raw lines (no cases/)",
                 .expected = "a run with its lines",
                 .advice =
                     "If the record is a committed one that keeps its lines, scripts/baseline.py expand "
                     "makes a run folder from it."});
  }
  throw Error({.what = name,
               .got = failed ? "a run in which every line failed" : "a run without a finished line",
               .expected = "a run with finished lines",
               .advice = failed ? fmt::format("speclab report {} shows the errors.", name)
                                : fmt::format("Go on with it: speclab run --resume {}.", name)});
}

PairedTimes paired_times(const CaseData& base, const CaseData& test, bool with_prefill) {
  return paired_values(base, test, [&](const LineRecord& line) { return seconds(line, with_prefill); });
}

PairedDecoding paired_decoding(const CaseData& base, const CaseData& test, bool with_prefill) {
  PairedTimes times = paired_times(base, test, with_prefill);
  PairedTimes tokens = paired_values(base, test, emitted_tokens);
  return {{std::move(times.base), std::move(tokens.base)}, {std::move(times.test), std::move(tokens.test)}};
}

std::optional<stats::Ratio> speed_ratio(const CaseData& base, const CaseData& test, bool with_prefill,
                                        const stats::BootstrapOptions& options) {
  const PairedDecoding both = paired_decoding(base, test, with_prefill);
  if (both.test.seconds.empty() || both.test.seconds.front().empty()) return std::nullopt;
  return stats::paired_speedup(both.base, both.test, options);
}

PairedTimes paired_values(const CaseData& base, const CaseData& test,
                          const std::function<double(const LineRecord&)>& value) {
  std::map<std::string, const PromptLines*> in_base;
  for (std::size_t i = 0; i < base.prompts.size(); ++i) in_base[base.prompts[i]] = base.lines[i].get();
  std::vector<std::pair<const PromptLines*, const PromptLines*>> pairs;
  std::size_t repeats = SIZE_MAX;
  for (std::size_t i = 0; i < test.prompts.size(); ++i) {
    const auto found = in_base.find(test.prompts[i]);
    if (found == in_base.end() || !same_seeds(*found->second, *test.lines[i])) continue;
    pairs.emplace_back(found->second, test.lines[i].get());
    repeats = std::min({repeats, repeats_of(*found->second), repeats_of(*test.lines[i])});
  }
  PairedTimes times;
  for (const auto& [a, b] : pairs) {
    times.base.push_back(sums_of(*a, repeats, value));
    times.test.push_back(sums_of(*b, repeats, value));
  }
  return times;
}

stats::Times decode_times(const CaseData& data) { return paired_times(data, data, false).test; }

}  // namespace speclab
