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

constexpr std::array<std::string_view, 3> kAdaptive{"first_threshold", "threshold_step", "wanted_acceptance"};

// Constants of the published code of Zhang et al. 2024 (Draft & Verify).
constexpr double kOldAcceptance = .5;  // weight of the earlier steps in the mean of accepted / drafted
constexpr double kOldThreshold = .9;   // weight of the earlier threshold

constexpr std::array<ScheduleInfo, 6> kSchedules{{
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
    {ScheduleRule::adaptive_confidence, "adaptive_confidence",
     "as confidence, but the threshold starts at first_threshold and follows the acceptance: it rises while "
     "the mean acceptance of recent steps is below wanted_acceptance, and otherwise falls after steps that "
     "stopped before gamma",
     "Zhang et al. 2024, Draft & Verify, adaptive draft-exiting", kAdaptive},
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
  visit("first_threshold", first_threshold, Range<double>{0, 1},
        "schedule adaptive_confidence: the threshold of the first draft of a text");
  visit("threshold_step", threshold_step, Range<double>{0, 1},
        "schedule adaptive_confidence: a step moves the threshold by a tenth of this");
  visit("wanted_acceptance", wanted_acceptance, Range<double>{0, 1},
        "schedule adaptive_confidence: share of drafted tokens to accept; with less, the threshold rises");
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
  threshold_ = options_.first_threshold;
  accepted_ = 0;
  if (turn == 0 || options_.schedule != ScheduleRule::heuristic) gamma_ = initial_;
}

bool Schedule::stop_after(double confidence) {
  switch (options_.schedule) {
    case ScheduleRule::confidence: return confidence < options_.confidence_threshold;
    case ScheduleRule::adaptive_confidence: return confidence < threshold_;
    case ScheduleRule::product: product_ *= confidence; return product_ < options_.product_threshold;
    default: return false;
  }
}

void Schedule::observe(int drafted, int accepted) {
  if (options_.schedule == ScheduleRule::adaptive_confidence) {
    accepted_ = kOldAcceptance * accepted_ + (1 - kOldAcceptance) * accepted / drafted;
    double next = threshold_;
    if (accepted_ < options_.wanted_acceptance) next += options_.threshold_step;
    else if (drafted < gamma_) next -= options_.threshold_step;
    threshold_ = kOldThreshold * threshold_ + (1 - kOldThreshold) * next;
  }
  if (!is_heuristic()) return;
  gamma_ = accepted >= drafted ? std::min(gamma_ + 2, options_.gamma_max) : std::max(gamma_ - 1, 1);
}

}  // namespace speclab
