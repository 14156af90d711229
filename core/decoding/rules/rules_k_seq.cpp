// K-SEQ, the rule of SpecTr for k independent drafts of one token (Sun et al. 2023, arXiv 2310.15141).
//
// The rule "rejection" tests the first child against the whole of p, and the later ones against what is left.
// K-SEQ tests all k children of one row q in the same way: it accepts x with probability
// min(1, p(x) / (rho q(x))). The factor rho >= 1 keeps the accepted mass of each token at or below p(x). With
//
//   beta(rho) = sum over x of min(q(x), p(x) / rho),
//
// a child that is tested is accepted with probability beta, and some child of the k is accepted with
// probability 1 - (1 - beta)^k. The best rho is the smallest with 1 - (1 - beta)^k <= rho beta. It lies
// in [1, k] and is found by bisection. After k failures the rule draws from what the accepted tokens leave of
// p:
//
//   p(x) - min(q(x), p(x) / rho) (1 - (1 - beta)^k) / beta,  divided by its sum (1 - beta)^k.
//
// The paper has one row q for all children of a node. Here children are judged in groups. A group holds
// neighbours in draw order that were drawn from equal rows. The residual of a group takes the place of p for
// the next group. The groups are this project's addition. They are exact by induction, like the rule
// "rejection", which is the case of groups of one. So the rule also judges copied tokens and draws without
// replacement. The number of children of a node must not depend on the tokens that were drawn there.
//
// Several children may have the same token. If one of them passes, the step goes on at the first of them: in
// a tree that was made of several chains, the tokens after equal tokens all hang below the first of these.
#include <algorithm>
#include <array>

#include "core/backend/rule_forms.h"
#include "core/base/error.h"
#include "core/decoding/rows/row_kernels.h"
#include "core/decoding/rules/rules.h"
#include "core/decoding/rules/sibling_draws.h"

namespace speclab::rules {
namespace {

/// The test of a group of `count` children with the best rho.
GroupTest best_test(const std::vector<double>& law, const std::vector<double>& q, int count) {
  GroupSearch search(count);
  while (!search.done()) search.tell(row_kernels::sum_min_divided(law, q, search.rho()));
  return search.found();
}

/// Replaces the law by `left`, divided by its sum. Leaves the law as it is if nothing is left: then the
/// failure before this call had probability 0 up to rounding.
template <typename Left>
void replace(std::vector<double>& law, std::vector<double>& spare, const Left& left) {
  spare.resize(law.size());
  row_kernels::FixedSum sum;
  for (std::size_t x = 0; x < law.size(); ++x) sum.add(x, spare[x] = left(x));
  const double all = sum.total();
  if (!(all > 0)) return;
  for (double& weight : spare) weight /= all;
  std::swap(law, spare);
}

/// The number of consecutive children, from `first` on, that were drawn from the row of the first one.
int group_size(std::span<const NodeTest::Child> children, std::size_t first) {
  const Distribution* q = children[first].q;
  if (q == nullptr || q->one_hot()) return 1;
  std::size_t end = first + 1;
  while (end < children.size() && children[end].q != nullptr && same_row(*q, *children[end].q)) ++end;
  return static_cast<int>(end - first);
}

/// The first child with the token of this child.
int first_equal(std::span<const NodeTest::Child> children, std::size_t child) {
  const auto equal = std::ranges::find(children, children[child].token, &NodeTest::Child::token);
  return static_cast<int>(equal - children.begin());
}

void test_k_seq(const NodeTest& node, const RuleOptions&, NodeVerdict& out) {
  thread_local std::vector<double> law, drawn, spare;
  node.row.p->probabilities(law);
  out.accepted = out.correction = -1;
  out.expected.clear();
  // True if the child is accepted, which happens with this probability.
  const auto passes = [&](std::size_t child, double probability, double expected) {
    out.expected.push_back(node.want_expected ? expected : -1);
    if (!node.coins->bernoulli(probability,
                               {node.position, Purpose::accept, static_cast<std::uint32_t>(child)}))
      return false;
    out.accepted = first_equal(node.children, child);
    return true;
  };
  for (std::size_t child = 0; child < node.children.size();) {
    const auto [token, q] = node.children[child];
    if (q == nullptr || q->one_hot()) {
      const double left = law[static_cast<std::size_t>(token)];
      if (passes(child, left, left)) return;
      replace(law, spare, [&](std::size_t x) { return x == static_cast<std::size_t>(token) ? 0 : law[x]; });
      ++child;
      continue;
    }
    const int count = group_size(node.children, child);
    q->probabilities(drawn);
    GroupTest group{.share = 1};  // the test of a single child, without its beta
    if (count > 1 || node.want_expected) group = best_test(law, drawn, count);
    for (int i = 0; i < count; ++i, ++child) {
      const auto x = static_cast<std::size_t>(node.children[child].token);
      SPECLAB_CHECK(drawn[x] > 0, "token {} was drawn from a row that gives it no mass", x);
      if (passes(child, law[x] / (group.rho * drawn[x]), group.beta)) return;
    }
    replace(law, spare, [&](std::size_t x) { return group_residual(group, law[x], drawn[x]); });
  }
  out.correction = static_cast<Token>(node.coins->categorical(law, {node.position, Purpose::residual, 0}));
}

double expected_of_one(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions&) {
  return q == nullptr ? row.p->prob(one_hot) : overlap(*row.p, *q);
}

DeviceRule on_device(const RuleOptions&, const SamplingParams&) { return {.rule = AcceptRule::kKSeq}; }

const std::array<AcceptanceRule, 1> kRules = {{
    {.name = "k_seq",
     .summary =
         "k children of one row: accept each when u < p/(rho q) with the best rho, else draw from what "
         "they leave of p",
     .source = "Sun et al. 2023 (SpecTr, K-SEQ, arXiv 2310.15141); groups of equal rows are ours",
     .loss = lossless,
     .options = {},
     .test = test_k_seq,
     .bonus = sample_target,
     .expected = expected_of_one,
     .output_law = law_of_target,
     .device_form = on_device,
     .accepts_what_it_emits = true},
}};

}  // namespace

std::span<const AcceptanceRule> k_seq() { return kRules; }

}  // namespace speclab::rules
