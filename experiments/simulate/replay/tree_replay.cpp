#include "experiments/simulate/replay/tree_replay.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "core/base/error.h"
#include "core/base/files.h"
#include "experiments/analysis/table.h"
#include "experiments/analysis/trees/tree_costs.h"
#include "experiments/analysis/trees/tree_inputs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

void count_one(theory::DraftLengths& counts, std::size_t n, double how_often = 1) {
  if (counts.size() <= n) counts.resize(n + 1);
  counts[n] += how_often;
}

void add_tree_counts(theory::DraftLengths& sum, const theory::DraftLengths& counts) {
  for (std::size_t n = 0; n < counts.size(); ++n) count_one(sum, n, counts[n]);
}

/// The counts of each prompt of a trace.
std::vector<TreeReplayed> replay_prompts_with_trees(const RankTrace& trace, const TreesByConfidence& trees) {
  std::map<std::string, std::size_t> place;
  std::vector<std::vector<std::size_t>> texts;
  for (std::size_t i = 0; i < trace.texts.size(); ++i) {
    const auto [found, added] = place.emplace(trace.texts[i].prompt, texts.size());
    if (added) texts.emplace_back();
    texts[found->second].push_back(i);
  }
  std::vector<TreeReplayed> out;
  for (const std::vector<std::size_t>& of_prompt : texts)
    out.push_back(replay_trees(trace, of_prompt, trees));
  return out;
}

/// The costs of trees of the trace's draft model, from all traces with this draft and the same draws.
std::optional<theory::TreeCosts> costs_of_trees(const RankTrace& trace, std::span<const RankTrace> all) {
  std::vector<const CaseData*> cases;
  for (const RankTrace& other : all) {
    if (draws_of(*other.data) == draws_of(*trace.data)) cases.push_back(other.data.get());
  }
  return calibrated_tree_costs(cases);
}

json tree_row(const RankTrace& trace, const NamedTrees& named,
              const std::optional<theory::TreeCosts>& costs) {
  json row = {{"case", trace.data->id()},
              {"certainty", std::string(to_string(trace.certainty))},
              {"tree", named.name},
              {"trees", named.trees.count()},
              {"nodes", named.trees.nodes()},
              {"depth", named.trees.depth()},
              {"tau", nullptr},
              {"tau_ci95", nullptr},
              {"drafted_per_step", nullptr},
              {"draft_utilization", nullptr},
              {"speedup", nullptr},
              {"speedup_ci95", nullptr},
              {"ms_per_token", nullptr},
              {"problem", nullptr}};
  std::vector<TreeReplayed> by_prompt;
  try {
    by_prompt = replay_prompts_with_trees(trace, named.trees);
  } catch (const Error& error) {
    row["problem"] = error.what();
    return row;
  }
  const auto sum_of = [&](std::span<const std::size_t> prompts) {
    TreeReplayed sum;
    for (const std::size_t i : prompts) add_replayed(sum, by_prompt[i]);
    return sum;
  };
  std::vector<std::size_t> all(by_prompt.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const TreeReplayed sum = sum_of(all);
  if (sum.steps == 0) return row["problem"] = "no steps", row;
  const auto interval = [&](const auto& value) {
    return interval_json(stats::bootstrap_interval(
        all.size(),
        [&](std::span<const std::size_t> drawn) {
          const TreeReplayed sample = sum_of(drawn);
          return sample.steps > 0 ? value(sample) : std::numeric_limits<double>::quiet_NaN();
        },
        trace.data->bootstrap()));
  };
  row["tau"] = sum.tau();
  row["tau_ci95"] = interval([](const TreeReplayed& counts) { return counts.tau(); });
  row["drafted_per_step"] = sum.drafted / sum.steps;
  if (sum.drafted > 0) row["draft_utilization"] = sum.accepted / sum.drafted;
  if (!costs) {
    row["problem"] = "no costs of trees: they need a calibration of the case with \"draft_rows\" above 2";
    return row;
  }
  const auto speedup = [&](const TreeReplayed& counts) {
    return counts.tokens * costs->t_ar / time_of_trees(counts, *costs);
  };
  row["speedup"] = speedup(sum);
  row["speedup_ci95"] = interval(speedup);
  row["ms_per_token"] = 1e-6 * time_of_trees(sum, *costs) / sum.tokens;
  return row;
}

}  // namespace

void add_replayed(TreeReplayed& sum, const TreeReplayed& one) {
  sum.steps += one.steps, sum.tokens += one.tokens;
  sum.drafted += one.drafted, sum.accepted += one.accepted;
  add_tree_counts(sum.rows, one.rows);
  add_tree_counts(sum.forwards, one.forwards);
}

// The first forward of a draft is over the pending token. Each further one is over the nodes of a level that
// have children. The nodes of the last level that fits are not fed (DraftLevels).
TreeWalk::TreeWalk(const TreesByConfidence& trees) : trees_(trees) {
  for (int number = 0; number < trees.count(); ++number) {
    const TreeShape& shape = trees.tree(number);
    std::vector<Part>& parts = parts_.emplace_back(1);  // without a level nothing is drafted
    int first = 0, last = 1;                            // the nodes of the level above
    for (int depth = 0; depth < std::max(1, shape.depth()); ++depth) {
      int drafted = 0, inner = 0;
      for (int node = first; node < last; ++node) {
        drafted += shape.children(node);
        inner += shape.children(node) > 0 ? 1 : 0;
      }
      Part part = parts.back();
      part.drafted += drafted;
      // The draft model also runs for an empty tree, because its confidence chose that tree.
      part.forward_rows.push_back(depth == 0 ? 1 : inner);
      parts.push_back(std::move(part));
      first = last;
      last = first + drafted;
    }
  }
}

TreeReplayed TreeWalk::replay(const RankedText& text) const {
  TreeReplayed out;
  const std::size_t count = text.ranks.size();
  for (std::size_t i = 0; i < count;) {
    const int number = trees_.several() ? trees_.number_at(text.confidence[i]) : 0;
    const TreeShape& shape = trees_.tree(number);
    const std::vector<Part>& parts = parts_[static_cast<std::size_t>(number)];
    const int levels =
        std::clamp(text.depth_limit - static_cast<int>(i), 0, static_cast<int>(parts.size()) - 1);
    const Part& part = parts[static_cast<std::size_t>(levels)];
    int node = 0, accepted = 0;
    const int left = static_cast<int>(count - i);
    while (accepted < std::min(levels, left)) {
      const int rank = text.ranks[i + static_cast<std::size_t>(accepted)];
      if (rank < 0 || rank >= shape.children(node)) break;
      node = shape.first_child(node) + rank;
      ++accepted;
    }
    const int emitted = std::min(accepted + 1, left);
    out.steps += 1, out.tokens += emitted, out.drafted += part.drafted, out.accepted += accepted;
    count_one(out.rows, static_cast<std::size_t>(part.drafted) + 1);
    for (const int rows : part.forward_rows) count_one(out.forwards, static_cast<std::size_t>(rows));
    i += static_cast<std::size_t>(emitted);
  }
  return out;
}

TreeReplayed replay_trees(const RankTrace& trace, std::span<const std::size_t> texts,
                          const TreesByConfidence& trees) {
  for (int number = 0; number < trees.count(); ++number) {
    const TreeShape& shape = trees.tree(number);
    for (int node = 0; node < shape.nodes(); ++node) {
      if (shape.children(node) <= trace.width) continue;
      throw Error(
          {.what = "speclab replay: " + trace.data->id(),
           .got = fmt::format("a tree with {} children of a node", shape.children(node)),
           .expected = fmt::format("at most {}, the number of ranks that the trace knows", trace.width),
           .advice = "Record the trace with more children: speclab trace CONFIG --width N."});
    }
  }
  const TreeWalk walk(trees);
  TreeReplayed sum;
  for (const std::size_t i : texts) {
    const RankedText& text = trace.texts[i];
    for (std::size_t at = 0; trees.several() && at < text.ranks.size(); ++at) {
      if (text.confidence[at] >= 0 || static_cast<int>(at) >= text.depth_limit) continue;
      throw Error({.what = "speclab replay: " + trace.data->id(),
                   .got = "several trees, and a trace without confidences of the draft model",
                   .expected = "a trace with \"root_confidence\": true",
                   .advice = "Record the trace with this option of tree_speculation, or replay one tree."});
    }
    add_replayed(sum, walk.replay(text));
  }
  return sum;
}

double time_of_trees(const TreeReplayed& counts, const theory::TreeCosts& costs) {
  double sum = counts.steps * (costs.draft_step + costs.accept_step + costs.other_step) +
               counts.drafted * (costs.draft_token + costs.other_token) + counts.tokens * costs.accept_token;
  for (std::size_t n = 1; n < counts.rows.size(); ++n) {
    if (counts.rows[n] > 0) sum += counts.rows[n] * costs.target.at(static_cast<int>(n));
  }
  for (std::size_t n = 1; n < counts.forwards.size(); ++n) {
    if (counts.forwards[n] > 0) sum += counts.forwards[n] * costs.draft.at(static_cast<int>(n));
  }
  return sum;
}

theory::RowsExplainInput rows_of_trees(const TreeReplayed& counts, const theory::Calibration& costs) {
  theory::RowsExplainInput input;
  input.tau = counts.tau();
  input.drafted = counts.drafted / counts.steps;
  input.rows = counts.rows;
  input.calibration = costs;
  return input;
}

NamedTrees named_trees(const std::string& text) {
  const bool widths = !text.empty() && text.find_first_not_of("0123456789,") == std::string::npos;
  if (path_exists(text) || !widths) return {text, TreesByConfidence::read(text)};
  std::vector<int> levels;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string number = text.substr(begin, comma - begin);
    if (number.empty() || number.size() > 4) {
      throw Error({.what = "--tree",
                   .got = "\"" + text + "\"",
                   .expected = "a tree file, or the number of children at each level",
                   .advice = "For example --tree 3,2,1."});
    }
    levels.push_back(std::stoi(number));
    begin = comma + 1;
  }
  return {text, TreeShape::of_widths(levels, "--tree " + text)};
}

json replayed_trees(std::span<const RankTrace> traces, const std::vector<NamedTrees>& trees) {
  json out = json::array();
  for (const RankTrace& trace : traces) {
    const auto costs = costs_of_trees(trace, traces);
    for (const NamedTrees& named : trees) out.push_back(tree_row(trace, named, costs));
  }
  return out;
}

std::string replayed_trees_text(const json& replay) {
  std::string text = "Trees replayed from recorded ranks: no model ran.\n", problems;
  Table table{.header = {"case", "tree", "nodes", "depth", "tau", "tau is", "drafted", "utilization",
                         "predicted speedup", "ms/token"},
              .rows = {},
              .right = {false, false, true, true, true, false, true, true, true, true}};
  bool expectations = false;
  for (const json& row : replay) {
    table.rows.push_back({row["case"], row["tree"], row["nodes"].dump(), row["depth"].dump(),
                          interval_text(row, "tau"), row["certainty"], number_text(row["drafted_per_step"]),
                          number_text(row["draft_utilization"]), interval_text(row, "speedup"),
                          number_text(row["ms_per_token"])});
    expectations = expectations || row["certainty"] == std::string(to_string(Certainty::expectation));
    if (row["problem"].is_string()) {
      problems += fmt::format("{}, {}: {}\n", row["case"].get<std::string>(), row["tree"].get<std::string>(),
                              row["problem"].get<std::string>());
    }
  }
  if (expectations) problems += fmt::format("{}\n", assumptions_of(Certainty::expectation));
  return text + to_text(table) + problems;
}

}  // namespace speclab
