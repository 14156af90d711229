#include "core/theory/audit/toy_step.h"

#include <algorithm>

namespace speclab::enumerate {
namespace {

std::vector<double> random_weights(int vocab, bool zeros, std::mt19937& random) {
  std::vector<double> weights(vocab);
  for (;;) {
    double sum = 0;
    for (double& w : weights) {
      w = zeros && random() % 3 == 0 ? 0 : 1 + static_cast<double>(random() % 1000);
      sum += w;
    }
    if (sum > 0) return weights;
  }
}

std::vector<double> single(int vocab, std::size_t token) {
  std::vector<double> weights(vocab, 0.0);
  weights[token] = 1;
  return weights;
}

void fill(World::Row& row, int vocab, Rows kind, bool greedy, std::mt19937& random) {
  std::vector<double> p = random_weights(vocab, kind == Rows::zeros, random);
  std::vector<double> q = random_weights(vocab, kind == Rows::zeros, random);
  std::vector<double> q2 = random_weights(vocab, kind == Rows::zeros, random);
  switch (kind) {
    case Rows::equal: q = p; break;
    case Rows::disjoint:
      for (int x = 0; x < vocab; ++x) (x % 2 == 0 ? q : p)[x] = 0;
      break;
    case Rows::one_hot_p: p = single(vocab, random() % vocab); break;
    case Rows::one_hot_q: q = single(vocab, random() % vocab); break;
    case Rows::near:
      for (int x = 0; x < vocab; ++x) q[x] = p[x] * (1 + 1e-6 * (x + 1));
      break;
    case Rows::generic:
    case Rows::zeros: break;
  }
  row.raw.assign_weights(p);
  row.p = row.raw;
  if (greedy) row.p.assign_one_hot(row.raw.argmax(), vocab);
  row.q[0].assign_weights(q);
  row.q[1].assign_weights(q2);
}

template <class Fill>
void for_contexts(World& world, int length, const Fill& fill_row) {
  std::vector<Outcome> level = {{}};
  for (int depth = 0; depth < length; ++depth) {
    std::vector<Outcome> next;
    for (const Outcome& context : level) {
      fill_row(world.rows[context]);
      for (Token x = 0; x < world.vocab; ++x) {
        next.push_back(context);
        next.back().push_back(x);
      }
    }
    level = std::move(next);
  }
}

/// Draws the children of `node` and adds them; `context` holds the tokens on its path.
void add_children(const World& world, const Outcome& context, int node, int width, Draws draws,
                  const Coins& coins, Draft& draft) {
  const World::Row& row = world.at(context);
  std::vector<double> left;
  row.q[0].probabilities(left);
  for (int j = 0; j < width; ++j) {
    const bool fixed =
        draws == Draws::one_hot || draws == Draws::duplicates || (draws == Draws::mixed && j > 0);
    if (fixed) {
      draft.add(draws == Draws::duplicates ? world.vocab - 1 : j % world.vocab, node);
      continue;
    }
    int index = -1;
    Distribution& q = draft.new_q(&index);
    if (draws == Draws::swor) {
      if (*std::max_element(left.begin(), left.end()) <= 0) {
        --draft.q_used;
        return;
      }
      q.assign_weights(left);
    } else {
      q = row.q[draws == Draws::two_models ? j % 2 : 0];
    }
    const Token x = q.sample(
        coins, {draft.tree.depth(node) + 1, Purpose::draft, static_cast<std::uint32_t>(draft.tree.size())});
    left[x] = 0;
    draft.add(x, node, index, static_cast<float>(q.prob(x)));
  }
}

}  // namespace

bool takes(const AcceptanceRule& rule, const Shape& shape, Draws draws, Rows rows) {
  const auto first = shape.widths.begin();
  if (std::all_of(first, shape.widths.end(), [](int width) { return width == 1; })) return true;
  if (rule.chains_only) return false;
  if (rule.independent_paths_only)
    return draws == Draws::iid && std::all_of(first + 1, shape.widths.end(), [](int w) { return w == 1; });
  if (!rule.independent_children_only) return true;
  // In a tiny vocabulary with zeros, the second model's row may equal what is left of the first model's row
  // without the drawn token. The rule would take this for a draw without replacement.
  const bool zeros = rows == Rows::zeros || rows == Rows::disjoint || rows == Rows::one_hot_q;
  return draws != Draws::swor && draws != Draws::mixed && (draws != Draws::two_models || !zeros);
}

World random_world(int vocab, int length, Rows kind, bool greedy, std::mt19937& random) {
  World world;
  world.vocab = vocab;
  for_contexts(world, length, [&](World::Row& row) { fill(row, vocab, kind, greedy, random); });
  return world;
}

World golden_world(int length) {
  World world;
  world.vocab = 4;
  for_contexts(world, length, [&](World::Row& row) {
    row.p.assign_weights(std::vector<double>{.55, .25, .15, .05});
    row.raw = row.p;
    row.q[0].assign_weights(std::vector<double>{.4, .35, .05, .2});
    row.q[1] = row.q[0];
  });
  return world;
}

void run_step(const World& world, const Shape& shape, Draws draws, const AcceptanceRule& rule,
              const RuleOptions& options, const Coins& coins, Step& step, const Verify& verify) {
  Draft& draft = step.draft;
  draft.reset(0);
  std::vector<int> path;
  const auto context_of = [&](int node) {
    draft.tree.path_to(node, path);
    Outcome context;
    for (const int i : path) context.push_back(draft.tree.token(i));
    return context;
  };
  for (int node = 0; node < draft.tree.size(); ++node) {
    const auto depth = static_cast<std::size_t>(draft.tree.depth(node)), at = static_cast<std::size_t>(node);
    const float confidence = draft.confidence[at];
    if (depth >= shape.widths.size() || (node > 0 && confidence >= 0 && confidence < shape.least)) continue;
    const int width = shape.children.empty()       ? shape.widths[depth]
                      : at < shape.children.size() ? shape.children[at]
                                                   : 0;
    if (width > 0) add_children(world, context_of(node), node, width, draws, coins, draft);
  }
  const TargetRows rows = [&](int node) {
    const World::Row& row = world.at(context_of(node));
    return TargetRow{&row.p, &row.raw};
  };
  verify(rule, options, draft, rows, coins, 0, step.acceptance);
  step.emitted.clear();
  for (const int node : step.acceptance.path) step.emitted.push_back(draft.tree.token(node));
  step.emitted.push_back(step.acceptance.next);
}

Outcome emit(const World& world, const Shape& shape, Draws draws, const AcceptanceRule& rule,
             const RuleOptions& options, int length, const Coins& coins, const Verify& verify) {
  Step step;
  run_step(world, shape, draws, rule, options, coins, step, verify);
  Outcome& tokens = step.emitted;
  while (static_cast<int>(tokens.size()) < length) {
    const World::Row& row = world.at(tokens);
    tokens.push_back(
        rule.bonus({&row.p, &row.raw}, coins, static_cast<std::int64_t>(tokens.size()) + 1, options));
  }
  tokens.resize(length);
  return tokens;
}

std::map<Outcome, double> target_law(const World& world, int length) {
  std::map<Outcome, double> law = {{{}, 1.0}};
  for (int i = 0; i < length; ++i) {
    std::map<Outcome, double> longer;
    for (const auto& [context, mass] : law) {
      for (Token x = 0; x < world.vocab; ++x) {
        const double p = world.at(context).p.prob(x);
        if (p <= 0) continue;
        Outcome next = context;
        next.push_back(x);
        longer[next] = mass * p;
      }
    }
    law = std::move(longer);
  }
  return law;
}

}  // namespace speclab::enumerate
