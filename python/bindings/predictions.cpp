#include "core/theory/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/theory/cascade.h"
#include "core/theory/conversions.h"
#include "core/theory/verifier_bounds.h"
#include "python/bindings/bindings.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace speclab::python {
namespace {

using theory::Prediction;
using Number = std::optional<double>;
using Whole = std::optional<int>;
using Numbers = std::optional<std::vector<double>>;

/// Throws Error if exactly one of `has` and `has_partner` is true.
void require_both(const char* name, bool has, const char* partner, bool has_partner) {
  if (has == has_partner) return;
  throw Error({has ? name : partner, fmt::format("no {}", has ? partner : name),
               fmt::format("{} together with {}", name, partner), ""});
}

/// Computes what `speclab theory` prints. With the rows p and q, alpha is the sum of min(p, q).
std::vector<Prediction> predictions(Number alpha, Whole gamma, Number c, Number c_hat,
                                    const std::optional<theory::RowTimes>& t, const Numbers& acceptance,
                                    Number tau, Number r, Number speedup, Number utilization,
                                    const Numbers& p, const Numbers& q, int k, Number alpha2, Whole gamma2,
                                    Number c2, Whole rounds,
                                    const std::optional<theory::LookaheadShape>& lookahead, Number f,
                                    Number share, int max_gamma) {
  require_both("p", p.has_value(), "q", q.has_value());
  require_both("alpha2", alpha2.has_value(), "gamma2", gamma2.has_value());
  if (p && alpha)
    throw Error({"alpha", "alpha and p", "only one of them", "The rows give alpha: the sum of min(p, q)."});
  theory::PredictionInputs inputs;
  std::vector<Prediction> found;
  if (p) {
    found = theory::verifier_bounds({*p, *q, k, gamma});
    alpha = std::min(1.0, theory::row_overlap(*p, *q));
  }
  inputs.alpha = alpha, inputs.gamma = gamma, inputs.c = c, inputs.c_hat = c_hat, inputs.target = t;
  inputs.acceptance = acceptance.value_or(std::vector<double>{});
  inputs.tau = tau, inputs.r = r, inputs.speedup = speedup;
  inputs.lookahead = lookahead, inputs.f = f, inputs.share = share, inputs.max_gamma = max_gamma;
  const theory::CascadeInputs cascade{.alpha = alpha,
                                      .alpha2 = alpha2,
                                      .c = c,
                                      .c2 = c2.value_or(0),
                                      .gamma = gamma,
                                      .gamma2 = gamma2,
                                      .rounds = rounds};
  std::ranges::move(theory::predictions(inputs), std::back_inserter(found));
  std::ranges::move(theory::conversions(inputs, utilization), std::back_inserter(found));
  std::ranges::move(theory::cascade_predictions(cascade), std::back_inserter(found));
  return found;
}

}  // namespace

void bind_predictions(nb::module_& module) {
  nb::class_<Prediction>(module, "Prediction", "The value of one formula.")
      .def_ro("name", &Prediction::name, "the key in a record, such as leviathan_3_8")
      .def_ro("value", &Prediction::value)
      .def_ro("quantity", &Prediction::quantity, "the metric: tau, speedup, gamma, alpha, ...")
      .def_ro("equation", &Prediction::equation)
      .def_ro("assumptions", &Prediction::assumptions)
      .def_prop_ro(
          "kind", [](const Prediction& one) { return std::string(theory::to_string(one.kind)); },
          "prediction, identity, bound or optimum")
      .def("__repr__", [](const Prediction& one) {
        return fmt::format("Prediction({}: {} = {:.6g})", one.name, one.quantity, one.value);
      });
  module.def(
      "predictions", &predictions, nb::kw_only(), "alpha"_a = nb::none(), "gamma"_a = nb::none(),
      "c"_a = nb::none(), "c_hat"_a = nb::none(), "t"_a = nb::none(), "acceptance"_a = nb::none(),
      "tau"_a = nb::none(), "r"_a = nb::none(), "speedup"_a = nb::none(), "utilization"_a = nb::none(),
      "p"_a = nb::none(), "q"_a = nb::none(), "k"_a = 1, "alpha2"_a = nb::none(), "gamma2"_a = nb::none(),
      "c2"_a = nb::none(), "rounds"_a = nb::none(), "lookahead"_a = nb::none(), "f"_a = nb::none(),
      "share"_a = nb::none(), "max_gamma"_a = 64,
      R"(Every closed form whose inputs are known, in the order of `speclab theory`, which takes the same options.

alpha: P(accept | tested). gamma: drafted tokens per step. c: time of a draft forward / time of a target forward. c_hat: the same ratio in operations.
t: RowTimes of the target, as measured. acceptance: P(accept | tested) by position. tau, speedup: measured. r: tau / (gamma + 1).
utilization: accepted / drafted tokens; it needs gamma. p, q: rows of one position (then alpha follows from
them). k: number of drafted children of a node.
alpha2, gamma2, c2: alpha, gamma and c of draft 2 of a cascade. rounds: rounds of a vertical cascade; without it the cascade is horizontal.
lookahead: a LookaheadShape. f, share: as in LookaheadLaw. max_gamma: largest gamma of the search for the best one.)");
}

}  // namespace speclab::python
