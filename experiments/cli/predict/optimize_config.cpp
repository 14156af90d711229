#include "experiments/cli/predict/optimize_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/base/standard_streams.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/registry.h"
#include "core/measure/run_result.h"
#include "experiments/cli/command.h"
#include "experiments/cli/predict/run_part.h"
#include "experiments/metrics/run_data.h"
#include "experiments/optimize/config_choice.h"
#include "experiments/optimize/lookahead_search.h"
#include "experiments/run/dry_run.h"
#include "experiments/simulate/replay/replayed_settings.h"

namespace speclab {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr std::size_t kMeasured = 3;                      // number of settings that are measured
constexpr int kTreesOfTrace = 8, kLookaheadSettings = 8;  // numbers of fastest settings to keep

std::string words_of_setting(const ReplayedSetting& setting) {
  if (!setting.drafts_tree())
    return fmt::format("{}, drafts of {} {}", setting.case_id, setting.length,
                       setting.length == 1 ? "token" : "tokens");
  const int depth = setting.tree.depth();
  return fmt::format("{}, a tree of {} drafted tokens in {} {}", setting.case_id, setting.tree.nodes() - 1,
                     depth, depth == 1 ? "level" : "levels");
}

/// The settings that the replay of the trace predicts. If a setting drafts trees, its "tree" holds the
/// contents of a tree file, and its "entry" is {} until chosen_settings() has written that file.
std::vector<json> settings_of_trace(const SearchPlan& plan, const RunData& run, const ConfigWish& wish) {
  std::vector<json> out;
  const TreeLimits limits{.nodes = wish.nodes, .depth = wish.depth, .best = kTreesOfTrace};
  for (const ReplayedSetting& setting : replayed_settings(run, limits)) {
    const bool tree = setting.drafts_tree();
    const json entry = tree ? json(json::object()) : plan.setting(setting.case_id, setting.length, "");
    if (entry.is_null()) continue;  // no option sets the length
    json one = {{"what", words_of_setting(setting)},
                {"case", setting.case_id},
                {"how", "replay"},
                {"entry", entry},
                {"tau", setting.tau},
                {"tau_ci95", setting.tau_ci95},
                {"speedup", setting.speedup},
                {"speedup_ci95", setting.speedup_ci95}};
    if (tree) {
      one["tree"] = {
          {"format", kTreeFormat}, {"parents", setting.tree.parents}, {"ranks", setting.tree.ranks}};
    }
    out.push_back(std::move(one));
  }
  return out;
}

/// The settings of lookahead decoding that its fitted law predicts.
std::vector<json> settings_of_lookahead(const RunData& grid, const ConfigWish& wish) {
  const std::string_view strategy = searched_strategy(SearchedAs::window).info.name;
  std::vector<json> out;
  for (const LookaheadPrediction& one : search_lookahead(grid, wish.lookahead_rows, kLookaheadSettings)) {
    const theory::LookaheadShape& shape = one.shape;
    out.push_back({{"what", fmt::format("{}, W = {}, N = {}, G = {}", strategy, shape.W, shape.N, shape.G)},
                   {"case", nullptr},
                   {"how", "fitted law"},
                   {"entry", SearchPlan::lookahead_setting(shape.W, shape.N, shape.G)},
                   {"tau", one.tau},
                   {"tau_ci95", one.tau_ci95},
                   {"speedup", one.speedup},
                   {"speedup_ci95", one.speedup_ci95}});
  }
  return out;
}

/// The settings to measure. Writes their tree files into the folder.
std::vector<json> chosen_settings(const SearchPlan& plan, const std::vector<json>& settings,
                                  const fs::path& folder) {
  std::vector<json> out;
  for (const std::size_t index : settings_to_measure(settings, kMeasured)) {
    json one = settings[index];
    if (one.contains("tree")) {
      const fs::path file = folder / fmt::format("tree-{}.json", out.size() + 1);
      write_json_file(file, one["tree"]);
      one["entry"] = plan.setting(one["case"].get<std::string>(), 0, file.string());
    }
    out.push_back(std::move(one));
  }
  return out;
}

/// The name of a file beside `out`: best.json has best.tree.json.
std::string tree_beside(const std::string& out) {
  const fs::path path(out);
  return (path.parent_path() / (path.stem().string() + ".tree.json")).string();
}

/// Writes the config of the best setting, and the file of its tree.
void write_best(const OptimizeConfigWords& words, const SearchPlan& plan, const json& best) {
  json entry = best.at("entry");
  if (best.contains("tree")) {
    entry["tree"] = tree_beside(words.out);
    write_json_file(tree_beside(words.out), best["tree"]);
  }
  const json& measured = best.at("measured");
  const json& ci = measured.at("speedup_ci95");
  const std::string interval =
      ci.is_array() ? fmt::format(" [{:.2f}, {:.2f}]", ci[0].get<double>(), ci[1].get<double>()) : "";
  write_json_file(
      words.out,
      plan.config_with(entry, fmt::format("The fastest setting that speclab optimize config measured "
                                          "for {}: {:.2f}{} times as fast as autoregressive decoding "
                                          "on {} prompts.",
                                          words.config.string(), measured.at("speedup").get<double>(),
                                          interval, measured.at("prompts").get<std::size_t>())));
}

}  // namespace

int optimize_config(const OptimizeConfigWords& words) {
  const SearchPlan plan(read_json_file(words.config), words.config.lexically_normal().string(),
                        words.settings, words.wish);
  const Experiment trace = plan.trace();
  require_files({&trace, 1});
  for (const std::string& note : plan.notes()) print_status("{}\n", note);
  catch_interrupts();
  Progress progress(words.quiet);
  bool good = true;
  const auto run = [&](Experiment experiment, const std::string& name) {  // false: interrupted
    const PartEnd end =
        run_part(std::move(experiment), words.folder / name, words.backend, words.resume, progress);
    good = good && end == PartEnd::good;
    if (end == PartEnd::stopped)
      progress.warn("interrupted; finished lines are kept. Repeat the command with --resume.");
    return end != PartEnd::stopped;
  };
  if (!run(trace, "trace")) return kInterrupted;
  std::vector<json> settings = settings_of_trace(plan, load_run(words.folder / "trace"), words.wish);
  if (std::optional<Experiment> grid = plan.lookahead()) {
    const std::string name(searched_strategy(SearchedAs::window).info.name);
    if (!run(*std::move(grid), name)) return kInterrupted;
    const std::vector<json> more = settings_of_lookahead(load_run(words.folder / name), words.wish);
    settings.insert(settings.end(), more.begin(), more.end());
  }
  if (settings.empty()) {
    throw Error({.what = "speclab optimize config",
                 .got = "no setting with calibrated costs",
                 .expected = "a trace with a calibration",
                 .advice = "The calibration of the search failed; look at " +
                           (words.folder / "trace" / "summary.json").string() + "."});
  }
  const std::vector<json> chosen = chosen_settings(plan, settings, words.folder);
  std::vector<json> entries;
  for (const json& one : chosen) entries.push_back(one.at("entry"));
  if (!run(plan.measurement(entries), "measured")) return kInterrupted;
  json choice = measured_choice(chosen, load_run(words.folder / "measured"));
  choice["config"] = words.config.string();
  choice["searched"] = settings.size();
  choice["left_out"] = plan.notes();
  write_json_file(words.folder / "optimize.json", choice);
  const bool found = !choice["best"].is_null();
  if (found) write_best(words, plan, choice["settings"].at(choice["best"].get<std::size_t>()));
  if (words.as_json) fmt::print("{}\n", choice.dump(1));
  else
    fmt::print("{} settings were compared by prediction; these were measured on other prompts:\n\n{}",
               settings.size(), choice_text(choice));
  if (found) print_status("Config: {}. Runs: {}.\n", words.out, words.folder.string());
  else print_status("No config was written. Runs: {}.\n", words.folder.string());
  return good && found ? kOk : kCheckFailed;
}

}  // namespace speclab
