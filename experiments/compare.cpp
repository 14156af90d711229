#include "experiments/compare.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "experiments/metrics_detail.h"
#include "experiments/run_folder.h"

namespace speclab {
namespace {

constexpr double kLeastNoise = .01;

double noise_of(const RunData& run) {
  std::vector<stats::Times> times;
  for (const auto& data : run.cases) {
    if (!data->lines.empty()) times.push_back(decode_times(*data));
  }
  return stats::noise_floor(times).value_or(0);
}

/// Do both hold the same text for every prompt and seed that they share?
bool same_texts(const CaseData& a, const CaseData& b) {
  std::map<std::pair<std::string, std::uint64_t>, std::vector<Token>> texts;
  for_each_line(a, 0, [&](std::size_t, const LineRecord& line) {
    texts[{line.prompt, line.seed}] = line.tokens();
  });
  bool same = true;
  for_each_line(b, 0, [&](std::size_t, const LineRecord& line) {
    const auto found = texts.find({line.prompt, line.seed});
    if (found != texts.end() && found->second != line.tokens()) same = false;
  });
  return same;
}

CaseComparison compare_case(const CaseData& base, const CaseData& fresh, double noise) {
  CaseComparison result;
  result.id = base.id();
  result.output_changed = !same_texts(base, fresh);
  if (!fresh.errors.empty() && base.errors.empty()) {
    result.verdict = "failed";
    result.regression = true;
    return result;
  }
  if (fresh.unequal()) {
    result.verdict = "lost equality";
    result.regression = !base.unequal();
    return result;
  }
  const auto ratio = speed_ratio(base, fresh);
  if (base.unequal() || !ratio) {
    result.verdict = "unclear";
    return result;
  }
  result.ratio = ratio->value;
  result.ci = ratio->ci;
  result.prompts = ratio->prompts;
  result.verdict = ratio->ci ? std::string(stats::to_string(stats::verdict(*ratio->ci, noise))) : "unclear";
  result.regression = result.verdict == "slower";
  return result;
}

}  // namespace

Comparison compare_runs(const RunData& base, const RunData& fresh) {
  const std::vector<std::string> differences =
      environment_differences(base.environment, fresh.environment, false);
  if (!differences.empty()) {
    throw Error({.what = "speclab compare",
                 .got = "runs that differ in " + differences.front(),
                 .expected = "the same models, machine, numerics class and threads",
                 .advice = "Measure both on one machine."});
  }
  Comparison comparison;
  comparison.noise = std::max({kLeastNoise, noise_of(base), noise_of(fresh)});
  std::map<std::string, const CaseData*> in_fresh;
  for (const auto& data : fresh.cases) in_fresh[data->id()] = data.get();
  std::size_t common = 0;
  for (const auto& data : base.cases) {
    const auto found = in_fresh.find(data->id());
    if (found == in_fresh.end()) {
      comparison.cases.push_back({.id = data->id(), .verdict = "only in base", .ci = {}});
      continue;
    }
    ++common;
    comparison.cases.push_back(compare_case(*data, *found->second, comparison.noise));
    in_fresh.erase(found);
  }
  for (const auto& data : fresh.cases) {
    if (in_fresh.contains(data->id()))
      comparison.cases.push_back({.id = data->id(), .verdict = "only in new", .ci = {}});
  }
  if (common == 0) {
    throw Error({.what = "speclab compare",
                 .got = "no case that both runs have",
                 .expected = "runs of the same experiment",
                 .advice = ""});
  }
  comparison.regression = std::any_of(comparison.cases.begin(), comparison.cases.end(),
                                      [](const auto& entry) { return entry.regression; });
  return comparison;
}

}  // namespace speclab
