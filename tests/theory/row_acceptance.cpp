#include "tests/theory/row_acceptance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

void require_row(const char* name, Row row) {
  double sum = 0;
  for (double value : row) sum += require_non_negative(name, value);
  if (!(std::abs(sum - 1) <= 1e-4))
    throw Error({name, fmt::format("a row with sum {}", sum), "sum 1", "Normalise the row first."});
}

void require_pair(Row p, Row q) {
  if (p.size() != q.size()) {
    throw Error(
        {"rows p and q", fmt::format("{} and {} entries", p.size(), q.size()), "the same vocabulary", ""});
  }
  require_row("p", p);
  require_row("q", q);
}

double require_lenience(const char* name, double l) {
  require_probability(name, l);
  return require_positive(name, l);
}

/// The accepted mass min(p / l, q), plus the rejected mass in proportion to (p - scale q)+.
std::vector<double> lossy_law(Row p, Row q, double l, double scale) {
  std::vector<double> law(p.size()), residual(p.size());
  double accepted = 0, mass = 0;
  for (std::size_t x = 0; x < p.size(); ++x) {
    law[x] = std::min(p[x] / l, q[x]);
    residual[x] = std::max(0.0, p[x] - scale * q[x]);
    accepted += law[x];
    mass += residual[x];
  }
  // The mass is 0 only for p == q, when nothing is rejected either. Then use p, as the verifier does.
  for (std::size_t x = 0; x < p.size(); ++x)
    law[x] += (1 - accepted) * (mass > 0 ? residual[x] / mass : p[x]);
  return law;
}

}  // namespace

double accept_rejection(Row p, Row q) {
  require_pair(p, q);
  double sum = 0;
  for (std::size_t x = 0; x < p.size(); ++x) sum += std::min(p[x], q[x]);
  return sum;
}

double accept_sample_match(Row p, Row q) {
  require_pair(p, q);
  return std::inner_product(p.begin(), p.end(), q.begin(), 0.0);
}

double accept_one_hot(Row p, std::size_t x) {
  require_row("p", p);
  if (x >= p.size())
    throw Error({"draft token", fmt::format("{}", x), fmt::format("an id below {}", p.size()), ""});
  return p[x];
}

double accept_greedy(Row p, Row q) {
  require_pair(p, q);
  return std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin();
}

double accept_non_iterative(Row p, Row q) {
  require_pair(p, q);
  double smallest = std::numeric_limits<double>::infinity();
  for (std::size_t x = 0; x < p.size(); ++x) {
    if (p[x] > 0) smallest = std::min(smallest, q[x] / p[x]);
  }
  return smallest;
}

double accept_lenient(Row p, Row q, double l) {
  require_pair(p, q);
  require_lenience("l", l);
  double sum = 0;
  for (std::size_t x = 0; x < p.size(); ++x) sum += std::min(p[x] / l, q[x]);
  return sum;
}

double accept_gumbel(Row p, Row q) {
  require_pair(p, q);
  // max(p_y / p_x, q_y / q_x) is its first argument if p_y / q_y >= p_x / q_x. With tokens sorted by falling
  // p / q, the inner sum is therefore (prefix sum of p) / p_x + (suffix sum of q) / q_x. Tokens of equal
  // ratio may be on either side.
  std::vector<std::size_t> order;
  for (std::size_t x = 0; x < p.size(); ++x) {
    if (p[x] > 0 || q[x] > 0) order.push_back(x);
  }
  auto ratio = [&](std::size_t x) {
    return q[x] > 0 ? p[x] / q[x] : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ratio(a) > ratio(b); });
  double suffix_q = std::accumulate(q.begin(), q.end(), 0.0), prefix_p = 0, sum = 0;
  for (std::size_t x : order) {
    prefix_p += p[x];
    suffix_q = std::max(0.0, suffix_q - q[x]);
    if (p[x] > 0 && q[x] > 0) sum += 1 / (prefix_p / p[x] + suffix_q / q[x]);
  }
  return sum;
}

double total_variation(Row p, Row q) {
  require_pair(p, q);
  double sum = 0;
  for (std::size_t x = 0; x < p.size(); ++x) sum += std::max(0.0, p[x] - q[x]);
  return sum;
}

std::vector<double> law_lenient(Row p, Row q, double l) {
  require_pair(p, q);
  require_lenience("l", l);
  return lossy_law(p, q, l, l);
}

std::vector<double> law_uniform_b(Row p, Row q, double b) {
  require_pair(p, q);
  require_lenience("b", b);
  return lossy_law(p, q, b, 1);
}

}  // namespace speclab::theory
