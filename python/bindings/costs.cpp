#include <nanobind/stl/map.h>

#include <map>

#include "core/theory/step_costs.h"
#include "python/bindings/bindings.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace speclab::python {

void bind_costs(nb::module_& module) {
  using theory::RowTimes;
  nb::class_<RowTimes>(module, "RowTimes",
                       R"(Time of a target forward over n rows, measured at some n and linear between them.

Beyond the last measured n the last slope continues; if it is negative, the time stays constant. The times
may have any unit.)")
      .def(nb::init<std::map<int, double>>(), "times"_a,
           "times: {rows: time}. The smallest number of rows must be 1.")
      .def("at", &RowTimes::at, "rows"_a, "The time of a forward over this number of rows.")
      .def("ratio", &RowTimes::ratio, "rows"_a, "t(n): time of this number of rows / time of one row.")
      .def("monotone", &RowTimes::monotone,
           "RowTimes with the non-decreasing times that fit the given times best in least squares "
           "(Ayer et al. 1955).")
      .def_prop_ro("largest_measured", &RowTimes::largest_measured);
  module.def(
      "positional_expected_tokens",
      [](const std::vector<double>& acceptance) { return theory::positional_expected_tokens(acceptance); },
      "acceptance"_a,
      R"(E[tau] = 1 + sum over i of the product of the first i acceptances, which need not be independent.

acceptance: P(token i + 1 is accepted | it is tested) by position i, [gamma].)");
  module.def("mixture_expected_tokens", &theory::mixture_expected_tokens, "alpha"_a, "lengths"_a,
             R"(E[tau] if draft lengths vary. lengths[g]: number (or share) of steps that draft g tokens.)");
  module.def("mixture_speedup", &theory::mixture_speedup, "alpha"_a, "c"_a, "lengths"_a, "target"_a,
             "Expected speedup if draft lengths vary, with the measured times of the target.");
  module.def("optimal_gamma_at_costs", &theory::optimal_gamma_at_costs, "alpha"_a, "c"_a, "target"_a,
             "max_gamma"_a,
             "The gamma that maximises E[tau] / (gamma c + t(gamma + 1)), with t(n) = target.monotone().");
  module.def(
      "optimal_gamma_positional",
      [](const std::vector<double>& acceptance, double c, const RowTimes& target) {
        return theory::optimal_gamma_positional(acceptance, c, target);
      },
      "acceptance"_a, "c"_a, "target"_a,
      "The same as optimal_gamma_at_costs, with one acceptance for each position of the draft. The length "
      "of the list is the largest gamma.");
  module.def(
      "measured_cost_speedup",
      [](double tau, double t_ar, double draft, double target, double accept, double other) {
        return theory::measured_cost_speedup(tau, {t_ar, draft, target, accept, other});
      },
      "tau"_a, "t_ar"_a, nb::kw_only(), "draft"_a, "target"_a, "accept"_a = 0.0, "other"_a = 0.0,
      R"(Speedup from measured times: tau t_ar / (draft + target + accept + other).

t_ar: an autoregressive step. The other times are those of a speculative step. All times have one unit.)");
  module.def("chen_r", &theory::chen_r, "tau"_a, "k"_a,
             "r' = tau / (K + 1), as reports that follow Chen et al. 2023 give it. It is not alpha.");
  module.def("chen_ratio", &theory::chen_ratio, "r"_a, "k"_a, "t_draft"_a, "t_target"_a,
             "Speedup r'(K + 1) t_target / (K t_draft + t_target); both times in one unit.");
}

}  // namespace speclab::python
