#include "core/theory/lookahead_hold_out.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "core/measure/stats.h"

namespace speclab::theory {
namespace {

constexpr std::size_t kLeastCells = 6;     // smallest grid that is tested
constexpr std::size_t kLeastToFit = 3;     // fewest cells for a fit: one more than its parameters alpha and f
constexpr double kTiny = 1e-9;             // tolerance; coordinates are 1 or more
constexpr std::size_t kMostPivots = 1000;  // the simplex method needs about ten pivots

using Prompts = std::vector<std::size_t>;

std::optional<LookaheadCell> of_prompts(const LookaheadCell& cell, const Prompts& prompts) {
  LookaheadCell out{cell.shape, {}, {}};
  double tokens = 0, steps = 0;
  for (const std::size_t i : prompts) {
    out.tokens.push_back(cell.tokens[i]);
    out.steps.push_back(cell.steps[i]);
    tokens += cell.tokens[i], steps += cell.steps[i];
  }
  if (tokens <= 0 || steps <= 0) return std::nullopt;
  return out;
}

/// A fit of the law, and the errors of its predictions for cells or prompts that it has not seen.
class HeldOutTrial {
 public:
  explicit HeldOutTrial(std::span<const LookaheadCell> train) {
    if (train.size() < kLeastToFit) return;
    law_ = fit_lookahead(train);
    for (const LookaheadCell& cell : train) mean_ += cell.compression() / static_cast<double>(train.size());
  }
  explicit operator bool() const { return law_.has_value(); }
  double predict(const LookaheadCell& cell) const { return law_->compression(cell.shape); }
  void test(const LookaheadCell& cell) {
    const double measured = cell.compression();
    errors.push_back(std::abs(predict(cell) / measured - 1));
    mean_errors.push_back(std::abs(mean_ / measured - 1));
  }
  std::vector<double> errors, mean_errors;

 private:
  std::optional<LookaheadLaw> law_;
  double mean_ = 0;
};

struct Errors {
  std::vector<double> law, mean;
  void add(const HeldOutTrial& trial) {
    law.insert(law.end(), trial.errors.begin(), trial.errors.end());
    mean.insert(mean.end(), trial.mean_errors.begin(), trial.mean_errors.end());
  }
  std::optional<LookaheadTest> summary() const {
    if (law.empty()) return std::nullopt;
    return LookaheadTest{static_cast<int>(law.size()), stats::median(law), stats::median(mean)};
  }
};

/// Divides the grid into parts. For each part it fits the law to the other parts and tests it on this part.
/// `left_out[i]` is the part of cell i.
LookaheadHoldOut leave_out(const std::string& what, std::span<const LookaheadCell> cells,
                           const std::vector<int>& left_out, const std::array<Prompts, 2>& halves) {
  LookaheadHoldOut out{what, {}, std::vector<bool>(cells.size(), false), {}, {}};
  out.predicted.resize(cells.size());
  Errors same, other;
  for (const int part : std::set<int>(left_out.begin(), left_out.end())) {
    const auto fits = [&](std::size_t i) { return left_out[i] != part; };
    std::vector<LookaheadCell> train;
    std::vector<LookaheadShape> shapes;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (fits(i)) train.push_back(cells[i]), shapes.push_back(cells[i].shape);
    }
    HeldOutTrial trial(train);
    if (!trial) continue;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (fits(i)) continue;
      out.predicted[i] = trial.predict(cells[i]);
      out.interpolated[i] = in_hull(shapes, cells[i].shape);
      trial.test(cells[i]);
    }
    same.add(trial);
    for (const std::size_t half : {0u, 1u}) {
      std::vector<LookaheadCell> seen;
      for (const LookaheadCell& cell : train) {
        if (auto some = of_prompts(cell, halves[half])) seen.push_back(std::move(*some));
      }
      HeldOutTrial unseen(seen);
      if (!unseen) continue;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        if (fits(i)) continue;
        if (const auto cell = of_prompts(cells[i], halves[1 - half])) unseen.test(*cell);
      }
      other.add(unseen);
    }
  }
  out.same_prompts = same.summary();
  out.other_prompts = other.summary();
  return out;
}

LookaheadHoldOut leave_prompts_out(std::span<const LookaheadCell> cells,
                                   const std::array<Prompts, 2>& halves) {
  LookaheadHoldOut out{"prompts", {}, std::vector<bool>(cells.size(), true), {}, {}};
  Errors errors;
  for (const std::size_t half : {0u, 1u}) {
    std::vector<LookaheadCell> seen;
    for (const LookaheadCell& cell : cells) {
      if (auto some = of_prompts(cell, halves[half])) seen.push_back(std::move(*some));
    }
    HeldOutTrial trial(seen);
    if (!trial) continue;
    for (const LookaheadCell& cell : cells) {
      if (const auto unseen = of_prompts(cell, halves[1 - half])) trial.test(*unseen);
    }
    errors.add(trial);
  }
  out.other_prompts = errors.summary();
  return out;
}

}  // namespace

std::vector<LookaheadHoldOut> hold_out_lookahead(std::span<const LookaheadCell> cells) {
  std::vector<LookaheadHoldOut> out;
  if (cells.size() < kLeastCells) return out;
  std::size_t prompts = cells.front().tokens.size();
  for (const LookaheadCell& cell : cells) prompts = std::min(prompts, cell.tokens.size());
  std::array<Prompts, 2> halves;
  for (std::size_t i = 0; i < prompts; ++i) halves[i % 2].push_back(i);
  if (prompts >= 2) out.push_back(leave_prompts_out(cells, halves));

  std::vector<std::size_t> order(cells.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return lookahead_rows(cells[i].shape); });
  std::vector<int> part(cells.size());
  for (std::size_t i = 0; i < order.size(); ++i) part[order[i]] = static_cast<int>(i % 2);
  out.push_back(leave_out("cells", cells, part, halves));

  const bool square =
      std::ranges::all_of(cells, [](const LookaheadCell& c) { return c.shape.W == c.shape.G; });
  const auto along = [&](const char* what, int LookaheadShape::* axis) {
    for (std::size_t i = 0; i < cells.size(); ++i) part[i] = cells[i].shape.*axis;
    if (std::set<int>(part.begin(), part.end()).size() < 2) return;
    LookaheadHoldOut found = leave_out(what, cells, part, halves);
    if (found.same_prompts) out.push_back(std::move(found));
  };
  along("W", &LookaheadShape::W);
  along("N", &LookaheadShape::N);
  if (!square) along("G", &LookaheadShape::G);
  return out;
}

// Phase one of the simplex method with Bland's rule. It looks for non-negative weights that sum to 1 and with
// which the weighted mean of the points is `shape`. Coordinates are not negative, so the artificial variables
// are a first solution.
bool in_hull(std::span<const LookaheadShape> points, const LookaheadShape& shape) {
  constexpr std::size_t kRows = 4;
  const std::size_t n = points.size();
  std::array<std::vector<double>, kRows + 1> table;  // the last row: sum of the artificial variables
  for (std::size_t j = 0; j <= n; ++j) {
    const LookaheadShape& p = j < n ? points[j] : shape;
    const std::array<double, kRows> column = {static_cast<double>(p.W), static_cast<double>(p.N),
                                              static_cast<double>(p.G), 1.0};
    for (std::size_t i = 0; i < kRows; ++i) table[i].push_back(column[i]);
    table[kRows].push_back(std::reduce(column.begin(), column.end()));
  }
  std::array<std::size_t, kRows> basis;
  for (std::size_t i = 0; i < kRows; ++i) basis[i] = n + i;
  for (std::size_t pivots = 0; pivots < kMostPivots && table[kRows][n] > kTiny; ++pivots) {
    std::size_t enter = 0;
    while (enter < n && table[kRows][enter] <= kTiny) ++enter;
    if (enter == n) return false;
    std::size_t leave = kRows;
    double least = 0;
    for (std::size_t i = 0; i < kRows; ++i) {
      if (table[i][enter] <= kTiny) continue;
      const double ratio = table[i][n] / table[i][enter];
      if (leave == kRows || ratio < least - kTiny || (ratio < least + kTiny && basis[i] < basis[leave]))
        leave = i, least = ratio;
    }
    if (leave == kRows) return false;
    const double pivot = table[leave][enter];
    for (double& value : table[leave]) value /= pivot;
    for (std::size_t i = 0; i <= kRows; ++i) {
      const double factor = table[i][enter];
      if (i == leave || factor == 0) continue;
      for (std::size_t j = 0; j <= n; ++j) table[i][j] -= factor * table[leave][j];
    }
    basis[leave] = enter;
  }
  return table[kRows][n] <= kTiny;
}

}  // namespace speclab::theory
