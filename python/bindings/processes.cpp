#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/theory/processes/prompt_process.h"
#include "core/theory/processes/simulate_rounds.h"
#include "core/theory/toys/toy_chain.h"
#include "python/bindings/bindings.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace speclab::python {
namespace {

using theory::AcceptanceProcess, theory::PromptProcess, theory::RoundCounts;
using Run = std::vector<PromptRounds>;           // [prompts][rounds]
using Table = std::vector<std::vector<double>>;  // [contexts][symbols]

toy::MarkovRows rows_of(const Table& table, int order) {
  toy::MarkovRows rows{table.empty() ? 0 : static_cast<int>(table.front().size()), order, {}};
  for (const std::vector<double>& row : table) {
    if (row.size() != table.front().size())
      throw Error({"rows of a Markov chain",
                   fmt::format("rows of {} and {} numbers", table.front().size(), row.size()),
                   "rows of one length", ""});
    rows.probability.insert(rows.probability.end(), row.begin(), row.end());
  }
  return rows;
}

ChainLaw law_of(const std::string& verifier) {
  if (const auto law = named_law(verifier)) return *law;
  throw Error({"verifier", verifier, "rejection, sample_match, coupled or block", ""});
}

void bind_processes_of_rounds(nb::module_& module) {
  module.def(
      "iid_process", [](double alpha) { return PromptProcess(theory::iid_process(alpha)); }, "alpha"_a,
      "Every tested token is accepted with probability alpha (Leviathan et al. 2023).");
  module.def(
      "positional_process",
      [](std::vector<double> acceptance) {
        return PromptProcess(theory::positional_process(std::move(acceptance)));
      },
      "acceptance"_a,
      "Drafted token i + 1 is accepted, if tested, with probability acceptance[i]; the last entry also holds "
      "for later tokens.");
  module.def(
      "decaying_process",
      [](double first, double ratio, int positions) {
        return PromptProcess(theory::decaying_process(first, ratio, positions));
      },
      "first"_a, "ratio"_a, "positions"_a = 64,
      "Acceptance that decays along the draft: token i + 1 is accepted with probability first * ratio**i.");
  module.def(
      "switching_process",
      [](std::vector<double> alphas, double stay) {
        return PromptProcess(theory::switching_process(std::move(alphas), stay));
      },
      "alphas"_a, "stay"_a,
      R"(Easy and hard stretches: a Markov chain over rounds with one alpha for each state.

After a round the state stays with probability `stay`, otherwise it moves to one of the other states, each with equal probability.)");
  module.def(
      "lengths_process",
      [](const std::vector<double>& shares) { return PromptProcess(theory::lengths_process(shares)); },
      "shares"_a,
      "The number n of accepted tokens of each round has the law shares[n] / sum(shares), independently.");
  module.def(
      "minimum_variance_process",
      [](double mean) { return PromptProcess(theory::minimum_variance_process(mean)); }, "mean"_a,
      R"(Each round accepts floor(mean) or ceil(mean) tokens, so that the expectation is `mean`.

vLLM's synthetic_acceptance_length L counts the bonus token, so it corresponds to mean = L - 1.)");
}

void bind_processes_of_prompts(nb::module_& module) {
  module.def("beta_process", &PromptProcess::beta, "mean"_a, "correlation"_a,
             R"(Each prompt draws its own alpha from the beta law with this mean; its rounds are i.i.d.

correlation: the correlation between the outcomes of two tested tokens of one prompt. It is var(alpha) / (mean (1 - mean)).)");
  module.def(
      "recorded_process", [](const Run& rounds) { return PromptProcess::recorded(rounds); }, "rounds"_a,
      R"(The bootstrap of a recorded run: a prompt draws one of the recorded prompts, and each of its rounds is a draw from the rounds of the recorded prompt.

rounds: [prompts][rounds], as Run.rounds() returns them. Uses only rounds whose draft has the largest
length of the run and that were not cut by the end of a text.)");
}

void bind_results(nb::module_& module) {
  nb::class_<RoundCounts>(module, "RoundCounts", "Expected counts of rounds.")
      .def_ro("rounds", &RoundCounts::rounds)
      .def_ro("emitted", &RoundCounts::emitted, "tokens")
      .def_ro("tests", &RoundCounts::tests, "acceptance tests")
      .def_ro("accepted", &RoundCounts::accepted, "tests that accepted their token")
      .def_prop_ro("tau", &RoundCounts::tau, "emitted / rounds")
      .def_prop_ro("alpha", &RoundCounts::alpha, "accepted / tests")
      .def("__repr__", [](const RoundCounts& counts) {
        return fmt::format("RoundCounts(rounds={:.6g}, emitted={:.6g}, tests={:.6g}, accepted={:.6g})",
                           counts.rounds, counts.emitted, counts.tests, counts.accepted);
      });
  nb::class_<PromptProcess>(
      module, "PromptProcess",
      R"(A law of acceptance whose alpha and tau are known exactly, for tests of estimators and predictions.

iid_process(), positional_process(), ... and recorded_process() make such a law.)")
      .def("expected_tokens", &PromptProcess::expected_tokens, "gamma"_a,
           "Exact E[tau] of a round, if each prompt has the same number of rounds.")
      .def("of_round", &PromptProcess::of_round, "gamma"_a,
           "Expected counts of a round, if each prompt has the same number of rounds.")
      .def("of_text", &PromptProcess::of_text, "gamma"_a, "tokens"_a,
           R"(Expected counts of the rounds of one prompt whose text has exactly `tokens` tokens.

Its tau and alpha are what a run of many such prompts measures.)")
      .def_prop_ro("most_gamma", &PromptProcess::most_gamma, "the longest draft that the process knows")
      .def(
          "joint_acceptance",
          [](const PromptProcess& process, int gamma) {
            process.of_round(gamma);  // checks gamma
            std::vector<double> joint;
            for (int i = 1; i <= gamma; ++i)
              joint.push_back(process.of_round(i).accepted - process.of_round(i - 1).accepted);
            return joint;
          },
          "gamma"_a,
          R"(P(the first i + 1 tokens of a round are all accepted), [gamma]. vLLM takes it as synthetic_acceptance_rates.)")
      .def(
          "simulate",
          [](const PromptProcess& process, int gamma, int prompts, int tokens, std::uint64_t seed) {
            return theory::simulate_run(process, gamma, prompts, tokens, seed);
          },
          "gamma"_a, "prompts"_a, "tokens"_a, "seed"_a,
          "Random rounds, [prompts][rounds]; each text has `tokens` tokens.");
}

void bind_toys(nb::module_& module) {
  nb::class_<theory::ChainCounts>(module, "ChainCounts", "Expected counts of steps on Markov chains.")
      .def_ro("steps", &theory::ChainCounts::steps)
      .def_ro("emitted", &theory::ChainCounts::emitted, "tokens, without the first one of each text")
      .def_ro("drafted", &theory::ChainCounts::drafted, "drafted tokens")
      .def_ro("tests", &theory::ChainCounts::tests, "acceptance tests; 0 for block")
      .def_ro("accepted", &theory::ChainCounts::accepted, "accepted tokens")
      .def_prop_ro("tau", &theory::ChainCounts::tau, "emitted / steps")
      .def_prop_ro("alpha", &theory::ChainCounts::alpha, "accepted / tests; nan for block");
  module.def(
      "markov_chain_counts",
      [](const Table& p, const Table& q, int gamma, const std::string& verifier, int order,
         std::optional<int> tokens, std::optional<int> first) {
        const theory::ToyChain chain(rows_of(p, order), rows_of(q, order), gamma, law_of(verifier));
        if (!tokens && !first) return chain.long_run();
        if (!tokens || !first || *first < 0 || *first >= static_cast<int>(p.size()))
          throw Error({"tokens and first", "only one of them, or a first context outside the table",
                       "both, for a text, or none, for an endless text", ""});
        std::vector<double> mass(p.size());
        mass[static_cast<std::size_t>(*first)] = 1;
        return chain.of_texts(mass, *tokens);
      },
      "p"_a, "q"_a, "gamma"_a, "verifier"_a = "rejection", "order"_a = 1, "tokens"_a = nb::none(),
      "first"_a = nb::none(),
      R"(Exact expected counts of speculative decoding on Markov chains, by dynamic programming over the states.

p, q: rows of target and draft, [symbols**order][symbols], each with sum 1; row c belongs to the context whose last `order` symbols are the
digits of c in base `symbols`. verifier: rejection, sample_match, coupled or block. Without `tokens` and `first`: one step of an endless text. With
both: all steps of a text that begins in the context `first` and has `tokens` more tokens.)");
  module.def(
      "markov_chain_alpha",
      [](const Table& p, const Table& q, const std::string& verifier, int order) {
        return theory::stationary_alpha(rows_of(p, order), rows_of(q, order), law_of(verifier));
      },
      "p"_a, "q"_a, "verifier"_a = "rejection", "order"_a = 1,
      "alpha over the positions of texts that the target wrote, weighted by the stationary law of p.");
}

}  // namespace

void bind_processes(nb::module_& module) {
  bind_results(module);
  bind_processes_of_rounds(module);
  bind_processes_of_prompts(module);
  bind_toys(module);
}

}  // namespace speclab::python
