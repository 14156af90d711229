#include "experiments/analysis/trees/mixture_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/trees_by_confidence.h"
#include "core/decoding/registry.h"
#include "core/theory/tree_mixture.h"
#include "experiments/analysis/table.h"
#include "experiments/analysis/trees/counts_by_kind.h"
#include "experiments/analysis/trees/tree_inputs.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Returns the confidences at which a range ends and the next one begins, in ascending order. `all` are the
/// confidences of the steps.
std::vector<double> edges_between(std::vector<double> all, int ranges) {
  std::ranges::sort(all);
  std::vector<double> edges;
  for (int i = 1; i < ranges; ++i) {
    const double edge = all[all.size() * static_cast<std::size_t>(i) / static_cast<std::size_t>(ranges)];
    const double before = edges.empty() ? all.front() : edges.back();
    if (edge > before && edge < 1) edges.push_back(edge);
  }
  return edges;
}

std::vector<double> confidences_of(const TreeInputs& in) {
  std::vector<double> all;
  for (const CaseData* data : in.cases) {
    for_each_step(*data, [&](std::size_t, const StepRecord& step) {
      if (step.root_confidence >= 0) all.push_back(static_cast<double>(step.root_confidence));
    });
  }
  if (all.empty()) {
    throw Error({"speclab optimize tree --by-confidence", "a run whose steps have no root_confidence",
                 fmt::format("steps of {} with \"root_confidence\": true", tree_strategy().info.name),
                 "Pass a config: the command then measures it. Records of older versions do not have it."});
  }
  return all;
}

CountsByKind counts_between(const TreeInputs& in, const std::vector<double>& edges) {
  CountsByKind counts;
  for (const CaseData* data : in.cases) {
    for_each_step(*data, [&](std::size_t, const StepRecord& step) {
      const double confidence = step.root_confidence;
      const auto range = std::ranges::upper_bound(edges, confidence) - edges.begin();
      counts.add(confidence < 0 ? -1 : static_cast<int>(range), step);
    });
  }
  return counts;
}

/// The tree of one range and what it was chosen from.
json range_json(double from, double to, double share, const theory::RankedTree& tree, double tokens,
                const theory::RankAcceptance& acceptance, const RankCounts& counts) {
  json reached = json::array();
  if (!counts.counts().empty()) {
    for (const RankCounts::Count& count : counts.counts().front()) reached.push_back(count.reached);
  }
  return {{"from", from},
          {"to", to},
          {"share", share},
          {"nodes", tree.nodes()},
          {"depth", tree.depth()},
          {"tau", tokens},
          {"parents", tree.parents},
          {"ranks", tree.ranks},
          {"acceptance", acceptance.by_depth().front()},
          {"reached", std::move(reached)}};
}

}  // namespace

json best_mixture_of(const RunData& run, const TreeWish& wish, const json& tree) {
  const TreeInputs in = tree_inputs(run, wish);
  const std::vector<double> all = confidences_of(in), edges = edges_between(all, wish.by_confidence);
  if (edges.empty()) {
    throw Error({"speclab optimize tree --by-confidence", "too many steps with the same confidence",
                 "steps with different confidences", "Decode more prompts, or choose a single tree."});
  }
  const CountsByKind counts = counts_between(in, edges);
  std::vector<theory::StepKind> kinds;
  for (int kind = 0; kind < counts.kinds(); ++kind)
    kinds.push_back({counts.steps(kind) / static_cast<double>(all.size()), counts.acceptance(kind)});
  const theory::StepTime forwards = theory::forwards_time(in.target, in.c),
                         time = in.costs ? theory::all_costs_time(*in.costs) : forwards;
  const theory::TreeMixture mixture = theory::best_tree_mixture(kinds, time, in.nodes, wish.depth);
  const theory::TreeStep by_forwards = theory::mixture_step(kinds, mixture.trees, forwards);

  json out = tree, single = tree.at("predicted");
  for (const char* name : {"parents", "ranks", "nodes", "depth"}) out.erase(name);
  const json chain = single.at("chain"), by = single.at("chosen_by");
  for (const char* name : {"chain", "chosen_by"}) single.erase(name);
  single["nodes"] = tree.at("nodes");
  single["depth"] = tree.at("depth");
  out["format"] = kTreesFormat;
  out["predicted"] = {{"tau", mixture.mean.tokens},
                      {"speedup", by_forwards.tokens / by_forwards.time},
                      {"step_speedup", in.costs ? json(mixture.speedup()) : json()},
                      {"chosen_by", by},
                      {"tree", std::move(single)},
                      {"chain", chain}};
  out["trees"] = json::array();
  if (mixture.speedup() <= 1) return out;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    out["trees"].push_back(range_json(kind == 0 ? 0 : edges[kind - 1], kind < edges.size() ? edges[kind] : 1,
                                      kinds[kind].weight, mixture.trees[kind], mixture.tokens[kind],
                                      kinds[kind].acceptance, counts.of(static_cast<int>(kind))));
  }
  return out;
}

std::string to_mixture_text(const json& mixture) {
  if (mixture["trees"].empty())
    return "No choice of trees by confidence is faster than autoregressive decoding.\n";
  const auto number = [](const json& value) { return number_text(value, 3); };
  Table table{
      .header = {"confidence", "share of steps", "drafted", "levels", "tau"}, .rows = {}, .right = {}};
  for (const json& tree : mixture["trees"]) {
    table.rows.push_back({fmt::format("{} to {}", number(tree["from"]), number(tree["to"])),
                          number(tree["share"]), fmt::format("{}", tree["parents"].size()),
                          number(tree["depth"]), number(tree["tau"])});
    const json& ranks = tree["acceptance"];
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (table.header.size() < rank + 6) table.header.push_back(fmt::format("rank {}", rank + 1));
      table.rows.back().push_back(number(ranks[rank]));
    }
  }
  table.right.assign(table.header.size(), true);
  const json& predicted = mixture["predicted"];
  return fmt::format(
      "A tree for each range of the draft's confidence, with the acceptance of a child of the pending "
      "token:\n"
      "{}\nTrees by confidence: {}. The best single tree: {}.\n",
      to_text(table), predicted_text(predicted), predicted_text(predicted["tree"]));
}

}  // namespace speclab
