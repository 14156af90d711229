#pragma once

#include <cstddef>
#include <vector>

#include "core/measure/recorder.h"

namespace speclab::fixtures {

/// A step that drafts a tree of widths <2, 2> and accepts these nodes, from depth 1 on. The verifier tests
/// children in order until it accepts one.
inline StepRecord tree_step(const std::vector<int>& path) {
  StepRecord step;
  step.source = "draft";
  step.rows = 7;
  step.draft_calls = 2;
  for (const int parent : {0, 0, 1, 1, 2, 2}) {
    DraftedToken token;
    token.id = 5;
    token.parent = parent;
    step.drafted.push_back(token);
  }
  int at = 0;
  for (std::size_t depth = 0; depth <= path.size() && depth < 2; ++depth) {
    for (int node = 1; node <= 6; ++node) {
      DraftedToken& token = step.drafted[static_cast<std::size_t>(node) - 1];
      if (token.parent != at) continue;
      token.tested = true;
      token.p = token.q = .5;
      token.accepted = depth < path.size() && path[depth] == node;
      if (token.accepted) break;
    }
    if (depth < path.size()) at = path[depth];
  }
  step.accepted = static_cast<int>(path.size());
  step.emitted = step.accepted + 1;
  step.ended_by = path.size() == 2 ? EndedBy::bonus : EndedBy::rejection;
  return step;
}

}  // namespace speclab::fixtures
