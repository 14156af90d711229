#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/base/options.h"
#include "core/decoding/drafting/schedules/adaptive_threshold.h"
#include "core/decoding/drafting/schedules/length_bandit.h"
#include "core/decoding/drafting/schedules/roc_threshold.h"

namespace speclab {

struct StepCosts;

/// The rules by which a Schedule chooses the length of drafts; schedules() says what each one does.
enum class ScheduleRule {
  constant,
  heuristic,
  heuristic_transient,
  confidence,
  adaptive_confidence,
  roc_confidence,
  product,
  entropy,
  adaptive_entropy,
  bandit
};

/// Describes a schedule, a rule for the length of a draft, and what it needs. `speclab list schedules` prints
/// the texts.
struct ScheduleInfo {
  ScheduleRule rule;
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  std::span<const std::string_view> options{};  ///< names of the ScheduleOptions that it reads
  bool needs_confidence = false;                ///< looks at the probability of each drafted token
  bool needs_entropy = false;                   ///< looks at the entropy of each token's row
  bool needs_costs = false;                     ///< looks at a table of the times of steps (StepCosts)
  bool exceeds_gamma = false;                   ///< a draft may be longer than gamma
};
std::span<const ScheduleInfo> schedules();
const ScheduleInfo& schedule_info(ScheduleRule rule);
/// The schedule with the name that a record gives. Returns nullptr if this version does not know the name.
const ScheduleInfo* recorded_schedule(std::string_view name);

struct ScheduleOptions {
  ScheduleRule schedule = ScheduleRule::constant;
  double confidence_threshold = .4;  ///< confidence: stop after a token whose confidence is below this
  double first_threshold = .8;       ///< adaptive schedules: the threshold of the first draft
  double threshold_step = .01;       ///< adaptive schedules: how fast the threshold moves
  double wanted_acceptance = .9;     ///< adaptive schedules: share of accepted tokens that they aim at
  int least_samples = 6;             ///< roc_confidence: tokens before the threshold is learned
  double product_threshold = .3;     ///< product: stop once the product of confidences is below this
  double entropy_threshold = .775;   ///< entropy: stop after a row whose sqrt(entropy) is above this
  double entropy_factor = .2;        ///< adaptive_entropy: factor of the entropy in the bound
  double exploration = 2;            ///< bandit: how strongly rarely used lengths are preferred
  int gamma_max = 32;                ///< heuristics: longest draft
  const ScheduleInfo& info() const { return schedule_info(schedule); }
  void fields(OptionVisitor& visit);
};

/// Decides how many tokens to draft, for one sequence. No schedule changes the law of the text. A schedule
/// looks only at tokens that are already drafted, at the rows that they were drawn from, and at earlier
/// steps. Every drafted token is verified, also the one that ended the draft.
///
/// Three published controllers are not rules of their own here:
/// - SpecDec++ (Huang et al. 2024) stops once 1 - (product of the predicted acceptance of the drafted tokens)
///   is above h. A trained head predicts the acceptance. `product` is this rule with the draft's probability
///   as the prediction and product_threshold = 1 - h; the paper's code has h = .7.
/// - SmartSpec (Liu et al. 2024, arXiv 2406.14066) maximises goodput, the expected tokens of a step divided
///   by its predicted time. That is the option "budget": "auto" (core/decoding/budget/shape_budget.h).
/// - DISCO (Mamou et al. 2024, arXiv 2405.04304) stops by a trained classifier, which is not part of SpecLab.
class Schedule {
 public:
  /// `costs` is read only if the schedule needs it (ScheduleInfo::needs_costs), see chain_step_ns(). Throws
  /// Error if the schedule reads gamma_max and gamma is larger, or if costs are needed and missing.
  Schedule(const ScheduleOptions& options, int gamma, const StepCosts* costs = nullptr);
  /// Starts a turn. All rules reset their state at every turn, except `heuristic`. That one keeps its state
  /// through the turns of a conversation and resets it at the next conversation. So a record does not depend
  /// on the order of conversations.
  void begin(int turn);
  int limit() const { return gamma_; }  ///< largest length of the next draft
  /// Largest length that a draft may ever have.
  int largest() const { return options_.info().exceeds_gamma ? options_.gamma_max : initial_; }
  /// Whether stop_after() looks at the confidence, or at the entropy. If not, the caller may pass -1.
  bool needs_confidence() const { return options_.info().needs_confidence; }
  bool needs_entropy() const { return options_.info().needs_entropy; }
  void start_draft();
  /// Called for each drafted token, in order. Returns whether the token that was just drafted is the last one
  /// of this draft. `confidence` is the token's probability, and `entropy` the entropy in nats of the row
  /// that it was drawn from.
  bool stop_after(double confidence, double entropy = -1);
  /// The threshold of the next draft, of a schedule that adapts one.
  double threshold() const;
  /// Adapts to the draft since start_draft(), of `drafted` > 0 tokens with `accepted` accepted tokens. The
  /// threshold of adaptive_confidence falls only after a draft of fewer than gamma tokens whose last token is
  /// below the threshold. So it does not fall after a draft that was ended early only by something else, such
  /// as the length limit of the text, the context of the draft model or a budget. If such a limit cuts a
  /// draft at a token that is also below the threshold, the threshold has stopped the draft, and it may fall.
  void observe(int drafted, int accepted);

 private:
  ScheduleOptions options_;
  int initial_;
  int gamma_;
  double product_ = 1;
  bool stopped_ = false;  ///< adaptive_confidence: the threshold ended the draft
  AdaptiveThreshold adaptive_;
  RocThreshold roc_;
  std::optional<LengthBandit> bandit_;
};

}  // namespace speclab
