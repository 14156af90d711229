#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/model/net/session.h"
#include "tests/decoding/loop/loop_fixture.h"

/// Helpers for tests of drafted trees: the draft's rows, computed from scratch, and the families of a tree.
namespace speclab::fixtures {

/// The draft's row after a text, from a fresh prefill.
inline std::vector<float> row_after(const ModelPtr& model, const std::vector<Token>& text) {
  std::vector<float> logits(static_cast<std::size_t>(model->config().head_rows()));
  model->open(256)->prefill(text, logits.data());
  return logits;
}

/// Tokens of a row, best first.
inline std::vector<Token> order_of(const std::vector<float>& row) {
  std::vector<Token> order(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) order[i] = static_cast<Token>(i);
  std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) { return row[a] > row[b]; });
  return order;
}

/// Calls visit(text up to and including the node, its children) for every inner node of a step.
template <typename Visit>
void for_families(const std::vector<Token>& text, const StepRecord& step, const Visit& visit) {
  const int nodes = static_cast<int>(step.drafted.size());
  for (int parent = 0; parent <= nodes; ++parent) {
    std::vector<const DraftedToken*> children;
    for (const DraftedToken& token : step.drafted) {
      if (token.parent == parent) children.push_back(&token);
    }
    if (children.empty()) continue;
    std::vector<Token> path;
    for (int node = parent; node > 0; node = step.drafted[static_cast<std::size_t>(node - 1)].parent)
      path.insert(path.begin(), step.drafted[static_cast<std::size_t>(node - 1)].id);
    std::vector<Token> whole = text;
    whole.insert(whole.end(), path.begin(), path.end());
    visit(whole, children);
  }
}

}  // namespace speclab::fixtures
