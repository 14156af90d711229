#include "experiments/analysis/tree_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/registry.h"
#include "experiments/analysis/table.h"
#include "experiments/analysis/tree_acceptance.h"
#include "experiments/metrics/calibration_costs.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kCalibrationRounds = 16;

/// What decides how the children of a case are drawn and judged. Counts of cases that differ in it are not
/// added up.
json draws_of(const CaseData& data) {
  json out = {{"draft", data.config["draft"]}, {"rule", data.config["rule"]}};
  for (const char* name : {"temperature", "top_k", "top_p", "coins", "children", "used_up",
                           "draft_temperature", "draft_top_k", "draft_top_p"}) {
    if (data.options().contains(name)) out[name] = data.options()[name];
  }
  return out;
}

/// The cases of the run whose children are counted.
std::vector<const CaseData*> tree_cases(const RunData& run, const TreeWish& wish) {
  std::vector<const CaseData*> out;
  for (const auto& data : run.cases) {
    const json& draft = data->config["draft"];
    if (draft.is_null() || (!wish.draft.empty() && draft != wish.draft) || !drafts_trees(*data)) continue;
    if (!out.empty() && draws_of(*data) != draws_of(*out.front())) {
      throw Error({"speclab optimize tree",
                   fmt::format("the cases {} and {}, which draw or judge children in different ways",
                               out.front()->id(), data->id()),
                   "cases with one draft, one rule and one sampling",
                   "Choose a draft with --draft, or make a run with one sampling."});
    }
    out.push_back(data.get());
  }
  if (out.empty()) {
    throw Error({"speclab optimize tree", "a run without trees of a draft model",
                 fmt::format("a case of {}", tree_strategy().info.name),
                 "Pass a config: the command then measures what it needs."});
  }
  return out;
}

json choice_of_chain(const theory::TreeChoice& chain) {
  return {{"gamma", chain.tree.nodes() - 1}, {"tau", chain.expected_tokens}, {"speedup", chain.speedup}};
}

}  // namespace

json tree_calibration_config(const json& config, const TreeWish& wish) {
  const auto refuse = [](std::string got, std::string expected) {
    throw Error({"speclab optimize tree", std::move(got), std::move(expected),
                 "Pass a config with one target, a draft model and prompts."});
  };
  if (!config.is_object() || !config.contains("target")) refuse("a config without \"target\"", "one target");
  const json drafts = config.value("drafts", json::object());
  std::string draft = wish.draft;
  if (draft.empty()) {
    if (drafts.size() != 1) refuse(fmt::format("{} drafts", drafts.size()), "one draft, or --draft NAME");
    draft = drafts.begin().key();
  }
  if (!drafts.contains(draft)) refuse(fmt::format("no draft \"{}\"", draft), "a draft of the config");
  json cases = json::array({{{"strategy", baseline_strategy().info.name}}});
  std::vector<int> widths = {wish.width};
  for (int depth = 0; depth < wish.measured_depth; ++depth) {
    cases.push_back({{"strategy", tree_strategy().info.name}, {"draft", draft}, {"widths", widths}});
    widths.insert(widths.begin(), 1);
  }
  json out = {{"name", config.value("name", "") + "_tree"},
              {"description",
               "Measures the acceptance of drafted children by rank and depth, and the times "
               "from which speclab optimize tree chooses a tree."},
              {"repeats", 1},
              {"teacher_forced", false},
              {"cases", std::move(cases)},
              {"calibration", {{"rows", wish.nodes}, {"rounds", kCalibrationRounds}}}};
  for (const char* key : {"target", "prompts", "seed", "seeds", "warmup", "options"}) {
    if (config.contains(key)) out[key] = config[key];
  }
  out["options"]["budget"] = "fixed";  // all children of every step are counted
  out["drafts"] = {{draft, drafts[draft]}};
  return out;
}

json optimized_tree(const RunData& run, const TreeWish& wish) {
  const std::vector<const CaseData*> cases = tree_cases(run, wish);
  const CaseData& first = *cases.front();
  RankCounts counts;
  for (const CaseData* data : cases) counts.add(rank_counts(*data));
  if (counts.empty()) {
    throw Error({"speclab optimize tree", "no step that reached a drafted child", "some finished lines",
                 "Decode more prompts or longer texts."});
  }
  const json& table = first.calibration;
  const std::string name = first.config["draft"];
  if (table.is_null() && !(wish.target && wish.c)) {
    throw Error({"speclab optimize tree", "a run without a calibration", "t(n) and c of the machine",
                 "Make a run with a calibration, or pass --t and --c."});
  }
  const theory::RowTimes target = (wish.target ? *wish.target : calibrated_row_times(table)).monotone();
  const double c = wish.c ? *wish.c : table.at("drafts").at(name).at("c").get<double>();
  // Beyond the measured n, t(n) is a guess. A single time of the wish says that all n take the same time.
  const int measured = !wish.target    ? measured_rows(table)
                       : target.flat() ? wish.nodes
                                       : target.largest_measured();
  const int nodes = std::min({wish.nodes, TreeShape::kMostDrafted + 1, measured});
  const theory::RankAcceptance acceptance = counts.by_depth();
  const theory::TreeChoice best = best_tree(acceptance, target, c, nodes, wish.depth);
  std::vector<std::vector<double>> firsts;
  for (const std::vector<double>& ranks : acceptance.by_depth()) firsts.push_back({ranks.at(0)});
  const theory::TreeChoice chain =
      best_tree(theory::RankAcceptance(std::move(firsts)), target, c, nodes, wish.depth);
  json t = json::object(), reached = json::array();
  for (int n = 1; n <= nodes; n = n < 8 ? n + 1 : n + 8) t[std::to_string(n)] = target.ratio(n);
  for (const auto& ranks : counts.counts()) {
    reached.push_back(json::array());
    for (const RankCounts::Count& count : ranks) reached.back().push_back(count.reached);
  }
  const json& models = run.environment.value("models", json::object());
  return {{"format", kTreeFormat},
          {"parents", best.tree.parents},
          {"ranks", best.tree.ranks},
          {"nodes", best.tree.nodes()},
          {"depth", best.tree.depth()},
          {"predicted",
           {{"tau", best.expected_tokens}, {"speedup", best.speedup}, {"chain", choice_of_chain(chain)}}},
          {"acceptance", acceptance.by_depth()},
          {"reached", reached},
          {"c", c},
          {"t", t},
          {"target", models.value("target", json())},
          {"draft", models.value(name, json())},
          {"device", wish.target ? json("times of --t") : run.environment.value("device", json())},
          {"numerics", run.environment.value("numerics", json())},
          {"draws", draws_of(first)},
          {"run", run.config.value("name", json())}};
}

std::string to_tree_text(const json& tree) {
  const auto number = [](const json& value) { return number_text(value, 3); };
  const json& predicted = tree["predicted"];
  std::string out;
  Table table{.header = {"depth"}, .rows = {}, .right = {}};
  for (std::size_t depth = 0; depth < tree["acceptance"].size(); ++depth) {
    const json& ranks = tree["acceptance"][depth];
    table.rows.push_back({std::to_string(depth + 1)});
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (table.header.size() < rank + 2) table.header.push_back(fmt::format("rank {}", rank + 1));
      table.rows.back().push_back(number(ranks[rank]));
    }
  }
  table.right.assign(table.header.size(), true);
  out += "Acceptance of a child, given that its parent was accepted:\n" + to_text(table) + "\n";
  const json& chain = predicted["chain"];
  const std::string of_chain =
      chain["gamma"] == 0
          ? "No chain is faster than autoregressive decoding."
          : fmt::format("The best chain drafts {} tokens: tau {}, speedup {} (predicted).",
                        chain["gamma"].get<int>(), number(chain["tau"]), number(chain["speedup"]));
  if (tree["parents"].empty()) return out + "No tree is faster than autoregressive decoding.\n";
  std::vector<int> depths = {0}, levels;
  for (const json& parent : tree["parents"]) {
    depths.push_back(depths.at(parent.get<std::size_t>()) + 1);
    if (static_cast<int>(levels.size()) < depths.back()) levels.push_back(0);
    ++levels[static_cast<std::size_t>(depths.back()) - 1];
  }
  return out +
         fmt::format(
             "The best tree has {} drafted tokens in {} levels ({}): tau {}, speedup {} (predicted).\n{}\n",
             tree["parents"].size(), levels.size(), fmt::join(levels, ", "), number(predicted["tau"]),
             number(predicted["speedup"]), of_chain);
}

}  // namespace speclab
