#include "core/theory/predictions.h"

#include <cmath>
#include <utility>

#include "core/theory/chain.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

constexpr const char* kIid = "every tested token is accepted with the same alpha, independently; gamma fixed";
constexpr const char* kIdealCosts = "t(n) = t(1) for n <= gamma + 1, nothing but draft and target takes time";

std::string both(const char* first, const char* second) { return std::string(first) + "; " + second; }

/// Collects the predictions. The name of every formula is written once, in this class.
class List {
 public:
  explicit List(const PredictionInputs& in) : in_(in) {}

  std::vector<Prediction> all() {
    iid();
    measured_rows();
    positions();
    mixture();
    costs();
    implied();
    lookahead();
    return std::move(out_);
  }

 private:
  using Kind = PredictionKind;

  void add(const char* name, double value, const char* quantity, const char* equation,
           std::string assumptions, Kind kind = Kind::prediction, std::optional<stats::Interval> ci = {}) {
    out_.push_back({name, value, quantity, equation, std::move(assumptions), kind, ci});
  }

  /// If a step drafts at most one token, tau by Eq. 1 follows from the counts that give alpha, so it is an
  /// identity.
  static Kind one_token_is_an_identity(int longest) {
    return longest <= 1 ? Kind::identity : Kind::prediction;
  }

  void iid() {
    if (!in_.alpha) return;
    const double alpha = *in_.alpha;
    if (in_.gamma) {
      add("leviathan_eq_1", expected_tokens(alpha, *in_.gamma), "tau", "(1 - alpha^(gamma+1)) / (1 - alpha)",
          kIid, one_token_is_an_identity(*in_.gamma));
    }
    if (require_probability("alpha", alpha) < 1) {
      add("leviathan_limit", expected_tokens_limit(alpha), "tau", "1 / (1 - alpha)",
          "as Eq. 1 with gamma without end, or chosen with hindsight for every step", Kind::bound);
    }
    if (in_.gamma && in_.c) {
      add("leviathan_3_8", walltime_improvement(alpha, *in_.gamma, *in_.c), "speedup",
          "(1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + 1))", both(kIid, kIdealCosts));
    }
    if (in_.c) {
      const bool helps = some_gamma_helps(alpha, *in_.c);
      add("leviathan_3_9", helps ? improvement_lower_bound(alpha, *in_.c) : 1, "speedup",
          "alpha > c: at least (1 + alpha) / (1 + c); else 1",
          both(helps ? "lower bound for the best gamma" : "alpha <= c: no gamma helps",
               both(kIid, kIdealCosts).c_str()),
          Kind::bound);
    }
    if (in_.gamma && in_.c_hat) {
      add("leviathan_3_11_ops", operations_factor(alpha, *in_.gamma, *in_.c_hat), "ops_factor",
          "(1 - alpha)(gamma c_hat + gamma + 1) / (1 - alpha^(gamma+1))",
          both(kIid, "attention does not grow with context"));
    }
    if (in_.c) {
      const OptimalGamma best = optimal_gamma(alpha, *in_.c, in_.max_gamma);
      add("optimal_gamma", best.gamma, "gamma", "argmax over gamma of 3.8",
          both(best.at_limit ? "still growing at the largest gamma tried" : "best of all gammas",
               both(kIid, kIdealCosts).c_str()),
          Kind::optimum);
      add("optimal_speedup", best.speedup, "speedup", "max over gamma of 3.8", both(kIid, kIdealCosts),
          Kind::optimum);
    }
  }

  void measured_rows() {
    if (!in_.alpha || !in_.c || !in_.target) return;
    const char* assumptions = "no time but draft and target";
    if (in_.gamma) {
      add("measured_t_speedup",
          walltime_improvement(*in_.alpha, *in_.gamma, *in_.c, in_.target->ratio(*in_.gamma + 1)), "speedup",
          "(1 - alpha^(gamma+1)) / ((1 - alpha)(gamma c + t(gamma+1)))", both(kIid, assumptions));
    }
    const OptimalGamma best = optimal_gamma_at_costs(*in_.alpha, *in_.c, *in_.target, in_.max_gamma);
    std::vector<double> gammas, speedups;
    for (const ResampledCosts& costs : in_.resampled) {
      const OptimalGamma other = optimal_gamma_at_costs(*in_.alpha, costs.c, costs.target, in_.max_gamma);
      gammas.push_back(other.gamma), speedups.push_back(other.speedup);
    }
    const std::string chosen =
        both("t(n) is the monotone fit of the measured times", both(kIid, assumptions).c_str());
    add("optimal_gamma_measured_t", best.gamma, "gamma",
        "argmax over gamma of E[tau] / (gamma c + t(gamma+1))", chosen, Kind::optimum, whole(middle(gammas)));
    add("optimal_speedup_measured_t", best.speedup, "speedup",
        "max over gamma of E[tau] / (gamma c + t(gamma+1))", chosen, Kind::optimum, middle(speedups));
  }

  /// Draft lengths are whole numbers, so the interval is widened to whole ends.
  static std::optional<stats::Interval> whole(std::optional<stats::Interval> gammas) {
    if (gammas) gammas = stats::Interval{std::floor(gammas->lo), std::ceil(gammas->hi)};
    return gammas;
  }

  /// The interval that holds the middle 95 % of the values.
  static std::optional<stats::Interval> middle(const std::vector<double>& values) {
    if (values.size() < 2) return std::nullopt;
    return stats::Interval{stats::quantile(values, .025), stats::quantile(values, .975)};
  }

  void positions() {
    if (in_.acceptance.empty()) return;
    const double tokens = positional_expected_tokens(in_.acceptance);
    add("positional", tokens, "tau", "1 + sum_i prod_{j<=i} a_j",
        "none beyond a fixed gamma and texts whose end cuts no step; exact for the measured a_j",
        Kind::identity);
    if (!in_.c) return;
    const int gamma = static_cast<int>(in_.acceptance.size());
    const double t_verify = in_.target ? in_.target->ratio(gamma + 1) : 1;
    add("positional_speedup", tokens / break_even_tokens(gamma, *in_.c, t_verify), "speedup",
        "(1 + sum_i prod_{j<=i} a_j) / (gamma c + t(gamma+1))",
        in_.target ? "no time but draft and target" : kIdealCosts);
  }

  void mixture() {
    if (!in_.alpha || !in_.lengths) return;
    const char* assumptions =
        "every tested token is accepted with the same alpha, whatever draft length was chosen";
    add("mixture_eq_1", mixture_expected_tokens(*in_.alpha, *in_.lengths), "tau",
        "mean over steps of (1 - alpha^(gamma_i+1)) / (1 - alpha)", assumptions,
        one_token_is_an_identity(longest()));
    if (!in_.c) return;
    add("mixture_speedup", mixture_speedup(*in_.alpha, *in_.c, *in_.lengths, in_.target.value_or(RowTimes())),
        "speedup", "sum_i E[tau_i] / sum_i (t(gamma_i+1) + gamma_i c)",
        both(assumptions, "no time but draft and target"));
  }

  /// Length of the longest draft that occurred.
  int longest() const {
    std::size_t most = in_.lengths->size();
    while (most > 1 && (*in_.lengths)[most - 1] == 0) --most;
    return static_cast<int>(most) - 1;
  }

  void costs() {
    if (in_.gamma && in_.c) {
      add("break_even",
          break_even_tokens(*in_.gamma, *in_.c, in_.target ? in_.target->ratio(*in_.gamma + 1) : 1), "tau",
          "gamma c + t(gamma+1)", in_.target ? "no time but draft and target" : kIdealCosts, Kind::bound);
    }
    if (in_.tau && in_.times) {
      add("measured_costs", measured_cost_speedup(*in_.tau, *in_.times), "speedup",
          "tau t_ar / (draft + target + accept + other)", "calibrated times hold in the run");
    }
    if (in_.gamma && (in_.r || in_.tau)) {
      const double r = in_.r ? *in_.r : chen_r(*in_.tau, *in_.gamma);
      if (in_.c) {
        add("chen_ratio", chen_ratio(r, *in_.gamma, *in_.c, 1), "speedup", "r'(K+1) t_t / (K t_d + t_t)",
            both("measured r' = tau / (K + 1)", kIdealCosts));
      }
      add("chen_limit", chen_limit(r, *in_.gamma), "speedup", "r'(K+1)",
          both("measured r' = tau / (K + 1), a draft that costs nothing", kIdealCosts), Kind::bound);
    }
  }

  void implied() {
    if (!in_.gamma) return;
    if (in_.tau) {
      if (const auto alpha = alpha_from_tokens(*in_.tau, *in_.gamma)) {
        add("implied_alpha_tau", *alpha, "alpha", "Eq. 1 solved for alpha", kIid,
            one_token_is_an_identity(*in_.gamma));
      }
    }
    if (in_.speedup && in_.c) {
      const double t_verify = in_.target ? in_.target->ratio(*in_.gamma + 1) : 1;
      if (const auto alpha = alpha_from_speedup(*in_.speedup, *in_.gamma, *in_.c, t_verify)) {
        add("implied_alpha_speedup", *alpha, "alpha", "E[tau] / (gamma c + t(gamma+1)) solved for alpha",
            both(kIid, in_.target ? "no time but draft and target" : kIdealCosts));
      }
    }
  }

  // Fu et al. 2024, Eq. 5 (the paper has b = W = G) and Eq. 7. The form for W != G is our extension.
  void lookahead() {
    if (!in_.alpha || !in_.lookahead) return;
    const LookaheadShape& shape = *in_.lookahead;
    const bool square = shape.W == shape.G;
    const double share = require_probability("share of W", in_.share.value_or(.5));
    const LookaheadLaw every{.alpha = *in_.alpha, .f = 1, .share = share};
    const char* guesses = "a guess's tokens are right with the same alpha, independently";
    const std::string extended = square ? "" : "; b = W^s G^(1-s) is ours: the paper has W = G";
    add("lookahead_eq5", every.compression(shape), "tau", "N - sum_{i<N} (1 - alpha^i)^b",
        both(guesses, "every step has guesses") + extended);
    if (!in_.f) return;
    LookaheadLaw law = every;
    law.f = *in_.f;
    add(square ? "lookahead_eq7" : "lookahead_eq7_extended", law.compression(shape), "tau",
        "(f - 1 + N - sum_{i<N} (1 - alpha^i)^b) / f",
        both(guesses, "one step in f has good guesses") + extended);
    add("lookahead_rows", lookahead_rows(shape), "rows_per_step", "(W + G)(N - 1)",
        "no two guesses begin alike, every token has G guesses");
    if (!in_.target) return;
    const char* costs = "all rows are fed, nothing but the forward takes time";
    add("lookahead_speedup", predict_lookahead(law, shape, *in_.target).speedup, "speedup",
        "S / t((W + G)(N - 1))", costs);
    const LookaheadChoice best =
        best_lookahead(law, in_.target->monotone(), kWidestLookahead, kLongestLookahead);
    const std::string searched = both(
        "argmax over W = G and N; 0: decode autoregressively; t(n) is the monotone fit of the measured times",
        costs);
    add("lookahead_best_W", best.shape.W, "W", "argmax of S / t(2 W (N - 1))", searched, Kind::optimum);
    add("lookahead_best_N", best.shape.N, "N", "argmax of S / t(2 W (N - 1))", searched, Kind::optimum);
    add("lookahead_best_speedup", best.speedup, "speedup", "max of S / t(2 W (N - 1))", searched,
        Kind::optimum);
  }

  const PredictionInputs& in_;
  std::vector<Prediction> out_;
};

}  // namespace

std::string_view to_string(PredictionKind kind) {
  switch (kind) {
    case PredictionKind::identity: return "identity";
    case PredictionKind::bound: return "bound";
    case PredictionKind::optimum: return "optimum";
    case PredictionKind::what_if: return "what_if";
    case PredictionKind::prediction: break;
  }
  return "prediction";
}

std::vector<Prediction> predictions(const PredictionInputs& inputs) { return List(inputs).all(); }

}  // namespace speclab::theory
