#include "core/theory/explained/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

/// E[tau] of a tree if, at every node, P(one of the node's children is accepted) is kMoreAlpha larger, but at
/// most 1. Parents come before children.
double more_tree_tokens(const RankedTree& tree, const RankAcceptance& acceptance) {
  const std::size_t drafted = tree.parents.size();
  std::vector<int> depths(drafted + 1), children(drafted + 1);  // [nodes]
  std::vector<double> sums(drafted + 1);  // [nodes], P(one of the node's children is accepted)
  for (std::size_t i = 0; i < drafted; ++i) {
    const auto parent = static_cast<std::size_t>(tree.parents[i]);
    depths[i + 1] = depths[parent] + 1;
    sums[parent] += acceptance.at(depths[i + 1], tree.ranks[i]);
    ++children[parent];
  }
  std::vector<double> reached(drafted + 1);  // [nodes], P(the path to the node is accepted)
  reached[0] = 1;
  double tokens = 1;
  for (std::size_t i = 0; i < drafted; ++i) {
    const auto parent = static_cast<std::size_t>(tree.parents[i]);
    const double sum = sums[parent], more = std::min(1.0, sum + kMoreAlpha);
    const double share = sum > 0 ? acceptance.at(depths[i + 1], tree.ranks[i]) / sum : 1.0 / children[parent];
    reached[i + 1] = reached[parent] * more * share;
    tokens += reached[i + 1];
  }
  return tokens;
}

constexpr const char* kOwn = "measured_costs";
constexpr const char* kSameDrafts = "the drafts stay the same";

/// The names of the what-ifs for people.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kLabels = {{
    {"what_if_more_alpha", "alpha + .05"},
    {"what_if_half_c", "half of c"},
    {"what_if_flat_t", "flat t(n)"},
    {"what_if_no_overhead", "no overhead"},
}};

std::string_view label_of(const std::string& name) {
  for (const auto& [key, label] : kLabels) {
    if (key == name) return label;
  }
  return name;
}

std::string interval_text(const std::optional<stats::Interval>& ci) {
  return ci ? fmt::format(" [{:.3f}, {:.3f}]", ci->lo, ci->hi) : "";
}

}  // namespace

TokenGain chain_gain(double alpha, const DraftLengths& lengths) {
  const double now = mixture_expected_tokens(alpha, lengths),
               more = mixture_expected_tokens(std::min(1.0, alpha + kMoreAlpha), lengths);
  return {.factor = more / now,
          .most = 1 + mean_draft_length(lengths),
          .tokens =
              "tau' = tau E(alpha + .05) / E(alpha), E = mean over steps of (1 - alpha^(gamma_i+1)) / (1 "
              "- alpha)",
          .assumptions =
              "every tested token is accepted with the same alpha, independently; alpha + .05 is at "
              "most 1"};
}

TokenGain tree_gain(std::span<const RankedTree> trees, const RankAcceptance& acceptance) {
  if (trees.empty()) throw Error({"drafted trees", "none", "at least one step", ""});
  double now = 0, more = 0, most = 0;
  for (const RankedTree& tree : trees) {
    now += tree_expected_tokens(tree, acceptance);  // checks the parents
    more += more_tree_tokens(tree, acceptance);
    most += 1 + tree.depth();
  }
  return {.factor = more / now,
          .most = most / static_cast<double>(trees.size()),
          .tokens =
              "tau' = tau E(p') / E(p), E = mean over steps of 1 + sum over nodes of prod p_dk along the "
              "path; in p' the p_dk of a node's children add up to .05 more",
          .assumptions =
              "a child of rank k at depth d is accepted with the same p_dk at every node; the sum "
              "of p_dk over the children of a node is at most 1"};
}

std::vector<Prediction> sensitivity(const SensitivityInput& input) {
  require_positive("t(1)", input.one_row);
  require_non_negative("time of the rule per row", input.accept_row);
  std::vector<Prediction> out;
  const auto add = [&](const char* name, double tau, const StepTimes& step, std::string equation,
                       std::string assumptions, PredictionKind kind = PredictionKind::what_if) {
    out.push_back({name, measured_cost_speedup(tau, step), "speedup", std::move(equation),
                   std::move(assumptions), kind, std::nullopt});
  };
  add(kOwn, input.tau, input.step, "tau t_ar / (draft + target + accept + other)",
      "calibrated times hold in the run", PredictionKind::prediction);
  if (input.gain) {
    const TokenGain& gain = *input.gain;
    const double tau = std::min(input.tau * gain.factor, std::max(input.tau, gain.most));
    StepTimes step = input.step;
    step.accept += input.accept_row * (tau - input.tau);
    add("what_if_more_alpha", tau, step, "tau' t_ar / (draft + target + accept' + other); " + gain.tokens,
        fmt::format("{}; {}; tau' is at most the tokens of a step whose draft is accepted whole; accept' is "
                    "the time of the rule for tau' rows",
                    gain.assumptions, kSameDrafts));
  }
  StepTimes half = input.step;
  half.draft /= 2;
  add("what_if_half_c", input.tau, half, "tau t_ar / (draft / 2 + target + accept + other)",
      "everything that drafting does takes half of its time; acceptance and drafts stay the same");
  StepTimes flat = input.step;
  flat.target = input.one_row;
  add("what_if_flat_t", input.tau, flat, "tau t_ar / (draft + t(1) + accept + other)",
      fmt::format("a forward over any number of rows takes as long as one over one row; {}", kSameDrafts));
  StepTimes bare;
  bare.t_ar = input.one_row;
  bare.draft = input.step.draft;
  bare.target = input.step.target;
  add("what_if_no_overhead", input.tau, bare, "tau t(1) / (draft + target)",
      "sampling, the rule and bookkeeping take no time, neither in the case nor in its reference");
  return out;
}

std::string sensitivity_text(std::span<const Prediction> what_ifs) {
  std::string text;
  double own = 0;
  for (const Prediction& one : what_ifs) {
    if (one.name == kOwn) {
      own = one.value;
      text += fmt::format("What would change the speedup of the calibrated step, {:.3f}{} = {}:", one.value,
                          interval_text(one.ci), one.equation);
      continue;
    }
    text += fmt::format("\n{:<12} {:>7.3f}{:<17} {:>+6.1f} %   {}. {}.", label_of(one.name), one.value,
                        interval_text(one.ci), 100 * (one.value / own - 1), one.equation, one.assumptions);
  }
  return text;
}

}  // namespace speclab::theory
