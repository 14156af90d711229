#include "experiments/analysis/cascade_theory.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "core/decoding/registry.h"
#include "core/theory/cascade.h"
#include "experiments/metrics/calibration_costs.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

/// Counts of one place in K.
struct PlaceCount {
  double tested = 0, kept = 0;
};

/// What the record of a case says about its cascade.
struct RecordedCascade {
  theory::MatrixCascade cascade;  ///< without c
  std::vector<std::string> sources;
  std::vector<PlaceCount> counts;  ///< [n, n], as cascade.kept
  bool reviews = false;            ///< the record has reviews

  int find(const std::string& source) const {
    const auto found = std::ranges::find(sources, source);
    return found == sources.end() ? -1 : static_cast<int>(found - sources.begin());
  }
  void count(int row, int draft, double tested, double kept) {
    PlaceCount& place = counts.at(static_cast<std::size_t>(row * cascade.drafts + draft));
    place.tested += tested;
    place.kept += kept;
  }
  /// Tokens of each draft in the chain of a step; absent if the step names a source that is not in `sources`.
  std::optional<std::vector<int>> chain(const StepRecord& step) const {
    std::vector<int> out(sources.size(), 0);
    for (std::size_t i = 0; i < step.drafted.size(); ++i) {
      const int draft = find(source_of(step, i));
      if (draft < 0) return std::nullopt;
      ++out[static_cast<std::size_t>(draft)];
    }
    return out;
  }
  static const std::string& source_of(const StepRecord& step, std::size_t token) {
    const std::string* source = &step.source;
    for (const Contribution& part : step.contributions) {
      if (part.first - 1 <= static_cast<int>(token)) source = &part.source;
    }
    return *source;
  }
};

void visit_steps(const CaseData& data, const std::function<void(const StepRecord&)>& visit) {
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) std::ranges::for_each(turn.steps, visit);
  });
}

/// The matrix and the drafts of the case; absent if the case has no matrix that fixes the lengths.
std::optional<RecordedCascade> matrix_of(const CaseData& data) {
  const StrategyInfo* strategy = recorded_strategy(data.config["strategy"].get<std::string>());
  const json& options = data.options();
  if (!strategy || strategy->length_matrix.empty()) return std::nullopt;
  if (options.value("budget", "fixed") != "fixed") return std::nullopt;
  const auto k = options.find(std::string(strategy->length_matrix));
  if (k == options.end() || !k->is_array()) return std::nullopt;
  RecordedCascade out;
  for (std::size_t i = 0; i < draft_names(data.config).size(); ++i)
    out.sources.push_back(fmt::format("draft {}", i + 1));
  if (options.value("max_gram", false)) out.sources.emplace_back("max_gram");
  const std::size_t n = out.sources.size();
  out.cascade.drafts = static_cast<int>(n);
  out.cascade.k = k->get<std::vector<int>>();
  if (out.cascade.k.empty()) out.cascade.k.assign(n * n, 4);
  if (n == 0 || out.cascade.k.size() != n * n) return std::nullopt;
  out.counts.resize(n * n);
  return out;
}

/// True if some row below the first asks for tokens.
bool asks_for_reviews(const theory::MatrixCascade& cascade) {
  const int n = cascade.drafts;
  for (int row = 1; row < n; ++row) {
    for (int draft = row; draft < n; ++draft) {
      if (cascade.k[static_cast<std::size_t>(row * n + draft)] > 0) return true;
    }
  }
  return false;
}

/// Measures the acceptance at each place. A place that was never tested gets 0; its value has no effect on
/// the steps of the case. Returns false for a step with unknown names.
bool measure_places(const CaseData& data, RecordedCascade& recorded) {
  bool known = true;
  visit_steps(data, [&](const StepRecord& step) {
    for (std::size_t i = 0; i < step.drafted.size(); ++i) {
      const int draft = recorded.find(RecordedCascade::source_of(step, i));
      known = known && draft >= 0;
      if (draft >= 0 && step.drafted[i].tested) recorded.count(0, draft, 1, step.drafted[i].accepted ? 1 : 0);
    }
    for (const DraftReview& review : step.reviews) {
      const int reviewer = recorded.find(review.reviewer), draft = recorded.find(review.source);
      known = known && reviewer >= 0 && draft > reviewer;
      if (reviewer < 0 || draft <= reviewer) continue;
      recorded.count(reviewer + 1, draft, review.tested, review.kept);
      recorded.reviews = true;
    }
  });
  for (const PlaceCount& place : recorded.counts)
    recorded.cascade.kept.push_back(place.tested > 0 ? place.kept / place.tested : 0);
  return known;
}

/// c of each draft from the calibration; 0 for copies. Absent if a draft was not measured.
std::optional<std::vector<double>> costs_of(const CaseData& data, std::size_t drafts) {
  if (data.calibration.is_null()) return std::nullopt;
  std::vector<double> out;
  for (const std::string& name : draft_names(data.config)) {
    const auto found = data.calibration.at("drafts").find(name);
    if (found == data.calibration.at("drafts").end()) return std::nullopt;
    out.push_back(found->at("c").get<double>());
  }
  out.resize(drafts, 0.0);
  return out;
}

}  // namespace

std::vector<theory::Prediction> matrix_predictions(const CaseData& data) {
  auto recorded = matrix_of(data);
  if (!recorded || !measure_places(data, *recorded)) return {};
  if (asks_for_reviews(recorded->cascade) && !recorded->reviews) return {};
  theory::MatrixCascade& cascade = recorded->cascade;
  const auto costs = costs_of(data, recorded->sources.size());
  cascade.c = costs.value_or(std::vector<double>(recorded->sources.size(), 0.0));
  std::optional<theory::RowTimes> target;
  if (costs) target = calibrated_row_times(data.calibration).monotone();

  std::map<std::vector<int>, double> chains;  // how often each chain occurred
  visit_steps(data, [&](const StepRecord& step) { ++chains[recorded->chain(step).value()]; });
  const std::size_t models = draft_names(data.config).size();
  double steps = 0, tokens = 0, forwards = 0, plain_time = 0, time = 0;
  int longest = 0;
  for (const auto& [chain, count] : chains) {
    const int length = std::accumulate(chain.begin(), chain.end(), 0);
    const std::vector<double> of_drafts = theory::matrix_forwards(cascade, chain);
    const double drafting = std::inner_product(of_drafts.begin(), of_drafts.end(), cascade.c.begin(), 0.0);
    steps += count;
    tokens += count * theory::matrix_tokens(cascade, chain);
    for (std::size_t i = 0; i < models; ++i) forwards += count * of_drafts[i];
    plain_time += count * (1 + drafting);
    if (target) time += count * (target->ratio(length + 1) + drafting);
    longest = std::max(longest, length);
  }
  if (steps == 0 || longest == 0) return {};

  const std::string places =
      "the target accepts each tested token of draft j with the same probability, independently of the "
      "others; chains as long as those of the case";
  const std::string reviews =
      "in a review, draft i keeps each tested token of draft j with the same probability; a place that "
      "draft j left empty counts as not kept";
  const std::string costs_text = "a review takes as long as a forward of one row; only forwards take time";
  using Kind = theory::PredictionKind;
  std::vector<theory::Prediction> out;
  const auto add = [&](const char* name, double value, const char* quantity, const char* equation,
                       const std::string& assumptions, Kind kind = Kind::prediction) {
    out.push_back({name, value, quantity, equation, assumptions, kind, std::nullopt});
  };
  add("cascade_tau", tokens / steps, "tau", "mean over steps of 1 + sum over tokens of prod alpha_j", places,
      longest == 1 ? Kind::identity : Kind::prediction);
  add("cascade_forwards", forwards / tokens, "draft_calls",
      "sum over steps of the expected forwards of all drafts / sum over steps of E[tau]",
      places + "; " + reviews);
  if (!costs) return out;
  add("cascade_ewif", tokens / plain_time, "speedup",
      "EWIF: sum over steps of E[tau] / sum over steps of (1 + sum_i forwards_i c_i) (Chen et al. 2023)",
      places + "; " + reviews + "; t(n) = 1; " + costs_text);
  add("cascade_measured_t", tokens / time, "speedup",
      "sum over steps of E[tau] / sum over steps of (t(length + 1) + sum_i forwards_i c_i)",
      places + "; " + reviews + "; " + costs_text);
  return out;
}

}  // namespace speclab
