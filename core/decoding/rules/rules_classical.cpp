// Two rules of textbook rejection sampling. With M = max p/q, the function M q is at least p everywhere; it
// is called the envelope of p. A token x ~ q is accepted with probability p(x) / (M q(x)). On average over
// the draw of x, this is 1/M. If q is zero on a part of the support of p, M is infinite and the rules never
// accept. A comparison with these rules shows what speculative sampling gains.
#include <algorithm>
#include <array>
#include <limits>

#include "core/decoding/rules/rules.h"

namespace speclab::rules {
namespace {

/// 1 / M = min over the support of p of q / p.
double envelope(const Distribution& p, const Distribution* q, Token one_hot) {
  if (q == nullptr || q->one_hot()) {
    const Token token = q == nullptr ? one_hot : q->argmax();
    return p.prob(token) >= 1 ? 1 : 0;
  }
  if (p.one_hot()) return q->prob(p.argmax());
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t x = 0; x < p.weights().size(); ++x) {
    const double px = static_cast<double>(p.weights()[x]);
    if (px > 0) least = std::min(least, static_cast<double>(q->weights()[x]) / px);
  }
  return inverse_envelope_of(least, p.sum(), q->sum());
}

double acceptance(const Distribution& p, const Distribution* q, Token token, double inverse_m) {
  if (inverse_m <= 0) return 0;
  return envelope_acceptance(p.prob(token), q != nullptr ? q->prob(token) : 1, inverse_m);
}

/// Tests each child on its own. No residual is needed: an accepted child has the distribution p, and so has
/// the correction after rejections.
bool test_children(const NodeTest& node, NodeVerdict& out) {
  out.accepted = out.correction = -1;
  out.expected.clear();
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const auto [token, q] = node.children[i];
    const double inverse_m = envelope(*node.row.p, q, token);
    out.expected.push_back(inverse_m);
    if (node.coins->bernoulli(acceptance(*node.row.p, q, token, inverse_m),
                              {node.position, Purpose::accept, static_cast<std::uint32_t>(i)})) {
      out.accepted = static_cast<int>(i);
      return true;
    }
  }
  return false;
}

void test_non_iterative(const NodeTest& node, const RuleOptions&, NodeVerdict& out) {
  if (!test_children(node, out))
    out.correction = node.row.p->sample(*node.coins, {node.position, Purpose::residual, 0});
}

void test_iterative(const NodeTest& node, const RuleOptions&, NodeVerdict& out) {
  if (test_children(node, out)) return;
  const Distribution& p = *node.row.p;
  const auto [last, q] = node.children.back();
  const double inverse_m = envelope(p, q, last);
  // Drawing again is useless for a one-hot row, because only its token is accepted.
  if (inverse_m > 0 && q != nullptr && !p.one_hot()) {
    const auto first = static_cast<std::uint32_t>(node.children.size());
    for (std::uint32_t i = 0; i < kMostRedraws; ++i) {
      const Token again = q->sample(*node.coins, {node.position, Purpose::residual, 1 + i});
      if (node.coins->bernoulli(acceptance(p, q, again, inverse_m),
                                {node.position, Purpose::accept, first + i})) {
        out.correction = again;
        return;
      }
    }
  }
  out.correction = p.sample(*node.coins, {node.position, Purpose::residual, 0});
}

double expected(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions&) {
  return envelope(*row.p, q, one_hot);
}

template <AcceptRule kRule>
DeviceRule on_device(const RuleOptions&, const SamplingParams&) {
  return {.rule = kRule};
}

const std::array<AcceptanceRule, 2> kRules = {{
    {"non_iterative",
     "accept when u < p/(M q), M = max p/q, else one fresh draw from p",
     "Leviathan et al. 2023 appendix A.2",
     lossless,
     {},
     test_non_iterative,
     sample_target,
     expected,
     law_of_target,
     on_device<AcceptRule::kEnvelope>},
    {.name = "iterative",
     .summary = "accept when u < p/(M q), M = max p/q, else draw again from q until one is accepted",
     .source = "von Neumann 1951; Leviathan et al. 2023 appendix A.2",
     .loss = lossless,
     .options = {},
     .test = test_iterative,
     .bonus = sample_target,
     .expected = expected,
     .output_law = law_of_target,
     .device_form = on_device<AcceptRule::kEnvelopeAgain>,
     .draws_until_accepted = true},
}};

}  // namespace

std::span<const AcceptanceRule> classical() { return kRules; }

}  // namespace speclab::rules
