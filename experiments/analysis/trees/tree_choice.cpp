#include "experiments/analysis/trees/tree_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/registry.h"
#include "experiments/analysis/table.h"
#include "experiments/analysis/trees/tree_costs.h"
#include "experiments/analysis/trees/tree_inputs.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kCalibrationRounds = 16;
constexpr int kMostDraftRows = 32;  // draft forwards are measured over up to this many rows

/// Widths of a tree with as many levels as fit: `width` children of the pending token, two children of each
/// other node.
std::vector<int> widths_of_large_tree(const TreeWish& wish) {
  std::vector<int> widths = {wish.width};
  for (int level = 2 * wish.width, drafted = wish.width; drafted + level <= wish.nodes - 1; level *= 2) {
    widths.push_back(2);
    drafted += level;
  }
  return widths;
}

/// The prompts on which the acceptance was measured. They are recorded so that nobody tests the predictions
/// on the same prompts.
json prompts_of(const RunData& run) {
  json out = json::array();
  for (const json& prompt : run.config.at("prompts")) {
    std::string text;
    for (const json& turn : prompt.value("turns", json::array()))
      text += (text.empty() ? "" : "\x1e") + turn.get<std::string>();
    out.push_back(
        {{"id", prompt.at("id")}, {"split", prompt.value("split", "")}, {"sha256", sha256_hex(text)}});
  }
  return out;
}

/// The predictions for a tree: "tau", "speedup", "step_speedup".
json predictions_for(const theory::TreeChoice& choice, const std::optional<theory::TreeCosts>& costs) {
  json out = {{"tau", choice.expected_tokens}, {"speedup", choice.speedup}, {"step_speedup", nullptr}};
  if (costs) {
    out["step_speedup"] = theory::measured_cost_speedup(
        choice.expected_tokens, theory::tree_step_times(choice.tree, choice.expected_tokens, *costs));
  }
  return out;
}

/// The entry with the largest prediction above 1, or null. Ties go to the first.
const json* best_entry(const json& entries, const std::string& by) {
  const json* best = nullptr;
  double most = 1;
  for (const json& entry : entries) {
    if (entry.at(by).get<double>() > most) best = &entry, most = entry[by].get<double>();
  }
  return best;
}

/// Predictions of a step that drafts nothing.
json nothing_drafted(const std::string& by) {
  return {{"tau", 1.0}, {"speedup", 1.0}, {"step_speedup", by == "step_speedup" ? json(1.0) : json()}};
}

/// The rank of each drafted node: its place among its siblings, from 1.
json ranks_of(const json& parents) {
  std::vector<int> children(parents.size() + 1);
  json ranks = json::array();
  for (const json& parent : parents) ranks.push_back(++children.at(parent.get<std::size_t>()));
  return ranks;
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
  const auto add = [&](const std::vector<int>& widths) {
    cases.push_back({{"strategy", tree_strategy().info.name}, {"draft", draft}, {"widths", widths}});
    if (wish.by_confidence > 0) cases.back()["root_confidence"] = true;
  };
  std::vector<int> widths = {wish.width};
  for (int depth = 0; depth < wish.measured_depth; ++depth) {
    add(widths);
    widths.insert(widths.begin(), 1);
  }
  if (const std::vector<int> large = widths_of_large_tree(wish); large.size() > 1) add(large);
  json out = {{"name", config.value("name", "") + "_tree"},
              {"description",
               "Measures the acceptance of drafted children by rank and depth, and the times "
               "from which speclab optimize tree chooses a tree."},
              {"repeats", 1},
              {"teacher_forced", false},
              {"cases", std::move(cases)},
              {"calibration",
               {{"rows", wish.nodes},
                {"draft_rows", std::min(wish.nodes, kMostDraftRows)},
                {"rounds", kCalibrationRounds}}}};
  for (const char* key : {"target", "prompts", "seed", "seeds", "warmup", "options"}) {
    if (config.contains(key)) out[key] = config[key];
  }
  out["options"]["budget"] = "fixed";  // all children of every step are counted
  out["drafts"] = {{draft, drafts[draft]}};
  return out;
}

json tree_grid_of(const RunData& run, const TreeWish& wish) {
  const TreeInputs in = tree_inputs(run, wish);
  const CaseData& first = *in.cases.front();
  const theory::RankAcceptance acceptance = in.counts.by_depth();
  std::vector<std::vector<double>> firsts;
  for (const std::vector<double>& ranks : acceptance.by_depth()) firsts.push_back({ranks.at(0)});
  json cells = json::array(), chains = json::array();
  for (const theory::TreeChoice& cell :
       theory::tree_grid(acceptance, in.target, in.c, in.nodes, wish.depth)) {
    cells.push_back(predictions_for(cell, in.costs));
    cells.back().update(
        {{"nodes", cell.tree.nodes()}, {"depth", cell.tree.depth()}, {"parents", cell.tree.parents}});
  }
  for (const theory::TreeChoice& chain :
       theory::tree_grid(theory::RankAcceptance(std::move(firsts)), in.target, in.c, in.nodes, wish.depth)) {
    chains.push_back(predictions_for(chain, in.costs));
    chains.back()["gamma"] = chain.tree.depth();
  }
  json t = json::object(), reached = json::array();
  for (int n = 1; n <= in.nodes; n = n < 8 ? n + 1 : n + 8) t[std::to_string(n)] = in.target.ratio(n);
  for (const auto& ranks : in.counts.counts()) {
    reached.push_back(json::array());
    for (const RankCounts::Count& count : ranks) reached.back().push_back(count.reached);
  }
  const json& models = run.environment.value("models", json::object());
  return {{"format", kGridFormat},
          {"cells", std::move(cells)},
          {"chains", std::move(chains)},
          {"chosen_by", in.costs ? "step_speedup" : "speedup"},
          {"acceptance", acceptance.by_depth()},
          {"reached", reached},
          {"c", in.c},
          {"t", t},
          {"costs", in.costs ? to_json(*in.costs, in.nodes) : json()},
          {"target", models.value("target", json())},
          {"draft", models.value(first.config["draft"].get<std::string>(), json())},
          {"device", wish.target ? json(wish.machine) : run.environment.value("device", json())},
          {"numerics", run.environment.value("numerics", json())},
          {"draws", draws_of(first)},
          {"run", run.config.value("name", json())},
          {"prompts", prompts_of(run)}};
}

std::string to_grid_file(const json& grid) {
  std::string text = "{\n";
  const char* before = "";
  for (const auto& [key, value] : grid.items()) {
    text += fmt::format("{}\"{}\": ", std::exchange(before, ",\n"), key);
    if (key != "cells" && key != "chains") {
      text += value.dump();
      continue;
    }
    const char* open = "";
    text += "[";
    for (const json& entry : value) text += std::exchange(open, ",") + ("\n" + entry.dump());
    text += "\n]";
  }
  return text + "\n}\n";
}

json best_tree_of(const json& grid) {
  const std::string by = grid.at("chosen_by");
  json out = grid;
  out.erase("cells");
  out.erase("chains");
  out.erase("chosen_by");
  const json* chain = best_entry(grid.at("chains"), by);
  json of_chain = chain ? *chain : nothing_drafted(by);
  if (!chain) of_chain["gamma"] = 0;
  const json* cell = best_entry(grid.at("cells"), by);
  const json& best = cell ? *cell : nothing_drafted(by);
  out["format"] = kTreeFormat;
  out["parents"] = cell ? (*cell)["parents"] : json::array();
  out["ranks"] = ranks_of(out["parents"]);
  out["nodes"] = cell ? (*cell)["nodes"] : json(1);
  out["depth"] = cell ? (*cell)["depth"] : json(0);
  out["predicted"] = {{"chosen_by", by}, {"chain", std::move(of_chain)}};
  for (const char* name : {"tau", "speedup", "step_speedup"}) out["predicted"][name] = best.at(name);
  return out;
}

std::string predicted_text(const json& predicted) {
  const auto number = [](const json& value) { return number_text(value, 3); };
  const bool by_step = !predicted["step_speedup"].is_null();
  return fmt::format(
      "tau {}, speedup {} (predicted){}", number(predicted["tau"]),
      number(predicted[by_step ? "step_speedup" : "speedup"]),
      by_step ? fmt::format(", {} if only forwards took time", number(predicted["speedup"])) : "");
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
  const std::string of_chain = chain["gamma"] == 0
                                   ? "No chain is faster than autoregressive decoding."
                                   : fmt::format("The best chain drafts {} tokens: {}.",
                                                 chain["gamma"].get<int>(), predicted_text(chain));
  if (tree["parents"].empty()) return out + "No tree is faster than autoregressive decoding.\n";
  std::vector<int> depths = {0}, levels;
  for (const json& parent : tree["parents"]) {
    depths.push_back(depths.at(parent.get<std::size_t>()) + 1);
    if (static_cast<int>(levels.size()) < depths.back()) levels.push_back(0);
    ++levels[static_cast<std::size_t>(depths.back()) - 1];
  }
  return out + fmt::format("The best tree has {} drafted tokens in {} levels ({}): {}.\n{}\n",
                           tree["parents"].size(), levels.size(), fmt::join(levels, ", "),
                           predicted_text(predicted), of_chain);
}

}  // namespace speclab
