#pragma once

#include "core/decoding/budget/shape_budget.h"

namespace speclab {

/// Decides before each step of one sequence whether something that makes steps dearer is done at all, such
/// as the window of lookahead decoding. It compares the tokens per time of the steps with it and of the steps
/// without it. Times come from the table of costs, so a text does not depend on the clock. While it does not
/// pay, it is tried now and then (TrialFund).
///
/// The decision depends on earlier steps only. So it does not change the law of the text.
class DraftSwitch {
 public:
  struct Settings {
    double first_guess = 1;  ///< accepted tokens of a step with it, before anything was seen
    int trial_steps = 1;     ///< steps in a row of a trial
    int idle_steps = 0;      ///< first steps after switching on that cannot pay yet; they are not counted
  };
  explicit DraftSwitch(Settings settings) : settings_(settings) {}
  void begin() { *this = DraftSwitch(settings_); }
  /// Decides about the next step. `with_ns` and `without_ns`: about how long it takes with it and without it.
  bool decide(double with_ns, double without_ns);
  bool on() const { return on_; }
  /// Tells what the step of the last decision emitted, and how long it takes by the table of costs.
  void observe(int emitted, double ns);

 private:
  /// Sums over steps; old steps lose weight.
  struct Steps {
    double tokens = 0, ns = 0;
    double rate(double first_tokens, double first_ns) const;
  };
  Settings settings_;
  Steps with_, without_;
  TrialFund trials_;
  bool on_ = false;
  int on_for_ = 0;  // steps since it was switched on
};

}  // namespace speclab
