#pragma once

#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "core/measure/stats.h"
#include "experiments/analysis/compare/typical_steps.h"

/// Divides the change of a speedup between two runs, BASE and NEW, into parts that add up to the whole.
///
/// The speedup of a case is reference time per token / case time per token. With R = reference time per
/// token, s = steps per token, and X = d + v + o = the mean time of a step for drafting, verification and
/// overhead,
///
///     log(speedup) = log R - log s - log X.
///
/// So its change has the parts log(R_new / R_base), -log(s_new / s_base), and -log(X_new / X_base). The last
/// part is split further, with the logarithmic mean L(a, b) = (a - b) / log(a / b):
///
///     -log(X_new / X_base) = sum over x in {d, v, o} of -(x_new - x_base) / L(X_new, X_base).
///
/// This is the logarithmic mean Divisia index (Ang 2005, "The LMDI approach to decomposition analysis: a
/// practical guide", Energy Policy 33). The parts leave no residual, no order of the parts has to be chosen,
/// and a part that is 0 in one run is no special case. If the runs are swapped, every part changes its sign.
namespace speclab {

/// The costs of texts under a case and under its reference, summed over prompts.
struct CaseCosts {
  PartTimes times;
  double steps = 0, tokens = 0;
  double reference_ns = 0, reference_tokens = 0;  ///< both 0 without a reference
  CaseCosts& operator+=(const CaseCosts& other);
  double per_token() const { return times.total() / tokens; }
  double speedup() const { return reference_ns / reference_tokens / per_token(); }
};

/// The parts of a change, in this order.
enum class ChangePart { reference, acceptance, draft, verification, overhead };
inline constexpr std::array kChangeParts = {ChangePart::reference, ChangePart::acceptance, ChangePart::draft,
                                            ChangePart::verification, ChangePart::overhead};
std::string_view to_string(ChangePart part);  ///< "reference", "acceptance", ...

/// Each part as its contribution to log(speedup of `fresh` / speedup of `base`). Above 0, it makes the case
/// faster. Without a reference the reference's part is 0, and the sum is log(the case's own time per token in
/// `base` / in `fresh`). All parts are NaN if a run has no tokens, steps or time.
std::array<double, kChangeParts.size()> change_parts(const CaseCosts& base, const CaseCosts& fresh);

/// The change of one case between two runs, with 95 % intervals by a bootstrap over prompts. A drawn prompt
/// brings the texts of both runs, of the case and of its reference.
struct SpeedupChange {
  bool has_reference = false;
  double base_speedup = 0, new_speedup = 0;  ///< 0 without a reference
  double base_tau = 0, new_tau = 0;          ///< tokens per step
  stats::Value whole{};  ///< speedup of NEW / speedup of BASE; without a reference the same as `own`
  /// The change without the reference's part: time per token, BASE / NEW. Above 1, NEW is faster.
  stats::Value own{};
  std::array<stats::Value, kChangeParts.size()> parts{};  ///< logarithms; they add up to log(whole)
  std::size_t prompts = 0;                                ///< number of prompts behind the intervals

  const stats::Value& part(ChangePart which) const { return parts[static_cast<std::size_t>(which)]; }
  /// The part that lowers the speedup most; the reference's part is left out.
  ChangePart largest_loss() const;
};

using Texts = std::map<TextKey, TypicalText>;
/// Computes the change over the texts that all four arguments have. A reference is null if its run has none;
/// then both are left out. Absent when no text is left, or when a run has no tokens, steps or time.
std::optional<SpeedupChange> speedup_change(const Texts& base, const Texts& fresh,
                                            const Texts* base_reference, const Texts* new_reference);

}  // namespace speclab
