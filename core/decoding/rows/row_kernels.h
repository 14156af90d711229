#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/philox.h"
#include "core/base/row_order.h"

/// SIMD loops over one vocabulary row (Highway, the widest instruction set of the CPU). Every result has the
/// same bits for every vector width and on every machine, GPUs included (core/backend/cuda/kernels/law.h):
/// sums have a fixed order, exp and log are our own polynomials, and no multiplication is fused with an
/// addition (FMA). Rows are [vocab], sums are doubles. Nothing allocates.
namespace speclab::row_kernels {

/// The order of every sum over a row. The row is divided into chunks of kSumChunk entries. A chunk has
/// kSumLanes partial sums: entry i is added to partial sum i mod kSumLanes. At the end of the chunk the
/// partial sums are added up, from number 0 on, and the result is added to the total.
inline constexpr std::size_t kSumLanes = speclab::kSumLanes;
inline constexpr std::size_t kSumChunk = speclab::kSumChunk;

/// Sums numbers in this order, for loops that have no kernel. Call add(0, v), add(1, v), ... for all
/// entries, then total().
class FixedSum {
 public:
  void add(std::size_t index, double value) {
    lanes_[index % kSumLanes] += value;
    if (index % kSumChunk == kSumChunk - 1) fold();
  }
  double total() {
    fold();
    return folded_;
  }

 private:
  void fold() {
    double sum = 0;
    for (double& lane : lanes_) {
      sum += lane;
      lane = 0;
    }
    folded_ += sum;
  }
  double lanes_[kSumLanes] = {};
  double folded_ = 0;
};

/// Largest value; -inf for an empty row. Sets `valid` to false when an entry is NaN or +inf.
float max(std::span<const float> row, bool* valid);
/// Smallest index i with row[i] == value, or row.size().
std::size_t find(std::span<const float> row, float value);
/// Largest value of each block of kBlock entries; out [ceil(size / kBlock)].
inline constexpr std::size_t kBlock = 64;
void block_max(std::span<const float> row, std::span<float> out);
/// Number of entries before (value, index) in the order "larger first, ties by index".
std::size_t count_before(std::span<const float> row, float value, std::size_t index);

/// out[i] = exp((row[i] - max) * scale), 0 for results below exp(-87). Returns the sum
/// of out. Relative error below 2e-7.
double exp_row(std::span<const float> row, float max, float scale, std::span<float> out);
double sum(std::span<const float> row);
double sum(std::span<const double> row);

/// A row of weights and the factor that turns them into probabilities.
struct Law {
  std::span<const float> weights;
  double factor;
};
double sum_min(const Law& p, const Law& q);
double sum_product(const Law& p, const Law& q);
/// out[i] = max(0, p[i] - q[i]). Returns the sum of out, with the bits of FixedSum. Entries have the bits of
/// difference_weight() (core/backend/rule_forms.h).
double positive_difference(const Law& p, const Law& q, std::span<double> out);
/// out[i] = max(0, scale law[i] / law_sum - q[i] / q_sum). Returns the sum of out. All rows have one size,
/// and `out` must not overlap the others. Entries have the bits of residual_weight() and path_residual()
/// (core/backend/rule_forms.h), and the sum has the bits of FixedSum.
double next_residual(std::span<const double> law, double law_sum, double scale, std::span<const float> q,
                     double q_sum, std::span<double> out);
/// The sum of min(q[i] / q_sum, scale law[i] / law_sum), with the bits of FixedSum over the entries.
double sum_min_residual(std::span<const double> law, double law_sum, double scale, std::span<const float> q,
                        double q_sum);
/// The sum of min(q[i], law[i] / rho), with the bits of FixedSum over the entries. Both rows have one size.
double sum_min_divided(std::span<const double> law, std::span<const double> q, double rho);
/// The sum of min(q[i], scale p[i]), with the bits of FixedSum over the entries. Both rows have one size.
double sum_min_scaled(std::span<const double> p, std::span<const double> q, double scale);
/// out[i] = max(0, scale p[i] - q[i]). Returns the sum of out, with the bits of FixedSum. Entries have the
/// bits of path_residual() (core/backend/rule_forms.h). All rows have one size.
double positive_difference(std::span<const double> p, double scale, std::span<const double> q,
                           std::span<double> out);
/// sum over w > 0 of w log w.
double sum_w_log_w(std::span<const float> row);

/// Exponential race: returns the argmin over weights[i] > 0 of E_i / weights[i], ties to the lowest index.
/// Returns weights.size() when no weight is positive, or all quotients are infinite in float. E_i is a
/// standard exponential number. For token t it is made from word (t mod 64) / 16 of the Philox output for the
/// counter {c0 + 16 (t / 64) + t mod 16, c1, c2, c3}, with c0 to c3 from `counter`. If the word is x, then
/// E = -log(1 - (x + 1/2) / 2^32). If `arrival` is not null, sets it to E / weight of the winner, or to
/// infinity if there is none.
std::size_t race(std::span<const float> weights, const PhiloxCounter& counter, const PhiloxKey& key,
                 float* arrival = nullptr);
/// out[i] = -log E of token first + i, with E as in race().
void gumbel(std::size_t first, std::span<float> out, const PhiloxCounter& counter, const PhiloxKey& key);

/// Name of the instruction set in use, for environment.json.
const char* target_name();

}  // namespace speclab::row_kernels
