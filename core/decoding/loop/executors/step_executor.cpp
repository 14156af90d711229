#include "core/decoding/loop/executors/step_executor.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"

/// All executors in the order in which they are tried. An entry has a name and says whether a device runs
/// or verifies the steps of one sequence. NAME stands for the factory make_NAME_executor() in
/// NAME_executor.cpp.
#define SPECLAB_EXECUTORS(ENTRY) \
  ENTRY(device_steps, true)      \
  ENTRY(device_verdict, true)    \
  ENTRY(exit, false)             \
  ENTRY(divided, false)          \
  ENTRY(sequences, false)        \
  ENTRY(tree, false)

namespace speclab {

#define SPECLAB_DECLARE(name, on_device) \
  std::unique_ptr<StepExecutor> make_##name##_executor(const ExecutorSetting& setting);
SPECLAB_EXECUTORS(SPECLAB_DECLARE)

namespace {

#define SPECLAB_KIND(name, on_device) ExecutorKind{#name, on_device, make_##name##_executor},
constexpr std::array kKinds = {SPECLAB_EXECUTORS(SPECLAB_KIND)};

}  // namespace

std::span<const ExecutorKind> executor_kinds() { return kKinds; }

int StepExecutor::rows_in_flight(int nodes) const { return std::max(kLeastRowsInFlight, nodes); }

void StepExecutor::draft(Strategy& strategy, const StepGroup& group) {
  for (RunningSequence* sequence : group.running) {
    sequence->target_before = sequence->session->work();
    sequence->committed_before = sequence->session->length();
  }
  strategy.draft(group.sequences, group.drafts);
  for (RunningSequence* sequence : group.running) {
    const Session& session = *sequence->session;
    sequence->drafted_on_target += session.work() - sequence->target_before;
    SPECLAB_CHECK(session.length() == sequence->committed_before,
                  "{} committed positions after a draft, but {} before it", session.length(),
                  sequence->committed_before);
    const TokenTree& tree = sequence->draft.tree;
    const int depth_limit = sequence->sequence.depth_limit, probe_limit = sequence->sequence.probe_limit;
    SPECLAB_CHECK(tree.max_depth() <= depth_limit || tree.size() == 1,
                  "a draft of depth {} where {} is the limit", tree.max_depth(), depth_limit);
    SPECLAB_CHECK(tree.max_probe_depth() <= probe_limit, "a probe of depth {} where {} is the limit",
                  tree.max_probe_depth(), probe_limit);
  }
}

void StepExecutor::judge(const StepGroup& group) {
  for (RunningSequence* sequence : group.running) {
    sequence->decided_from = sequence->sequence.position();
    // Decoding does not need the expected acceptance, which costs passes over the rows of p and q.
    // look_closer() runs the rule again to get it, outside the clock. With scripted coins the rule can run
    // only once.
    sequence->acceptance.want_expected = sequence->sequence.coins.is_scripted();
    sequence->judge(sequence->acceptance);
  }
}

void StepExecutor::observe(Strategy& strategy, const StepGroup& group, std::span<const Outcome> outcomes) {
  strategy.observe(group.sequences, outcomes);
}

void StepExecutor::finish(RunningSequence& sequence) {
  if (!sequence.session->model().backend().host_memory())
    sequence.out.round_trips = sequence.out.target.calls + sequence.out.draft.calls + sequence.state_fetches;
}

void check_rows_in_flight(const ExecutorSetting& setting, std::size_t rows, std::string_view advice) {
  if (rows <= static_cast<std::size_t>(setting.scratch)) return;
  throw Error({"draft", fmt::format("{} rows to verify", rows),
               fmt::format("at most {} in flight", setting.scratch), std::string(advice)});
}

}  // namespace speclab
