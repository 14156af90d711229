#include "core/theory/toys/toy_chain.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::theory {
namespace {

using toy::MarkovRows;

double mass_of(std::span<const double> law) {
  double sum = 0;
  for (const double x : law) sum += x;
  return sum;
}

void require_token_rule(ChainLaw rule, std::string_view what) {
  if (rule != ChainLaw::block) return;
  throw Error({std::string(what), "the rule block", "a rule that decides one token after the other",
               "The acceptance of a token under block depends on the tokens after it."});
}

void require_equal_shapes(const MarkovRows& p, const MarkovRows& q) {
  toy::require_rows("rows of the target", p);
  toy::require_rows("rows of the draft", q);
  if (p.vocab == q.vocab && p.order == q.order) return;
  throw Error({"rows of the draft", fmt::format("{} symbols and order {}", q.vocab, q.order),
               fmt::format("{} symbols and order {}, as in the target", p.vocab, p.order), ""});
}

/// All drafts that begin in one context.
class BlockPaths {
 public:
  BlockPaths(const MarkovRows& p, const MarkovRows& q, std::size_t begin,
             std::vector<std::vector<double>>& kept, std::vector<std::vector<double>>& residual,
             std::vector<std::vector<double>>& bonus)
      : p_(p), q_(q), begin_(begin), kept_(kept), residual_(residual), bonus_(bonus) {}

  /// A path of `depth` tokens that ends in `context`. It is drafted with probability `mass`.
  void walk(int context, std::size_t depth, double mass, double rho) {
    const auto contexts = static_cast<std::size_t>(p_.contexts());
    const std::size_t row = begin_ * contexts;
    const std::span<const double> p = p_.row(context), q = q_.row(context);
    kept_[depth][begin_] += mass * rho;
    for (int x = 0; x < p_.vocab; ++x) {
      const auto symbol = static_cast<std::size_t>(x);
      const std::size_t to = row + static_cast<std::size_t>(p_.next(context, x));
      bonus_[depth][to] += mass * rho * p[symbol];
      if (depth < residual_.size()) residual_[depth][to] += mass * std::max(0.0, rho * p[symbol] - q[symbol]);
    }
    if (depth == residual_.size()) return;
    for (int x = 0; x < p_.vocab; ++x) {
      const auto symbol = static_cast<std::size_t>(x);
      if (q[symbol] <= 0) continue;
      const double kept = std::min(1.0, rho * p[symbol] / q[symbol]);
      // No token is kept after a token that is never kept.
      if (kept > 0) walk(p_.next(context, x), depth + 1, mass * q[symbol], kept);
    }
  }

 private:
  const MarkovRows &p_, &q_;
  std::size_t begin_;
  std::vector<std::vector<double>>&kept_, &residual_, &bonus_;
};

/// start [n] times a matrix [n][n].
void multiply(std::span<const double> start, const std::vector<double>& matrix, std::vector<double>& out) {
  const std::size_t n = start.size();
  out.assign(n, 0.0);
  for (std::size_t from = 0; from < n; ++from) {
    if (start[from] == 0) continue;
    for (std::size_t to = 0; to < n; ++to) out[to] += start[from] * matrix[from * n + to];
  }
}

}  // namespace

ChainCounts& ChainCounts::operator+=(const ChainCounts& other) {
  steps += other.steps;
  emitted += other.emitted;
  drafted += other.drafted;
  tests += other.tests;
  accepted += other.accepted;
  return *this;
}

std::vector<double> accepted_law(std::span<const double> p, std::span<const double> q, ChainLaw rule) {
  require_token_rule(rule, "accepted_law");
  if (p.size() != q.size()) {
    throw Error({"rows p and q", fmt::format("{} and {} probabilities", p.size(), q.size()),
                 "rows of one length", ""});
  }
  std::vector<double> law(p.size());
  for (std::size_t x = 0; x < p.size(); ++x) {
    if (rule == ChainLaw::rejection) {
      law[x] = std::min(p[x], q[x]);
    } else if (rule == ChainLaw::sample_match) {
      law[x] = p[x] * q[x];
    } else if (p[x] > 0 && q[x] > 0) {  // coupling_acceptance() is the sum of these
      double below = 0;
      for (std::size_t y = 0; y < p.size(); ++y) below += std::max(p[y] / p[x], q[y] / q[x]);
      law[x] = 1 / below;
    }
  }
  return law;
}

double stationary_alpha(const MarkovRows& p, const MarkovRows& q, ChainLaw rule) {
  require_equal_shapes(p, q);
  const std::vector<double> law = toy::stationary_contexts(p);
  double alpha = 0;
  for (int context = 0; context < p.contexts(); ++context)
    alpha +=
        law[static_cast<std::size_t>(context)] * mass_of(accepted_law(p.row(context), q.row(context), rule));
  return alpha;
}

ToyChain::ToyChain(MarkovRows p, MarkovRows q, int gamma, ChainLaw rule)
    : p_(std::move(p)), q_(std::move(q)), gamma_(gamma), rule_(rule) {
  require_equal_shapes(p_, q_);
  require_gamma("gamma", gamma);
  contexts_ = static_cast<std::size_t>(p_.contexts());
  if (rule == ChainLaw::block) {
    enumerate_block();
    return;
  }
  for (int context = 0; context < p_.contexts(); ++context) {
    const std::vector<double> law = accepted_law(p_.row(context), q_.row(context), rule);
    accepted_.insert(accepted_.end(), law.begin(), law.end());
  }
}

void ToyChain::enumerate_block() {
  const double paths = static_cast<double>(contexts_) * std::pow(p_.vocab, gamma_);
  if (paths > kMostPaths || contexts_ > kMostBlockContexts) {
    throw Error({"block verification of a chain",
                 fmt::format("{} contexts and {:.3g} drafts", contexts_, paths),
                 fmt::format("at most {} contexts and {:.3g} drafts", kMostBlockContexts, kMostPaths),
                 "Take fewer symbols, a lower order or a smaller gamma."});
  }
  const auto gamma = static_cast<std::size_t>(gamma_);
  kept_.assign(gamma + 1, std::vector<double>(contexts_));
  residual_.assign(gamma, std::vector<double>(contexts_ * contexts_));
  bonus_.assign(gamma + 1, std::vector<double>(contexts_ * contexts_));
  for (std::size_t begin = 0; begin < contexts_; ++begin)
    BlockPaths(p_, q_, begin, kept_, residual_, bonus_).walk(static_cast<int>(begin), 0, 1, 1);
}

void ToyChain::advance_block(std::span<const double> start, int drafted, ChainCounts& counts,
                             const End& end) const {
  std::vector<double> mass;
  for (std::size_t i = 0; i < static_cast<std::size_t>(drafted); ++i) {
    multiply(start, residual_[i], mass);
    end(static_cast<int>(i) + 1, mass);
    for (std::size_t begin = 0; begin < contexts_; ++begin)
      counts.accepted += start[begin] * kept_[i + 1][begin];
  }
  multiply(start, bonus_[static_cast<std::size_t>(drafted)], mass);
  end(drafted + 1, mass);
}

void ToyChain::advance(std::span<const double> start, int drafted, ChainCounts& counts,
                       const End& end) const {
  const double steps = mass_of(start);
  counts.steps += steps;
  counts.drafted += steps * drafted;
  const End counted = [&](int emitted, std::span<const double> mass) {
    counts.emitted += emitted * mass_of(mass);
    end(emitted, mass);
  };
  if (rule_ == ChainLaw::block) {
    advance_block(start, drafted, counts, counted);
    return;
  }
  std::vector<double> here(start.begin(), start.end()), kept(contexts_), corrected(contexts_);
  for (int i = 0; i <= drafted; ++i) {
    const bool bonus = i == drafted;  // the token after the last drafted one has the law p
    kept.assign(contexts_, 0.0);
    corrected.assign(contexts_, 0.0);
    for (int context = 0; context < p_.contexts(); ++context) {
      const auto at = static_cast<std::size_t>(context);
      if (here[at] == 0) continue;
      const std::span<const double> p = p_.row(context);
      for (int x = 0; x < p_.vocab; ++x) {
        const auto symbol = static_cast<std::size_t>(x), to = static_cast<std::size_t>(p_.next(context, x));
        const double accepted = bonus ? 0 : accepted_[at * p.size() + symbol];
        kept[to] += here[at] * accepted;
        corrected[to] += here[at] * std::max(0.0, p[symbol] - accepted);
      }
    }
    if (!bonus) {
      counts.tests += mass_of(here);
      counts.accepted += mass_of(kept);
    }
    counted(i + 1, corrected);
    here.swap(kept);
  }
}

ChainCounts ToyChain::of_texts(std::span<const double> first, int tokens) const {
  if (first.size() != contexts_ || tokens < 0) {
    throw Error({"texts of a chain", fmt::format("{} first contexts and {} tokens", first.size(), tokens),
                 fmt::format("{} first contexts and no negative number of tokens", contexts_), ""});
  }
  ChainCounts counts;
  // mass[left]: expected number of steps that begin in each context when `left` tokens are missing.
  std::vector<std::vector<double>> mass(static_cast<std::size_t>(tokens) + 1, std::vector<double>(contexts_));
  mass.back().assign(first.begin(), first.end());
  for (int left = tokens; left > 0; --left) {
    const std::vector<double>& start = mass[static_cast<std::size_t>(left)];
    advance(start, std::min(gamma_, left - 1), counts, [&](int emitted, std::span<const double> ended) {
      std::vector<double>& to = mass[static_cast<std::size_t>(left - emitted)];
      for (std::size_t context = 0; context < contexts_; ++context) to[context] += ended[context];
    });
  }
  return counts;
}

ChainCounts ToyChain::long_run() const {
  constexpr int kMostIterations = 20'000;
  std::vector<double> law(contexts_, 1.0 / static_cast<double>(contexts_)), next(contexts_);
  for (int iteration = 0; iteration < kMostIterations; ++iteration) {
    ChainCounts counts;
    for (std::size_t context = 0; context < contexts_; ++context) next[context] = .5 * law[context];
    advance(law, gamma_, counts, [&](int, std::span<const double> ended) {
      for (std::size_t context = 0; context < contexts_; ++context) next[context] += .5 * ended[context];
    });
    // Rows that were rounded to float sum to 1 only up to 1e-7, so the mass is set to 1 again.
    const double sum = mass_of(next);
    double change = 0;
    for (std::size_t context = 0; context < contexts_; ++context) {
      next[context] /= sum;
      change += std::abs(next[context] - law[context]);
    }
    law.swap(next);
    if (change < 1e-13) return counts;
  }
  throw Error({"steps of a chain", fmt::format("no stationary law after {} iterations", kMostIterations),
               "a chain that forgets its first context sooner", "Take a lower sharpness."});
}

std::map<std::vector<int>, double> text_law(const MarkovRows& rows, int context, int tokens) {
  toy::require_rows("rows of a Markov chain", rows);
  constexpr double kMostTexts = 1e6;
  if (context < 0 || context >= rows.contexts() || tokens < 0 || std::pow(rows.vocab, tokens) > kMostTexts) {
    throw Error({"law of a text", fmt::format("context {}, {} tokens", context, tokens),
                 fmt::format("a context below {} and at most {:.0e} texts", rows.contexts(), kMostTexts),
                 ""});
  }
  std::map<std::vector<int>, double> law;
  law.emplace(std::vector<int>(), 1.0);
  for (int i = 0; i < tokens; ++i) {
    std::map<std::vector<int>, double> longer;
    for (const auto& [text, mass] : law) {
      const int last = text.empty() ? context : text.back();
      for (int x = 0; x < rows.vocab; ++x) {
        const double p = rows.row(last)[static_cast<std::size_t>(x)];
        if (p <= 0) continue;
        std::vector<int> with = text;
        with.push_back(rows.next(last, x));
        longer[std::move(with)] += mass * p;
      }
    }
    law.swap(longer);
  }
  return law;
}

std::vector<double> context_law(const MarkovRows& rows, std::span<const double> before, int tokens) {
  toy::require_rows("rows of a Markov chain", rows);
  if (before.size() != static_cast<std::size_t>(rows.contexts()) || tokens < 0) {
    throw Error({"law of a context", fmt::format("{} contexts, {} tokens", before.size(), tokens),
                 fmt::format("{} contexts and no negative number of tokens", rows.contexts()), ""});
  }
  std::vector<double> law(before.begin(), before.end()), next(law.size());
  for (int i = 0; i < tokens; ++i) {
    next.assign(next.size(), 0.0);
    for (int context = 0; context < rows.contexts(); ++context) {
      for (int x = 0; x < rows.vocab; ++x)
        next[static_cast<std::size_t>(rows.next(context, x))] +=
            law[static_cast<std::size_t>(context)] * rows.row(context)[static_cast<std::size_t>(x)];
    }
    law.swap(next);
  }
  return law;
}

double entropy_rate(const MarkovRows& rows) {
  const std::vector<double> law = toy::stationary_contexts(rows);
  double entropy = 0;
  for (int context = 0; context < rows.contexts(); ++context) {
    for (const double p : rows.row(context)) {
      if (p > 0) entropy -= law[static_cast<std::size_t>(context)] * p * std::log(p);
    }
  }
  return entropy;
}

}  // namespace speclab::theory
