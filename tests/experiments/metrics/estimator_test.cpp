// Every metric carries the name of its estimator, and behaves as the name says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/metrics/metrics.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/metrics/summary.h"
#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::estimator_test {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;

/// The cells of a row of a Markdown table.
std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream in(row);
  std::string cell;
  std::getline(in, cell, '|');  // what stands before the first bar
  while (std::getline(in, cell, '|')) {
    const std::size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

/// {metric: estimator} of the section "estimators" of results/SCHEMA.md.
std::map<std::string, std::string> described_estimators() {
  std::ifstream file(std::filesystem::path(SPECLAB_SOURCE_DIR) / "results" / "SCHEMA.md");
  std::map<std::string, std::string> out;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("### ")) inside = line == "### estimators";
    if (!inside || !line.starts_with("| ") || line.starts_with("| estimator |")) continue;
    const std::vector<std::string> cells = cells_of(line);
    std::istringstream names(cells.at(2));
    for (std::string name; std::getline(names, name, ',');) {
      name.erase(0, name.find_first_not_of(' '));
      EXPECT_TRUE(out.emplace(name, cells[0]).second) << name << " stands twice";
    }
  }
  return out;
}

TEST(Estimators, EveryMetricHasOneAndTheSchemaExplainsIt) {
  std::map<std::string, std::string> of_table;
  for (const Metric& metric : metrics()) {
    EXPECT_FALSE(metric.estimator.empty()) << metric.name;
    of_table[std::string(metric.name)] = metric.estimator;
  }
  EXPECT_GT(of_table.size(), 70u);
  EXPECT_EQ(described_estimators(), of_table);
}

class EstimatorsOfARun : public Record {
 protected:
  /// The metrics of the drafting case of a run with three repeats. In the third one the case is `slower`
  /// times as slow as in the others.
  json metrics_with(const std::string& name, int slower) {
    const auto path = write_run(name, 1'600'000);
    plan_repeats(path, 3);
    for (const char* file : {"autoregressive.jsonl", "spec.jsonl"}) {
      const std::vector<LineRecord> lines = read_case_file(path / "cases" / file);
      JsonLinesWriter writer(path / "cases" / file);
      for (LineRecord line : lines) {
        if (line.repeat != 1) continue;
        line.repeat = 2;
        if (line.case_id == "spec") slow_down(line, slower);
        writer.append(to_json(line));
      }
    }
    return json(summarise_run(path)["cases"][1]["metrics"]);
  }
  static void slow_down(LineRecord& line, int slower) {
    GenerationRecord& turn = line.turns[0];
    for (std::int64_t* ns : {&turn.decode_ns, &turn.prefill_ns, &turn.cpu_ns, &turn.stamped_ns})
      *ns *= slower;
    for (StepRecord& step : turn.steps) {
      for (std::int64_t& ns : step.times.ns) ns *= slower;
    }
    line.gpu["joules"] = 14. * slower;
  }
};

TEST_F(EstimatorsOfARun, AMedianOverRepeatsIgnoresASlowRepeat) {
  const json once = metrics_with("ten", 10), again = metrics_with("hundred", 100);
  int medians = 0;
  for (const Metric& metric : metrics()) {
    const std::string name(metric.name);
    if (!metric.estimator.ends_with("median over repeats") || once[name].is_null()) continue;
    ++medians;
    EXPECT_EQ(once[name], again[name]) << name;
  }
  EXPECT_GE(medians, 14);
  EXPECT_NE(once["ms_per_token_sd"], again["ms_per_token_sd"]) << "a standard deviation does not";
}

TEST_F(EstimatorsOfARun, CountsHaveNoIntervalAndEstimatesOverPromptsDo) {
  const json found = metrics_with("run", 2);
  const std::set<std::string_view> exact = {estimator::kCount, estimator::kRatioOfCounts,
                                            estimator::kComparison};
  const std::set<std::string_view> estimates = {estimator::kRatioOfSums, estimator::kPairedRatio,
                                                estimator::kCensored, estimator::kMeanOverTests};
  std::set<std::string_view> seen;
  for (const Metric& metric : metrics()) {
    const std::string name(metric.name);
    if (found[name].is_null()) continue;
    const bool interval = found.contains(name + "_ci95");
    if (exact.contains(metric.estimator)) {
      EXPECT_FALSE(interval) << name;
    }
    if (estimates.contains(metric.estimator)) {
      EXPECT_TRUE(interval) << name;
    }
    seen.insert(metric.estimator);
  }
  for (const std::string_view name : exact) EXPECT_TRUE(seen.contains(name)) << name;
  for (const std::string_view name : estimates) EXPECT_TRUE(seen.contains(name)) << name;
}

}  // namespace
}  // namespace speclab::estimator_test
