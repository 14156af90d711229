#include "core/theory/chain.h"

#include <fmt/format.h>

#include "core/theory/cascade.h"
#include "python/bindings/bindings.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace speclab::python {
namespace {

void bind_cascade(nb::module_& module) {
  using theory::HorizontalCascade, theory::VerticalCascade;
  module.def(
      "vertical_cascade",
      [](double alpha1, double alpha2, int rounds, int k, double c1, double c2) {
        const VerticalCascade cascade{alpha1, alpha2, rounds, k, c1, c2};
        return Pair{theory::vertical_tokens(cascade), theory::vertical_improvement(cascade)};
      },
      "alpha1"_a, "alpha2"_a, "rounds"_a, "k"_a, "c1"_a = 0.0, "c2"_a = 0.0,
      R"((E[tau], expected improvement of walltime) of a vertical cascade of two drafts.

Draft 1 makes the chain for the target in `rounds` rounds. In each round it reviews k tokens of draft 2 and adds one token.
The target accepts a token of the chain with probability alpha1. Draft 1 accepts a token of draft 2 with
probability alpha2. c1: time of a forward of draft 1 / of a target forward. c2: the same ratio for draft 2.
Source: Chen et al. 2023, "Cascade Speculative Drafting", arXiv 2312.11462.)");
  module.def(
      "horizontal_cascade",
      [](double alpha1, double alpha2, int k1, int k2, double c1, double c2) {
        const HorizontalCascade cascade{alpha1, alpha2, k1, k2, c1, c2};
        return Pair{theory::horizontal_tokens(cascade), theory::horizontal_improvement(cascade)};
      },
      "alpha1"_a, "alpha2"_a, "k1"_a, "k2"_a, "c1"_a = 0.0, "c2"_a = 0.0,
      R"((E[tau], expected improvement of walltime) of a horizontal cascade of two drafts.

The chain has k1 tokens of draft 1, then k2 tokens of draft 2. The target accepts a token of draft i with probability alpha_i.
Source: Chen et al. 2023, arXiv 2312.11462.)");
}

}  // namespace

void bind_chain(nb::module_& module) {
  module.def("expected_tokens", &theory::expected_tokens, "alpha"_a, "gamma"_a,
             R"(E[tau] in tokens per step: (1 - alpha^(gamma+1)) / (1 - alpha); gamma + 1 at alpha = 1.

Assumes that tested tokens are accepted independently with probability alpha. Source: Leviathan et al. 2023, Eq. 1.)");
  module.def("expected_tokens_limit", &theory::expected_tokens_limit, "alpha"_a,
             "The limit of E[tau] for endless drafts, 1 / (1 - alpha); inf at alpha = 1.");
  module.def("tokens_distribution", &theory::tokens_distribution, "alpha"_a, "gamma"_a,
             "P(tau = i) for i = 1 .. gamma + 1, at index i - 1: a geometric law capped at gamma + 1.");
  module.def("tokens_variance", &theory::tokens_variance, "alpha"_a, "gamma"_a,
             "The variance of tau, in tokens^2.");
  module.def("walltime_improvement", &theory::walltime_improvement, "alpha"_a, "gamma"_a, "c"_a,
             "t_verify"_a = 1.0,
             R"(Expected speedup over autoregressive decoding: E[tau] / (gamma c + t_verify).

t_verify = t(gamma + 1). Source: Leviathan et al. 2023, Theorem 3.8, which has t_verify = 1.)");
  module.def("some_gamma_helps", &theory::some_gamma_helps, "alpha"_a, "c"_a,
             "True if some gamma gives a speedup with t(n) = 1: alpha > c. Source: Leviathan et al. 2023, "
             "Corollary 3.9.");
  module.def("improvement_lower_bound", &theory::improvement_lower_bound, "alpha"_a, "c"_a,
             "(1 + alpha) / (1 + c), a lower bound of the best speedup with t(n) = 1. Source: Leviathan et "
             "al. 2023, Corollary 3.9.");
  module.def(
      "operations_factor", &theory::operations_factor, "alpha"_a, "gamma"_a, "c_hat"_a,
      R"(Operations per token / operations per token of autoregressive decoding: (1 - alpha)(gamma c_hat + gamma + 1) / (1 - alpha^(gamma+1)).

c_hat: operations of the draft per token / operations of the target per token. Source: Leviathan et al. 2023, Theorem 3.11.)");
  nb::class_<theory::OptimalGamma>(module, "OptimalGamma", "The draft length with the largest speedup.")
      .def_ro("gamma", &theory::OptimalGamma::gamma, "drafted tokens per step; 0: do not speculate")
      .def_ro("speedup", &theory::OptimalGamma::speedup)
      .def_ro("at_limit", &theory::OptimalGamma::at_limit,
              "True: gamma is the largest one that was tried, so a larger one may be faster")
      .def("__repr__", [](const theory::OptimalGamma& best) {
        return fmt::format("OptimalGamma(gamma={}, speedup={:.6g}, at_limit={})", best.gamma, best.speedup,
                           best.at_limit ? "True" : "False");
      });
  module.def(
      "optimal_gamma", &theory::optimal_gamma, "alpha"_a, "c"_a, "max_gamma"_a = 1000,
      R"(The gamma from 0 to max_gamma that maximises walltime_improvement(alpha, gamma, c). Ties go to the smaller gamma.

Source: Leviathan et al. 2023, Section 3.5.)");
  module.def("break_even", &theory::break_even_tokens, "gamma"_a, "c"_a, "t_verify"_a = 1.0,
             "The tau above which a step with gamma drafted tokens saves time: gamma c + t_verify.");
  module.def(
      "break_even_alpha",
      [](int gamma, double c, double t_verify) { return theory::alpha_from_speedup(1, gamma, c, t_verify); },
      "gamma"_a, "c"_a, "t_verify"_a = 1.0,
      "The alpha at which walltime_improvement is 1; None if it is 1 at no alpha, and for gamma = 0.");
  module.def("alpha_from_tokens", &theory::alpha_from_tokens, "tau"_a, "gamma"_a,
             "The alpha for which expected_tokens gives this tau; None if no alpha does, and for gamma = 0.");
  module.def("alpha_from_speedup", &theory::alpha_from_speedup, "speedup"_a, "gamma"_a, "c"_a,
             "t_verify"_a = 1.0,
             "The alpha for which walltime_improvement gives this speedup; None if no alpha does, and for "
             "gamma = 0.");
  module.def("c_from_speedup", &theory::c_from_speedup, "speedup"_a, "alpha"_a, "gamma"_a, "t_verify"_a = 1.0,
             "The c for which walltime_improvement gives this speedup. Negative: the speedup is above the "
             "bound for a draft that costs nothing.");
  bind_cascade(module);
}

}  // namespace speclab::python
