#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/options.h"
#include "core/decoding/drafting/schedules/adaptive_threshold.h"
#include "core/decoding/drafting/schedules/goodput_length.h"
#include "core/decoding/drafting/schedules/length_bandit.h"
#include "core/decoding/drafting/schedules/roc_threshold.h"

namespace speclab {

class Controller;
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
  bandit,
  goodput,
  disco,
  specdec_pp
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
  bool needs_controller = false;                ///< reads the file of a trained controller
  bool exceeds_gamma = false;                   ///< a draft may be longer than gamma
};
std::span<const ScheduleInfo> schedules();
const ScheduleInfo& schedule_info(ScheduleRule rule);
/// The schedule with the name that a record gives. Returns nullptr if this version does not know the name.
const ScheduleInfo* recorded_schedule(std::string_view name);

struct ScheduleOptions {
  ScheduleRule schedule = ScheduleRule::constant;
  /// confidence: stop after a token whose confidence is below this; roc_confidence: the first threshold
  double confidence_threshold = .4;
  double first_threshold = .8;       ///< adaptive schedules: the threshold of the first draft
  double threshold_step = .01;       ///< adaptive schedules: how fast the threshold moves
  double wanted_acceptance = .9;     ///< adaptive schedules: share of accepted tokens that they aim at
  int least_samples = 6;             ///< roc_confidence: tokens before the threshold is learned
  double product_threshold = .3;     ///< product: stop once the product of confidences is below this
  double entropy_threshold = .775;   ///< entropy: stop after a row whose sqrt(entropy) is above this
  double entropy_factor = .2;        ///< adaptive_entropy: factor of the entropy in the bound
  double exploration = 2;            ///< bandit: how strongly rarely used lengths are preferred
  double goodput_memory = .9;        ///< goodput: factor by which earlier drafts lose weight at each draft
  std::string controller{};          ///< disco, specdec_pp: file of a Controller
  double controller_threshold = -1;  ///< disco, specdec_pp: the threshold; below 0: the one in the file
  /// How many of the largest probabilities of each drafted token's row to record, for the training of
  /// controllers.
  int top_probabilities = 0;
  int gamma_max = 32;  ///< heuristics: longest draft
  const ScheduleInfo& info() const { return schedule_info(schedule); }
  void fields(OptionVisitor& visit);
};

/// Decides how many tokens to draft, for one sequence. No schedule changes the text's distribution. A
/// schedule looks only at tokens that are already drafted, at the rows that they were drawn from, and at
/// earlier steps. Every drafted token is verified, also the one that ended the draft.
///
/// Two rules stop by a trained network (Controller), which predicts the acceptance of each drafted token:
/// - disco (Mamou et al. 2024, arXiv 2405.04304) stops after a token whose predicted acceptance is below the
///   threshold. The paper's classifier reads the largest probabilities of the row, its entropy and the place
///   of the token in the draft.
/// - specdec_pp (Huang et al. 2024, SpecDec++, arXiv 2405.19715) stops once 1 - (product of the predicted
///   acceptances of this draft) is above the threshold h, that is, once a rejection is likely enough. The
///   paper's head reads the hidden state that the draft model computes when it is fed with the token. Here
///   the network reads the row that the token was drawn from, so it judges a token before it is fed.
/// `product` is specdec_pp with the draft's own probability as the prediction, and product_threshold = 1 - h;
/// the paper's code has h = .7.
class Schedule {
 public:
  /// `costs` is read only if the schedule needs it (ScheduleInfo::needs_costs), see chain_step_ns(). Throws
  /// Error if the schedule reads gamma_max and gamma is larger, if costs are needed and missing, and if a
  /// controller is needed and its file is missing, damaged or made for another schedule.
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
  /// How many of the largest probabilities of a row are needed, for stop_after() or for the record.
  int needs_top() const;
  const Controller* controller() const { return controller_.get(); }  ///< null: the schedule has none
  void start_draft();
  /// Called for each drafted token, in order. Returns whether the token that was just drafted is the last one
  /// of this draft. `confidence` is the token's probability. `entropy` is the entropy in nats of the row that
  /// it was drawn from, and `top` has the needs_top() largest probabilities of this row, descending.
  bool stop_after(double confidence, double entropy = -1, std::span<const float> top = {});
  /// The acceptance that the controller predicted for the last token of stop_after(); -1 without a controller
  /// and before the first token of a draft.
  double predicted() const { return predicted_; }
  /// The threshold of the next draft, for a schedule that adapts a threshold or has a controller.
  double threshold() const;
  /// Learns from the draft since start_draft(): of its `drafted` > 0 tokens, `accepted` were accepted. The
  /// threshold of adaptive_confidence falls only after a draft of fewer than gamma tokens whose last token is
  /// below the threshold. So it does not fall after a draft that ended early only for another reason, such as
  /// the length limit of the text, the context of the draft model or a budget. If such a limit cuts a draft
  /// at a token that is also below the threshold, the threshold has stopped the draft, and it may fall.
  void observe(int drafted, int accepted);

 private:
  void read_controller();
  bool controller_stops(double confidence, double entropy, std::span<const float> top);

  ScheduleOptions options_;
  int initial_;
  int gamma_;
  double product_ = 1;  ///< product of the confidences of this draft
  double kept_ = 1;     ///< specdec_pp: product of the predicted acceptances of this draft
  double predicted_ = -1;
  int position_ = 0;      ///< disco, specdec_pp: tokens of this draft so far
  bool stopped_ = false;  ///< adaptive_confidence: the threshold ended the draft
  AdaptiveThreshold adaptive_;
  RocThreshold roc_;
  std::optional<LengthBandit> bandit_;
  std::optional<GoodputLength> goodput_;
  std::shared_ptr<const Controller> controller_;
};

}  // namespace speclab
