#include "core/decoding/rules/accept.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/decoding/rules/rules.h"

namespace speclab {
namespace {

std::vector<AcceptanceRule> all_rules() {
  std::vector<AcceptanceRule> rules;
  for (const std::span<const AcceptanceRule> family :
       {rules::ratio(), rules::match(), rules::criterion(), rules::longest_path(), rules::classical(),
        rules::paths(), rules::k_seq(), rules::any_order(), rules::multi_path()}) {
    rules.insert(rules.end(), family.begin(), family.end());
  }
  return rules;
}

}  // namespace

std::string_view to_string(LossClass loss) {
  constexpr std::array<std::string_view, 3> names = {"L1", "L2", "L3"};
  return names[static_cast<std::size_t>(loss)];
}

std::span<const AcceptanceRule> acceptance_rules() {
  static const std::vector<AcceptanceRule> rules = all_rules();
  return rules;
}

const AcceptanceRule& find_acceptance_rule(std::string_view name) {
  std::vector<std::string> known;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.name == name) return rule;
    known.emplace_back(rule.name);
  }
  throw Error({"acceptance rule", fmt::format("\"{}\"", name), "a known rule", suggest(name, known)});
}

const AcceptanceRule* recorded_acceptance_rule(std::string_view name) {
  const std::span<const AcceptanceRule> rules = acceptance_rules();
  const auto found = std::ranges::find(rules, name, &AcceptanceRule::name);
  return found == rules.end() ? nullptr : &*found;
}

std::vector<std::string_view> option_names(const AcceptanceRule& rule) {
  std::vector<std::string_view> names;
  for (const RuleOption* option : rule.options) names.push_back(option->name);
  return names;
}

std::span<const RuleOption* const> all_rule_options() {
  static const std::vector<const RuleOption*> all = [] {
    std::vector<const RuleOption*> found;
    for (const AcceptanceRule& rule : acceptance_rules()) {
      for (const RuleOption* option : rule.options) {
        if (std::ranges::find(found, option) == found.end()) found.push_back(option);
      }
    }
    return found;
  }();
  return all;
}

bool is_rule_option(std::string_view name) {
  return std::ranges::any_of(all_rule_options(),
                             [&](const RuleOption* option) { return option->name == name; });
}

void accept(const AcceptanceRule& rule, const RuleOptions& options, const Draft& draft,
            const TargetRows& rows, const Coins& coins, std::int64_t position, Acceptance& out) {
  rule.verify(rule, options, {draft, rows, coins, position}, out);
}

void verify_by_walk(const AcceptanceRule& rule, const RuleOptions& options, const DraftToJudge& judged,
                    Acceptance& out) {
  verify_by_walk_arranged(rule, options, judged, nullptr, out);
}

void verify_by_walk_arranged(const AcceptanceRule& rule, const RuleOptions& options,
                             const DraftToJudge& judged,
                             void (*arrange)(const NodeTest&, std::vector<int>& nodes), Acceptance& out) {
  const auto& [draft, rows, coins, position] = judged;
  // Reused by the calls of one thread, so that a step does not allocate.
  thread_local std::vector<int> nodes;
  thread_local std::vector<NodeTest::Child> children;
  thread_local NodeVerdict verdict;

  out.path.clear();
  out.tested.clear();
  for (int node = 0;;) {
    const TargetRow row = rows(node);
    const std::int64_t next_position = position + draft.tree.depth(node) + 1;
    draft.tree.children(node, nodes);
    if (nodes.empty()) {
      out.next = rule.bonus(row, coins, next_position, options);
      out.bonus = true;
      return;
    }
    const auto node_test = [&]() -> NodeTest {
      children.clear();
      for (const int child : nodes) {
        const Distribution* q = draft.q_at(child);
        SPECLAB_CHECK(q == nullptr || q->vocab() == row.p->vocab(),
                      "draft row of {} tokens, target row of {}", q->vocab(), row.p->vocab());
        children.push_back({draft.tree.token(child), q});
      }
      return {row, children, &coins, next_position, out.want_expected};
    };
    if (arrange != nullptr) arrange(node_test(), nodes);
    rule.test(node_test(), options, verdict);
    for (std::size_t i = 0; i < verdict.expected.size(); ++i) {
      const auto [token, q] = children[i];
      out.tested.push_back({nodes[i], row.p->prob(token), q != nullptr ? q->prob(token) : 1.0,
                            verdict.expected[i], out.want_ranks ? criterion_row(row).rank(token) : -1,
                            verdict.accepted == static_cast<int>(i)});
    }
    if (verdict.accepted < 0) {
      out.next = verdict.correction;
      out.bonus = false;
      return;
    }
    node = nodes[static_cast<std::size_t>(verdict.accepted)];
    out.path.push_back(node);
  }
}

}  // namespace speclab
