#include "core/theory/alpha_estimators.h"

#include <fmt/format.h>

#include "python/bindings/bindings.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace speclab::python {
namespace {

using theory::Estimate, theory::PositionAcceptance, theory::Test;
using Run = std::vector<PromptRounds>;  // [prompts][rounds]
using Estimator = std::optional<Estimate> (*)(theory::RunRounds, const stats::BootstrapOptions&);

void bind_estimator(nb::module_& module, const char* name, Estimator estimator, const char* doc) {
  module.def(
      name,
      [estimator](const Run& rounds, int resamples, std::uint64_t seed, double level) {
        return estimator(rounds, {resamples, seed, level});
      },
      "rounds"_a, nb::kw_only(), "resamples"_a = stats::BootstrapOptions{}.resamples,
      "seed"_a = stats::BootstrapOptions{}.seed, "level"_a = stats::BootstrapOptions{}.level, doc);
}

void bind_results(nb::module_& module) {
  nb::class_<Estimate>(module, "Estimate", "An estimate from sums over a run, with intervals.")
      .def_ro("value", &Estimate::value)
      .def_ro("terms", &Estimate::terms,
              "number of acceptance tests, positions, drafted tokens or steps behind the value")
      .def_prop_ro(
          "ci", [](const Estimate& one) { return as_pair(one.ci); },
          "bootstrap interval over prompts: the interval to report")
      .def_prop_ro(
          "wilson", [](const Estimate& one) { return as_pair(one.wilson); },
          "Wilson's interval, only for proportions; assumes independent tests")
      .def("__repr__", [](const Estimate& one) {
        const std::string ci = one.ci ? fmt::format("({:.6g}, {:.6g})", one.ci->lo, one.ci->hi) : "None";
        return fmt::format("Estimate(value={:.6g}, terms={:.6g}, ci={})", one.value, one.terms, ci);
      });
  nb::class_<PositionAcceptance>(module, "PositionAcceptance", "Acceptance at one position of the draft.")
      .def_ro("accepted", &PositionAcceptance::accepted)
      .def_ro("rejected", &PositionAcceptance::rejected)
      .def_ro("acceptance", &PositionAcceptance::acceptance, "P(accept | tested)")
      .def_ro("joint", &PositionAcceptance::joint, "running product of acceptance")
      .def_prop_ro("wilson", [](const PositionAcceptance& one) { return as_pair(one.wilson); });
  nb::class_<Test>(module, "Test", "The result of a chi-squared test.")
      .def_ro("statistic", &Test::statistic)
      .def_ro("degrees", &Test::degrees, "degrees of freedom")
      .def_ro("p_value", &Test::p_value)
      .def("__repr__", [](const Test& test) {
        return fmt::format("Test(statistic={:.6g}, degrees={:.6g}, p_value={:.6g})", test.statistic,
                           test.degrees, test.p_value);
      });
  nb::class_<theory::Agreement>(module, "Agreement",
                                "Whether alpha_mle and alpha_min estimate the same number.")
      .def_ro("difference", &theory::Agreement::difference, "alpha_mle - alpha_min")
      .def_ro("z", &theory::Agreement::z)
      .def_ro("p_value", &theory::Agreement::p_value, "two-sided");
  nb::class_<theory::SerialCorrelation>(module, "SerialCorrelation",
                                        "Whether neighbouring steps of a prompt resemble each other.")
      .def_ro("lag1", &theory::SerialCorrelation::lag1,
              "autocorrelation of the number of accepted tokens in neighbouring steps")
      .def_ro("ljung_box", &theory::SerialCorrelation::ljung_box,
              "test of the autocorrelations at lags 1 to `lags` (Ljung and Box 1978)");
  nb::class_<theory::AlphaDrift>(module, "AlphaDrift", "Whether alpha is the same along the texts.")
      .def_prop_ro(
          "alpha",
          [](const theory::AlphaDrift& one) {
            return std::vector<double>(one.alpha.begin(), one.alpha.end());
          },
          "accepted / tested tokens in the first, middle and last third of the steps of each prompt")
      .def_ro("chi2", &theory::AlphaDrift::chi2, "test within prompts, 2 degrees of freedom");
  nb::class_<theory::Dispersion>(module, "Dispersion", "Whether prompts differ in alpha by more than chance.")
      .def_ro("factor", &theory::Dispersion::factor, "about 1 if prompts differ by chance alone")
      .def_ro("chi2", &theory::Dispersion::chi2);
}

}  // namespace

void bind_estimators(nb::module_& module) {
  bind_results(module);
  bind_estimator(
      module, "alpha_mle", theory::alpha_mle,
      R"(The maximum-likelihood estimate of alpha: accepted / (accepted + rejections). In a record this is the metric `alpha`.

rounds: [prompts][rounds] of one repeat, as Run.rounds() returns them. level: confidence level of the
interval. None if no token was tested.)");
  bind_estimator(module, "alpha_min", theory::alpha_min,
                 "The mean of the rule's expected acceptance at tested positions. It estimates alpha with "
                 "less noise than alpha_mle. Rounds that lack an expected acceptance add 0 to the sum. None "
                 "if no token was tested.");
  bind_estimator(module, "draft_utilization", theory::draft_utilization,
                 "Accepted / drafted tokens, which llama.cpp and vLLM call acceptance rate. As an estimate "
                 "of alpha it is too low.");
  bind_estimator(
      module, "tokens_over_eq1", theory::tokens_over_eq1,
      R"(Measured tau / the tau of Leviathan et al. 2023, Eq. 1, at alpha_mle and the draft length of each step.

1 for i.i.d. acceptance, above 1 if acceptance falls along the draft, below 1 if it rises.)");
  module.def(
      "alpha_teacher_forced",
      [](const std::vector<std::vector<double>>& expected) { return theory::alpha_teacher_forced(expected); },
      "expected"_a,
      "The mean of `expected`, [prompts][positions]: the rule's expected acceptance at every position of "
      "texts that the target wrote.");
  module.def("expected_draft_utilization", &theory::expected_draft_utilization, "alpha"_a, "gamma"_a,
             "Expected accepted / drafted tokens: alpha (1 - alpha^gamma) / (gamma (1 - alpha)).");
  module.def("alpha_from_utilization", &theory::alpha_from_utilization, "utilization"_a, "gamma"_a,
             "The alpha for which expected_draft_utilization gives this utilization at this gamma.");
  module.def(
      "estimators_agree", [](const Run& rounds) { return theory::estimators_agree(rounds); }, "rounds"_a,
      "Tests whether alpha_mle and alpha_min agree: a check of the rule, the rows and the bookkeeping.");
  module.def(
      "acceptance_by_position", [](const Run& rounds) { return theory::acceptance_by_position(rounds); },
      "rounds"_a, "Acceptance of each position of the draft; entry i belongs to drafted token i + 1.");
  module.def(
      "accepted_histogram", [](const Run& rounds) { return theory::accepted_histogram(rounds); }, "rounds"_a,
      "Entry n: the number of steps with n accepted tokens.");
  module.def(
      "draft_length_counts", [](const Run& rounds) { return theory::draft_length_counts(rounds); },
      "rounds"_a,
      "Entry g: the number of steps with g drafted tokens. mixture_expected_tokens takes the list.");
  module.def(
      "iid_position_test", [](const Run& rounds) { return theory::iid_position_test(rounds); }, "rounds"_a,
      "Tests whether alpha is the same at every position of the draft (a G2 test). None with fewer than "
      "two tested positions.");
  module.def(
      "serial_correlation",
      [](const Run& rounds, int lags) { return theory::serial_correlation(rounds, lags); }, "rounds"_a,
      "lags"_a = 5,
      "Tests whether neighbouring steps resemble each other. Use it for runs with one gamma. None if no "
      "prompt has more than `lags` steps, or if all steps of each prompt accept the same number of tokens.");
  module.def(
      "alpha_drift", [](const Run& rounds) { return theory::alpha_drift(rounds); }, "rounds"_a,
      "Tests whether alpha is the same in the first, middle and last third of the steps of each prompt. "
      "Differences between prompts do not count (Cochran, Mantel and Haenszel). None if there is nothing "
      "to compare within prompts.");
  module.def(
      "prompt_dispersion", [](const Run& rounds) { return theory::prompt_dispersion(rounds); }, "rounds"_a,
      "Tests whether prompts differ in alpha by more than chance. None if alpha is 0 or 1, or if fewer "
      "than two prompts have tested tokens.");
}

}  // namespace speclab::python
