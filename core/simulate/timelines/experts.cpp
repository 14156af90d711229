#include "core/simulate/timelines/experts.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::simulate {

void require_experts(const Experts& experts, const std::string& where) {
  if (experts.experts >= 1 && experts.active >= 1 && experts.active <= experts.experts && experts.width >= 0)
    return;
  throw Error(
      {.what = where,
       .got = fmt::format("{} of {} experts of width {}", experts.active, experts.experts, experts.width),
       .expected = "at least one expert, 1 to all of the experts per token, and a width of 0 or more",
       .advice = ""});
}

double expected_experts(const Experts& experts, double tokens) {
  require_experts(experts, "a mixture of experts");
  theory::require_non_negative("tokens", tokens);
  const double all = experts.experts, share = experts.active / all;
  // log1p and expm1 lose no digits when `active` is much smaller than `experts`.
  return share >= 1 ? (tokens > 0 ? all : 0) : -all * std::expm1(tokens * std::log1p(-share));
}

theory::ForwardCost experts_cost(const theory::DecoderShape& shape, const Experts& experts,
                                 const theory::ForwardSize& size, int batch) {
  theory::DecoderShape without = shape, one = shape;
  without.ffn = 0;
  if (experts.width > 0) one.ffn = experts.width;
  const theory::ForwardCost dense = theory::forward_cost(without, size),
                            with_one = theory::forward_cost(one, size);
  theory::ForwardCost cost = theory::batch_cost(dense, batch);
  cost.body_flops += batch * experts.active * (with_one.body_flops - dense.body_flops);
  cost.weight_bytes += expected_experts(experts, static_cast<double>(size.tokens) * batch) *
                       (with_one.weight_bytes - dense.weight_bytes);
  return cost;
}

}  // namespace speclab::simulate
