#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/measure/stats.h"
#include "core/theory/step_costs.h"

/// Fits the law of lookahead decoding (Fu, Bailis, Stoica, Zhang 2024, Eq. 5 and 7) to a grid of measured
/// settings (W, N, G) and finds the best setting for a machine. S is the number of tokens per step, which the
/// paper calls "step compression". t(n) = time of a forward over n rows / time of a forward over one row.
namespace speclab::theory {

/// One setting of lookahead decoding: columns of the window (W), n-gram size (N), largest number of guesses
/// per step (G).
struct LookaheadShape {
  int W = 0, N = 0, G = 0;
};
/// Rows of a step when no two guesses share a prefix: (W + G)(N - 1).
int lookahead_rows(const LookaheadShape& shape);

/// Eq. 7 with Eq. 5 inserted. There are b guesses of N - 1 tokens, each token is accepted with probability
/// alpha independently, and one step in f has a good guess. Then S = (f - 1 + E) / f with E = N -
/// sum_{i=1}^{N-1} (1 - alpha^i)^b. The paper has b = W = G. Our extension to W != G is b = W^share G^(1 -
/// share). S is 1 without a window or without guesses.
struct LookaheadLaw {
  double alpha = 0;
  double f = 1;
  double share = .5;  ///< exponent of W in b; has no effect when W = G
  double compression(const LookaheadShape& shape) const;
};

/// The measurement of one setting in the grid.
struct LookaheadCell {
  LookaheadShape shape;
  std::vector<double> tokens, steps;  ///< numbers of tokens and steps, [prompts]
  double compression() const;
};

/// Fits the law to the S of the cells by least squares. For each (alpha, share) the best f has a closed form.
/// `share` is fitted only if some cell has W != G. Throws Error with fewer than two cells.
LookaheadLaw fit_lookahead(std::span<const LookaheadCell> cells);

/// The law that was fitted to a grid, with intervals.
struct LookaheadFit {
  LookaheadLaw law;
  bool share_fitted = false;
  /// Bootstrap intervals over prompts. Each resample of the prompts is fitted anew. Absent with fewer than
  /// two prompts. The interval of `share` is also absent if `share` was not fitted.
  std::optional<stats::Interval> alpha, f, share;
  std::vector<double> fitted;  ///< S by the law, [cells]
};
LookaheadFit analyse_lookahead(std::span<const LookaheadCell> cells, int resamples);

/// A setting and the law's prediction for it on a machine.
struct LookaheadChoice {
  LookaheadShape shape;
  double compression = 1;
  double speedup = 1;  ///< S / t(rows)
};
/// Predicts S and the speedup of a setting. `row_share` is the work of a step / the work of (W + G)(N - 1)
/// rows with logits. It is below 1 because guesses share prefixes, not every token has G guesses, and some
/// rows of the window have no logits.
LookaheadChoice predict_lookahead(const LookaheadLaw& law, const LookaheadShape& shape,
                                  const RowTimes& target, double row_share = 1);
/// Default limits of W and N in the search for the best setting.
inline constexpr int kWidestLookahead = 64, kLongestLookahead = 8;
/// The fastest setting with W = G <= max_width and N <= max_n. A setting must be faster than `bar`; if none
/// is, the function returns `bar`. The default bar is autoregressive decoding: the setting {0, 0, 0} with
/// speedup 1. With a bar of speedup 0 the function returns the best setting even if it is slow.
LookaheadChoice best_lookahead(const LookaheadLaw& law, const RowTimes& target, int max_width, int max_n,
                               double row_share = 1, const LookaheadChoice& bar = {});

/// Returns the number of rows that each device feeds in lookahead parallelism (Section 3.4), the pending
/// token included, [devices]. The columns of the window and the guesses are divided over devices that all
/// hold the model. A device also feeds the first-level tokens of all columns before its own, because its
/// columns depend on them. So devices exchange only tokens. With several devices, each of them also feeds the
/// tokens that the previous step accepted (at most N - 1), which are not counted here.
std::vector<int> lookahead_device_rows(const LookaheadShape& shape, int devices);
/// Predicts the speedup on several devices: S / the time of a step. Times are in units of t(1). A step takes
/// as long as the forward of the device with the most rows plus `exchange`, the time to exchange tokens. That
/// device also feeds the S - 1 tokens that the previous step accepted. With one device there is no exchange,
/// and no token is fed again.
double lookahead_parallel_speedup(const LookaheadLaw& law, const LookaheadShape& shape,
                                  const RowTimes& target, int devices, double exchange);

}  // namespace speclab::theory
