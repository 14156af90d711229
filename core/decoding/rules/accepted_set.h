#pragma once

#include <algorithm>
#include <vector>

#include "core/backend/rule_forms.h"
#include "core/decoding/rules/accept.h"

namespace speclab::rules {

/// The set of tokens that a criterion rule accepts at one row. The criterion looks at criterion_row(). Tokens
/// of probability 0 are never in the set. With always_best the argmax of p is always in the set. So at
/// temperature 0 the strictest parameter accepts exactly the greedy token.
class Accepted {
 public:
  Accepted(const TargetRow& target, const CriterionForm& condition)
      : row_(criterion_row(target)),
        condition_(condition),
        best_(condition.always_best ? target.p->argmax() : -1) {
    bar_ = weight_to_reach(condition, condition.typical ? row_.entropy() : 0, row_.sum(),
                           compares_with_best(condition) ? weight(row_.argmax()) : 0);
    if (condition.ranks > 0 && condition.ranks < row_.vocab()) {
      thread_local std::vector<Token> top;
      row_.top(condition.ranks, top);
      last_ = top.back();
      last_weight_ = weight(last_);
    }
  }
  bool operator()(Token x) const { return x == best_ || passes(x, weight(x)); }
  /// The probability that a token drawn from q is in the set. If q is null: 1 if the token `one_hot` is in
  /// the set, else 0.
  double mass(const Distribution* q, Token one_hot) const {
    if (q == nullptr || q->one_hot()) return (*this)(q == nullptr ? one_hot : q->argmax()) ? 1 : 0;
    double mass = 0;
    for (Token x = 0; x < q->vocab(); ++x) {
      mass += (*this)(x) ? static_cast<double>(q->weights()[static_cast<std::size_t>(x)]) : 0;
    }
    return std::min(1.0, mass / q->sum());
  }

 private:
  double weight(Token x) const {
    return row_.one_hot() ? row_.prob(x) : static_cast<double>(row_.weights()[static_cast<std::size_t>(x)]);
  }
  bool passes(Token x, double w) const {
    return meets_criterion(condition_, bar_, best_, x, w) &&
           (w > last_weight_ || (w == last_weight_ && x <= last_));
  }

  const Distribution& row_;
  CriterionForm condition_;
  Token best_;
  double bar_;       // see weight_to_reach()
  Token last_ = -1;  // the least probable of the `ranks` best tokens; -1: no limit by rank
  double last_weight_ = -1;
};

CriterionForm top_beta_form(const RuleOptions& options);
CriterionForm gap_form(const RuleOptions& options);
CriterionForm specdec_form(const RuleOptions& options);
CriterionForm distance_form(const RuleOptions& options);
CriterionForm minimum_block_form(const RuleOptions& options);
CriterionForm typical_form(const RuleOptions& options);
CriterionForm threshold_form(const RuleOptions& options);
/// The form of the rule "lenience" at temperature 0. There p is one-hot, so the rule compares with the raw
/// row's best token.
CriterionForm near_argmax_form(const RuleOptions& options);

}  // namespace speclab::rules
