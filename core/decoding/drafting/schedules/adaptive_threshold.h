#pragma once

namespace speclab {

/// A threshold that follows the acceptance of earlier drafts. It rises while too few drafted tokens are
/// accepted, so that drafts become shorter. Otherwise it falls after each draft that could have been longer.
/// After a draft:
///
///     mean      = .5 mean + .5 (accepted / drafted)
///     next      = threshold + step   if mean < wanted
///               = threshold - step   if not, and the draft could have been longer
///               = threshold          otherwise
///     threshold = .9 threshold + .1 next
///
/// Source: the published code of Zhang et al. 2024 (Draft & Verify), and with the same constants Algorithm 1
/// of Agrawal et al. 2024 (AdaEDL). The two differ in "could have been longer": the former asks whether fewer
/// than gamma tokens were drafted, the latter whether fewer than gamma tokens were accepted. For the former,
/// `Schedule` also asks that the threshold stopped the draft, which the published code does not ask. Here a
/// limit of the text, the context of the draft model or a budget may end a draft early, too, and a lower
/// threshold would not have made such a draft longer.
class AdaptiveThreshold {
 public:
  AdaptiveThreshold(double first, double step, double wanted) : first_(first), step_(step), wanted_(wanted) {
    begin();
  }
  void begin() { value_ = first_, mean_ = 0; }  ///< starts a text
  double value() const { return value_; }
  /// `accepted_share`: accepted / drafted tokens of the last draft.
  void observe(double accepted_share, bool could_be_longer) {
    mean_ = kOldMean * mean_ + (1 - kOldMean) * accepted_share;
    double next = value_;
    if (mean_ < wanted_) next += step_;
    else if (could_be_longer) next -= step_;
    value_ = kOldValue * value_ + (1 - kOldValue) * next;
  }

 private:
  static constexpr double kOldMean = .5, kOldValue = .9;
  double first_, step_, wanted_;
  double value_ = 0, mean_ = 0;
};

}  // namespace speclab
