#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/theory/chain.h"
#include "core/theory/verifier_bounds.h"
#include "python/bindings/bindings.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace speclab::python {
namespace {

using Row = std::vector<double>;

theory::DraftedSet drawn_set(const std::string& drawn) {
  if (drawn == "iid") return theory::DraftedSet::iid;
  if (drawn == "without_replacement") return theory::DraftedSet::without_replacement;
  throw Error({"drawn", drawn, "iid or without_replacement", ""});
}

double expected_tau(const Row& p, const Row& q, int gamma, const std::string& verifier) {
  const std::optional<ChainLaw> law = named_law(verifier);
  if (law == ChainLaw::block) return theory::best_chain_tokens(p, q, gamma);
  if (law == ChainLaw::rejection)
    return theory::expected_tokens(std::min(1.0, theory::row_overlap(p, q)), gamma);
  if (law == ChainLaw::coupled)
    return theory::expected_tokens(std::min(1.0, theory::coupling_acceptance(p, q)), gamma);
  throw Error({"verifier", verifier, "rejection, block or coupled", ""});
}

}  // namespace

void bind_rows(nb::module_& module) {
  module.def(
      "row_overlap", [](const Row& p, const Row& q) { return theory::row_overlap(p, q); }, "p"_a, "q"_a,
      R"(sum over x of min(p(x), q(x)): the largest acceptance of one drafted token by a lossless verifier.

p, q: probabilities over one vocabulary, [vocabulary], each with sum 1. The rule "rejection" reaches this bound.
Source: Leviathan et al. 2023, Section 3.)");
  module.def(
      "coupling_acceptance", [](const Row& p, const Row& q) { return theory::coupling_acceptance(p, q); },
      "p"_a, "q"_a,
      R"(Acceptance of one drafted token if draft and target share only their Gumbel noise (the rule "coupled").

sum over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)). p, q: [vocabulary]. Source: Daliri et al., arXiv 2408.07978.)");
  module.def(
      "best_acceptance",
      [](const Row& p, const Row& q, int k, const std::string& drawn) {
        return theory::best_acceptance(p, q, k, drawn_set(drawn));
      },
      "p"_a, "q"_a, "k"_a, "drawn"_a = "iid",
      R"(The largest probability with which a lossless verifier emits one of k drafted children of a node.

p, q: [vocabulary]. drawn: "iid" (each child independently from q) or "without_replacement" (at most 20 tokens in the vocabulary).
Source: Sun et al. 2023, arXiv 2310.15141; Hu et al. 2025, arXiv 2502.18779.)");
  module.def(
      "best_chain_tokens",
      [](const Row& p, const Row& q, int gamma) { return theory::best_chain_tokens(p, q, gamma); }, "p"_a,
      "q"_a, "gamma"_a,
      R"(The largest E[tau] of a lossless verifier of a chain of gamma tokens with the rows p and q at every position.

p, q: [vocabulary]. The rule "block" reaches this bound. Source: Sun et al. 2024, arXiv 2403.10444.)");
  module.def("expected_tau", &expected_tau, "p"_a, "q"_a, "gamma"_a, "verifier"_a = "rejection",
             R"(E[tau] in tokens per step of a chain of gamma tokens, if every position has the rows p and q.

p, q: probabilities over one vocabulary, [vocabulary]. verifier: "rejection" (the token rule, Leviathan et al. 2023), "block"
(Sun et al. 2024, arXiv 2403.10444) or "coupled" (Daliri et al., arXiv 2408.07978).

>>> expected_tau([.55, .25, .15, .05], [.4, .35, .05, .2], 4, verifier="block")
3.32580625)");
}

}  // namespace speclab::python
