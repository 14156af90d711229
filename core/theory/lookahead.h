#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/measure/stats.h"
#include "core/theory/step_costs.h"

/// The law of lookahead decoding (Fu, Bailis, Stoica, Zhang 2024, Eq. 5 and 7): its fit to a grid of measured
/// (W, N, G) and what it recommends for a machine. S = tokens per step ("step compression"); t(n) = time of a
/// forward over n rows over that of one.
namespace speclab::theory {

/// One measured setting.
struct LookaheadShape {
  int W = 0, N = 0, G = 0;
};
/// Rows of a step when no guesses share a beginning: (W + G)(N - 1).
int lookahead_rows(const LookaheadShape& shape);

/// Eq. 7 with Eq. 5: b guesses of N - 1 tokens, each token accepted with alpha independently; one step in f
/// has a good guess: S = (f - 1 + E) / f, E = N - sum_{i=1}^{N-1} (1 - alpha^i)^b. The paper's b is W = G.
/// Our extension to W != G (the paper has none): b = W^share G^(1 - share); without a window or without
/// guesses S = 1.
struct LookaheadLaw {
  double alpha = 0;
  double f = 1;
  double share = .5;  ///< of the window in b; no effect where W = G
  double compression(const LookaheadShape& shape) const;
};

/// Tokens and steps of one setting, [prompts].
struct LookaheadCell {
  LookaheadShape shape;
  std::vector<double> tokens, steps;
  double compression() const;
};

/// Least squares of S over the cells; for each (alpha, share) the best f has a closed form. `share` is fitted
/// where some cell has W != G. Throws Error with fewer than two cells of different S-relevant shape.
LookaheadLaw fit_lookahead(std::span<const LookaheadCell> cells);

struct LookaheadFit {
  LookaheadLaw law;
  bool share_fitted = false;
  /// Bootstrap over prompts, cells refitted; absent with fewer than two prompts.
  std::optional<stats::Interval> alpha, f, share;
  std::vector<double> fitted;  ///< [cells]
};
LookaheadFit analyse_lookahead(std::span<const LookaheadCell> cells, int resamples);

/// A setting with what the law says about it on a machine.
struct LookaheadChoice {
  LookaheadShape shape;
  double compression = 1;
  double speedup = 1;  ///< S / t(rows)
};
/// `row_share`: rows that are really fed over (W + G)(N - 1): guesses share beginnings, and not every token
/// has G.
LookaheadChoice predict_lookahead(const LookaheadLaw& law, const LookaheadShape& shape,
                                  const RowTimes& target, double row_share = 1);
/// How far the search for the best setting goes wherever nobody says otherwise.
inline constexpr int kWidestLookahead = 64, kLongestLookahead = 8;
/// The best W = G <= max_width with N <= max_n; `bar` where nothing is faster: {0, 0, 0} with speedup 1
/// (decode autoregressively), or one with speedup 0 for the best setting however slow.
LookaheadChoice best_lookahead(const LookaheadLaw& law, const RowTimes& target, int max_width, int max_n,
                               double row_share = 1, const LookaheadChoice& bar = {});

/// Lookahead parallelism (Section 3.4): columns and guesses divided over D devices that all hold the model;
/// tokens of the first level that a device's columns hang on are fed again there, so that only tokens are
/// exchanged. Rows of each device, the pending token included, [devices]; where there are several, all of
/// them feed what the step before has accepted (at most N - 1 tokens) besides.
std::vector<int> lookahead_device_rows(const LookaheadShape& shape, int devices);
/// S over the time of the slowest device, S - 1 accepted tokens fed again, plus `exchange`, the time to
/// exchange the tokens of a step, in units of t(1).
double lookahead_parallel_speedup(const LookaheadLaw& law, const LookaheadShape& shape,
                                  const RowTimes& target, int devices, double exchange);

}  // namespace speclab::theory
