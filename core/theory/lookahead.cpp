#include "core/theory/lookahead.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/tools/minima.hpp>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

constexpr double kMostAlpha = .999;
// Number of intervals of the coarse search over alpha. There are many, because the error may have two minima.
constexpr int kCoarse = 24;
constexpr int kBits = 24;  // precision of a minimum, in bits

double branches(const LookaheadShape& shape, double share) {
  if (shape.W == shape.G) return shape.W;
  if (shape.W == 0 || shape.G == 0) return 0;
  return std::pow(shape.W, share) * std::pow(shape.G, 1 - share);
}

struct Trial {
  LookaheadLaw law;
  double error = 0;
};

// The best f for one alpha and share, in closed form: S - 1 = (E - 1) / f is linear in 1 / f.
Trial best_f(std::span<const LookaheadCell* const> cells, double alpha, double share) {
  double xx = 0, xy = 0, yy = 0;
  for (const LookaheadCell* cell : cells) {
    const double x = lookahead_expected_tokens(alpha, cell->shape.N - 1, branches(cell->shape, share)) - 1;
    const double y = cell->compression() - 1;
    xx += x * x, xy += x * y, yy += y * y;
  }
  const double inverse = xx > 0 ? std::clamp(xy / xx, 1e-6, 1.0) : 1;
  return {{alpha, 1 / inverse, share}, yy - 2 * inverse * xy + inverse * inverse * xx};
}

Trial best_alpha(std::span<const LookaheadCell* const> cells, double share) {
  const auto error = [&](double alpha) { return best_f(cells, alpha, share).error; };
  double at = 0, least = error(0);
  for (int i = 1; i <= kCoarse; ++i) {
    const double alpha = kMostAlpha * i / kCoarse, found = error(alpha);
    if (found < least) least = found, at = alpha;
  }
  const double step = kMostAlpha / kCoarse;
  const auto [alpha, found] = boost::math::tools::brent_find_minima(error, std::max(0.0, at - step),
                                                                    std::min(kMostAlpha, at + step), kBits);
  return best_f(cells, found < least ? alpha : at, share);
}

bool square(std::span<const LookaheadCell* const> cells) {
  return std::ranges::all_of(cells, [](const LookaheadCell* c) { return c->shape.W == c->shape.G; });
}

LookaheadLaw fit(std::span<const LookaheadCell* const> cells) {
  if (cells.size() < 2)
    throw Error({"cells to fit the law of lookahead decoding", fmt::format("{}", cells.size()), "at least 2",
                 "Measure more settings of W, N and G."});
  if (square(cells)) return best_alpha(cells, .5).law;
  const auto error = [&](double share) { return best_alpha(cells, share).error; };
  const double share = boost::math::tools::brent_find_minima(error, 0.0, 1.0, kBits).first;
  return best_alpha(cells, share).law;
}

std::vector<const LookaheadCell*> pointers(std::span<const LookaheadCell> cells) {
  std::vector<const LookaheadCell*> out;
  for (const LookaheadCell& cell : cells) out.push_back(&cell);
  return out;
}

/// t(n) in units of t(1). n need not be whole: counts of rows are averages here. With a narrow window,
/// rounding n would change the time noticeably.
double time_of(const RowTimes& target, double rows) {
  return between_whole_rows(rows, [&](int whole) { return target.ratio(whole); });
}

}  // namespace

int lookahead_rows(const LookaheadShape& shape) { return (shape.W + shape.G) * (shape.N - 1); }

double LookaheadLaw::compression(const LookaheadShape& shape) const {
  return lookahead_step_compression(lookahead_expected_tokens(alpha, shape.N - 1, branches(shape, share)), f);
}

double LookaheadCell::compression() const {
  const double all = std::reduce(tokens.begin(), tokens.end()),
               forwards = std::reduce(steps.begin(), steps.end());
  return require_positive("tokens", all) / require_positive("steps", forwards);
}

LookaheadLaw fit_lookahead(std::span<const LookaheadCell> cells) { return fit(pointers(cells)); }

LookaheadFit analyse_lookahead(std::span<const LookaheadCell> cells, int resamples) {
  LookaheadFit out;
  out.law = fit_lookahead(cells);
  out.share_fitted = !square(pointers(cells));
  for (const LookaheadCell& cell : cells) out.fitted.push_back(out.law.compression(cell.shape));

  std::size_t prompts = cells.front().tokens.size();
  for (const LookaheadCell& cell : cells) prompts = std::min(prompts, cell.tokens.size());
  // All parameters share one bootstrap. The fits of its resamples are kept, and each parameter reads them.
  std::vector<LookaheadLaw> laws;
  const stats::BootstrapOptions options{.resamples = resamples};
  const auto refit = [&](std::span<const std::size_t> drawn) {
    std::vector<LookaheadCell> sample(cells.begin(), cells.end());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      sample[i].tokens.clear();
      sample[i].steps.clear();
      for (const std::size_t prompt : drawn) {
        sample[i].tokens.push_back(cells[i].tokens[prompt]);
        sample[i].steps.push_back(cells[i].steps[prompt]);
      }
    }
    laws.push_back(fit_lookahead(sample));
    return laws.back().alpha;
  };
  out.alpha = stats::bootstrap_interval(prompts, refit, options);
  const auto again = [&](double LookaheadLaw::* member) {
    std::size_t next = 0;
    return stats::bootstrap_interval(
        prompts, [&](std::span<const std::size_t>) { return laws[next++].*member; }, options);
  };
  if (out.alpha) {
    out.f = again(&LookaheadLaw::f);
    if (out.share_fitted) out.share = again(&LookaheadLaw::share);
  }
  return out;
}

LookaheadChoice predict_lookahead(const LookaheadLaw& law, const LookaheadShape& shape,
                                  const RowTimes& target, double row_share) {
  const double compression = law.compression(shape);
  const double rows = std::max(1.0, require_positive("share of rows", row_share) * lookahead_rows(shape));
  return {shape, compression, compression / time_of(target, rows)};
}

LookaheadChoice best_lookahead(const LookaheadLaw& law, const RowTimes& target, int max_width, int max_n,
                               double row_share, const LookaheadChoice& bar) {
  LookaheadChoice best = bar;
  for (int n = 2; n <= max_n; ++n) {
    for (int width = 1; width <= max_width; ++width) {
      const LookaheadChoice choice = predict_lookahead(law, {width, n, width}, target, row_share);
      if (choice.speedup > best.speedup) best = choice;
    }
  }
  return best;
}

std::vector<int> lookahead_device_rows(const LookaheadShape& shape, int devices) {
  if (devices < 1) throw Error({"devices", fmt::format("{}", devices), "at least 1", ""});
  std::vector<int> rows;
  for (int device = 0; device < devices; ++device) {
    const auto from = [&](int total) { return total * device / devices; };
    const auto to = [&](int total) { return total * (device + 1) / devices; };
    const int columns = to(shape.W) - from(shape.W), guesses = to(shape.G) - from(shape.G);
    const int first_level = columns > 0 ? to(shape.W) - 1 : 0;
    rows.push_back(1 + first_level + columns * (shape.N - 2) + guesses * (shape.N - 1));
  }
  return rows;
}

double lookahead_parallel_speedup(const LookaheadLaw& law, const LookaheadShape& shape,
                                  const RowTimes& target, int devices, double exchange) {
  const std::vector<int> parts = lookahead_device_rows(shape, devices);
  const double compression = law.compression(shape), rows = *std::ranges::max_element(parts);
  if (devices == 1) return compression / time_of(target, rows);
  return compression / (time_of(target, rows + compression - 1) + require_non_negative("exchange", exchange));
}

}  // namespace speclab::theory
