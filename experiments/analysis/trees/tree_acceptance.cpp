#include "experiments/analysis/trees/tree_acceptance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/theory/explain.h"
#include "experiments/analysis/case_costs.h"
#include "experiments/analysis/trees/counts_by_kind.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;
using Ranks = std::vector<std::vector<double>>;

/// Scales p(d, k), the measured acceptance of a child of rank k at depth d, so that its sum over k is at most
/// 1 at each depth. The sum may exceed 1 a little if nodes of a depth have different numbers of children,
/// because the acceptances of different ranks are then measured at different sets of nodes.
Ranks with_sums_of_one(Ranks by_depth) {
  for (std::vector<double>& ranks : by_depth) {
    double sum = 0;
    for (const double p : ranks) sum += p;
    for (double& p : ranks) p /= std::max(1.0, sum);
  }
  return by_depth;
}

bool branches(const StepRecord& step) {
  for (std::size_t i = 0; i < step.drafted.size(); ++i) {
    if (step.drafted[i].parent != static_cast<int>(i)) return true;
  }
  return false;
}

/// Time of a draft forward / time of a target forward over one row; absent if this ratio was not measured.
/// With several draft models, the mean of the ratio over all their forwards; 0 without a draft model.
std::optional<double> cost_of_a_level(const CaseData& data) {
  const std::vector<std::string> names = draft_names(data.config);
  if (names.empty()) return 0.0;
  const json& drafts = data.calibration.at("drafts");
  const std::vector<Work> works = work_by_draft(data);
  if (names.size() > 1 && works.size() != names.size()) return std::nullopt;
  double cost = 0, calls = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = drafts.find(names[i]);
    if (found == drafts.end()) return std::nullopt;
    const double count = names.size() > 1 ? static_cast<double>(works[i].calls) : 1;
    cost += count * found->at("c").get<double>();
    calls += count;
  }
  return calls > 0 ? cost / calls : 0.0;
}

/// p for the steps of one prompt, measured in the steps of the other prompts.
struct OtherPrompts {
  theory::RankAcceptance by_rank, by_depth;
  std::vector<theory::RankAcceptance> by_kind;
};

}  // namespace

void for_each_step(const CaseData& data, const std::function<void(std::size_t, const StepRecord&)>& visit) {
  for_each_line(data, 0, [&](std::size_t prompt, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) visit(prompt, step);
    }
  });
}

theory::RankedTree ranked_tree(const StepRecord& step) {
  theory::RankedTree tree;
  std::vector<int> children(step.drafted.size() + 1);
  for (const DraftedToken& token : step.drafted) {
    tree.parents.push_back(token.parent);
    tree.ranks.push_back(++children[static_cast<std::size_t>(token.parent)]);
  }
  return tree;
}

void RankCounts::add(const StepRecord& step) {
  const bool cut = step.emitted <= step.accepted;
  const theory::RankedTree tree = ranked_tree(step);
  std::vector<int> depths = {0};
  std::vector<char> judged(step.drafted.size() + 1);  // whether the verifier tested a child of the node
  for (std::size_t i = 0; i < step.drafted.size(); ++i) {
    depths.push_back(depths[static_cast<std::size_t>(tree.parents[i])] + 1);
    if (step.drafted[i].tested) judged[static_cast<std::size_t>(tree.parents[i])] = 1;
  }
  for (std::size_t i = 0; i < step.drafted.size(); ++i) {
    const auto parent = static_cast<std::size_t>(tree.parents[i]);
    const bool reached = parent == 0 || step.drafted[parent - 1].accepted;
    if (!reached || judged[parent] == 0 || (cut && depths[parent] >= step.accepted)) continue;
    const auto depth = static_cast<std::size_t>(depths[i + 1]),
               rank = static_cast<std::size_t>(tree.ranks[i]);
    if (counts_.size() < depth) counts_.resize(depth);
    if (counts_[depth - 1].size() < rank) counts_[depth - 1].resize(rank);
    Count& count = counts_[depth - 1][rank - 1];
    ++count.reached;
    if (step.drafted[i].accepted) ++count.accepted;
  }
}

void RankCounts::add(const RankCounts& other) {
  if (counts_.size() < other.counts_.size()) counts_.resize(other.counts_.size());
  for (std::size_t depth = 0; depth < other.counts_.size(); ++depth) {
    const std::vector<Count>& from = other.counts_[depth];
    if (counts_[depth].size() < from.size()) counts_[depth].resize(from.size());
    for (std::size_t rank = 0; rank < from.size(); ++rank) {
      counts_[depth][rank].reached += from[rank].reached;
      counts_[depth][rank].accepted += from[rank].accepted;
    }
  }
}

void RankCounts::subtract(const RankCounts& other) {
  for (std::size_t depth = 0; depth < other.counts_.size(); ++depth) {
    for (std::size_t rank = 0; rank < other.counts_[depth].size(); ++rank) {
      counts_.at(depth).at(rank).reached -= other.counts_[depth][rank].reached;
      counts_.at(depth).at(rank).accepted -= other.counts_[depth][rank].accepted;
    }
  }
}

bool RankCounts::empty() const {
  for (const std::vector<Count>& ranks : counts_) {
    for (const Count& count : ranks) {
      if (count.reached > 0) return false;
    }
  }
  return true;
}

theory::RankAcceptance RankCounts::by_rank() const {
  std::vector<Count> sums;
  for (const std::vector<Count>& ranks : counts_) {
    if (sums.size() < ranks.size()) sums.resize(ranks.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      sums[rank].reached += ranks[rank].reached;
      sums[rank].accepted += ranks[rank].accepted;
    }
  }
  Ranks out(1);
  for (const Count& sum : sums) out[0].push_back(sum.reached > 0 ? sum.accepted / sum.reached : 0);
  return theory::RankAcceptance(with_sums_of_one(std::move(out)));
}

theory::RankAcceptance RankCounts::by_depth() const {
  const std::vector<double> pooled = by_rank().by_depth().front();
  Ranks out;
  for (const std::vector<Count>& ranks : counts_) {
    out.push_back(pooled);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].reached >= kLeast) out.back()[rank] = ranks[rank].accepted / ranks[rank].reached;
    }
  }
  return theory::RankAcceptance(with_sums_of_one(std::move(out)));
}

bool drafts_trees(const CaseData& data) { return any_step(data, branches) && !feeds_probes(data); }

RankCounts rank_counts(const CaseData& data) {
  RankCounts counts;
  for_each_step(data, [&](std::size_t, const StepRecord& step) { counts.add(step); });
  return counts;
}

std::vector<theory::Prediction> tree_predictions(const CaseData& data) {
  const bool several = chooses_trees(data);
  if (!several && !drafts_trees(data)) return {};
  CountsByKind all;
  std::vector<CountsByKind> own(data.prompts.size());
  for_each_step(data,
                [&](std::size_t prompt, const StepRecord& step) { own[prompt].add(step.tree_number, step); });
  for (const CountsByKind& counts : own) all.add(counts);
  std::vector<OtherPrompts> others;
  for (const CountsByKind& counts : own) {
    CountsByKind rest = all;
    rest.subtract(counts);
    if (rest.all().empty()) return {};
    others.push_back({rest.all().by_rank(), rest.all().by_depth(), {}});
    for (int kind = 0; kind < rest.kinds(); ++kind) others.back().by_kind.push_back(rest.acceptance(kind));
  }
  const auto c = data.calibration.is_null() ? std::nullopt : cost_of_a_level(data);
  std::optional<theory::RowTimes> target;
  if (c) target = calibrated_row_times(data.calibration).monotone();
  theory::RowsExplainInput step_of_case;
  double steps = 0, by_rank = 0, by_depth = 0, by_kind = 0, time = 0, drafted = 0;
  for_each_step(data, [&](std::size_t prompt, const StepRecord& step) {
    const theory::RankedTree tree = ranked_tree(step);
    ++steps;
    const OtherPrompts& other = others[prompt];
    by_rank += theory::tree_expected_tokens(tree, other.by_rank);
    by_depth += theory::tree_expected_tokens(tree, other.by_depth);
    by_kind += theory::tree_expected_tokens(
        tree,
        step.tree_number < 0 ? other.by_depth : other.by_kind[static_cast<std::size_t>(step.tree_number)]);
    if (target) time += target->ratio(std::max(1, step.rows)) + step.draft_calls * *c;
    drafted += static_cast<double>(step.drafted.size());
    const auto rows = static_cast<std::size_t>(std::max(1, step.rows));
    if (step_of_case.rows.size() <= rows) step_of_case.rows.resize(rows + 1);
    ++step_of_case.rows[rows];
  });
  const std::string source =
      "the acceptance of a prompt's steps is that of the other prompts; the end of a text cuts no step";
  std::vector<theory::Prediction> out;
  out.push_back({.name = "tree_by_rank",
                 .value = by_rank / steps,
                 .quantity = "tau",
                 .equation = "mean over steps of 1 + sum over nodes of prod p_k along the path",
                 .assumptions = "a child of rank k is accepted with the same p_k at every node; " + source,
                 .ci = std::nullopt});
  out.push_back(
      {.name = "tree_by_rank_and_depth",
       .value = by_depth / steps,
       .quantity = "tau",
       .equation = "mean over steps of 1 + sum over nodes of prod p_dk along the path",
       .assumptions = "a child of rank k at depth d is accepted with the same p_dk at every node; " + source,
       .ci = std::nullopt});
  if (several) {
    out.push_back(
        {.name = "tree_by_confidence",
         .value = by_kind / steps,
         .quantity = "tau",
         .equation = "mean over steps of 1 + sum over nodes of prod p_dk along the path; p_1k by tree",
         .assumptions = "as tree_by_rank_and_depth, but at depth 1 only in steps with the same tree; "
                        "the confidence of the draft model chose the tree of each step",
         .ci = std::nullopt});
  }
  const double tokens = several ? by_kind : by_depth;
  const std::string as = std::string("as ") + (several ? "tree_by_confidence" : "tree_by_rank_and_depth");
  if (target) {
    out.push_back({.name = "tree_speedup",
                   .value = tokens / time,
                   .quantity = "speedup",
                   .equation = "sum over steps of (1 + sum over nodes of prod p_dk) / sum over steps of "
                               "(t(n) + draft calls * c)",
                   .assumptions = as + "; no time but draft and target",
                   .ci = std::nullopt});
  }
  if (const auto costs = calibration_of(data, data.calibration)) {
    step_of_case.tau = tokens / steps;
    step_of_case.drafted = drafted / steps;
    step_of_case.calibration = *costs;
    out.push_back(
        {.name = "tree_measured_costs",
         .value = theory::measured_cost_speedup(step_of_case.tau, theory::calibrated_rows_step(step_of_case)),
         .quantity = "speedup",
         .equation = "the predicted tau * t_AR / (draft + target + accept + other times of a step)",
         .assumptions = as + "; calibrated costs of the case's own steps",
         .ci = std::nullopt});
  }
  return out;
}

}  // namespace speclab
