// Lossy rules that accept a token by its rank or probability in the target's row. The draft's probability
// does not matter: a rule accepts x if x is in a set A that it derives from the row (minimum_block: and from
// the depth). The criterion looks at p. At temperature 0, where p is one-hot, it looks at the raw row. The
// token after a rejection is drawn from a law f. For the rule "typical", f is p restricted to the typical
// set; for the others f is p. (At temperature 0 both are the argmax.) With one child, the output law is q(x)
// + (1 - q(A)) f(x) for x in A, and (1 - q(A)) f(x) for other x. The papers below describe greedy decoding.
// What the rules do above temperature 0 is this project's interpretation.
//
// On a tree there are two ways to choose a path. The rules without _longest walk: at each node they accept
// the first child, in draw order, whose token is in A. In a walk, a child that leads to a dead end can hide a
// sibling that leads further. The rules named ..._longest accept the longest path whose tokens are all in A,
// and of several longest paths the most probable one (Cai et al. 2024, Medusa). They need the rows of all
// nodes whose whole path is in A. On a chain both ways give the same path.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.h"
#include "core/decoding/rules/accepted_set.h"
#include "core/decoding/rules/rules.h"

namespace speclab::rules {
namespace {

Accepted top_beta(const TargetRow& row, const RuleOptions& o) { return {row, top_beta_form(o)}; }
Accepted gap(const TargetRow& row, const RuleOptions& o) { return {row, gap_form(o)}; }
Accepted specdec(const TargetRow& row, const RuleOptions& o) { return {row, specdec_form(o)}; }
Accepted token_distance(const TargetRow& row, const RuleOptions& o) { return {row, distance_form(o)}; }
/// The set at a node, where o.min_block counts from this node on.
Accepted minimum_block(const TargetRow& row, const RuleOptions& o) {
  return {row, at_depth(minimum_block_form(o), 0)};
}
Accepted typical(const TargetRow& row, const RuleOptions& o) { return {row, typical_form(o)}; }
Accepted threshold(const TargetRow& row, const RuleOptions& o) { return {row, threshold_form(o)}; }

using Criterion = Accepted (*)(const TargetRow&, const RuleOptions&);

/// p restricted to the typical set, not normalised. This is eta-sampling of the row (Hewitt et al. 2022).
void typical_weights(const TargetRow& row, const RuleOptions& options, std::vector<double>& weights) {
  const Accepted accepted = typical(row, options);
  row.p->probabilities(weights);
  for (std::size_t x = 0; x < weights.size(); ++x) {
    if (!accepted(static_cast<Token>(x))) weights[x] = 0;
  }
}

Token typical_target(const TargetRow& row, const Coins& coins, std::int64_t position,
                     const RuleOptions& options) {
  if (row.p->one_hot()) return row.p->argmax();
  thread_local std::vector<double> weights;
  typical_weights(row, options, weights);
  return static_cast<Token>(coins.categorical(weights, {position, Purpose::target, 0}));
}

template <Criterion kCriterion,
          Token (*kTarget)(const TargetRow&, const Coins&, std::int64_t, const RuleOptions&)>
void test(const NodeTest& node, const RuleOptions& options, NodeVerdict& out) {
  const Accepted accepted = kCriterion(node.row, options);
  out.accepted = out.correction = -1;
  out.expected.clear();
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const auto [token, q] = node.children[i];
    out.expected.push_back(node.want_expected ? accepted.mass(q, token) : -1);
    if (accepted(token)) {
      out.accepted = static_cast<int>(i);
      return;
    }
  }
  out.correction = kTarget(node.row, *node.coins, node.position, options);
}

/// Walks like verify_by_walk(). The set A at a node depends on its depth, see minimum_block_form().
void verify_minimum_block(const AcceptanceRule& rule, const RuleOptions& options, const DraftToJudge& judged,
                          Acceptance& out) {
  thread_local std::vector<int> children;
  const auto& [draft, rows, coins, position] = judged;
  out.path.clear();
  out.tested.clear();
  const CriterionForm form = minimum_block_form(options);
  for (int node = 0;;) {
    const TargetRow row = rows(node);
    draft.tree.children(node, children);
    const Accepted accepted(row, at_depth(form, draft.tree.depth(node)));
    int next = -1;
    for (std::size_t i = 0; i < children.size() && next < 0; ++i) {
      const int child = children[i];
      const Token token = draft.tree.token(child);
      const Distribution* q = draft.q_at(child);
      SPECLAB_CHECK(q == nullptr || q->vocab() == row.p->vocab(), "draft row of {} tokens, target row of {}",
                    q->vocab(), row.p->vocab());
      if (accepted(token)) next = child;
      out.tested.push_back({child, row.p->prob(token), q != nullptr ? q->prob(token) : 1.0,
                            out.want_expected ? accepted.mass(q, token) : -1,
                            out.want_ranks ? criterion_row(row).rank(token) : -1, next == child});
    }
    if (next < 0) {
      // After a rejection the token comes from the same law as after full acceptance.
      out.next = rule.bonus(row, coins, position + draft.tree.depth(node) + 1, options);
      out.bonus = children.empty();
      return;
    }
    node = next;
    out.path.push_back(node);
  }
}

/// A node whose path from the pending token is in A.
struct Accepting {
  int node;
  double log_p;  ///< sum of log p along the path, with p from the rows that the criterion looks at
};

template <Criterion kCriterion>
void verify_longest(const AcceptanceRule& rule, const RuleOptions& options, const DraftToJudge& judged,
                    Acceptance& out) {
  thread_local std::vector<Accepting>
      found;  // parents before children; the tree's levels one after the other
  thread_local std::vector<int> children;
  const auto& [draft, rows, coins, position] = judged;
  out.tested.clear();
  found.assign(1, {0, 0});
  std::size_t best = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [node, log_p] = found[i];
    const int depth = draft.tree.depth(node), most = draft.tree.depth(found[best].node);
    if (depth > most || (depth == most && log_p > found[best].log_p)) best = i;
    draft.tree.children(node, children);
    if (children.empty()) continue;
    const TargetRow row = rows(node);
    const Accepted accepted = kCriterion(row, options);
    for (const int child : children) {
      const Token token = draft.tree.token(child);
      const Distribution* q = draft.q_at(child);
      SPECLAB_CHECK(q == nullptr || q->vocab() == row.p->vocab(), "draft row of {} tokens, target row of {}",
                    q->vocab(), row.p->vocab());
      out.tested.push_back({child, row.p->prob(token), q != nullptr ? q->prob(token) : 1.0,
                            out.want_expected ? accepted.mass(q, token) : -1,
                            out.want_ranks ? criterion_row(row).rank(token) : -1, false});
      if (accepted(token)) found.push_back({child, log_p + log_of_accepted(criterion_row(row).prob(token))});
    }
  }
  const int last = found[best].node;
  draft.tree.path_to(last, out.path);
  const auto on_path = [&](int node) { return std::ranges::find(out.path, node) != out.path.end(); };
  // A token counts as tested if all tokens before it were accepted.
  std::erase_if(out.tested, [&](const Acceptance::Tested& tested) {
    const int parent = draft.tree.parent(tested.node);
    return parent != 0 && !on_path(parent);
  });
  for (Acceptance::Tested& tested : out.tested) tested.accepted = on_path(tested.node);
  draft.tree.children(last, children);
  out.bonus = children.empty();
  // After a rejection these rules draw from the same law as after full acceptance.
  out.next = rule.bonus(rows(last), coins, position + draft.tree.depth(last) + 1, options);
}

template <Criterion kCriterion>
double expected(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions& options) {
  return kCriterion(row, options).mass(q, one_hot);
}

template <Criterion kCriterion, bool kTypical>
void output_law(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions& options,
                std::vector<double>& law) {
  thread_local std::vector<double> drawn;
  if (kTypical && !row.p->one_hot()) {
    typical_weights(row, options, law);
  } else {
    row.p->probabilities(law);
  }
  double sum = 0;
  for (const double w : law) sum += w;
  const Accepted in = kCriterion(row, options);
  law_of_draft(row, q, one_hot, drawn);
  double accepted = 0;
  for (std::size_t x = 0; x < law.size(); ++x) {
    if (!in(static_cast<Token>(x))) drawn[x] = 0;
    accepted += drawn[x];
  }
  const double left = std::max(0.0, 1 - accepted) / sum;
  for (std::size_t x = 0; x < law.size(); ++x) law[x] = drawn[x] + left * law[x];
}

LossClass lossy(const RuleOptions&, const SamplingParams&) { return LossClass::l3; }
/// The strictest parameter accepts only the argmax. At temperature 0 the text is then the greedy text.
LossClass loss_beta(const RuleOptions& o, const SamplingParams& s) {
  return o.beta <= 1 && s.temperature <= 0 ? LossClass::l2 : LossClass::l3;
}
LossClass loss_gap(const RuleOptions& o, const SamplingParams& s) {
  return o.gap <= 0 && s.temperature <= 0 ? LossClass::l2 : LossClass::l3;
}
LossClass loss_specdec(const RuleOptions& o, const SamplingParams& s) {
  return (o.beta <= 1 || o.gap <= 0) && s.temperature <= 0 ? LossClass::l2 : LossClass::l3;
}
LossClass loss_distance(const RuleOptions& o, const SamplingParams& s) {
  return o.distance <= 0 && s.temperature <= 0 ? LossClass::l2 : LossClass::l3;
}
LossClass loss_minimum_block(const RuleOptions& o, const SamplingParams& s) {
  return o.min_block <= 1 ? loss_beta(o, s) : LossClass::l3;
}

constexpr std::array kReadsBeta = {&kBeta};
constexpr std::array kReadsGap = {&kGap};
constexpr std::array kReadsSpecdec = {&kBeta, &kGap};
constexpr std::array kReadsDistance = {&kDistance};
constexpr std::array kReadsMinimumBlock = {&kMinBlock, &kBeta};
constexpr std::array kReadsTypical = {&kEpsilon, &kDelta};
constexpr std::array kReadsThreshold = {&kTheta, &kThresholdTopK};

template <CriterionForm (*kForm)(const RuleOptions&)>
DeviceRule on_device(const RuleOptions& options, const SamplingParams&) {
  return {.rule = AcceptRule::kCriterion, .criterion = kForm(options)};
}

const std::array<AcceptanceRule, 7> kRules = {{
    {"top_beta", "accept when x is one of the beta most probable tokens, else a token of p",
     "Stern et al. 2018 (blockwise parallel decoding), top-k selection", loss_beta, kReadsBeta,
     test<top_beta, sample_target>, sample_target, expected<top_beta>, output_law<top_beta, false>,
     on_device<top_beta_form>},
    {"gap", "accept when log p(best) - log p(x) <= gap, else a token of p",
     "Xia et al. 2023 (SpecDec), relaxed verification", loss_gap, kReadsGap, test<gap, sample_target>,
     sample_target, expected<gap>, output_law<gap, false>, on_device<gap_form>},
    {"typical", "accept when p(x) > min(epsilon, delta exp(-H(p))), else a token of p within that set",
     "Cai et al. 2024 (Medusa), typical acceptance; Hewitt et al. 2022 (eta-sampling)", lossy, kReadsTypical,
     test<typical, typical_target>, typical_target, expected<typical>, output_law<typical, true>,
     on_device<typical_form>},
    {"threshold", "accept when p(x) >= theta (and x is among the threshold_top_k best), else a token of p",
     "hard threshold on the target's probability", lossy, kReadsThreshold, test<threshold, sample_target>,
     sample_target, expected<threshold>, output_law<threshold, false>, on_device<threshold_form>},
    {"specdec",
     "accept when x is one of the beta most probable tokens and log p(best) - log p(x) <= gap, else a token "
     "of p",
     "Xia et al. 2023 (SpecDec), both conditions of the relaxed verification", loss_specdec, kReadsSpecdec,
     test<specdec, sample_target>, sample_target, expected<specdec>, output_law<specdec, false>,
     on_device<specdec_form>},
    {"distance",
     "accept when the ids of x and of the best token differ by at most token_distance, else a token of p",
     "Stern et al. 2018 (blockwise parallel decoding), distance-based selection", loss_distance,
     kReadsDistance, test<token_distance, sample_target>, sample_target, expected<token_distance>,
     output_law<token_distance, false>, on_device<distance_form>},
    {.name = "minimum_block",
     .summary = "accept the first min_block - 1 drafted tokens of the step unless p(x) = 0, then as top_beta",
     .source = "Stern et al. 2018 (blockwise parallel decoding), minimum block size",
     .loss = loss_minimum_block,
     .options = kReadsMinimumBlock,
     .test = nullptr,
     .bonus = sample_target,
     .expected = expected<minimum_block>,
     .output_law = output_law<minimum_block, false>,
     .device_form = on_device<minimum_block_form>,
     .judges_whole_paths = true,
     .accepts_by_depth = true,
     .verify = verify_minimum_block},
}};

template <CriterionForm (*kForm)(const RuleOptions&)>
DeviceRule longest_on_device(const RuleOptions& options, const SamplingParams&) {
  return {.rule = AcceptRule::kLongest, .criterion = kForm(options)};
}

/// The rule with the name `walks`, changed to accept the longest path of a tree.
template <Criterion kCriterion, CriterionForm (*kForm)(const RuleOptions&)>
AcceptanceRule longest(std::string_view walks, std::string_view name, std::string_view summary) {
  AcceptanceRule rule = *std::ranges::find(kRules, walks, &AcceptanceRule::name);
  rule.name = name;
  rule.summary = summary;
  rule.test = nullptr;
  rule.device_form = longest_on_device<kForm>;
  rule.verify = verify_longest<kCriterion>;
  return rule;
}

}  // namespace

CriterionForm top_beta_form(const RuleOptions& o) { return {.ranks = o.beta}; }
CriterionForm gap_form(const RuleOptions& o) { return {.of_best = o.gap > 0 ? std::exp(-o.gap) : 1}; }
CriterionForm specdec_form(const RuleOptions& o) {
  CriterionForm form = gap_form(o);
  form.ranks = o.beta;
  return form;
}
CriterionForm distance_form(const RuleOptions& o) { return {.nearby = o.distance}; }
CriterionForm minimum_block_form(const RuleOptions& o) {
  CriterionForm form = top_beta_form(o);
  form.untested = o.min_block - 1;
  return form;
}
CriterionForm typical_form(const RuleOptions& o) {
  return {.bar = o.epsilon, .typical = true, .delta = o.delta};
}
CriterionForm threshold_form(const RuleOptions& o) {
  return {.bar = o.theta, .ranks = o.top_k, .always_best = false};
}
CriterionForm near_argmax_form(const RuleOptions& o) { return {.of_best = o.lenience}; }

std::span<const AcceptanceRule> criterion() { return kRules; }

std::span<const AcceptanceRule> longest_path() {
  static const std::array<AcceptanceRule, 6> rules = {
      longest<top_beta, top_beta_form>("top_beta", "top_beta_longest",
                                       "top_beta; on trees the longest accepted path"),
      longest<gap, gap_form>("gap", "gap_longest", "gap; on trees the longest accepted path"),
      longest<typical, typical_form>("typical", "typical_longest",
                                     "typical; on trees the longest accepted path"),
      longest<threshold, threshold_form>("threshold", "threshold_longest",
                                         "threshold; on trees the longest accepted path"),
      longest<specdec, specdec_form>("specdec", "specdec_longest",
                                     "specdec; on trees the longest accepted path"),
      longest<token_distance, distance_form>("distance", "distance_longest",
                                             "distance; on trees the longest accepted path")};
  return rules;
}

}  // namespace speclab::rules
