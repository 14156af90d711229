#include "core/backend/cuda/program/planned.h"

#include "core/backend/cuda/program/planned_memory.h"

namespace speclab::cuda {
namespace {

LayRows lay(const Plan& plan, const TreeRows& rows, int capacity, int offset) {
  const Memory& m = memory(plan);
  LayRows out;
  out.state = m.state.data();
  out.parents = m.state.data()->parents;
  out.depths = m.state.data()->depths;
  out.first = rows.first;
  out.n = rows.n;
  out.base = rows.base;
  out.capacity = capacity;
  out.offset = offset;
  out.tokens = rows.tokens();
  out.position_rows = rows.position_rows();
  out.positions = rows.positions();
  out.slots = rows.slots();
  out.path_begin = rows.path_begin;
  out.paths = rows.paths();
  out.committed = rows.committed();
  return out;
}

RowMeeting meeting_of(const Memory& m) { return {m.row_best.data(), m.row_arrivals.data()}; }

Standardise laws(const Memory& m, const PlanSampling& sampling, const float* logits, int rows, int columns,
                 int vocab, float* weights, double* sums, Law* out) {
  Standardise a;
  a.meeting = meeting_of(m);
  a.cuts = m.row_cuts.data();
  a.sums = sums;
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

/// Returns the sums of the chunks (row_order.h) of the laws (distributions) from node `first` on. Returns
/// null for a greedy draft, which has no sums. Returns null for a reduced vocabulary, too: its sums are of
/// columns, not of tokens, and kernels that read the weights of tokens cannot use them.
const double* draft_sums(const Plan& plan, int first) {
  const Memory& m = memory(plan);
  if (m.q_sums.empty() || !m.ids.empty()) return nullptr;
  return m.q_sums.data() + times(first - 1, chunks_of(plan.shape.vocab));
}

/// Returns the address of the position that the coins (random numbers) of a draft use. It is the position of
/// the pending token (Sequence::draft_coin). With the coupled rule it is the position of the tokens at this
/// depth, because draft and target then use the same noise at each position.
const std::int64_t* coin_position(const Plan& plan, int depth) {
  const PlanState* state = memory(plan).state.data();
  return plan.shape.rule == AcceptRule::kCoupled ? state->draw_at + (depth - 1) : &state->position;
}

}  // namespace

LayRows draft_rows_of(const Plan& plan, int depth) {
  LayRows rows = lay(plan, memory(plan).draft[static_cast<std::size_t>(depth - 1)], plan.shape.draft_capacity,
                     plan.shape.draft_offset);
  rows.draws = depth - 1;
  return rows;
}

// Row i - 1 of q belongs to node i. The law made of the draft's logits at a node is stored as the law of the
// node's first child. The laws of the other children are derived from it.
Standardise draft_laws_of(const Plan& plan, int depth) {
  const Memory& m = memory(plan);
  const PlanShape& shape = plan.shape;
  const int parents = shape.level_begin(depth - 1), first = shape.level_begin(depth);
  Standardise a = laws(
      m, shape.draft, plan.draft_logits + times(parents, shape.draft_columns), first - parents,
      shape.draft_columns, shape.vocab, m.q.empty() ? nullptr : m.q.data() + times(first - 1, shape.vocab),
      m.q_sums.empty() ? nullptr : m.q_sums.data() + times(first - 1, chunks_of(shape.vocab)),
      m.q_laws.data() + (first - 1));
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
  a.sums = draft_sums(plan, node);
  a.meeting = meeting_of(m);
  a.rows = 1;
  a.vocab = plan.shape.vocab;
  a.key_at = &m.state.data()->key;
  a.positions = coin_position(plan, depth);
  a.purpose = kDraftCoin;
  a.draw = static_cast<simt::u32>(node);
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
  a.sums = draft_sums(plan, first);
  a.key_at = &m.state.data()->key;
  a.position = coin_position(plan, depth);
  a.draw = static_cast<simt::u32>(first);
  a.coupled = shape.rule == AcceptRule::kCoupled;
  a.tokens = m.state.data()->tokens + first;
  return a;
}

LayRows target_rows_of(const Plan& plan) {
  return lay(plan, memory(plan).target, plan.shape.target_capacity, plan.shape.target_offset);
}

Standardise target_laws_of(const Plan& plan) {
  const Memory& m = memory(plan);
  return laws(m, plan.shape.target, plan.target_logits, plan.shape.nodes(), plan.shape.vocab,
              plan.shape.vocab, m.p.data(), m.p_sums.data(), m.p_laws.data());
}

bool looks_at_raw(const PlanShape& shape) {
  return shape.target.greedy && (shape.rule == AcceptRule::kCriterion || shape.rule == AcceptRule::kLongest);
}

Standardise raw_laws_of(const Plan& plan) {
  const Memory& m = memory(plan);
  return laws(m, {.greedy = false}, plan.target_logits, plan.shape.nodes(), plan.shape.vocab,
              plan.shape.vocab, m.raw.data(), m.raw_sums.data(), m.raw_laws.data());
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
  a.parents = m.state.data()->parents;
  a.p = m.p.data();
  a.p_laws = m.p_laws.data();
  a.p_sums = m.p_sums.data();
  a.raw = m.raw.data();
  a.raw_laws = m.raw_laws.data();
  a.q_rows = m.state.data()->q_rows;
  a.q = m.q.data();
  a.q_laws = m.q_laws.data();
  a.key_at = &m.state.data()->key;
  a.position = &m.state.data()->position;
  a.residual = m.residual.data();
  a.meeting = meeting_of(m);
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
  a.q_rows = m.state.data()->q_rows;
  a.q_laws = m.q_laws.data();
  a.q = m.q.data();
  a.level_begin = m.state.data()->level_begin;
  a.depth = plan.shape.depth();
  a.vocab = plan.shape.vocab;
  a.target_capacity = plan.shape.target_capacity;
  a.draft_capacity = plan.shape.draft_capacity;
  a.ring = static_cast<PlanRound*>(m.ring.get());
  return a;
}

Continue continue_of(const Plan& plan, simt::u64 conditional) {
  return {memory(plan).state.data(), conditional};
}

Stamp stamp_of(const Plan& plan, int which) { return {memory(plan).state.data(), which}; }

}  // namespace speclab::cuda
