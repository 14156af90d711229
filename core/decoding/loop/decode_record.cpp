// What the decode loop writes down of a step.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/decoding/loop/decode_slot.h"

namespace speclab {
namespace {

// Steps of a text whose probes are written down: enough to draw how a window fills, little beside the rest.
constexpr int kProbedSteps = 12;

// Best first, ties by id: how many tokens come before this one.
int rank_in(std::span<const float> row, Token token) {
  const float value = row[token];
  int rank = 0;
  for (Token other = 0; other < static_cast<Token>(row.size()); ++other) {
    rank += row[other] > value || (row[other] == value && other < token) ? 1 : 0;
  }
  return rank;
}

}  // namespace

void DecodeLoop::record(Slot& slot) {
  GenerationRecord& out = slot.out;
  const Acceptance& acceptance = slot.acceptance;
  const int accepted = std::min(slot.emitted, static_cast<int>(acceptance.path.size()));
  const bool cut = slot.emitted <= static_cast<int>(acceptance.path.size());

  StepRecord& step = slot.step;
  step.source = slot.draft.source;
  step.contributions.clear();
  for (const Draft::Contribution& part : slot.draft.contributions)
    step.contributions.push_back({part.first, std::string(part.source)});
  step.accepted = accepted;
  step.emitted = slot.emitted;
  step.rows = static_cast<int>(slot.fed.size());
  step.parts.clear();
  if (options_.devices > 1) {
    for (const DividedTree::Part& part : slot.divided.parts()) {
      step.parts.push_back({static_cast<int>(part.tokens.size()), part.ns});
      step.rows += step.parts.back().rows;
    }
  }
  step.draft_calls = static_cast<int>((slot.draft_work() - slot.draft_before).calls);
  step.pool_size = slot.draft.pool_size;
  if (cut) step.ended_by = out.finish == Finish::eos ? EndedBy::eos : EndedBy::length;
  else if (slot.draft.tree.drafted() == 0) step.ended_by = EndedBy::none;
  else if (!acceptance.bonus) step.ended_by = EndedBy::rejection;
  else step.ended_by = slot.draft.ended_by_schedule ? EndedBy::schedule : EndedBy::bonus;

  const TokenTree& tree = slot.draft.tree;
  step.drafted.assign(static_cast<std::size_t>(tree.drafted()), DraftedToken());
  for (int node = 1; node <= tree.drafted(); ++node) {
    DraftedToken& token = step.drafted[node - 1];
    token.id = tree.token(node);
    token.parent = tree.parent(node);
    token.confidence = slot.draft.confidence[node];
  }
  for (const Acceptance::Tested& tested : acceptance.tested) {
    if (cut && tree.depth(tested.node) > slot.emitted) continue;  // behind the end of the text
    DraftedToken& token = step.drafted[tested.node - 1];
    token.tested = true;
    token.accepted = tested.accepted;
    token.p = tested.p;
    token.q = tested.q;
    token.expected = tested.expected;
  }
}

// What costs a pass over the vocabulary and would not be done by anyone who only wants the text.
void DecodeLoop::look_closer(Slot& slot, int index) {
  const TokenTree& tree = slot.draft.tree;
  StepRecord& step = slot.out.steps[static_cast<std::size_t>(index)];
  if (index < kProbedSteps) {
    step.probes.reserve(static_cast<std::size_t>(tree.size() - 1 - tree.drafted()));
    const StepRows rows = slot.step_rows();
    for (int node = tree.drafted() + 1; node < tree.size(); ++node)
      step.probes.push_back(
          {tree.token(node), tree.parent(node), tree.wants_row(node) ? rows.best(node) : -1});
  }
  if (options_.hash_rows) {
    for (int i = 0; i < slot.emitted; ++i) {
      const std::span<const float> row = slot.raw_logits(i == 0 ? 0 : slot.acceptance.path[i - 1]);
      slot.out.row_hashes.push_back(hash_row(row.data(), row.size()));
    }
  }
  if (options_.details) {
    const std::vector<Acceptance::Tested>* seen = &slot.acceptance.tested;
    if (!slot.acceptance.want_expected && !seen->empty()) {
      slot.walk(slot.again);
      SPECLAB_CHECK(slot.again.path == slot.acceptance.path && slot.again.next == slot.acceptance.next,
                    "a rule that decides differently when it is asked again: {}", slot.rule->name);
      seen = &slot.again.tested;
    }
    int measured = -1;  // the last parent whose law was compared
    for (const Acceptance::Tested& tested : *seen) {
      DraftedToken& token = step.drafted[tested.node - 1];
      if (!token.tested) continue;
      token.expected = tested.expected;
      const int parent = tree.parent(tested.node);
      token.rank = rank_in(slot.row(parent), token.id);
      if (!slot.lossy || parent == measured) continue;
      measured = parent;
      const TargetRow row = slot.target_row(parent);
      slot.rule->output_law(row, slot.draft.q_at(tested.node), token.id, slot.request->options.rule_options,
                            slot.law);
      row.p->probabilities(slot.law_of_target);
      double distance = 0;
      for (std::size_t x = 0; x < slot.law.size(); ++x)
        distance += std::abs(slot.law[x] - slot.law_of_target[x]);
      token.distance = distance / 2;
    }
  }
}

void DecodeLoop::tell(Slot& slot) {
  if (!options_.on_emit) return;
  options_.on_emit(slot.sequence.slot, slot.out.steps.back(),
                   TokenSpan(slot.out.tokens).last(static_cast<std::size_t>(slot.emitted)));
}

}  // namespace speclab
