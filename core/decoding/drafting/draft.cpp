#include "core/decoding/drafting/draft.h"

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::size_t kMostSources =
    6;  // memory is reserved for this many sources of one tree, so that steps do not allocate

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
  evidence = 0;
  must_keep = 0;
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

void Draft::keep(std::span<const char> keep) {
  tree.keep(keep, moved_);
  std::size_t next = 0, left = 0;
  for (std::size_t node = 1; node < moved_.size(); ++node) {
    if (moved_[node] == 0) continue;
    const auto to = static_cast<std::size_t>(moved_[node]);
    q_of[to] = q_of[node];
    confidence[to] = confidence[node];
    while (next + 1 < contributions.size() && contributions[next + 1].first <= static_cast<int>(node)) ++next;
    if (next < contributions.size() &&
        (left == 0 || contributions[left - 1].source != contributions[next].source))
      contributions[left++] = {moved_[node], contributions[next].source};  // left <= next
  }
  q_of.resize(static_cast<std::size_t>(tree.size()));
  confidence.resize(static_cast<std::size_t>(tree.size()));
  contributions.resize(left);
  if (tree.drafted() == 0) source = {};
}

Distribution& Draft::new_q(int* index) {
  if (q_used == static_cast<int>(q.size())) q.emplace_back();
  *index = q_used;
  return q[q_used++];
}

}  // namespace speclab
