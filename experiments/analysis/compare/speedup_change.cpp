#include "experiments/analysis/compare/speedup_change.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace speclab {
namespace {

/// Mean of two positive numbers that lies between their geometric and their arithmetic mean.
double logarithmic_mean(double a, double b) {
  const double log_ratio = std::log(a / b);
  // For equal numbers both differences are 0. For nearly equal numbers, the series of the quotient is exact
  // up to rounding.
  if (std::abs(log_ratio) < 1e-4) return std::sqrt(a * b) * (1 + log_ratio * log_ratio / 24);
  return (a - b) / log_ratio;
}

/// The costs of one prompt in both runs.
struct PromptCosts {
  CaseCosts base, fresh;
};

void add_text(CaseCosts& costs, const TypicalText& text) {
  costs.times += text.times;
  costs.steps += static_cast<double>(text.steps.size());
  costs.tokens += text.tokens;
}

void add_reference_text(CaseCosts& costs, const TypicalText& text) {
  costs.reference_ns += text.times.total();
  costs.reference_tokens += text.tokens;
}

/// The costs of each prompt, over the texts that all arguments have.
std::vector<PromptCosts> costs_by_prompt(const Texts& base, const Texts& fresh, const Texts* base_reference,
                                         const Texts* new_reference) {
  std::map<std::string, PromptCosts> by_prompt;
  for (const auto& [key, text] : base) {
    const auto same = fresh.find(key);
    if (same == fresh.end()) continue;
    if (base_reference != nullptr && (!base_reference->contains(key) || !new_reference->contains(key)))
      continue;
    PromptCosts& costs = by_prompt[key.first];
    add_text(costs.base, text);
    add_text(costs.fresh, same->second);
    if (base_reference == nullptr) continue;
    add_reference_text(costs.base, base_reference->at(key));
    add_reference_text(costs.fresh, new_reference->at(key));
  }
  std::vector<PromptCosts> prompts;
  for (const auto& [name, costs] : by_prompt) prompts.push_back(costs);
  return prompts;
}

PromptCosts sum_of_prompts(const std::vector<PromptCosts>& prompts, std::span<const std::size_t> drawn) {
  PromptCosts sum;
  for (const std::size_t i : drawn) {
    sum.base += prompts[i].base;
    sum.fresh += prompts[i].fresh;
  }
  return sum;
}

bool has_work(const CaseCosts& costs) {
  return costs.tokens > 0 && costs.steps > 0 && costs.times.total() > 0;
}

}  // namespace

CaseCosts& CaseCosts::operator+=(const CaseCosts& other) {
  times += other.times;
  steps += other.steps;
  tokens += other.tokens;
  reference_ns += other.reference_ns;
  reference_tokens += other.reference_tokens;
  return *this;
}

std::string_view to_string(ChangePart part) {
  switch (part) {
    case ChangePart::reference: return "reference";
    case ChangePart::acceptance: return "acceptance";
    case ChangePart::draft: return "draft";
    case ChangePart::verification: return "verification";
    case ChangePart::overhead: break;
  }
  return "overhead";
}

std::array<double, kChangeParts.size()> change_parts(const CaseCosts& base, const CaseCosts& fresh) {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  if (!has_work(base) || !has_work(fresh))
    return {kUndefined, kUndefined, kUndefined, kUndefined, kUndefined};
  double reference = 0;
  if (base.reference_tokens > 0 || fresh.reference_tokens > 0) {
    const double was = base.reference_ns / base.reference_tokens,
                 is = fresh.reference_ns / fresh.reference_tokens;
    reference = was > 0 && is > 0 ? std::log(is / was) : kUndefined;
  }
  const double acceptance = std::log(fresh.tokens / fresh.steps) - std::log(base.tokens / base.steps);
  const double mean = logarithmic_mean(fresh.times.total() / fresh.steps, base.times.total() / base.steps);
  const auto of_time = [&](double PartTimes::* part) {
    return -(fresh.times.*part / fresh.steps - base.times.*part / base.steps) / mean;
  };
  return {reference, acceptance, of_time(&PartTimes::draft), of_time(&PartTimes::target),
          of_time(&PartTimes::overhead)};
}

ChangePart SpeedupChange::largest_loss() const {
  return *std::min_element(kChangeParts.begin() + 1, kChangeParts.end(),
                           [&](ChangePart a, ChangePart b) { return part(a).value < part(b).value; });
}

std::optional<SpeedupChange> speedup_change(const Texts& base, const Texts& fresh,
                                            const Texts* base_reference, const Texts* new_reference) {
  if (base_reference == nullptr || new_reference == nullptr) base_reference = new_reference = nullptr;
  const std::vector<PromptCosts> prompts = costs_by_prompt(base, fresh, base_reference, new_reference);
  std::vector<std::size_t> every(prompts.size());
  std::iota(every.begin(), every.end(), std::size_t{0});
  const PromptCosts all = sum_of_prompts(prompts, every);

  // Every bootstrap draws the same resamples, so the parts of each resample are computed once.
  using Parts = std::array<double, kChangeParts.size()>;
  const Parts measured = change_parts(all.base, all.fresh);
  std::vector<Parts> resampled;
  stats::bootstrap_interval(prompts.size(), [&](std::span<const std::size_t> drawn) {
    const PromptCosts sum = sum_of_prompts(prompts, drawn);
    resampled.push_back(change_parts(sum.base, sum.fresh));
    return resampled.back().front();
  });
  const auto value = [&](const std::function<double(const Parts&)>& statistic) {
    std::size_t next = 0;
    return stats::Value{statistic(measured), stats::bootstrap_interval(prompts.size(), [&](auto) {
                          return statistic(resampled[next++]);
                        })};
  };
  const auto factor_from = [&](std::ptrdiff_t first) {
    return value([first](const Parts& parts) {
      return std::exp(std::accumulate(parts.begin() + first, parts.end(), 0.0));
    });
  };

  SpeedupChange change;
  if (!std::isfinite(std::accumulate(measured.begin(), measured.end(), 0.0))) return std::nullopt;
  change.whole = factor_from(0);
  change.own = factor_from(1);  // without the first part, the reference
  for (std::size_t i = 0; i < kChangeParts.size(); ++i)
    change.parts[i] = value([i](const Parts& parts) { return parts[i]; });
  change.has_reference = base_reference != nullptr;
  change.prompts = prompts.size();
  change.base_tau = all.base.tokens / all.base.steps;
  change.new_tau = all.fresh.tokens / all.fresh.steps;
  if (change.has_reference) {
    change.base_speedup = all.base.speedup();
    change.new_speedup = all.fresh.speedup();
  }
  return change;
}

}  // namespace speclab
