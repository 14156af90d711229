// The audit passes every lossless rule and finds faulty verifiers, also one whose first token is exact.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/theory/audit/verifier_audit.h"

namespace speclab::audit::verifier_audit_test {
namespace {

World golden_pair(int gamma) { return enumerate::golden_world(gamma + 1); }

constexpr Settings kSmall{.max_gamma = 2, .max_vocab = 3, .tables = 1};

Shape chain(int gamma) { return {std::vector<int>(static_cast<std::size_t>(gamma), 1)}; }

StepLaw on_golden_pair(const AcceptanceRule& rule, int gamma, const RuleOptions& options = {}) {
  return enumerate_steps(golden_pair(gamma), chain(gamma), Draws::iid, rule, options, 1e-9);
}

TEST(VerifierAudit, PassesEveryLosslessRule) {
  int rules = 0;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.loss(lossless_options(), {.temperature = 1}) != LossClass::l1 || !not_enumerable(rule).empty())
      continue;
    ++rules;
    for (const Finding& finding : audit(rule, lossless_options(), kSmall)) {
      EXPECT_TRUE(finding.exact) << rule.name << ", " << finding.shape;
      EXPECT_GT(finding.runs, finding.tables) << rule.name;
    }
  }
  EXPECT_GE(rules, 12);
}

TEST(VerifierAudit, FindsALenientRuleAtTheFirstToken) {
  const AcceptanceRule& rule = find_acceptance_rule("lenience");
  const std::vector<Finding> findings = audit(rule, {.lenience = .5}, kSmall);
  ASSERT_FALSE(findings.empty());
  for (const Finding& finding : findings) {
    EXPECT_FALSE(finding.exact) << finding.shape;
    EXPECT_GT(finding.first_error, .05) << finding.shape;
    ASSERT_TRUE(finding.failure.has_value());
    EXPECT_EQ(finding.failure->history, Outcome{}) << finding.shape;
    EXPECT_EQ(finding.failure->table, "golden pair, 4 tokens, sampled draft");
  }
}

/// The product of p/q along the draft, capped at 1 after each factor, or not capped.
std::vector<double> products(const DraftToJudge& judged, bool capped) {
  std::vector<double> rho = {1};
  for (int node = 1; node < judged.draft.tree.size(); ++node) {
    const Token x = judged.draft.tree.token(node);
    const double ratio = judged.rows(node - 1).p->prob(x) / judged.draft.q_at(node)->prob(x);
    rho.push_back(capped ? std::min(1.0, rho.back() * ratio) : rho.back() * ratio);
  }
  return rho;
}

/// Block verification of a chain of sampled tokens, written down a second time. `token_residual`: the
/// correction is drawn from (p - q)+. `uncapped`: the test of the whole draft takes the uncapped product.
template <bool token_residual, bool uncapped>
void faulty_block(const AcceptanceRule&, const RuleOptions&, const DraftToJudge& judged, Acceptance& out) {
  const std::vector<double> rho = products(judged, true);
  const int gamma = judged.draft.tree.size() - 1;
  const auto weights = [&](int i, double scale) {
    std::vector<double> p, q;
    judged.rows(i).p->probabilities(p);
    judged.draft.q_at(i + 1)->probabilities(q);
    for (std::size_t x = 0; x < p.size(); ++x) p[x] = std::max(0.0, scale * p[x] - q[x]);
    return p;
  };
  int length = gamma;
  const double last = uncapped ? products(judged, false).back() : rho.back();
  if (!judged.coins.bernoulli(std::min(1.0, last), {})) {
    for (length = gamma - 1; length > 0; --length) {
      const double at = rho[static_cast<std::size_t>(length)];
      double left = 0;
      for (const double w : weights(length, at)) left += w;
      if (judged.coins.bernoulli(left > 0 || at < 1 ? left / (left + 1 - at) : 1, {})) break;
    }
  }
  out.path.clear();
  for (int node = 1; node <= length; ++node) out.path.push_back(node);
  if (length == gamma) {
    out.next = judged.rows(gamma).p->sample(judged.coins, {});
  } else {
    const double scale = token_residual ? 1 : rho[static_cast<std::size_t>(length)];
    out.next = static_cast<Token>(judged.coins.categorical(weights(length, scale), {}));
  }
}

template <bool token_residual, bool uncapped>
AcceptanceRule rule_of() {
  AcceptanceRule rule = find_acceptance_rule("block");
  rule.verify = faulty_block<token_residual, uncapped>;
  return rule;
}

TEST(VerifierAudit, PassesASecondBlockVerification) {
  const AcceptanceRule rule = rule_of<false, false>();
  for (const int gamma : {1, 2, 3}) {
    const StepLaw law = on_golden_pair(rule, gamma);
    EXPECT_LT(law.joint_error, 1e-9) << gamma;
    EXPECT_NEAR(law.tau, best_tokens_of_chain(golden_pair(gamma), gamma), 1e-9) << gamma;
  }
}

TEST(VerifierAudit, FindsBlocksWithTheResidualOfTokens) {
  const StepLaw law = on_golden_pair(rule_of<true, false>(), 2);
  EXPECT_LT(law.first_error, 1e-9);
  EXPECT_NEAR(law.joint_error, .0066, 1e-7);
  EXPECT_NEAR(law.tau, 2.3675, 1e-6);
  ASSERT_TRUE(law.failure.has_value());
  EXPECT_EQ(law.failure->history, Outcome{1});
  EXPECT_NEAR(law.failure->expected[0], .55, 1e-7);
  EXPECT_NEAR(law.failure->found[0], .598, 1e-6);
}

// The first token is exact, and so is every chain of one token. Only the joint law and E[tau] show the fault.
TEST(VerifierAudit, FindsAnUncappedTestOfTheWholeDraft) {
  const AcceptanceRule rule = rule_of<false, true>();
  EXPECT_LT(on_golden_pair(rule, 1).joint_error, 1e-9);
  const StepLaw two = on_golden_pair(rule, 2), three = on_golden_pair(rule, 3);
  EXPECT_LT(two.first_error, 1e-9);
  EXPECT_NEAR(two.joint_error, .020625, 1e-7);
  EXPECT_LT(three.first_error, 1e-9);
  EXPECT_NEAR(three.tau, 2.973854, 1e-6);
  EXPECT_GT(three.tau, best_tokens_of_chain(golden_pair(3), 3) + .09);
}

TEST(BestTokensOfAChain, AreThoseOfBlockVerification) {
  const double golden[] = {1.75, 2.3675, 2.883625, 3.32580625};
  for (int gamma = 1; gamma <= 4; ++gamma)
    EXPECT_NEAR(best_tokens_of_chain(golden_pair(gamma), gamma), golden[gamma - 1], 1e-6) << gamma;
  std::mt19937 random(5);
  for (const enumerate::Rows rows : enumerate::kAllRows) {
    const World world = enumerate::random_world(3, 4, rows, false, random);
    const StepLaw law = enumerate_steps(world, chain(3), Draws::iid, find_acceptance_rule("block"), {}, 1e-9);
    EXPECT_NEAR(law.tau, best_tokens_of_chain(world, 3), 1e-12);
  }
}

}  // namespace
}  // namespace speclab::audit::verifier_audit_test
