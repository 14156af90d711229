#include "core/theory/cascade.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/theory/chain.h"
#include "core/theory/domain.h"

namespace speclab::theory {

// Returns phi(x) of the header. Its fraction is Eq. 1 of Leviathan et al. 2023 at alpha2 x.
double round_generating_function(double alpha2, int k, double x) {
  require_probability("alpha2", alpha2);
  require_probability("x", x);
  require_gamma("gamma2", k);
  return 1 + (x - 1) * expected_tokens(alpha2 * x, k);
}

// The form 1 + alpha1 (1 - phi^n) / (1 - alpha1) with 1 - phi = (1 - alpha1) S loses no digits near alpha1
// = 1.
double vertical_tokens(const VerticalCascade& cascade) {
  const double a = require_probability("alpha", cascade.alpha1);
  require_probability("alpha2", cascade.alpha2);
  require_gamma("gamma2", cascade.k);
  const double n = require_gamma("rounds", cascade.rounds);
  const double tokens = expected_tokens(cascade.alpha2 * a, cascade.k);  // S
  if (a == 1) return 1 + n * tokens;
  if (n == 0) return 1;
  return 1 - a * std::expm1(n * std::log1p(-(1 - a) * tokens)) / (1 - a);
}

double vertical_improvement(const VerticalCascade& cascade) {
  const double c1 = require_non_negative("c", cascade.c1), c2 = require_non_negative("c2", cascade.c2);
  return vertical_tokens(cascade) / (1 + cascade.rounds * (c1 + cascade.k * c2));
}

double horizontal_tokens(const HorizontalCascade& cascade) {
  require_probability("alpha2", cascade.alpha2);
  require_gamma("gamma2", cascade.k2);
  const double first = expected_tokens(cascade.alpha1, cascade.k1);
  return first + std::pow(cascade.alpha1, cascade.k1) * (expected_tokens(cascade.alpha2, cascade.k2) - 1);
}

double horizontal_improvement(const HorizontalCascade& cascade) {
  const double c1 = require_non_negative("c", cascade.c1), c2 = require_non_negative("c2", cascade.c2);
  return horizontal_tokens(cascade) / (1 + cascade.k1 * c1 + cascade.k2 * c2);
}

namespace {

/// Computes the expected forwards of a MatrixCascade, whose lists have been checked.
class Forwards {
 public:
  explicit Forwards(const MatrixCascade& cascade)
      : cascade_(cascade), n_(cascade.drafts), known_(static_cast<std::size_t>(n_)) {}

  /// Adds the forwards for a chain by row `row` of the matrix k, with at most `limit` tokens.
  void add_chain(int row, int limit, double weight, std::vector<double>& sums) {
    int first = 0;
    for (int draft = row; draft < n_; ++draft) {
      const int until = std::min(limit, first + at(cascade_.k, row, draft));
      add_tokens(draft, until - first, weight, sums);
      first = until;
    }
  }
  /// Adds the forwards for `tokens` tokens that a draft hands in.
  void add_tokens(int draft, int tokens, double weight, std::vector<double>& sums) {
    const std::vector<double>& forwards = of(draft, tokens);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weight * forwards[i];
  }

 private:
  template <class T>
  T at(const std::vector<T>& matrix, int row, int column) const {
    return matrix[static_cast<std::size_t>(row * n_ + column)];
  }

  // [n]: the expected forwards when a draft hands in `tokens` tokens.
  const std::vector<double>& of(int draft, int tokens) {
    std::vector<std::vector<double>>& list = known_[static_cast<std::size_t>(draft)];
    while (static_cast<int>(list.size()) <= tokens) {
      const int room = static_cast<int>(list.size());
      std::vector<double> sums(static_cast<std::size_t>(n_), 0.0);
      if (room > 0) {
        sums[static_cast<std::size_t>(draft)] = 1;
        add_round(draft, room, sums);
      }
      list.push_back(std::move(sums));
    }
    return list[static_cast<std::size_t>(tokens)];
  }

  // Adds the forwards for the chain that the draft reviews in a round, and for the tokens that are missing
  // after the round.
  void add_round(int draft, int room, std::vector<double>& sums) {
    double reached = 1;  // P(all places before are kept)
    int place = 0;
    const int row = draft + 1;
    if (row < n_) {
      add_chain(row, room - 1, 1, sums);
      int until = 0;
      for (int from = row; from < n_; ++from) {
        until = std::min(room - 1, until + at(cascade_.k, row, from));
        for (; place < until; ++place) {
          const double keeps = at(cascade_.kept, row, from);
          add_tokens(draft, room - 1 - place, reached * (1 - keeps), sums);
          reached *= keeps;
        }
      }
    }
    add_tokens(draft, room - 1 - place, reached, sums);
  }

  const MatrixCascade& cascade_;
  int n_;
  std::vector<std::vector<std::vector<double>>> known_;  // [n][tokens][n]
};

void check_matrix(const MatrixCascade& cascade, std::span<const int> chain) {
  const auto n = static_cast<std::size_t>(require_range("drafts", cascade.drafts, 1, 16));
  const auto require_size = [](const char* name, std::size_t size, std::size_t wanted) {
    if (size != wanted)
      throw Error({std::string("matrix K: ") + name, std::to_string(size) + " numbers",
                   std::to_string(wanted) + " numbers", ""});
  };
  require_size("k", cascade.k.size(), n * n);
  require_size("kept", cascade.kept.size(), n * n);
  require_size("c", cascade.c.size(), n);
  require_size("chain", chain.size(), n);
  for (std::size_t i = 0; i < n; ++i) {
    require_non_negative("c", cascade.c[i]);
    require_range("tokens of a draft", chain[i], 0, MatrixCascade::kMostTokens);
    for (std::size_t j = i; j < n; ++j) {
      require_range("k", cascade.k[i * n + j], 0, MatrixCascade::kMostTokens);
      require_probability("kept", cascade.kept[i * n + j]);
    }
  }
}

}  // namespace

std::vector<int> full_chain(const MatrixCascade& cascade) {
  const auto n = std::min(cascade.k.size(), static_cast<std::size_t>(std::max(cascade.drafts, 0)));
  return {cascade.k.begin(), cascade.k.begin() + static_cast<std::ptrdiff_t>(n)};
}

double matrix_tokens(const MatrixCascade& cascade, std::span<const int> chain) {
  check_matrix(cascade, chain);
  double tokens = 1, reached = 1;
  for (std::size_t draft = 0; draft < chain.size(); ++draft) {
    for (int i = 0; i < chain[draft]; ++i) tokens += reached *= cascade.kept[draft];
  }
  return tokens;
}

std::vector<double> matrix_forwards(const MatrixCascade& cascade, std::span<const int> chain) {
  check_matrix(cascade, chain);
  std::vector<double> sums(chain.size(), 0.0);
  Forwards forwards(cascade);
  for (std::size_t draft = 0; draft < chain.size(); ++draft)
    forwards.add_tokens(static_cast<int>(draft), chain[draft], 1, sums);
  return sums;
}

double matrix_draft_time(const MatrixCascade& cascade, std::span<const int> chain) {
  const std::vector<double> forwards = matrix_forwards(cascade, chain);
  double time = 0;
  for (std::size_t i = 0; i < forwards.size(); ++i) time += forwards[i] * cascade.c[i];
  return time;
}

double matrix_improvement(const MatrixCascade& cascade) {
  const std::vector<int> chain = full_chain(cascade);
  return matrix_tokens(cascade, chain) / (1 + matrix_draft_time(cascade, chain));
}

std::vector<Prediction> cascade_predictions(const CascadeInputs& in) {
  std::vector<Prediction> out;
  if (!in.alpha || !in.alpha2 || !in.gamma2) return out;
  const bool costs = in.c && in.c2;
  const double c1 = in.c.value_or(0), c2 = in.c2.value_or(0);
  const auto add = [&](const char* name, double value, const char* quantity, const char* equation,
                       std::string assumptions) {
    out.push_back({name, value, quantity, equation, std::move(assumptions), PredictionKind::prediction, {}});
  };
  const std::string same = "acceptances independent and equal in all positions";
  if (in.rounds) {
    const VerticalCascade cascade{*in.alpha, *in.alpha2, *in.rounds, *in.gamma2, c1, c2};
    add("cascade_vertical", vertical_tokens(cascade), "tau",
        "(1 - alpha phi(alpha)^n) / (1 - alpha), phi of alpha2 and gamma2 (Chen et al. 2023)",
        same + "; draft 1 reviews gamma2 tokens of draft 2 in each of n rounds");
    if (costs)
      add("cascade_vertical_ewif", vertical_improvement(cascade), "speedup",
          "E[tau] / (1 + n c + n gamma2 c2) (Chen et al. 2023)", same + "; t(n) = 1; no overhead");
  } else if (in.gamma) {
    const HorizontalCascade cascade{*in.alpha, *in.alpha2, *in.gamma, *in.gamma2, c1, c2};
    add("cascade_horizontal", horizontal_tokens(cascade), "tau",
        "(1 - alpha^(gamma+1)) / (1 - alpha) + alpha^gamma alpha2 (1 - alpha2^gamma2) / (1 - alpha2) "
        "(Chen et al. 2023)",
        same + "; gamma tokens of draft 1, then gamma2 of draft 2");
    if (costs)
      add("cascade_horizontal_ewif", horizontal_improvement(cascade), "speedup",
          "E[tau] / (1 + gamma c + gamma2 c2) (Chen et al. 2023)", same + "; t(n) = 1; no overhead");
  }
  return out;
}

}  // namespace speclab::theory
