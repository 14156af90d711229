#include "experiments/analysis/compare/step_pairs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

namespace speclab {
namespace {

/// The paired steps of one prompt.
struct PairedPrompt {
  double base = 0, fresh = 0;  ///< times in ns
  double tokens = 0;           ///< emitted tokens, equal in both runs
};

/// True if both texts have the same tokens up to the end of the step.
bool same_ids_up_to(const TypicalText& a, const TypicalText& b, const TypicalStep& step) {
  if (step.turn >= a.ids.size() || step.turn >= b.ids.size()) return false;
  for (std::size_t turn = 0; turn < step.turn; ++turn) {
    if (a.ids[turn] != b.ids[turn]) return false;
  }
  const std::size_t end = 1 + step.begin + static_cast<std::size_t>(step.emitted);
  const std::vector<Token>&x = a.ids[step.turn], &y = b.ids[step.turn];
  return end <= x.size() && end <= y.size() &&
         std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(end), y.begin());
}

/// Adds the pairs of one text. Both lists of steps are in the order of the text.
void pair_text(const TypicalText& base, const TypicalText& fresh, StepPairs& all, PairedPrompt& prompt) {
  const auto place = [](const TypicalStep& step) { return std::tie(step.turn, step.begin); };
  const auto work = [](const TypicalStep& step) { return std::tie(step.emitted, step.rows, step.drafted); };
  auto a = base.steps.begin();
  auto b = fresh.steps.begin();
  while (a != base.steps.end() && b != fresh.steps.end()) {
    if (place(*a) < place(*b)) {
      ++a;
    } else if (place(*b) < place(*a)) {
      ++b;
    } else {
      if (work(*a) == work(*b) && same_ids_up_to(base, fresh, *a)) {
        ++all.pairs;
        prompt.base += a->times.total();
        prompt.fresh += b->times.total();
        prompt.tokens += a->emitted;
      }
      ++a, ++b;
    }
  }
}

/// The variance of a statistic over bootstrap resamples of the prompts. Absent when the statistic is finite
/// in fewer than two resamples.
std::optional<double> variance_over_prompts(std::size_t prompts, const stats::ClusterStatistic& statistic) {
  std::vector<double> values;
  stats::bootstrap_interval(prompts, [&](std::span<const std::size_t> drawn) {
    const double value = statistic(drawn);
    if (std::isfinite(value)) values.push_back(value);
    return value;
  });
  if (values.size() < 2) return std::nullopt;
  return stats::variance(values);
}

}  // namespace

StepPairs pair_steps(const std::map<TextKey, TypicalText>& base,
                     const std::map<TextKey, TypicalText>& fresh) {
  StepPairs all;
  std::map<std::string, PairedPrompt> by_prompt;
  for (const auto& [key, text] : base) {
    const auto found = fresh.find(key);
    if (found == fresh.end()) continue;
    all.base_steps += text.steps.size();
    all.new_steps += found->second.steps.size();
    pair_text(text, found->second, all, by_prompt[key.first]);
  }
  std::vector<PairedPrompt> prompts;
  for (const auto& [name, prompt] : by_prompt) {
    if (prompt.base > 0 && prompt.fresh > 0 && prompt.tokens > 0) prompts.push_back(prompt);
  }
  if (prompts.empty()) return all;
  const auto sum = [&](std::span<const std::size_t> drawn, double PairedPrompt::* value) {
    double total = 0;
    for (const std::size_t i : drawn) total += prompts[i].*value;
    return total;
  };
  const auto ratio = [&](std::span<const std::size_t> drawn) {
    return sum(drawn, &PairedPrompt::base) / sum(drawn, &PairedPrompt::fresh);
  };
  const auto log_per_token = [&](double PairedPrompt::* time) {
    return [&, time](std::span<const std::size_t> drawn) {
      return std::log(sum(drawn, time) / sum(drawn, &PairedPrompt::tokens));
    };
  };
  std::vector<std::size_t> every(prompts.size());
  std::iota(every.begin(), every.end(), std::size_t{0});
  all.ratio = ratio(every);
  all.ci = stats::bootstrap_interval(prompts.size(), ratio);
  all.paired_variance =
      variance_over_prompts(prompts.size(), [&](auto drawn) { return std::log(ratio(drawn)); });
  // The two runs draw independently, so the variances of their logarithms add up.
  const auto of_base = variance_over_prompts(prompts.size(), log_per_token(&PairedPrompt::base)),
             of_fresh = variance_over_prompts(prompts.size(), log_per_token(&PairedPrompt::fresh));
  if (of_base && of_fresh) all.unpaired_variance = *of_base + *of_fresh;
  return all;
}

}  // namespace speclab
