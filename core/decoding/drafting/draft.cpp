#include "core/decoding/drafting/draft.h"

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::size_t kMostSources =
    4;  // memory is reserved for this many sources of one tree, so that steps do not allocate

}  // namespace

void Draft::reset(Token pending) {
  tree.reset(pending);
  q_of.assign(1, kOneHot);
  confidence.assign(1, -1.0f);
  q_used = 0;
  source = {};
  contributions.clear();
  contributions.reserve(kMostSources);
  pool_size = -1;
  ended_by_schedule = false;
}

int Draft::add(Token token, int parent, int q_index, float token_confidence) {
  SPECLAB_CHECK(q_index == kOneHot || (q_index >= 0 && q_index < q_used), "q {} of {}", q_index, q_used);
  const int node = tree.add(token, parent);
  q_of.push_back(q_index);
  confidence.push_back(token_confidence);
  return node;
}

int Draft::add_probe(Token token, int parent, NodeKind kind) {
  SPECLAB_CHECK(kind != NodeKind::candidate, "add_probe() got token {} as a candidate", token);
  const int node = tree.add(token, parent, kind);
  q_of.push_back(kOneHot);
  confidence.push_back(-1.0f);
  return node;
}

Distribution& Draft::new_q(int* index) {
  if (q_used == static_cast<int>(q.size())) q.emplace_back();
  *index = q_used;
  return q[q_used++];
}

}  // namespace speclab
