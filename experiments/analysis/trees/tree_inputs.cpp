#include "experiments/analysis/trees/tree_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/error.h"
#include "core/decoding/drafting/tree_shape.h"
#include "core/decoding/registry.h"
#include "experiments/analysis/trees/counts_by_kind.h"
#include "experiments/analysis/trees/tree_costs.h"
#include "experiments/metrics/calibration_costs.h"

namespace speclab {

using nlohmann::json;

std::vector<const CaseData*> tree_cases(const RunData& run, const TreeWish& wish) {
  std::vector<const CaseData*> out;
  for (const auto& data : run.cases) {
    const json& draft = data->config["draft"];
    if (draft.is_null() || (!wish.draft.empty() && draft != wish.draft) || !drafts_trees(*data) ||
        chooses_trees(*data))
      continue;
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

json draws_of(const CaseData& data) {
  json out = {{"draft", data.config["draft"]}, {"rule", data.config["rule"]}};
  for (const char* name : {"temperature", "top_k", "top_p", "coins", "children", "used_up",
                           "draft_temperature", "draft_top_k", "draft_top_p"}) {
    if (data.options().contains(name)) out[name] = data.options()[name];
  }
  return out;
}

TreeInputs tree_inputs(const RunData& run, const TreeWish& wish) {
  TreeInputs in{.cases = tree_cases(run, wish), .counts = {}, .target = theory::RowTimes(), .costs = {}};
  for (const CaseData* data : in.cases) in.counts.add(rank_counts(*data));
  if (in.counts.empty()) {
    throw Error({"speclab optimize tree", "no step that reached a drafted child", "some finished lines",
                 "Decode more prompts or longer texts."});
  }
  const CaseData& first = *in.cases.front();
  const json& table = first.calibration;
  if (table.is_null() && !(wish.target && wish.c)) {
    throw Error({"speclab optimize tree", "a run without a calibration", "t(n) and c of the machine",
                 "Make a run with a calibration, or pass --t and --c."});
  }
  in.target = (wish.target ? *wish.target : calibrated_row_times(table)).monotone();
  in.c = wish.c ? *wish.c
                : table.at("drafts").at(first.config["draft"].get<std::string>()).at("c").get<double>();
  // The calibrated costs do not belong to the machine that the times of the wish describe.
  if (!wish.target && !wish.c) in.costs = calibrated_tree_costs(in.cases);
  // Beyond the measured n, t(n) is a guess. A single time of the wish says that all n take the same time.
  const int measured = !wish.target       ? measured_rows(table)
                       : in.target.flat() ? wish.nodes
                                          : in.target.largest_measured();
  in.nodes = std::min({wish.nodes, TreeShape::kMostDrafted + 1, measured});
  return in;
}

}  // namespace speclab
