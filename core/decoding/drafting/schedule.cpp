#include "core/decoding/drafting/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/schedules/controller.h"

namespace speclab {
namespace {

constexpr std::array<std::string_view, 1> kGammaMax{"gamma_max"};
constexpr std::array<std::string_view, 1> kConfidence{"confidence_threshold"};
constexpr std::array<std::string_view, 3> kAdaptive{"first_threshold", "threshold_step", "wanted_acceptance"};
constexpr std::array<std::string_view, 2> kRoc{"confidence_threshold", "least_samples"};
constexpr std::array<std::string_view, 1> kProduct{"product_threshold"};
constexpr std::array<std::string_view, 1> kEntropy{"entropy_threshold"};
constexpr std::array<std::string_view, 4> kAdaptiveEntropy{"entropy_factor", "first_threshold",
                                                           "threshold_step", "wanted_acceptance"};
constexpr std::array<std::string_view, 1> kBandit{"exploration"};
constexpr std::array<std::string_view, 1> kGoodput{"goodput_memory"};
constexpr std::array<std::string_view, 2> kController{"controller", "controller_threshold"};

constexpr std::array<ScheduleInfo, 13> kSchedules{{
    {.rule = ScheduleRule::constant,
     .name = "constant",
     .summary = "always gamma tokens",
     .source = "Leviathan et al. 2023, Algorithm 1"},
    {.rule = ScheduleRule::heuristic,
     .name = "heuristic",
     .summary = "start at gamma; +2 after full acceptance, else -1 (at least 1); continues over the turns of "
                "a conversation",
     .source = "Hugging Face transformers, assisted generation",
     .options = kGammaMax,
     .exceeds_gamma = true},
    {.rule = ScheduleRule::heuristic_transient,
     .name = "heuristic_transient",
     .summary = "the heuristic, started afresh at every turn",
     .source = "Hugging Face transformers, assisted generation",
     .options = kGammaMax,
     .exceeds_gamma = true},
    {.rule = ScheduleRule::confidence,
     .name = "confidence",
     .summary =
         "stop after a token whose draft probability is below confidence_threshold; that token is still "
         "verified",
     .source = "Hugging Face transformers, assistant_confidence_threshold",
     .options = kConfidence,
     .needs_confidence = true},
    {.rule = ScheduleRule::adaptive_confidence,
     .name = "adaptive_confidence",
     .summary =
         "as confidence, but the threshold starts at first_threshold and follows the acceptance: it rises "
         "while the mean acceptance of recent steps is below wanted_acceptance, and otherwise falls after "
         "drafts that it stopped before gamma",
     .source = "Zhang et al. 2024, Draft & Verify, adaptive draft-exiting",
     .options = kAdaptive,
     .needs_confidence = true},
    {.rule = ScheduleRule::roc_confidence,
     .name = "roc_confidence",
     .summary =
         "as confidence, but after each step the threshold becomes the one that would have separated the "
         "accepted from the rejected tokens of the text best, where a draft that stops too early costs three "
         "times as much as one that goes on too long",
     .source = "Hugging Face transformers 5, update_candidate_strategy",
     .options = kRoc,
     .needs_confidence = true},
    {.rule = ScheduleRule::product,
     .name = "product",
     .summary = "stop once the product of the draft probabilities is below product_threshold",
     .source = "Huang et al. 2024, SpecDec++ (arXiv 2405.19715), without the trained head; the product as in "
               "EAGLE-2's scores (Li et al. 2024)",
     .options = kProduct,
     .needs_confidence = true},
    {.rule = ScheduleRule::entropy,
     .name = "entropy",
     .summary =
         "stop after a token that was drawn from a row with sqrt(entropy) above entropy_threshold; that "
         "token is still verified",
     .source = "Zhang et al. 2024, SVIP (arXiv 2411.18462), whose code stops at sqrt(.15 entropy) > .3",
     .options = kEntropy,
     .needs_confidence = true,
     .needs_entropy = true},
    {.rule = ScheduleRule::adaptive_entropy,
     .name = "adaptive_entropy",
     .summary =
         "stop after a token that was drawn from a row with 1 - sqrt(entropy_factor * entropy) below a "
         "threshold, which starts at first_threshold and follows the acceptance: it rises while the mean "
         "acceptance of recent steps is below wanted_acceptance, and otherwise falls after steps that did "
         "not accept gamma tokens",
     .source = "Agrawal et al. 2024, AdaEDL (arXiv 2410.18351), Algorithm 1",
     .options = kAdaptiveEntropy,
     .needs_confidence = true,
     .needs_entropy = true},
    {.rule = ScheduleRule::bandit,
     .name = "bandit",
     .summary =
         "choose one of the lengths 1 to gamma, by the mean reward of each so far and an upper confidence "
         "bound; the reward is the number of tokens of a step divided by its time in the table of costs",
     .source = "Hou et al. 2025, BanditSpec (arXiv 2505.15141), UCBSpec; Auer et al. 2002, UCB1",
     .options = kBandit,
     .needs_costs = true},
    {.rule = ScheduleRule::goodput,
     .name = "goodput",
     .summary = "choose the length from 1 to gamma with the most expected tokens per time, by a moving "
                "average of the acceptance and a table of the times of steps",
     .source = "Liu et al. 2024, SmartSpec (arXiv 2406.14066)",
     .options = kGoodput,
     .needs_costs = true},
    {.rule = ScheduleRule::disco,
     .name = "disco",
     .summary =
         "stop after a token for which a trained classifier predicts an acceptance below a threshold; that "
         "token is still verified",
     .source = "Mamou et al. 2024, DISCO (arXiv 2405.04304)",
     .options = kController,
     .needs_confidence = true,
     .needs_entropy = true,
     .needs_controller = true},
    {.rule = ScheduleRule::specdec_pp,
     .name = "specdec_pp",
     .summary = "stop once the predicted probability that some token of the draft is rejected is above a "
                "threshold; a trained network predicts the acceptance of each token",
     .source = "Huang et al. 2024, SpecDec++ (arXiv 2405.19715); here the network reads the draft's rows in "
               "place of its hidden states",
     .options = kController,
     .needs_confidence = true,
     .needs_entropy = true,
     .needs_controller = true},
}};

}  // namespace

std::span<const ScheduleInfo> schedules() { return kSchedules; }

const ScheduleInfo& schedule_info(ScheduleRule rule) {
  return *std::ranges::find(kSchedules, rule, &ScheduleInfo::rule);
}

const ScheduleInfo* recorded_schedule(std::string_view name) {
  const auto found = std::ranges::find(kSchedules, name, &ScheduleInfo::name);
  return found == kSchedules.end() ? nullptr : &*found;
}

void ScheduleOptions::fields(OptionVisitor& visit) {
  std::vector<std::pair<ScheduleRule, std::string_view>> names;
  for (const ScheduleInfo& info : kSchedules) names.emplace_back(info.rule, info.name);
  visit("schedule", schedule, std::span<const std::pair<ScheduleRule, std::string_view>>(names),
        "rule for the length of a draft");
  visit("confidence_threshold", confidence_threshold, Range<double>{0, 1},
        "schedule confidence: stop after a token whose draft probability is below this; schedule "
        "roc_confidence: the threshold until one is learned");
  visit("first_threshold", first_threshold, Range<double>{0, 1},
        "schedules adaptive_confidence and adaptive_entropy: the threshold of the first draft of a text");
  visit("threshold_step", threshold_step, Range<double>{0, 1},
        "schedules adaptive_confidence and adaptive_entropy: a step moves the threshold by a tenth of this");
  visit("wanted_acceptance", wanted_acceptance, Range<double>{0, 1},
        "schedules adaptive_confidence and adaptive_entropy: share of drafted tokens to accept; with less, "
        "the threshold rises");
  visit("least_samples", least_samples, Range<int>{2, 1'000'000},
        "schedule roc_confidence: number of tested tokens before a threshold is learned");
  visit("product_threshold", product_threshold, Range<double>{0, 1},
        "schedule product: stop once the product of the draft probabilities is below this");
  visit("entropy_threshold", entropy_threshold, Range<double>{0, 10},
        "schedule entropy: stop after a token that was drawn from a row whose entropy, in nats, has a square "
        "root above this");
  visit("entropy_factor", entropy_factor, Range<double>{0, 10},
        "schedule adaptive_entropy: factor f of the entropy H in 1 - sqrt(f H), the lower bound of the "
        "acceptance");
  visit("exploration", exploration, Range<double>{0, 100},
        "schedule bandit: how strongly rarely used lengths are preferred; 2 is UCB1, 0 takes the best mean "
        "reward");
  visit("goodput_memory", goodput_memory, Range<double>{0, 1},
        "schedule goodput: each draft multiplies the weight of earlier drafts by this, in the moving average "
        "of the acceptance");
  visit("controller", controller,
        "schedules disco and specdec_pp: file of a controller that was trained for the draft "
        "(scripts/fit/fit_controller.py)");
  visit(
      "controller_threshold", controller_threshold, Range<double>{-1, 1},
      "schedule disco: stop after a token with a predicted acceptance below this; schedule specdec_pp: stop "
      "once the predicted probability of a rejection is above this; below 0: the threshold in the file");
  visit("top_probabilities", top_probabilities, Range<int>{0, Controller::kMostTop},
        "how many of the largest probabilities of each drafted token's row to record, for the training of "
        "controllers; they cost a search in each row");
  visit("gamma_max", gamma_max, Range<int>{1, 64}, "heuristic schedules: longest draft");
}

Schedule::Schedule(const ScheduleOptions& options, int gamma, const StepCosts* costs)
    : options_(options),
      initial_(gamma),
      gamma_(gamma),
      adaptive_(options.first_threshold, options.threshold_step, options.wanted_acceptance),
      roc_(options.confidence_threshold, options.least_samples) {
  if (options.info().exceeds_gamma && gamma > options.gamma_max) {
    throw Error({"option gamma", fmt::to_string(gamma),
                 fmt::format("at most gamma_max = {}", options.gamma_max),
                 "Raise gamma_max or start with a smaller gamma."});
  }
  if (options.info().needs_controller) read_controller();
  if (!options.info().needs_costs) return;
  if (costs == nullptr) {
    throw Error({fmt::format("schedule {}", options.info().name), "no table of costs",
                 "a table of costs (StepCosts)", "speclab run and speclab generate measure one."});
  }
  if (options.schedule == ScheduleRule::goodput)
    goodput_.emplace(chain_step_ns(*costs, gamma), options.goodput_memory);
  else bandit_.emplace(chain_step_ns(*costs, gamma), options.exploration);
}

void Schedule::read_controller() {
  const std::string_view name = options_.info().name;
  if (options_.controller.empty()) {
    throw Error({fmt::format("schedule {}", name), "no controller",
                 "the option controller: the file of a trained controller",
                 "Train one with scripts/fit/fit_controller.py."});
  }
  controller_ = std::make_shared<const Controller>(Controller::read(options_.controller));
  if (controller_->schedule() != options_.schedule) {
    throw Error({fmt::format("{}: /schedule", options_.controller),
                 std::string(schedule_info(controller_->schedule()).name),
                 fmt::format("\"{}\", the schedule of the case", name),
                 "Use the schedule that the controller was trained for."});
  }
}

int Schedule::needs_top() const {
  return std::max(options_.top_probabilities, controller_ ? controller_->top() : 0);
}

void Schedule::begin(int turn) {
  adaptive_.begin();
  roc_.begin();
  if (turn == 0 || options_.schedule != ScheduleRule::heuristic) gamma_ = initial_;
  if (bandit_) {
    bandit_->begin();
    gamma_ = bandit_->choose();
  }
  if (goodput_) {
    goodput_->begin();
    gamma_ = goodput_->choose();
  }
}

void Schedule::start_draft() {
  product_ = 1;
  kept_ = 1;
  predicted_ = -1;
  position_ = 0;
  stopped_ = false;
  roc_.start_draft();
}

bool Schedule::controller_stops(double confidence, double entropy, std::span<const float> top) {
  product_ *= confidence;
  predicted_ = controller_->acceptance({.confidence = confidence,
                                        .entropy = entropy,
                                        .product = product_,
                                        .position = ++position_,
                                        .top = top});
  kept_ *= predicted_;
  return options_.schedule == ScheduleRule::disco ? predicted_ < threshold() : 1 - kept_ > threshold();
}

bool Schedule::stop_after(double confidence, double entropy, std::span<const float> top) {
  switch (options_.schedule) {
    case ScheduleRule::confidence: return confidence < options_.confidence_threshold;
    case ScheduleRule::adaptive_confidence: return stopped_ = confidence < adaptive_.value();
    case ScheduleRule::roc_confidence: roc_.add(confidence); return confidence < roc_.value();
    case ScheduleRule::product: product_ *= confidence; return product_ < options_.product_threshold;
    case ScheduleRule::entropy: return std::sqrt(entropy) > options_.entropy_threshold;
    case ScheduleRule::adaptive_entropy:
      return 1 - std::sqrt(options_.entropy_factor * entropy) < adaptive_.value();
    case ScheduleRule::disco:
    case ScheduleRule::specdec_pp: return controller_stops(confidence, entropy, top);
    default: return false;
  }
}

double Schedule::threshold() const {
  if (controller_)
    return options_.controller_threshold < 0 ? controller_->threshold() : options_.controller_threshold;
  return options_.schedule == ScheduleRule::roc_confidence ? roc_.value() : adaptive_.value();
}

void Schedule::observe(int drafted, int accepted) {
  const double share = static_cast<double>(accepted) / drafted;
  switch (options_.schedule) {
    case ScheduleRule::adaptive_confidence: adaptive_.observe(share, stopped_ && drafted < gamma_); break;
    case ScheduleRule::adaptive_entropy: adaptive_.observe(share, accepted < gamma_); break;
    case ScheduleRule::roc_confidence: roc_.observe(accepted); break;
    case ScheduleRule::heuristic:
    case ScheduleRule::heuristic_transient:
      gamma_ = accepted >= drafted ? std::min(gamma_ + 2, options_.gamma_max) : std::max(gamma_ - 1, 1);
      break;
    case ScheduleRule::bandit:
      bandit_->observe(gamma_, drafted, accepted);
      gamma_ = bandit_->choose();
      break;
    case ScheduleRule::goodput:
      goodput_->observe(drafted, accepted);
      gamma_ = goodput_->choose();
      break;
    default: break;
  }
}

}  // namespace speclab
