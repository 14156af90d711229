#include "experiments/analysis/compare/compare_lines.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

std::set<TextKey> texts_of(const CaseData& data, const CommonWork& work) {
  std::set<TextKey> keys;
  for (std::size_t i = 0; i < data.prompts.size(); ++i) {
    if (!work.prompts.contains(data.prompts[i])) continue;
    for (const auto& seed : *data.lines[i]) {
      if (work.seeds.contains(seed.front().seed)) keys.emplace(data.prompts[i], seed.front().seed);
    }
  }
  return keys;
}

std::shared_ptr<CaseData> part_of(const CaseData& whole, const std::set<TextKey>& keys) {
  auto part = std::make_shared<CaseData>(whole);
  part->prompts.clear();
  part->categories.clear();
  part->lines.clear();
  part->reference = nullptr;
  part->intervals = false;
  for (std::size_t i = 0; i < whole.prompts.size(); ++i) {
    auto kept = std::make_shared<PromptLines>();
    for (const auto& seed : *whole.lines[i]) {
      if (keys.contains({whole.prompts[i], seed.front().seed})) kept->push_back(seed);
    }
    if (kept->empty()) continue;
    part->prompts.push_back(whole.prompts[i]);
    part->categories.push_back(whole.categories[i]);
    part->lines.push_back(std::move(kept));
  }
  return part;
}

}  // namespace

CommonLines common_lines(const CaseData& base, const CaseData& fresh, const CommonWork& work) {
  const std::set<TextKey> in_base = texts_of(base, work), in_fresh = texts_of(fresh, work);
  std::set<TextKey> common;
  std::set_intersection(in_base.begin(), in_base.end(), in_fresh.begin(), in_fresh.end(),
                        std::inserter(common, common.end()));
  CommonLines lines{.base = part_of(base, common),
                    .fresh = part_of(fresh, common),
                    .missing = in_base.size() - common.size(),
                    .why_none = "",
                    .base_reference = base.reference,
                    .new_reference = fresh.reference};
  if (!base.reference || !fresh.reference) lines.base_reference = lines.new_reference = nullptr;
  if (base.lines.empty()) lines.why_none = "BASE has no raw lines";
  else if (fresh.lines.empty()) lines.why_none = "NEW has no raw lines";
  else if (common.empty()) lines.why_none = "no prompt and seed in common";
  return lines;
}

TextComparison compare_line_texts(const CommonLines& lines) {
  TextComparison result;
  std::map<TextKey, std::vector<Token>> texts;
  for_each_line(*lines.base, 0, [&](std::size_t, const LineRecord& line) {
    texts[{line.prompt, line.seed}] = line.tokens();
  });
  for_each_line(*lines.fresh, 0, [&](std::size_t, const LineRecord& line) {
    const std::vector<Token>&was = texts.at({line.prompt, line.seed}), is = line.tokens();
    ++result.compared;
    if (was == is) return;
    if (result.changed++ > 0) return;
    result.prompt = line.prompt;
    result.seed = line.seed;
    result.index = static_cast<std::size_t>(
        std::mismatch(was.begin(), was.end(), is.begin(), is.end()).first - was.begin());
  });
  return result;
}

std::optional<SpeedupChange> change_of_case(const CommonLines& lines) {
  const Texts base = typical_texts(*lines.base), fresh = typical_texts(*lines.fresh);
  if (lines.base_reference) {
    const Texts base_reference = typical_texts(*lines.base_reference),
                new_reference = typical_texts(*lines.new_reference);
    if (const auto change = speedup_change(base, fresh, &base_reference, &new_reference)) return change;
  }
  return speedup_change(base, fresh, nullptr, nullptr);
}

std::optional<double> noise_of(const RunData& run) {
  std::vector<stats::Times> times;
  for (const auto& data : run.cases) {
    if (!data->lines.empty()) times.push_back(decode_times(*data));
  }
  return stats::noise_floor(times);
}

bool has_lines(const RunData& run) {
  return std::any_of(run.cases.begin(), run.cases.end(),
                     [](const auto& data) { return !data->lines.empty() || !data->errors.empty(); });
}

}  // namespace speclab
