// Rules that accept by the ratio of target to draft probability, and after a rejection draw from the
// residual.
//
// All rules are one algorithm with different functions f(p) >= p (RatioForm): accept x ~ q with probability
// min(1, f(p(x)) / q(x)), else draw from norm((f(p) - q)+). Here y+ is max(y, 0), and norm divides a vector
// by its sum. With f(p) = p this is Algorithm 1 of Leviathan et al. 2023, which is lossless. If a node has
// several children, the normalised residual R takes the place of p after each rejection (Miao et al. 2024,
// Alg. 2). Three rules differ: uniform_b draws from norm((p - q)+), one_hot_rejection takes q as one-hot, and
// lenience at temperature 0 accepts tokens whose raw probability is near the largest one.
#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/base/exp_log.h"
#include "core/decoding/rules/accepted_set.h"
#include "core/decoding/rows/row_kernels.h"
#include "core/decoding/rules/rules.h"

namespace speclab::rules {
namespace {

double checked(double parameter) {
  SPECLAB_CHECK(parameter > 0 && parameter <= 1, "parameter {} of a lenient rule", parameter);
  return parameter;
}

RatioForm plain(const RuleOptions&) { return {}; }
RatioForm deterministic(const RuleOptions&) { return {.ignore_q = true}; }
RatioForm lenient(const RuleOptions& o) { return {.scale = 1 / checked(o.lenience)}; }
RatioForm uniform_to_b(const RuleOptions& o) { return {.scale = 1 / checked(o.b), .plain_residual = true}; }
RatioForm distillspec_lin(const RuleOptions& o) { return {.scale = 1 / checked(o.epsilon)}; }
RatioForm distillspec_sq(const RuleOptions& o) { return {.scale = 1 / (checked(o.epsilon) * o.epsilon)}; }
RatioForm distillspec_exp(const RuleOptions& o) { return {.power = checked(o.epsilon)}; }

/// The law that the next child is tested against: the target's row p, or the residual after rejections.
class Remainder {
 public:
  Remainder(const Distribution& p, std::vector<double>& memory) : p_(p), weights_(memory) {}

  double prob(Token x) const { return touched_ ? weights_[static_cast<std::size_t>(x)] / sum_ : p_.prob(x); }

  /// sum over x of min(q(x), boosted(f, prob(x))).
  double accepted_mass(const Distribution& q, const RatioForm& f) const {
    if (p_.one_hot())
      return std::min(q.prob(p_.argmax()), boosted(f, 1));  // the residual of a one-hot row is the row itself
    if (q.one_hot()) return std::min(1.0, boosted(f, prob(q.argmax())));
    if (!touched_ && f.power == 1)
      return row_kernels::sum_min({p_.weights(), f.scale / p_.sum()}, {q.weights(), 1 / q.sum()});
    double mass = 0;
    for (Token x = 0; x < p_.vocab(); ++x) mass += std::min(q.prob(x), boosted(f, prob(x)));
    return mass;
  }

  /// Let p be the present law. The law becomes norm((f(p) - q)+), or norm((p - q)+) with plain_residual. If
  /// q is null, all its mass is on `one_hot`. If no mass is left, the law stays unchanged. In that case p
  /// equals q up to rounding, so the rejection before this call had probability zero up to rounding.
  void subtract(const Distribution* q, Token one_hot, const RatioForm& f) {
    if (p_.one_hot()) return;
    if (q != nullptr && q->one_hot()) {
      one_hot = q->argmax();
      q = nullptr;
    }
    if (q != nullptr && !touched_ && f.power == 1) {
      weights_.resize(p_.weights().size());
      const double scale = f.plain_residual ? 1 : f.scale;
      sum_ = row_kernels::positive_difference({p_.weights(), scale / p_.sum()}, {q->weights(), 1 / q->sum()},
                                              weights_);
      touched_ = sum_ > 0;
      return;
    }
    if (q == nullptr && !touched_ && f.power == 1) {
      // Only the weight of the drafted token changes; a common factor of all weights does not matter.
      weights_.assign(p_.weights().begin(), p_.weights().end());
      const double unit = p_.sum() / (f.plain_residual ? 1 : f.scale);  // weight of probability one
      at(one_hot) = std::max(0.0, at(one_hot) - unit);
      sum_ = row_kernels::sum(weights_);
      touched_ = sum_ > 0;
      return;
    }
    if (touched_ && f.power == 1) {  // a further child of the node: one pass over the vocabulary
      subtract_again(q, one_hot, f);
      return;
    }
    if (!touched_) {
      p_.probabilities(weights_);
      sum_ = 1;
    }
    const double old_sum = sum_;
    row_kernels::FixedSum sum;
    for (Token x = 0; x < p_.vocab(); ++x) {
      sum.add(static_cast<std::size_t>(x), residual_weight(f, at(x) / old_sum, other(q, one_hot, x)));
    }
    const double left = sum.total();
    if (!(left > 0)) return;
    for (Token x = 0; x < p_.vocab(); ++x) at(x) = residual_weight(f, at(x) / old_sum, other(q, one_hot, x));
    sum_ = left;
    touched_ = true;
  }

  Token sample(const Coins& coins, std::int64_t position) const {
    const Coins::Address address{position, Purpose::residual, 0};
    return touched_ ? static_cast<Token>(coins.categorical(weights_, address)) : p_.sample(coins, address);
  }

 private:
  /// subtract() from a residual, for f without a power. The results have the bits that the loops at the end
  /// of subtract() give.
  void subtract_again(const Distribution* q, Token one_hot, const RatioForm& f) {
    thread_local std::vector<double> next;
    const double scale = f.plain_residual ? 1 : f.scale;
    next.resize(weights_.size());
    double left = 0;
    if (q != nullptr) {
      left = row_kernels::next_residual(weights_, sum_, scale, q->weights(), q->sum(), next);
    } else {
      for (std::size_t x = 0; x < next.size(); ++x) next[x] = scale * (weights_[x] / sum_);
      double& drafted = next[static_cast<std::size_t>(one_hot)];
      drafted = std::max(0.0, drafted - 1);
      left = row_kernels::sum(next);
    }
    if (!(left > 0)) return;
    weights_.swap(next);
    sum_ = left;
  }

  double& at(Token x) { return weights_[static_cast<std::size_t>(x)]; }
  static double other(const Distribution* q, Token one_hot, Token x) {
    return q != nullptr ? q->prob(x) : (x == one_hot ? 1.0 : 0.0);
  }

  const Distribution& p_;
  std::vector<double>& weights_;  // not normalised; valid when touched_
  double sum_ = 1;
  bool touched_ = false;
};

template <RatioForm (*kForm)(const RuleOptions&)>
void test(const NodeTest& node, const RuleOptions& options, NodeVerdict& out) {
  thread_local std::vector<double> memory;
  const RatioForm f = kForm(options);
  Remainder remainder(*node.row.p, memory);
  out.accepted = out.correction = -1;
  out.expected.clear();
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const auto [token, drawn_from] = node.children[i];
    const Distribution* q = f.ignore_q ? nullptr : drawn_from;
    const double q_token = q != nullptr ? q->prob(token) : 1;
    SPECLAB_CHECK(q_token > 0, "token {} was drawn from a row that gives it no mass", token);
    double expected = 0;
    if (!node.want_expected) {
      expected = -1;
    } else if (q != nullptr) {
      expected = remainder.accepted_mass(*q, f);
    } else if (drawn_from != nullptr && !drawn_from->one_hot()) {
      // The token was drawn but is tested as one-hot. Expected acceptance is the mean over its draw.
      if (i == 0) {
        expected = agreement(*node.row.p, *drawn_from);
      } else {
        for (Token x = 0; x < drawn_from->vocab(); ++x) expected += drawn_from->prob(x) * remainder.prob(x);
      }
    } else {
      expected = std::min(1.0, boosted(f, remainder.prob(token)));
    }
    out.expected.push_back(expected);
    const double ratio = boosted(f, remainder.prob(token)) / q_token;
    if (node.coins->bernoulli(ratio, {node.position, Purpose::accept, static_cast<std::uint32_t>(i)})) {
      out.accepted = static_cast<int>(i);
      return;
    }
    remainder.subtract(q, token, f);
  }
  out.correction = remainder.sample(*node.coins, node.position);
}

template <RatioForm (*kForm)(const RuleOptions&)>
double expected(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions& options) {
  thread_local std::vector<double> memory;
  const RatioForm f = kForm(options);
  if (q == nullptr) return std::min(1.0, boosted(f, row.p->prob(one_hot)));
  if (f.ignore_q) return agreement(*row.p, *q);
  return Remainder(*row.p, memory).accepted_mass(*q, f);
}

/// law(x) = min(q, f(p)) + (1 - accepted mass) * residual(x). If f(p) = p, this law is p.
template <RatioForm (*kForm)(const RuleOptions&)>
void output_law(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions& options,
                std::vector<double>& law) {
  thread_local std::vector<double> drawn;
  const RatioForm f = kForm(options);
  row.p->probabilities(law);
  law_of_draft(row, q, one_hot, drawn);
  double accepted = 0, left = 0;
  for (std::size_t x = 0; x < law.size(); ++x) {
    accepted += std::min(drawn[x], boosted(f, law[x]));
    left += residual_weight(f, law[x], drawn[x]);
  }
  if (!(left > 0)) return;  // nothing is left to draw: up to rounding everything is accepted, and p = q
  for (std::size_t x = 0; x < law.size(); ++x) {
    law[x] = std::min(drawn[x], boosted(f, law[x])) +
             std::max(0.0, 1 - accepted) * residual_weight(f, law[x], drawn[x]) / left;
  }
}

// The rule "lenience". At temperature 0 scaling a one-hot row would change nothing, so the test looks at the
// raw row.
void test_lenience(const NodeTest& node, const RuleOptions& options, NodeVerdict& out) {
  if (!node.row.p->one_hot()) {
    test<lenient>(node, options, out);
    return;
  }
  const Accepted near(node.row, near_argmax_form(options));
  out.accepted = out.correction = -1;
  out.expected.clear();
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const auto [token, q] = node.children[i];
    out.expected.push_back(node.want_expected ? near.mass(q, token) : -1);
    if (near(token)) {
      out.accepted = static_cast<int>(i);
      return;
    }
  }
  out.correction = node.row.p->argmax();
}

double expected_lenience(const TargetRow& row, const Distribution* q, Token one_hot,
                         const RuleOptions& options) {
  if (!row.p->one_hot()) return expected<lenient>(row, q, one_hot, options);
  return Accepted(row, near_argmax_form(options)).mass(q, one_hot);
}

void law_lenience(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions& options,
                  std::vector<double>& law) {
  if (!row.p->one_hot()) {
    output_law<lenient>(row, q, one_hot, options, law);
    return;
  }
  const Accepted near(row, near_argmax_form(options));
  law_of_draft(row, q, one_hot, law);
  double accepted = 0;
  for (std::size_t x = 0; x < law.size(); ++x) {
    if (!near(static_cast<Token>(x))) law[x] = 0;
    accepted += law[x];
  }
  law[static_cast<std::size_t>(row.p->argmax())] += std::max(0.0, 1 - accepted);
}

LossClass lossy_below_one(double parameter, const SamplingParams& sampling) {
  return parameter < 1 ? LossClass::l3 : lossless({}, sampling);
}
LossClass loss_lenience(const RuleOptions& o, const SamplingParams& s) {
  return lossy_below_one(o.lenience, s);
}
/// At temperature 0 p is one-hot, and scaling it changes nothing. The rule then accepts exactly the greedy
/// token.
LossClass loss_b(const RuleOptions& o, const SamplingParams& s) {
  return s.temperature <= 0 ? LossClass::l2 : lossy_below_one(o.b, s);
}
LossClass loss_epsilon(const RuleOptions& o, const SamplingParams& s) {
  return s.temperature <= 0 ? LossClass::l2 : lossy_below_one(o.epsilon, s);
}

template <RatioForm (*kForm)(const RuleOptions&)>
DeviceRule on_device(const RuleOptions& options, const SamplingParams&) {
  return {.rule = AcceptRule::kRatio, .form = kForm(options)};
}
DeviceRule lenience_on_device(const RuleOptions& options, const SamplingParams& sampling) {
  if (sampling.temperature > 0) return on_device<lenient>(options, sampling);
  return {.rule = AcceptRule::kCriterion, .criterion = near_argmax_form(options)};
}

constexpr std::array kReadsLenience = {&kLenience};
constexpr std::array kReadsB = {&kUpperEnd};
constexpr std::array kReadsEpsilon = {&kEpsilon};

const std::array<AcceptanceRule, 7> kRules = {{
    {.name = "rejection",
     .summary =
         "accept when u < p/q, else draw from norm(max(0, p - q)); after a rejected child, p is the residual",
     .source = "Leviathan et al. 2023 Alg. 1; Chen et al. 2023 Alg. 2; trees: Miao et al. 2024 (SpecInfer) "
               "Alg. 2 with given q_j",
     .loss = lossless,
     .options = {},
     .test = test<plain>,
     .bonus = sample_target,
     .expected = expected<plain>,
     .output_law = law_of_target,
     .device_form = on_device<plain>,
     .accepts_what_it_emits = true,
     .chain_law = ChainLaw::rejection},
    {.name = "one_hot_rejection",
     .summary =
         "treat every drafted token as one-hot: accept when u < p(x), else set p(x) to 0 and renormalise",
     .source = "Li et al. 2024 (EAGLE-2); Fu et al. 2024 (Lookahead) Alg. 4",
     .loss = lossless,
     .options = {},
     .test = test<deterministic>,
     .bonus = sample_target,
     .expected = expected<deterministic>,
     .output_law = law_of_target,
     .device_form = on_device<deterministic>,
     .accepts_what_it_emits = true},
    {"lenience",
     "accept when u < p/(l q), else draw from norm(max(0, p - l q)); T = 0: accept when p(x) >= l max p",
     "Leviathan et al. 2023 appendix A.5", loss_lenience, kReadsLenience, test_lenience, sample_target,
     expected_lenience, law_lenience, lenience_on_device},
    {"uniform_b", "accept when u < p/q with u ~ U[0, b], else draw from norm(max(0, p - q))",
     "toyllm, a GPT-2 reproduction of Chen et al. 2023", loss_b, kReadsB, test<uniform_to_b>, sample_target,
     expected<uniform_to_b>, output_law<uniform_to_b>, on_device<uniform_to_b>},
    {"distillspec_lin", "accept when u < f(p)/q, else draw from norm(max(0, f(p) - q)); f(p) = p/epsilon",
     "Zhou et al. 2024 (DistillSpec), lenience functions", loss_epsilon, kReadsEpsilon, test<distillspec_lin>,
     sample_target, expected<distillspec_lin>, output_law<distillspec_lin>, on_device<distillspec_lin>},
    {"distillspec_sq", "as distillspec_lin with f(p) = p/epsilon^2",
     "Zhou et al. 2024 (DistillSpec), lenience functions", loss_epsilon, kReadsEpsilon, test<distillspec_sq>,
     sample_target, expected<distillspec_sq>, output_law<distillspec_sq>, on_device<distillspec_sq>},
    {"distillspec_exp", "as distillspec_lin with f(p) = p^epsilon",
     "Zhou et al. 2024 (DistillSpec), lenience functions", loss_epsilon, kReadsEpsilon, test<distillspec_exp>,
     sample_target, expected<distillspec_exp>, output_law<distillspec_exp>, on_device<distillspec_exp>},
}};

}  // namespace

std::span<const AcceptanceRule> ratio() { return kRules; }

}  // namespace speclab::rules
