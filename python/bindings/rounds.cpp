#include "core/measure/rounds.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "python/bindings/bindings.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace speclab::python {
namespace {

/// The round of a step with a chain as draft. Each list has one value for each drafted token.
Round round_of(int accepted, int emitted, const std::vector<bool>& tested, const std::vector<bool>& passed,
               const std::vector<double>& expected) {
  if (passed.size() != tested.size() || (!expected.empty() && expected.size() != tested.size())) {
    throw Error({"lists of a round",
                 fmt::format("{}, {} and {} values", tested.size(), passed.size(), expected.size()),
                 "one value for each drafted token", ""});
  }
  StepRecord step;
  step.accepted = accepted;
  step.emitted = emitted;
  for (std::size_t i = 0; i < tested.size(); ++i) {
    DraftedToken token;
    token.parent = static_cast<int>(i);
    token.tested = tested[i];
    token.accepted = passed[i];
    token.expected = expected.empty() ? -1 : expected[i];
    step.drafted.push_back(token);
  }
  return *chain_round(step);
}

}  // namespace

void bind_rounds(nb::module_& module) {
  nb::class_<Round>(module, "Round",
                    R"(The acceptance data of one step with a chain as draft.

drafted: tokens of the draft. accepted: tests that accepted their token. rejected: the step ended with a rejection, which is one more test.
emitted: tokens added to the text. expected_sum, expected_variance: sums of e and e (1 - e) over the tested positions, with e the rule's
expected acceptance; 0 if unknown.)")
      .def(
          "__init__",
          [](Round* self, int drafted, int accepted, bool rejected, int emitted, double expected_sum,
             double expected_variance) {
            new (self) Round{drafted, accepted, rejected, emitted, expected_sum, expected_variance};
          },
          "drafted"_a, "accepted"_a, "rejected"_a, "emitted"_a, "expected_sum"_a = 0.0,
          "expected_variance"_a = 0.0)
      .def_ro("drafted", &Round::drafted)
      .def_ro("accepted", &Round::accepted)
      .def_ro("rejected", &Round::rejected)
      .def_ro("emitted", &Round::emitted)
      .def_ro("expected_sum", &Round::expected_sum)
      .def_ro("expected_variance", &Round::expected_variance)
      .def_prop_ro("tests", &Round::tests, "acceptance tests of the round")
      .def("__repr__", [](const Round& round) {
        return fmt::format("Round(drafted={}, accepted={}, rejected={}, emitted={})", round.drafted,
                           round.accepted, round.rejected ? "True" : "False", round.emitted);
      });
  module.def(
      "chain_round", &round_of, "accepted"_a, "emitted"_a, "tested"_a, "passed"_a,
      "expected"_a = std::vector<double>{},
      R"(The round of a recorded step. If the end of the text or a limit cut the step inside its draft, only the accepted tokens
before the cut count as tests.

accepted, emitted: numbers of accepted and of emitted tokens that the cut left. tested, passed: for each
drafted token, whether the rule tested it, and whether the rule accepted it.
expected: the rule's expected acceptance of each token, -1 if unknown.)");
  module.def(
      "wilson_interval",
      [](double successes, double trials, double level) {
        return as_pair(stats::wilson_interval(successes, trials, level));
      },
      "successes"_a, "trials"_a, "level"_a = .95,
      "Wilson's interval of a proportion (Wilson 1927), for independent trials; None without trials.");
  module.def(
      "ratio_of_sums",
      [](const std::vector<double>& numerators,
         const std::vector<double>& denominators) -> std::optional<std::pair<double, std::optional<Pair>>> {
        const auto found = stats::ratio_of_sums(numerators, denominators);
        if (!found) return std::nullopt;
        return std::pair{found->value, as_pair(found->ci)};
      },
      "numerators"_a, "denominators"_a,
      R"((sum of numerators / sum of denominators, its 95 % interval). None if the denominators sum to 0.

Each list has one number for each prompt. The interval is a bootstrap over prompts (Efron 1979). With one prompt it is None.)");
  module.def(
      "noise_floor", [](const std::vector<stats::Times>& cases) { return stats::noise_floor(cases); },
      "cases"_a,
      R"(The noise floor, a fraction: 95 % of all pairs of repeats of the same case differ by at most this much. cases: times, [cases][prompts][repeats].

None if no case has two repeats.)");
}

}  // namespace speclab::python
