#include "core/backend/cuda/program/planned_memory.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/backend/cuda/kernels/accept/start_accept.h"
#include "core/backend/cuda/program/planned.h"
#include "core/base/error.h"

namespace speclab::cuda {
namespace {

// Sets the parent of a node, and where the next node's path begins. Call it for the nodes in ascending order.
void set_parent(PlanState& state, int node, int parent) {
  state.parents[node] = parent;
  state.depths[node] = parent < 0 ? 0 : state.depths[parent] + 1;
  state.path_begin[node + 1] = state.path_begin[node] + state.depths[node] + 1;
}

/// Allocates the arrays of `rows`, whose `first`, `n`, `base` and `path_begin` must be set. All paths
/// together have `path_keys` entries. The last `wanted` rows get logits.
QueuedRows make_rows(Backend& backend, int wanted, int path_keys, TreeRows& rows) {
  const int n = rows.n;
  std::vector<std::int32_t> last(static_cast<std::size_t>(wanted));
  std::iota(last.begin(), last.end(), n - wanted);
  rows.numbers = backend.allocate_buffer<std::int32_t>(static_cast<std::size_t>(5 * n + 1 + path_keys));
  backend.upload(last.data(), last.size() * sizeof(std::int32_t), rows.wanted());
  QueuedRows out;
  out.tokens = rows.tokens();
  out.position_rows = rows.position_rows();
  out.rows = {n, 0, rows.positions(), rows.slots(), rows.path_begin, rows.paths(), rows.committed()};
  out.rows.earlier = rows.base > 0 ? rows.first - 1 : 0;
  out.wanted = rows.wanted();
  out.wanted_count = wanted;
  return out;
}

/// Makes the rows of a forward of the draft.
QueuedRows make_level(Backend& backend, int wanted, const PlanState& tree, TreeRows& rows) {
  std::vector<std::int32_t> path_begin(1, 0);
  for (int node = rows.first; node < rows.first + rows.n; ++node) {
    const int depth = node < 0 ? -1 : tree.depths[node];
    path_begin.push_back(path_begin.back() + depth - rows.base + 1);
  }
  rows.path_begin = backend.stage(path_begin, rows.begins);
  return make_rows(backend, wanted, path_begin.back(), rows);
}

// Makes the initial state with the tree that is known in advance. This is the whole tree, or only the pending
// token if the host drafts.
PlanState tree_of(const PlanShape& shape) {
  PlanState state;
  int node = 0;
  set_parent(state, node++, -1);
  for (int parent = 0; parent < shape.level_begin(shape.depth()); ++parent) {
    for (int child = 0; child < shape.widths[static_cast<std::size_t>(state.depths[parent])]; ++child)
      set_parent(state, node++, parent);
  }
  for (int i = 0; i < node; ++i) state.q_rows[i] = i - 1;
  for (int depth = 0; depth <= shape.depth() + 1; ++depth)
    state.level_begin[depth] = shape.level_begin(depth);
  return state;
}

// Copies the host's draft into the state and uploads its laws (distributions). Nodes after it are padding.
void take_draft(Backend& backend, const Plan& plan, const PlanDraft& draft, PlanState& state) {
  const PlanShape& shape = plan.shape;
  const std::size_t drafted = draft.tokens.size(), laws = draft.laws.size();
  SPECLAB_CHECK(drafted < static_cast<std::size_t>(shape.given) && draft.parents.size() == drafted &&
                    draft.law_of.size() == drafted,
                "{} drafted tokens, {} parents, {} indices of laws, room for {}", drafted,
                draft.parents.size(), draft.law_of.size(), shape.given - 1);
  SPECLAB_CHECK(laws <= drafted && (laws == 0 || shape.given_laws),
                "{} laws for {} tokens, in a plan {} laws", laws, drafted,
                shape.given_laws ? "with" : "without");
  state.nodes = static_cast<std::int32_t>(drafted) + 1;
  for (int node = 1; node < shape.given; ++node) {
    const auto i = static_cast<std::size_t>(node - 1);
    const bool given = i < drafted;
    const int parent = given ? draft.parents[i] : 0, law = given ? draft.law_of[i] : -1;
    SPECLAB_CHECK(parent >= 0 && parent < node && law >= -1 && law < static_cast<int>(laws),
                  "node {} has parent {} and law {} of {}", node, parent, law, laws);
    set_parent(state, node, parent);
    state.q_rows[node] = law;
    state.tokens[node] = given ? draft.tokens[i] : 0;
  }
  if (laws == 0) return;
  const Memory& m = memory(plan);
  Law of[kMostPlanNodes];
  for (std::size_t i = 0; i < laws; ++i) {
    of[i].sum = draft.laws[i].sum;
    backend.upload(draft.laws[i].weights, times(1, shape.vocab) * sizeof(float),
                   m.q.data() + i * static_cast<std::size_t>(shape.vocab));
  }
  backend.upload(of, laws * sizeof(Law), m.q_laws.data());
}

}  // namespace

std::shared_ptr<Plan> make_plan(Backend& backend, const PlanShape& shape, std::shared_ptr<void> ring) {
  const bool valid = std::all_of(shape.widths.begin(), shape.widths.end(),
                                 [&](int width) { return width >= 1 && width <= shape.draft_columns; });
  SPECLAB_CHECK(valid && shape.depth() < kMostPlanNodes && shape.nodes() <= kMostPlanNodes &&
                    shape.vocab > 0 && (shape.given == 0 || shape.depth() == 0),
                "{} levels, {} nodes, {} of them given, vocabulary {}", shape.depth(), shape.nodes(),
                shape.given, shape.vocab);
  const int nodes = shape.nodes(), depth = shape.depth();
  auto plan = std::make_shared<Plan>();
  auto own = std::make_shared<Memory>();
  plan->shape = shape;
  own->ring = std::move(ring);
  std::memset(own->ring.get(), 0, kPlanRing * sizeof(PlanRound));
  plan->ring = static_cast<const PlanRound*>(own->ring.get());
  own->state = backend.allocate_buffer<PlanState>(1);
  own->begin = tree_of(shape);
  if (shape.given == 0) plan->parents.assign(own->begin.parents, own->begin.parents + nodes);

  const int chunks = chunks_of(shape.vocab);
  if (depth > 0 ? !shape.draft.greedy : shape.given_laws)
    own->q = backend.allocate_buffer<float>(times(nodes - 1, shape.vocab));
  if (depth > 0 && !shape.draft.greedy)
    own->q_sums = backend.allocate_buffer<double>(times(nodes - 1, chunks));
  if (depth > 0 || shape.given_laws)
    own->q_laws = backend.allocate_buffer<Law>(static_cast<std::size_t>(nodes - 1));
  if (depth > 0) {
    own->draft.resize(static_cast<std::size_t>(depth));
    own->draft[0] = {.first = -1, .n = 2, .base = -1};
    plan->draft.push_back(make_level(backend, 1, own->begin, own->draft[0]));
    for (int d = 1; d < depth; ++d) {
      const int first = shape.level_begin(d), n = shape.level_begin(d + 1) - first;
      TreeRows& rows = own->draft[static_cast<std::size_t>(d)] = {.first = first, .n = n, .base = 1};
      plan->draft.push_back(make_level(backend, n, own->begin, rows));
    }
    own->draft_logits = backend.allocate_buffer<float>(times(shape.level_begin(depth), shape.draft_columns));
    plan->draft_logits = own->draft_logits.data();
    if (!shape.draft_ids.empty()) backend.stage(shape.draft_ids, own->ids);
  }
  own->target = {.first = 0, .n = nodes, .base = 0, .path_begin = own->state.data()->path_begin};
  plan->target = make_rows(
      backend, nodes, shape.given > 0 ? nodes * (nodes + 1) / 2 : own->begin.path_begin[nodes], own->target);
  if (!shape.target.greedy) {
    own->p = backend.allocate_buffer<float>(times(nodes, shape.vocab));
    own->p_sums = backend.allocate_buffer<double>(times(nodes, chunks));
  }
  if (const std::size_t scratch = accept_scratch(shape.rule, nodes, shape.vocab, shape.target.greedy);
      scratch > 0)
    own->residual = backend.allocate_buffer<double>(scratch);
  if (looks_at_raw(shape)) {
    own->raw = backend.allocate_buffer<float>(times(nodes, shape.vocab));
    own->raw_sums = backend.allocate_buffer<double>(times(nodes, chunks));
    own->raw_laws = backend.allocate_buffer<Law>(static_cast<std::size_t>(nodes));
  }
  own->p_laws = backend.allocate_buffer<Law>(static_cast<std::size_t>(nodes));
  own->target_logits = backend.allocate_buffer<float>(times(nodes, shape.vocab));
  plan->target_logits = own->target_logits.data();
  own->verdict = backend.allocate_buffer<Verdict>(1);
  if (shape.vocab > kRowPiece) {
    own->row_best = backend.allocate_buffer<simt::u64>(times(nodes, row_pieces(shape.vocab)));
    own->row_arrivals = backend.allocate_buffer<simt::u32>(static_cast<std::size_t>(nodes));
    const std::vector<simt::u32> zeros(static_cast<std::size_t>(nodes));
    backend.upload(zeros.data(), zeros.size() * sizeof(simt::u32), own->row_arrivals.data());
    const auto is_cut = [](const PlanSampling& sampling) { return sampling.top_k > 0 || sampling.top_p < 1; };
    if (is_cut(shape.target) || is_cut(shape.draft))
      own->row_cuts = backend.allocate_buffer<RowCut>(static_cast<std::size_t>(nodes));
  }
  plan->own = std::move(own);
  return plan;
}

void start_plan(Backend& backend, Plan& plan, const PlanStart& start) {
  const PlanShape& shape = plan.shape;
  SPECLAB_CHECK(start.position >= 1 && start.emitted < start.max_tokens && start.ends.size() <= kMostPlanEnds,
                "position {}, {} of {} tokens, {} end tokens", start.position, start.emitted,
                start.max_tokens, start.ends.size());
  PlanState state = memory(plan).begin;
  state.position = start.position;
  state.key = start.key;
  state.previous = start.previous;
  state.tokens[0] = start.pending;
  state.emitted = start.emitted;
  state.max_tokens = start.max_tokens;
  state.rounds = start.rounds;
  state.ends = static_cast<std::int32_t>(start.ends.size());
  std::copy(start.ends.begin(), start.ends.end(), state.end_tokens);
  if (shape.given > 0) take_draft(backend, plan, start.draft, state);
  else
    state.nodes =
        shape.level_begin(1 + plan_draft_limit(shape.depth(), start.position, start.emitted, start.max_tokens,
                                               shape.target_capacity, shape.draft_capacity));
  backend.upload(&state, sizeof state, memory(plan).state.data());
}

}  // namespace speclab::cuda
