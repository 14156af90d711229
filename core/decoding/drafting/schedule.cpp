#include "core/decoding/drafting/schedule.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <vector>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::array<std::string_view, 1> kGammaMax{"gamma_max"};
constexpr std::array<std::string_view, 1> kConfidence{"confidence_threshold"};
constexpr std::array<std::string_view, 1> kProduct{"product_threshold"};

constexpr std::array<ScheduleInfo, 5> kSchedules{{
    {ScheduleRule::constant, "constant", "always gamma tokens", "Leviathan et al. 2023, Algorithm 1", {}},
    {ScheduleRule::heuristic, "heuristic",
     "start at gamma; +2 after full acceptance, else -1 (at least 1); continues over the turns of a "
     "conversation",
     "Hugging Face transformers, assisted generation", kGammaMax},
    {ScheduleRule::heuristic_transient, "heuristic_transient", "the heuristic, started afresh at every turn",
     "Hugging Face transformers, assisted generation", kGammaMax},
    {ScheduleRule::confidence, "confidence",
     "stop after a token whose draft probability is below confidence_threshold; that token is still verified",
     "Hugging Face transformers, assistant_confidence_threshold", kConfidence},
    {ScheduleRule::product, "product",
     "stop once the product of the draft probabilities is below product_threshold",
     "the expected acceptance of the whole draft, as in EAGLE-2's scores (Li et al. 2024)", kProduct},
}};

}  // namespace

std::span<const ScheduleInfo> schedules() { return kSchedules; }

void ScheduleOptions::fields(OptionVisitor& visit) {
  std::vector<std::pair<ScheduleRule, std::string_view>> names;
  for (const ScheduleInfo& info : kSchedules) names.emplace_back(info.rule, info.name);
  visit("schedule", schedule, std::span<const std::pair<ScheduleRule, std::string_view>>(names),
        "rule for the length of a draft");
  visit("confidence_threshold", confidence_threshold, Range<double>{0, 1},
        "schedule confidence: stop after a token whose draft probability is below this");
  visit("product_threshold", product_threshold, Range<double>{0, 1},
        "schedule product: stop once the product of the draft probabilities is below this");
  visit("gamma_max", gamma_max, Range<int>{1, 64}, "heuristic schedules: longest draft");
}

Schedule::Schedule(const ScheduleOptions& options, int gamma)
    : options_(options), initial_(gamma), gamma_(gamma) {
  if (is_heuristic() && gamma > options.gamma_max) {
    throw Error({"option gamma", fmt::to_string(gamma),
                 fmt::format("at most gamma_max = {}", options.gamma_max),
                 "Raise gamma_max or start with a smaller gamma."});
  }
}

void Schedule::begin(int turn) {
  if (turn == 0 || options_.schedule != ScheduleRule::heuristic) gamma_ = initial_;
}

bool Schedule::stop_after(double confidence) {
  switch (options_.schedule) {
    case ScheduleRule::confidence: return confidence < options_.confidence_threshold;
    case ScheduleRule::product: product_ *= confidence; return product_ < options_.product_threshold;
    default: return false;
  }
}

void Schedule::observe(int drafted, int accepted) {
  if (!is_heuristic()) return;
  gamma_ = accepted >= drafted ? std::min(gamma_ + 2, options_.gamma_max) : std::max(gamma_ - 1, 1);
}

}  // namespace speclab
