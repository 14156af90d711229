#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/base/options.h"

namespace speclab {

enum class ScheduleRule { constant, heuristic, heuristic_transient, confidence, product };

/// A draft-length rule as data, for `speclab list schedules`.
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
  double confidence_threshold = .4;  ///< confidence: stop after a token less sure than this
  double product_threshold = .3;     ///< product: stop once the draft as a whole is less sure than this
  int gamma_max = 32;                ///< heuristics: never longer
  void fields(OptionVisitor& visit);
};

/// How many tokens to draft: the state of one sequence. Every rule keeps the law of the text, because it
/// looks only at what was drafted already, and a drafted token is always submitted, also the one that made it
/// stop.
class Schedule {
 public:
  Schedule(const ScheduleOptions& options, int gamma);
  /// A sequence starts. heuristic_transient starts afresh at every turn, heuristic at every conversation:
  /// state never passes from one prompt to the next, so that a record does not depend on the order of
  /// prompts.
  void begin(int turn);
  int limit() const { return gamma_; }  ///< most tokens for the next draft
  /// Does stop_after() look at the confidence? If not it may be given as -1.
  bool needs_confidence() const {
    return options_.schedule == ScheduleRule::confidence || options_.schedule == ScheduleRule::product;
  }
  void start_draft() { product_ = 1; }
  /// A token was drafted and its drafter gave it probability `confidence`: is it the last one of this draft?
  bool stop_after(double confidence);
  /// The draft of `drafted` > 0 tokens had `accepted` of them accepted.
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
};

}  // namespace speclab
