// The rule "rejection" with the children of a node in a random order, as the algorithm of SpecInfer has it
// (Miao et al. 2024, Alg. 2). With several draft models, the order decides which model's token is tested
// against the whole row p, and which ones against a residual. A fixed order prefers the first model; a random
// order is fair.
//
// In a random order the rule is exact only if no child's row depends on another child. So the rule refuses a
// node whose children were drawn without replacement, and a node with both drawn and copied children, because
// a copy may have been chosen among the tokens that were not drawn.
#include <array>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/decoding/rules/rules.h"
#include "core/decoding/rules/sibling_draws.h"

namespace speclab::rules {
namespace {

/// Throws Error unless the children of each node were drawn independently, or are only copied ones.
void require_independent(const Draft& draft) {
  const auto refuse = [](std::string got) {
    throw Error({.what = "acceptance rule rejection_any_order",
                 .got = std::move(got),
                 .expected = "children that were drawn independently, or only copied ones",
                 .advice = "Use the rule rejection, which tests the children in draw order."});
  };
  const auto drawn = [&](int node) {
    const Distribution* q = draft.q_at(node);
    return q != nullptr && !q->one_hot();
  };
  thread_local std::vector<int> previous;  // [nodes], the last child so far; 0: none
  previous.assign(static_cast<std::size_t>(draft.tree.drafted()) + 1, 0);
  for (int node = 1; node <= draft.tree.drafted(); ++node) {
    const int before = std::exchange(previous[static_cast<std::size_t>(draft.tree.parent(node))], node);
    if (before == 0) continue;
    if (drawn(node) != drawn(before)) refuse("drawn and copied children of one node");
    if (drawn(node) && drawn_without(*draft.q_at(before), draft.tree.token(before), *draft.q_at(node)))
      refuse("children that were drawn without replacement");
  }
}

/// Draws a permutation of the children: Fisher and Yates.
void draw_order(const NodeTest& node, std::vector<std::size_t>& order) {
  thread_local std::vector<double> equal;
  order.resize(node.children.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t left = order.size(); left > 1; --left) {
    equal.assign(left, 1.0);
    const Coins::Address address{node.position, Purpose::simulate,
                                 kFirstCoinOfOrder + static_cast<std::uint32_t>(left)};
    std::swap(order[left - 1], order[node.coins->categorical(equal, address)]);
  }
}

void arrange(const NodeTest& node, std::vector<int>& nodes) {
  thread_local std::vector<std::size_t> order;
  thread_local std::vector<int> drafted;
  draw_order(node, order);
  drafted = nodes;
  for (std::size_t i = 0; i < order.size(); ++i) nodes[i] = drafted[order[i]];
}

void verify_in_any_order(const AcceptanceRule& rule, const RuleOptions& options, const DraftToJudge& judged,
                         Acceptance& out) {
  require_independent(judged.draft);
  verify_by_walk_arranged(rule, options, judged, arrange, out);
}

DeviceRule on_device(const RuleOptions&, const SamplingParams&) {
  return {.rule = AcceptRule::kRatio, .form = {.any_order = true}};
}

AcceptanceRule rejection_any_order() {
  AcceptanceRule rule = ratio().front();
  rule.name = "rejection_any_order";
  rule.summary = "rejection with the children of a node in a random order; refuses draws without replacement";
  rule.source = "Miao et al. 2024 (SpecInfer) Alg. 2";
  rule.device_form = on_device;
  rule.independent_children_only = true;
  rule.chain_law.reset();  // on a chain this rule is "rejection", which has the law
  rule.require = require_independent;
  rule.verify = verify_in_any_order;
  return rule;
}

}  // namespace

std::span<const AcceptanceRule> any_order() {
  static const std::array<AcceptanceRule, 1> rules = {rejection_any_order()};
  return rules;
}

}  // namespace speclab::rules
