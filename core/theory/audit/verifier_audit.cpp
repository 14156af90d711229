#include "core/theory/audit/verifier_audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>

namespace speclab::audit {
namespace {

using enumerate::Rows;

constexpr double kLeast = 1e-9;  // runs of a rule that draws until it accepts are cut at this probability

const char* name(Rows rows) {
  switch (rows) {
    case Rows::generic: return "generic";
    case Rows::zeros: return "zeros";
    case Rows::equal: return "p = q";
    case Rows::disjoint: return "disjoint p and q";
    case Rows::one_hot_p: return "one-hot p";
    case Rows::one_hot_q: return "one-hot q";
    case Rows::near: return "q near p";
  }
  return "";
}

const char* name(Draws draws) {
  switch (draws) {
    case Draws::iid: return "sampled draft";
    case Draws::swor: return "draft without replacement";
    case Draws::two_models: return "drafts of two models";
    case Draws::one_hot: return "copied draft";
    case Draws::duplicates: return "copied draft with duplicates";
    case Draws::mixed: return "sampled and copied draft";
  }
  return "";
}

bool is_chain(const Shape& shape) {
  return std::ranges::all_of(shape.widths, [](int width) { return width == 1; });
}

/// Two probabilities of each history h: that the tokens of a step begin with h, and that they are exactly h.
struct Emitted {
  std::map<Outcome, double> begins, ends;
  static double at(const std::map<Outcome, double>& masses, const Outcome& h) {
    const auto it = masses.find(h);
    return it == masses.end() ? 0 : it->second;
  }
};

/// A history and three probabilities. A step may emit fewer tokens than the history has. Its text is then
/// completed with tokens that are drawn from the target.
struct History {
  Outcome tokens;
  double found = 1;      ///< P(the completed text begins with `tokens`)
  double completed = 0;  ///< the part of `found` from steps that emitted no more than `tokens`
  double target = 1;     ///< P(a text of the target begins with `tokens`)
};

StepLaw compare(const World& world, const Emitted& emitted, std::size_t length, double tolerance) {
  StepLaw law;
  std::vector<History> level = {{}};
  for (std::size_t depth = 0; depth < length; ++depth) {
    std::vector<History> next;
    double error = 0;
    for (const History& h : level) {
      const Distribution& p = world.at(h.tokens).p;
      double wrong = 0;
      std::vector<double> found;
      for (Token x = 0; x < world.vocab; ++x) {
        History longer = h;
        longer.tokens.push_back(x);
        const double from_completion = h.completed * p.prob(x);
        longer.found = from_completion + Emitted::at(emitted.begins, longer.tokens);
        longer.completed = from_completion + Emitted::at(emitted.ends, longer.tokens);
        longer.target = h.target * p.prob(x);
        error = std::max(error, std::abs(longer.found - longer.target));
        wrong = std::max(wrong, std::abs(longer.found - h.found * p.prob(x)));
        found.push_back(h.found > 0 ? longer.found / h.found : 0);
        next.push_back(std::move(longer));
      }
      // The error of a text is at most the sum of `wrong` over its tokens.
      if (wrong > tolerance / static_cast<double>(length) && !law.failure) {
        std::vector<double> expected;
        p.probabilities(expected);
        law.failure = Failure{"", h.tokens, found, expected};
      }
    }
    if (depth == 0) law.first_error = error;
    law.joint_error = error;
    level = std::move(next);
  }
  return law;
}

/// Multiplies each p(x) by 1, 1.25 or 1.5 to make q(x), up to normalisation, in every context. A rule that
/// draws until it accepts then ends soon.
void bring_near(World& world, std::mt19937& random) {
  for (auto& [context, row] : world.rows) {
    std::vector<double> q;
    row.p.probabilities(q);
    for (double& w : q) w *= 1 + .25 * static_cast<double>(random() % 3);
    row.q[0].assign_weights(q);
    row.q[1].assign_weights(q);
  }
}

class Auditor {
 public:
  Auditor(const AcceptanceRule& rule, const RuleOptions& options, const Settings& settings, Shape shape)
      : rule_(rule),
        options_(options),
        settings_(settings),
        shape_(std::move(shape)),
        chain_(is_chain(shape_)),
        endless_(rule.draws_until_accepted),
        random_(settings.seed) {
    finding_.shape = fmt::format(
        "{} {}", chain_ ? "chain" : "tree",
        chain_ ? fmt::format("{}", shape_.widths.size()) : fmt::format("{}", fmt::join(shape_.widths, " ")));
  }

  Finding run() {
    golden();
    std::vector<Rows> kinds(std::begin(enumerate::kAllRows), std::end(enumerate::kAllRows));
    if (endless_) kinds = {Rows::generic, Rows::zeros};
    std::vector<Draws> all(std::begin(enumerate::kAllDraws), std::end(enumerate::kAllDraws));
    if (chain_) all = {Draws::iid, Draws::one_hot};  // with one child, other Draws are like these
    if (endless_) all = {Draws::iid};
    for (const Rows kind : kinds) {
      for (int vocab = 2; vocab <= std::min(settings_.max_vocab, most_tokens()); ++vocab) {
        for (const Draws draws : all) {
          if (!enumerate::takes(rule_, shape_, draws, kind)) continue;
          for (int i = 0; i < settings_.tables; ++i) {
            World world = enumerate::random_world(vocab, length(), kind, false, random_);
            if (endless_) bring_near(world, random_);
            add(world, draws, fmt::format("{}, {} tokens, {}", name(kind), vocab, name(draws)));
          }
        }
      }
    }
    return finding_;
  }

 private:
  int length() const { return static_cast<int>(shape_.widths.size()) + 1; }

  /// The largest vocabulary with which drafts of this shape are enumerated. A tree has vocab^nodes
  /// possible drafts.
  int most_tokens() const {
    int nodes = 0, level = 1;
    for (const int width : shape_.widths) nodes += level *= width;
    return chain_ ? 64 : nodes <= 3 ? 4 : nodes <= 4 ? 3 : 2;
  }

  void golden() {
    if (endless_) return;  // the runs of such a rule would be long
    if (!enumerate::takes(rule_, shape_, Draws::iid, Rows::generic)) return;
    const World world = enumerate::golden_world(length());
    finding_.golden_tau = add(world, Draws::iid, "golden pair, 4 tokens, sampled draft").tau;
    if (chain_) finding_.golden_optimum = best_tokens_of_chain(world, length() - 1);
  }

  StepLaw add(const World& world, Draws draws, const std::string& table) {
    const StepLaw law =
        enumerate_steps(world, shape_, draws, rule_, options_, settings_.tolerance, endless_ ? kLeast : 0);
    ++finding_.tables;
    finding_.runs += law.runs;
    finding_.first_error = std::max(finding_.first_error, law.first_error);
    finding_.joint_error = std::max(finding_.joint_error, law.joint_error);
    finding_.cut = std::max(finding_.cut, law.cut);
    bool failed = law.joint_error > law.cut + settings_.tolerance;
    if (chain_ && draws == Draws::iid) {
      const double excess = law.tau - best_tokens_of_chain(world, length() - 1);
      finding_.excess = std::max(finding_.excess.value_or(excess), excess);
      failed = failed || excess > settings_.tolerance;
    }
    if (failed && finding_.exact) {
      finding_.exact = false;
      finding_.failure = law.failure;
      if (finding_.failure) finding_.failure->table = table;
    }
    return law;
  }

  const AcceptanceRule& rule_;
  const RuleOptions& options_;
  const Settings& settings_;
  Shape shape_;
  bool chain_, endless_;
  std::mt19937 random_;
  Finding finding_;
};

double kept(const World& world, Outcome& path, int gamma, double probability, double rho) {
  if (static_cast<int>(path.size()) == gamma) return 0;
  const World::Row& row = world.at(path);
  double sum = 0;
  for (Token x = 0; x < world.vocab; ++x) {
    const double q = row.q[0].prob(x);
    if (!(q > 0)) continue;
    const double longer = std::min(1.0, rho * row.p.prob(x) / q);
    path.push_back(x);
    sum += probability * q * longer + kept(world, path, gamma, probability * q, longer);
    path.pop_back();
  }
  return sum;
}

}  // namespace

double best_tokens_of_chain(const World& world, int gamma) {
  Outcome path;
  return 1 + kept(world, path, gamma, 1, 1);
}

StepLaw enumerate_steps(const World& world, const Shape& shape, Draws draws, const AcceptanceRule& rule,
                        const RuleOptions& options, double tolerance, double least) {
  Emitted emitted;
  enumerate::Step step;
  double tau = 0;
  long runs = 0;
  const double cut = enumerate::walk(
      [&](const Coins& coins) { enumerate::run_step(world, shape, draws, rule, options, coins, step); },
      [&](double probability) {
        ++runs;
        tau += probability * static_cast<double>(step.emitted.size());
        emitted.ends[step.emitted] += probability;
        Outcome history;
        for (const Token token : step.emitted) {
          history.push_back(token);
          emitted.begins[history] += probability;
        }
      },
      least);
  StepLaw law = compare(world, emitted, shape.widths.size() + 1, cut + tolerance);
  law.tau = tau;
  law.cut = cut;
  law.runs = runs;
  return law;
}

std::string not_enumerable(const AcceptanceRule& rule) {
  if (rule.coins == CoinUse::gumbel)
    return "its tokens come from continuous noise that draft and target share, and the audit can enumerate "
           "only coins with finitely many outcomes";
  return "";
}

RuleOptions lossless_options() { return {.epsilon = 1}; }

std::vector<Finding> audit(const AcceptanceRule& rule, const RuleOptions& options, const Settings& settings) {
  std::vector<Shape> shapes;
  for (int gamma = 1; gamma <= settings.max_gamma; ++gamma)
    shapes.push_back({std::vector<int>(static_cast<std::size_t>(gamma), 1)});
  if (!rule.chains_only) {
    for (const Shape& tree :
         {Shape{{2}}, Shape{{3}}, Shape{{2, 1}}, Shape{{1, 2}}, Shape{{2, 2}}, Shape{{2, 1, 1}}}) {
      if (static_cast<int>(tree.widths.size()) <= settings.max_gamma) shapes.push_back(tree);
    }
  }
  std::vector<Finding> findings;
  for (const Shape& shape : shapes) {
    Finding finding = Auditor(rule, options, settings, shape).run();
    if (finding.tables > 0) findings.push_back(std::move(finding));  // else the rule refuses such drafts
  }
  return findings;
}

}  // namespace speclab::audit
