#include "core/decoding/drafting/online/distillation.h"

#include <algorithm>
#include <cstddef>

#include "core/base/error.h"
#include "core/base/exp_log.h"
#include "core/decoding/rows/row_kernels.h"

namespace speclab {
namespace {

constexpr double kLeastTarget = 1e-30;  // reverse_kl takes a smaller p as this number

// The derivative of the objective with respect to one entry of q, up to a constant that is the same for all
// entries and does not change the gradient. q > 0.
double derivative(DistillObjective objective, double p, double q) {
  switch (objective) {
    case DistillObjective::forward_kl: return -p / q;
    case DistillObjective::reverse_kl: return exact_log(q) - exact_log(std::max(p, kLeastTarget));
    case DistillObjective::jsd: return (exact_log(q) - exact_log((p + q) / 2)) / 2;
    case DistillObjective::total_variation: return q > p ? .5 : q < p ? -.5 : 0;
  }
  return 0;
}

}  // namespace

void distillation_gradient(DistillObjective objective, std::span<const float> p, std::span<const float> q,
                           std::span<float> gradient) {
  SPECLAB_CHECK(p.size() == q.size() && q.size() == gradient.size(), "rows of {}, {} and {} entries",
                p.size(), q.size(), gradient.size());
  if (objective == DistillObjective::forward_kl) {  // the general form, without a division
    for (std::size_t i = 0; i < q.size(); ++i) gradient[i] = q[i] - p[i];
    return;
  }
  row_kernels::FixedSum mean;
  for (std::size_t i = 0; i < q.size(); ++i) {
    const double of_entry = q[i] > 0 ? derivative(objective, p[i], q[i]) : 0;
    gradient[i] = static_cast<float>(of_entry);
    mean.add(i, static_cast<double>(q[i]) * of_entry);
  }
  const double center = mean.total();
  for (std::size_t i = 0; i < q.size(); ++i)
    gradient[i] = static_cast<float>(static_cast<double>(q[i]) * (static_cast<double>(gradient[i]) - center));
}

}  // namespace speclab
