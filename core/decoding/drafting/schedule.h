#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/base/options.h"

namespace speclab {

/// The rules by which a Schedule chooses the length of drafts; schedules() says what each one does.
enum class ScheduleRule {
  constant,
  heuristic,
  heuristic_transient,
  confidence,
  adaptive_confidence,
  product
};

/// Describes a schedule, a rule for the length of drafts, for `speclab list schedules`.
struct ScheduleInfo {
  ScheduleRule rule;
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  std::span<const std::string_view> options;  ///< names of the ScheduleOptions that it reads
};
std::span<const ScheduleInfo> schedules();

struct ScheduleOptions {
  ScheduleRule schedule = ScheduleRule::constant;
  double confidence_threshold = .4;  ///< confidence: stop after a token whose confidence is below this
  double first_threshold = .8;       ///< adaptive_confidence: the threshold of the first draft
  double threshold_step = .01;       ///< adaptive_confidence: how fast the threshold moves
  double wanted_acceptance = .9;     ///< adaptive_confidence: share of accepted tokens that it aims at
  double product_threshold = .3;     ///< product: stop once the product of confidences is below this
  int gamma_max = 32;                ///< heuristics: longest draft
  void fields(OptionVisitor& visit);
};

/// Decides how many tokens to draft, for one sequence. No schedule changes the law of the text,
/// because it looks only at tokens that are already drafted, and every drafted token is verified,
/// also the one that ended the draft.
class Schedule {
 public:
  Schedule(const ScheduleOptions& options, int gamma);
  /// Starts a sequence. The rules heuristic_transient and adaptive_confidence reset their state at every
  /// turn. The rule heuristic keeps it through the turns of a conversation and resets it at the next
  /// conversation. So a record does not depend on the order of conversations.
  void begin(int turn);
  int limit() const { return gamma_; }  ///< largest length of the next draft
  /// Largest length that a draft may ever have.
  int largest() const { return is_heuristic() ? options_.gamma_max : initial_; }
  /// Whether stop_after() looks at the confidence. If not, the caller may pass -1.
  bool needs_confidence() const {
    return options_.schedule == ScheduleRule::confidence || options_.schedule == ScheduleRule::product ||
           options_.schedule == ScheduleRule::adaptive_confidence;
  }
  void start_draft() { product_ = 1; }
  /// Whether the token that was just drafted, with probability `confidence`, is the last one of this draft.
  bool stop_after(double confidence);
  /// adaptive_confidence: the threshold of the next draft.
  double threshold() const { return threshold_; }
  /// Adapts to a draft of `drafted` > 0 tokens with `accepted` accepted tokens.
  void observe(int drafted, int accepted);

 private:
  bool is_heuristic() const {
    return options_.schedule == ScheduleRule::heuristic ||
           options_.schedule == ScheduleRule::heuristic_transient;
  }
  ScheduleOptions options_;
  int initial_;
  int gamma_;
  double product_ = 1;
  double threshold_ = 0;  ///< adaptive_confidence
  double accepted_ = 0;   ///< adaptive_confidence: moving mean of accepted / drafted tokens
};

}  // namespace speclab
