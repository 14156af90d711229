#pragma once

#include "core/decoding/budget/shape_budget.h"

namespace speclab {

/// Switches an extra part of the steps of one sequence on and off, such as the window of lookahead decoding.
/// The part makes steps dearer and may make them emit more tokens. Before each step the switch compares the
/// tokens per time of the steps with the part and of the steps without it. Times come from the table of
/// costs, so a text does not depend on the clock. While the part does not pay, it is tried now and then
/// (TrialFund).
///
/// The decision depends only on the text so far, on earlier steps and on the table of costs. So it does not
/// change the distribution of the text.
class DraftSwitch {
 public:
  struct Settings {
    double first_guess = 1;  ///< guessed number of accepted tokens of a step with the part, before any step
    int trial_steps = 1;     ///< number of steps of a trial, after its idle steps
    int idle_steps = 0;      ///< number of steps after switching on that cannot pay yet and teach nothing
  };
  explicit DraftSwitch(Settings settings) : settings_(settings) {}
  void begin() { *this = DraftSwitch(settings_); }
  /// Returns whether the next step has the part. `with_ns` and `without_ns`: about how long this step takes
  /// with and without the part.
  bool decide(double with_ns, double without_ns);
  bool on() const { return on_; }
  /// Tells how many tokens the step of the last decision emitted, and its time by the table of costs.
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
  int on_for_ = 0;  // steps since the part was switched on
};

}  // namespace speclab
