#include "core/backend/cuda/planned.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/error.h"

namespace speclab::cuda {
namespace {

// Rows first .. first + n - 1 of a tree, as a forward takes them: those below depth `base` are committed. Their numbers lie in one array.
struct TreeRows {
  int first = 0, n = 0, base = 0;
  Buffer<std::int32_t> numbers;
  std::int32_t* tokens() const { return numbers.data(); }
  std::int32_t* position_rows() const { return tokens() + n; }
  std::int32_t* positions() const { return tokens() + 2 * n; }
  std::int32_t* slots() const { return tokens() + 3 * n; }
  std::int32_t* wanted() const { return tokens() + 4 * n; }
  std::int32_t* path_begin() const { return tokens() + 5 * n; }
  std::int32_t* committed() const { return tokens() + 6 * n + 1; }
  std::int32_t* paths() const { return tokens() + 6 * n + 2; }
};

struct Memory {
  Buffer<PlanState> state;
  std::vector<TreeRows> draft;  // [depth]
  TreeRows target;
  Buffer<float> q, p, raw, draft_logits, target_logits;
  Buffer<Law> q_laws, p_laws, raw_laws;
  Buffer<double> residual;
  Buffer<Verdict> verdict;
  Buffer<std::int32_t> tree;  // parents [nodes], depths [nodes], rows of q [nodes], level_begin [depth + 2]
  Buffer<std::int32_t> ids;   // [draft_columns] of a reduced vocabulary
  std::shared_ptr<void> ring;
};

const Memory& memory(const Plan& plan) { return *static_cast<const Memory*>(plan.own.get()); }

/// depths: of the nodes. The last `wanted` rows have logits.
QueuedRows make_rows(Backend& backend, int first, int n, int base, int wanted, std::span<const std::int32_t> depths, TreeRows& rows) {
  std::vector<std::int32_t> path_begin(1, 0), last(static_cast<std::size_t>(wanted));
  for (int node = first; node < first + n; ++node) {
    const int depth = node < 0 ? -1 : depths[static_cast<std::size_t>(node)];
    path_begin.push_back(path_begin.back() + depth - base + 1);
  }
  std::iota(last.begin(), last.end(), n - wanted);
  rows = {first, n, base, backend.allocate_buffer<std::int32_t>(static_cast<std::size_t>(6 * n + 2 + path_begin.back()))};
  backend.upload(path_begin.data(), path_begin.size() * sizeof(std::int32_t), rows.path_begin());
  backend.upload(last.data(), last.size() * sizeof(std::int32_t), rows.wanted());
  QueuedRows out;
  out.tokens = rows.tokens();
  out.position_rows = rows.position_rows();
  out.rows = {n, 0, rows.positions(), rows.slots(), rows.path_begin(), rows.paths(), rows.committed()};
  out.rows.earlier = base > 0 ? first - 1 : 0;
  out.wanted = rows.wanted();
  out.wanted_count = wanted;
  return out;
}

LayRows lay(const Plan& plan, const TreeRows& rows, int capacity, int offset) {
  const Memory& m = memory(plan);
  LayRows out;
  out.state = m.state.data();
  out.parents = m.tree.data();
  out.depths = out.parents + plan.shape.nodes();
  out.first = rows.first;
  out.n = rows.n;
  out.base = rows.base;
  out.capacity = capacity;
  out.offset = offset;
  out.tokens = rows.tokens();
  out.position_rows = rows.position_rows();
  out.positions = rows.positions();
  out.slots = rows.slots();
  out.path_begin = rows.path_begin();
  out.paths = rows.paths();
  out.committed = rows.committed();
  return out;
}

Standardise laws(const PlanSampling& sampling, const float* logits, int rows, int columns, int vocab, float* weights, Law* out) {
  Standardise a;
  a.logits = logits;
  a.rows = rows;
  a.columns = columns;
  a.vocab = vocab;
  a.greedy = sampling.greedy;
  a.scale = sampling.scale;
  a.top_k = sampling.greedy ? 0 : sampling.top_k;
  a.top_p = sampling.greedy ? 1 : sampling.top_p;
  a.weights = weights;
  a.laws = out;
  return a;
}

std::size_t times(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

}  // namespace

std::shared_ptr<Plan> make_plan(Backend& backend, const PlanShape& shape, std::shared_ptr<void> ring) {
  const bool valid = std::all_of(shape.widths.begin(), shape.widths.end(), [&](int width) { return width >= 1 && width <= shape.draft_columns; });
  SPECLAB_CHECK(valid && shape.depth() < kMostPlanNodes && shape.nodes() <= kMostPlanNodes && shape.vocab > 0, "{} levels, {} nodes, vocabulary {}", shape.depth(), shape.nodes(),
                shape.vocab);
  const int nodes = shape.nodes(), depth = shape.depth();
  auto plan = std::make_shared<Plan>();
  auto own = std::make_shared<Memory>();
  plan->shape = shape;
  own->ring = std::move(ring);
  std::memset(own->ring.get(), 0, kPlanRing * sizeof(PlanRound));
  plan->ring = static_cast<const PlanRound*>(own->ring.get());
  own->state = backend.allocate_buffer<PlanState>(1);

  plan->parents.assign(1, -1);
  std::vector<std::int32_t> depths(1, 0);
  for (int parent = 0; parent < shape.level_begin(depth); ++parent) {
    const std::int32_t below = depths[static_cast<std::size_t>(parent)];
    for (int child = 0; child < shape.widths[static_cast<std::size_t>(below)]; ++child) {
      plan->parents.push_back(parent);
      depths.push_back(below + 1);
    }
  }
  std::vector<std::int32_t> tree = plan->parents;
  tree.insert(tree.end(), depths.begin(), depths.end());
  for (int node = 0; node < nodes; ++node) tree.push_back(node - 1);
  for (int d = 0; d <= depth + 1; ++d) tree.push_back(shape.level_begin(d));
  own->tree = backend.allocate_buffer<std::int32_t>(tree.size());
  backend.upload(tree.data(), tree.size() * sizeof(std::int32_t), own->tree.data());

  if (depth > 0) {
    own->draft.resize(static_cast<std::size_t>(depth));
    plan->draft.push_back(make_rows(backend, -1, 2, -1, 1, depths, own->draft[0]));
    for (int d = 1; d < depth; ++d) {
      const int first = shape.level_begin(d), n = shape.level_begin(d + 1) - first;
      plan->draft.push_back(make_rows(backend, first, n, 1, n, depths, own->draft[static_cast<std::size_t>(d)]));
    }
    if (!shape.draft.greedy) own->q = backend.allocate_buffer<float>(times(nodes - 1, shape.vocab));
    own->q_laws = backend.allocate_buffer<Law>(static_cast<std::size_t>(nodes - 1));
    own->draft_logits = backend.allocate_buffer<float>(times(shape.level_begin(depth), shape.draft_columns));
    plan->draft_logits = own->draft_logits.data();
    if (!shape.draft_ids.empty()) backend.stage(shape.draft_ids, own->ids);
  }
  plan->target = make_rows(backend, 0, nodes, 0, nodes, depths, own->target);
  if (!shape.target.greedy) {
    own->p = backend.allocate_buffer<float>(times(nodes, shape.vocab));
    own->residual = backend.allocate_buffer<double>(static_cast<std::size_t>(shape.vocab));
  }
  if (looks_at_raw(shape)) {
    own->raw = backend.allocate_buffer<float>(times(nodes, shape.vocab));
    own->raw_laws = backend.allocate_buffer<Law>(static_cast<std::size_t>(nodes));
  }
  own->p_laws = backend.allocate_buffer<Law>(static_cast<std::size_t>(nodes));
  own->target_logits = backend.allocate_buffer<float>(times(nodes, shape.vocab));
  plan->target_logits = own->target_logits.data();
  own->verdict = backend.allocate_buffer<Verdict>(1);
  plan->own = std::move(own);
  return plan;
}

void start_plan(Backend& backend, Plan& plan, const PlanStart& start) {
  const PlanShape& shape = plan.shape;
  SPECLAB_CHECK(start.position >= 1 && start.emitted < start.max_tokens && start.ends.size() <= kMostPlanEnds, "position {}, {} of {} tokens, {} end tokens", start.position,
                start.emitted, start.max_tokens, start.ends.size());
  PlanState state;
  state.position = start.position;
  state.key = start.key;
  state.previous = start.previous;
  state.tokens[0] = start.pending;
  state.emitted = start.emitted;
  state.max_tokens = start.max_tokens;
  state.rounds = start.rounds;
  state.ends = static_cast<std::int32_t>(start.ends.size());
  std::copy(start.ends.begin(), start.ends.end(), state.end_tokens);
  state.nodes = shape.level_begin(1 + plan_draft_limit(shape.depth(), start.position, start.emitted, start.max_tokens, shape.target_capacity, shape.draft_capacity));
  backend.upload(&state, sizeof state, memory(plan).state.data());
}

LayRows draft_rows_of(const Plan& plan, int depth) {
  LayRows rows = lay(plan, memory(plan).draft[static_cast<std::size_t>(depth - 1)], plan.shape.draft_capacity, plan.shape.draft_offset);
  rows.draws = depth - 1;
  return rows;
}

// Node i has row i - 1 of q. The law of a draft's row goes to the first child, the others make theirs from it.
Standardise draft_laws_of(const Plan& plan, int depth) {
  const Memory& m = memory(plan);
  const PlanShape& shape = plan.shape;
  const int parents = shape.level_begin(depth - 1), first = shape.level_begin(depth);
  Standardise a = laws(shape.draft, plan.draft_logits + times(parents, shape.draft_columns), first - parents, shape.draft_columns, shape.vocab,
                       m.q.empty() ? nullptr : m.q.data() + times(first - 1, shape.vocab), m.q_laws.data() + (first - 1));
  a.ids = m.ids.data();
  a.every = shape.widths[static_cast<std::size_t>(depth - 1)];
  return a;
}

Sample draft_token_of(const Plan& plan, int depth) {
  const Memory& m = memory(plan);
  const int node = plan.shape.level_begin(depth);
  Sample a;
  a.weights = m.q.empty() ? nullptr : m.q.data() + times(node - 1, plan.shape.vocab);
  a.laws = m.q_laws.data() + (node - 1);
  a.rows = 1;
  a.vocab = plan.shape.vocab;
  a.key_at = &m.state.data()->key;
  a.positions = m.state.data()->draw_at + (depth - 1);
  a.purpose = kDraftCoin;
  a.coupled = plan.shape.rule == AcceptRule::kCoupled;
  a.tokens = m.state.data()->tokens + node;
  return a;
}

Siblings draft_tokens_of(const Plan& plan, int depth) {
  const Memory& m = memory(plan);
  const PlanShape& shape = plan.shape;
  const int parents = shape.level_begin(depth - 1), first = shape.level_begin(depth);
  Siblings a;
  a.logits = plan.draft_logits + times(parents, shape.draft_columns);
  a.ids = m.ids.data();
  a.rows = first - parents;
  a.columns = shape.draft_columns;
  a.vocab = shape.vocab;
  a.count = shape.widths[static_cast<std::size_t>(depth - 1)];
  a.weights = m.q.empty() ? nullptr : m.q.data() + times(first - 1, shape.vocab);
  a.laws = m.q_laws.data() + (first - 1);
  a.key_at = &m.state.data()->key;
  a.position = m.state.data()->draw_at + (depth - 1);
  a.coupled = shape.rule == AcceptRule::kCoupled;
  a.tokens = m.state.data()->tokens + first;
  return a;
}

LayRows target_rows_of(const Plan& plan) { return lay(plan, memory(plan).target, plan.shape.target_capacity, plan.shape.target_offset); }

Standardise target_laws_of(const Plan& plan) {
  const Memory& m = memory(plan);
  return laws(plan.shape.target, plan.target_logits, plan.shape.nodes(), plan.shape.vocab, plan.shape.vocab, m.p.data(), m.p_laws.data());
}

bool looks_at_raw(const PlanShape& shape) { return shape.target.greedy && shape.rule == AcceptRule::kCriterion; }

Standardise raw_laws_of(const Plan& plan) {
  const Memory& m = memory(plan);
  return laws({.greedy = false}, plan.target_logits, plan.shape.nodes(), plan.shape.vocab, plan.shape.vocab, m.raw.data(), m.raw_laws.data());
}

Accept accept_of(const Plan& plan) {
  const Memory& m = memory(plan);
  Accept a;
  a.rule = plan.shape.rule;
  a.form = plan.shape.form;
  a.criterion = plan.shape.criterion;
  a.nodes = plan.shape.nodes();
  a.vocab = plan.shape.vocab;
  a.nodes_at = &m.state.data()->nodes;
  a.tokens = m.state.data()->tokens;
  a.parents = m.tree.data();
  a.p = m.p.data();
  a.p_laws = m.p_laws.data();
  a.raw = m.raw.data();
  a.raw_laws = m.raw_laws.data();
  a.q_rows = m.tree.data() + 2 * a.nodes;
  a.q = m.q.data();
  a.q_laws = m.q_laws.data();
  a.key_at = &m.state.data()->key;
  a.position = &m.state.data()->position;
  a.residual = m.residual.data();
  a.verdict = m.verdict.data();
  return a;
}

MoveAccepted move_of(const Plan& plan, const KvStore& cache, int capacity) {
  const Memory& m = memory(plan);
  MoveAccepted a;
  a.data = static_cast<simt::u16*>(cache.data.get());
  a.planes = 2 * cache.layers * cache.kv_heads;
  a.slots = cache.slots;
  a.stride = kv_stride(cache.head_dim);
  a.capacity = capacity;
  a.state = m.state.data();
  a.verdict = m.verdict.data();
  return a;
}

Settle settle_of(const Plan& plan) {
  const Memory& m = memory(plan);
  Settle a;
  a.state = m.state.data();
  a.verdict = m.verdict.data();
  a.p_laws = m.p_laws.data();
  a.q_laws = m.q_laws.data();
  a.q = m.q.data();
  a.level_begin = m.tree.data() + 3 * plan.shape.nodes();
  a.depth = plan.shape.depth();
  a.vocab = plan.shape.vocab;
  a.target_capacity = plan.shape.target_capacity;
  a.draft_capacity = plan.shape.draft_capacity;
  a.ring = static_cast<PlanRound*>(m.ring.get());
  return a;
}

Continue continue_of(const Plan& plan, simt::u64 conditional) { return {memory(plan).state.data(), conditional}; }

Stamp stamp_of(const Plan& plan, int which) { return {memory(plan).state.data(), which}; }

}  // namespace speclab::cuda
