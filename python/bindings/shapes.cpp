#include <fmt/format.h>

#include "core/base/error.h"
#include "core/theory/lookahead.h"
#include "core/theory/tree_search.h"
#include "python/bindings/bindings.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace speclab::python {
namespace {

using theory::LookaheadChoice, theory::LookaheadLaw, theory::LookaheadShape, theory::RowTimes;
using Acceptance = std::vector<std::vector<double>>;

void bind_lookahead(nb::module_& module) {
  module.def(
      "lookahead_expected_tokens", &theory::lookahead_expected_tokens, "alpha"_a, "length"_a, "branches"_a,
      R"(E = (length + 1) - sum over i of (1 - alpha^i)^branches: tokens per step of `branches` parallel guesses of `length` tokens.

Source: Fu et al. 2024, Eq. 5 (lookahead decoding).)");
  nb::class_<LookaheadShape>(module, "LookaheadShape",
                             "A setting of lookahead decoding: window W, n-gram size N, guesses G.")
      .def(
          "__init__", [](LookaheadShape* self, int W, int N, int G) { new (self) LookaheadShape{W, N, G}; },
          "W"_a, "N"_a, "G"_a)
      .def_ro("W", &LookaheadShape::W)
      .def_ro("N", &LookaheadShape::N)
      .def_ro("G", &LookaheadShape::G)
      .def_prop_ro("rows", &theory::lookahead_rows,
                   "rows of a step if no two guesses share a prefix: (W + G)(N - 1)")
      .def("__repr__", [](const LookaheadShape& shape) {
        return fmt::format("LookaheadShape(W={}, N={}, G={})", shape.W, shape.N, shape.G);
      });
  nb::class_<LookaheadLaw>(module, "LookaheadLaw",
                           R"(tau of lookahead decoding (Fu et al. 2024, Eq. 7): S = (f - 1 + E) / f.

E = lookahead_expected_tokens(alpha, N - 1, b) with b = W^share G^(1 - share) guesses.
alpha: P(a guessed token is accepted). One step in f has a good guess.)")
      .def(
          "__init__",
          [](LookaheadLaw* self, double alpha, double f, double share) {
            new (self) LookaheadLaw{alpha, f, share};
          },
          "alpha"_a, "f"_a = 1.0, "share"_a = .5)
      .def_ro("alpha", &LookaheadLaw::alpha)
      .def_ro("f", &LookaheadLaw::f)
      .def_ro("share", &LookaheadLaw::share)
      .def("tokens", &LookaheadLaw::compression, "shape"_a, "Tokens per step with this setting.");
  nb::class_<LookaheadChoice>(module, "LookaheadChoice",
                              "A setting of lookahead decoding with its predicted tau and speedup.")
      .def_ro("shape", &LookaheadChoice::shape)
      .def_ro("tokens", &LookaheadChoice::compression, "tokens per step")
      .def_ro("speedup", &LookaheadChoice::speedup);
  module.def(
      "best_lookahead",
      [](const LookaheadLaw& law, const RowTimes& target, int max_width, int max_n, double row_share) {
        return theory::best_lookahead(law, target, max_width, max_n, row_share);
      },
      "law"_a, "target"_a, "max_width"_a = theory::kWidestLookahead, "max_n"_a = theory::kLongestLookahead,
      "row_share"_a = 1.0,
      R"(The fastest setting with W = G <= max_width and N <= max_n; W = 0 if autoregressive decoding is faster.

row_share: work of a step / the work of (W + G)(N - 1) rows with logits.)");
}

}  // namespace

void bind_shapes(nb::module_& module) {
  bind_lookahead(module);
  module.def(
      "tree_expected_tokens",
      [](const std::vector<int>& parents, const std::vector<int>& ranks, const Acceptance& acceptance) {
        if (parents.size() != ranks.size()) {
          throw Error({"ranks", fmt::format("{} values", ranks.size()),
                       fmt::format("one for each of {} parents", parents.size()), ""});
        }
        return theory::tree_expected_tokens({parents, ranks}, theory::RankAcceptance(acceptance));
      },
      "parents"_a, "ranks"_a, "acceptance"_a,
      R"(E[tau] of a drafted tree: the sum over its nodes of the product of acceptances along the path; the pending token counts 1.

parents[i], ranks[i]: parent and rank of node i + 1; node 0 is the pending token, ranks count from 1 in draw order.
acceptance[d - 1][k - 1]: P(the child of rank k at depth d is accepted | its parent was). The last depth stands for all greater ones.
Source: Chen et al. 2024, "Sequoia", arXiv 2402.12374.)");
  module.def(
      "best_tree_tokens",
      [](const Acceptance& acceptance, int nodes, int depth) {
        return theory::TreeSearch(theory::RankAcceptance(acceptance), nodes, depth).expected_tokens(nodes);
      },
      "acceptance"_a, "nodes"_a, "depth"_a,
      R"(E[tau] of the best tree with this number of nodes (the pending token included) and at most `depth`
levels below the pending token; -inf if there is no such tree.

acceptance as in tree_expected_tokens. Source: Sequoia, Section 3.1.)");
  nb::class_<theory::TreeChoice>(module, "TreeChoice", "A tree that was chosen for a machine.")
      .def_prop_ro(
          "parents", [](const theory::TreeChoice& choice) { return choice.tree.parents; },
          "parent of node i + 1, at index i; empty: decode autoregressively")
      .def_prop_ro("ranks", [](const theory::TreeChoice& choice) { return choice.tree.ranks; })
      .def_ro("tokens", &theory::TreeChoice::expected_tokens, "E[tau]")
      .def_ro("speedup", &theory::TreeChoice::speedup);
  module.def(
      "best_tree",
      [](const Acceptance& acceptance, const RowTimes& target, double c, int most_nodes, int most_depth) {
        return theory::best_tree(theory::RankAcceptance(acceptance), target, c, most_nodes, most_depth);
      },
      "acceptance"_a, "target"_a, "c"_a, "most_nodes"_a, "most_depth"_a,
      R"(The tree that maximises E[tau] / (t(n) + depth c) over trees of n nodes, the pending token included.

c: time of a draft forward of one level / of a target forward of one row.

Above 128 nodes only multiples of 8, and most_nodes itself, are tried.

Source: Sequoia, Section 3.3.)");
}

}  // namespace speclab::python
