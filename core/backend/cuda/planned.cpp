#include "core/backend/cuda/planned.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/error.h"

namespace speclab::cuda {
namespace {

// Where the numbers of QueuedRows lie in one array.
struct RowsAt {
  explicit RowsAt(int n) : rows(n) {}
  int rows;
  int tokens() const { return 0; }
  int position_rows() const { return rows; }
  int positions() const { return 2 * rows; }
  int slots() const { return 3 * rows; }
  int path_begin() const { return 4 * rows; }
  int committed() const { return 5 * rows + 1; }
  int wanted() const { return 5 * rows + 2; }
  int paths() const { return 6 * rows + 2; }
  int size() const { return paths() + rows * (rows + 1) / 2; }
};

struct Memory {
  Buffer<PlanState> state;
  Buffer<std::int32_t> first, next, target;  // RowsAt
  Buffer<float> q, p, raw, draft_logits, target_logits;
  Buffer<Law> q_laws, p_laws, raw_laws;
  Buffer<double> residual;
  Buffer<Verdict> verdict;
  Buffer<std::int32_t> chain;  // parents [nodes], then rows of q [nodes]
  Buffer<std::int32_t> ids;    // [draft_columns] of a reduced vocabulary
  std::shared_ptr<void> ring;
};

const Memory& memory(const Plan& plan) { return *static_cast<const Memory*>(plan.own.get()); }

// Rows whose last `wanted` have logits.
QueuedRows make_rows(Backend& backend, int n, int wanted, Buffer<std::int32_t>& numbers) {
  const RowsAt at(n);
  numbers = backend.allocate_buffer<std::int32_t>(static_cast<std::size_t>(at.size()));
  std::vector<std::int32_t> last(static_cast<std::size_t>(wanted));
  std::iota(last.begin(), last.end(), n - wanted);
  backend.upload(last.data(), last.size() * sizeof(std::int32_t), numbers.data() + at.wanted());
  QueuedRows out;
  out.tokens = numbers.data() + at.tokens();
  out.position_rows = numbers.data() + at.position_rows();
  out.rows = {n, 0, numbers.data() + at.positions(), numbers.data() + at.slots(), numbers.data() + at.path_begin(), numbers.data() + at.paths(), numbers.data() + at.committed()};
  out.wanted = numbers.data() + at.wanted();
  out.wanted_count = wanted;
  return out;
}

LayRows lay(const Buffer<std::int32_t>& numbers, PlanState* state, int first, int n, int capacity, int offset) {
  const RowsAt at(n);
  LayRows out;
  out.state = state;
  out.first = first;
  out.n = n;
  out.capacity = capacity;
  out.offset = offset;
  out.tokens = numbers.data() + at.tokens();
  out.position_rows = numbers.data() + at.position_rows();
  out.positions = numbers.data() + at.positions();
  out.slots = numbers.data() + at.slots();
  out.path_begin = numbers.data() + at.path_begin();
  out.paths = numbers.data() + at.paths();
  out.committed = numbers.data() + at.committed();
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
  SPECLAB_CHECK(shape.gamma >= 0 && shape.gamma < kMostPlanNodes && shape.vocab > 0, "gamma {}, vocabulary {}", shape.gamma, shape.vocab);
  const int nodes = shape.gamma + 1;
  auto plan = std::make_shared<Plan>();
  auto own = std::make_shared<Memory>();
  plan->shape = shape;
  own->ring = std::move(ring);
  std::memset(own->ring.get(), 0, kPlanRing * sizeof(PlanRound));
  plan->ring = static_cast<const PlanRound*>(own->ring.get());
  own->state = backend.allocate_buffer<PlanState>(1);
  if (shape.gamma > 0) {
    plan->first_draft = make_rows(backend, 2, 1, own->first);
    plan->next_draft = make_rows(backend, 1, 1, own->next);
    if (!shape.draft.greedy) own->q = backend.allocate_buffer<float>(times(shape.gamma, shape.vocab));
    own->q_laws = backend.allocate_buffer<Law>(static_cast<std::size_t>(shape.gamma));
    own->draft_logits = backend.allocate_buffer<float>(times(shape.gamma, shape.draft_columns));
    plan->draft_logits = own->draft_logits.data();
    if (!shape.draft_ids.empty()) backend.stage(shape.draft_ids, own->ids);
  }
  plan->target = make_rows(backend, nodes, nodes, own->target);
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
  std::vector<std::int32_t> chain(times(nodes, 2));
  for (int node = 0; node < nodes; ++node) chain[static_cast<std::size_t>(node)] = chain[static_cast<std::size_t>(nodes + node)] = node - 1;
  backend.stage(chain, own->chain);
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
  state.nodes = 1 + plan_draft_limit(shape.gamma, start.position, start.emitted, start.max_tokens, shape.target_capacity, shape.draft_capacity);
  backend.upload(&state, sizeof state, memory(plan).state.data());
}

LayRows draft_rows_of(const Plan& plan, int depth) {
  const Memory& m = memory(plan);
  LayRows rows = depth == 1 ? lay(m.first, m.state.data(), -1, 2, plan.shape.draft_capacity, plan.shape.draft_offset)
                            : lay(m.next, m.state.data(), depth - 1, 1, plan.shape.draft_capacity, plan.shape.draft_offset);
  rows.draws = depth - 1;
  return rows;
}

Standardise draft_law_of(const Plan& plan, int depth) {
  const Memory& m = memory(plan);
  const PlanShape& shape = plan.shape;
  Standardise a = laws(shape.draft, plan.draft_logits + times(depth - 1, shape.draft_columns), 1, shape.draft_columns, shape.vocab,
                       m.q.empty() ? nullptr : m.q.data() + times(depth - 1, shape.vocab), m.q_laws.data() + (depth - 1));
  a.ids = m.ids.data();
  return a;
}

Sample draft_token_of(const Plan& plan, int depth) {
  const Memory& m = memory(plan);
  Sample a;
  a.weights = m.q.empty() ? nullptr : m.q.data() + times(depth - 1, plan.shape.vocab);
  a.laws = m.q_laws.data() + (depth - 1);
  a.rows = 1;
  a.vocab = plan.shape.vocab;
  a.key_at = &m.state.data()->key;
  a.positions = m.state.data()->draw_at + (depth - 1);
  a.purpose = kDraftCoin;
  a.coupled = plan.shape.rule == AcceptRule::kCoupled;
  a.tokens = m.state.data()->tokens + depth;
  return a;
}

LayRows target_rows_of(const Plan& plan) {
  const Memory& m = memory(plan);
  return lay(m.target, m.state.data(), 0, plan.shape.gamma + 1, plan.shape.target_capacity, plan.shape.target_offset);
}

Standardise target_laws_of(const Plan& plan) {
  const Memory& m = memory(plan);
  return laws(plan.shape.target, plan.target_logits, plan.shape.gamma + 1, plan.shape.vocab, plan.shape.vocab, m.p.data(), m.p_laws.data());
}

bool looks_at_raw(const PlanShape& shape) { return shape.target.greedy && shape.rule == AcceptRule::kCriterion; }

Standardise raw_laws_of(const Plan& plan) {
  const Memory& m = memory(plan);
  return laws({.greedy = false}, plan.target_logits, plan.shape.gamma + 1, plan.shape.vocab, plan.shape.vocab, m.raw.data(), m.raw_laws.data());
}

Accept accept_of(const Plan& plan) {
  const Memory& m = memory(plan);
  Accept a;
  a.rule = plan.shape.rule;
  a.form = plan.shape.form;
  a.criterion = plan.shape.criterion;
  a.nodes = plan.shape.gamma + 1;
  a.vocab = plan.shape.vocab;
  a.nodes_at = &m.state.data()->nodes;
  a.tokens = m.state.data()->tokens;
  a.parents = m.chain.data();
  a.p = m.p.data();
  a.p_laws = m.p_laws.data();
  a.raw = m.raw.data();
  a.raw_laws = m.raw_laws.data();
  a.q_rows = m.chain.data() + a.nodes;
  a.q = m.q.data();
  a.q_laws = m.q_laws.data();
  a.key_at = &m.state.data()->key;
  a.position = &m.state.data()->position;
  a.residual = m.residual.data();
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
  a.gamma = plan.shape.gamma;
  a.vocab = plan.shape.vocab;
  a.target_capacity = plan.shape.target_capacity;
  a.draft_capacity = plan.shape.draft_capacity;
  a.ring = static_cast<PlanRound*>(m.ring.get());
  return a;
}

Continue continue_of(const Plan& plan, simt::u64 conditional) { return {memory(plan).state.data(), conditional}; }

Stamp stamp_of(const Plan& plan, int which) { return {memory(plan).state.data(), which}; }

}  // namespace speclab::cuda
