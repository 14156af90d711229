// The device drafts and verifies whole steps; the host reads finished steps. Some steps are always queued
// ahead. After the text has ended, the same steps run a second time, one by one and with time stamps. The
// second run gives everything that needs rows on the host (hashes, expected acceptance, ranks) and the times
// of the phases, so the first run is not slowed down. There is no second run if the loop records neither
// hashes nor details (LoopOptions), or if the text was cancelled.
#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/decoding/loop/executors/device_plan_shape.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/loop/executors/planned_rounds.h"
#include "core/decoding/loop/executors/step_executor.h"
#include "core/decoding/loop/step_record.h"

namespace speclab {
namespace {

RoundQueue queue_of(DeviceGraph device_graph) {
  switch (device_graph) {
    case DeviceGraph::loop: return RoundQueue::kLoop;
    case DeviceGraph::round: return RoundQueue::kGraph;
    case DeviceGraph::off: break;
  }
  return RoundQueue::kLaunches;
}

std::string name_of(RoundQueue queue) {
  return queue == RoundQueue::kLoop ? "loop" : queue == RoundQueue::kGraph ? "round" : "off";
}

class DeviceStepsExecutor final : public StepExecutor {
 public:
  explicit DeviceStepsExecutor(const ExecutorSetting& setting) : setting_(setting) {}

  std::string begin(RunningSequence& sequence) override;
  void draft(Strategy& strategy, const StepGroup& group) override;
  void lay_out(const StepGroup&) override {}
  void forward(const StepGroup&) override {}
  void judge(const StepGroup&) override {}
  void commit(RunningSequence& sequence) override;
  void observe(Strategy&, const StepGroup&, std::span<const Outcome>) override {}
  bool fetch_rows(RunningSequence&) override { return false; }
  void finish(RunningSequence& sequence) override;

 private:
  std::optional<DevicePlan> plan_of(const RunningSequence& sequence) const;
  void follow_draft(RunningSequence& sequence);
  void run_again(RunningSequence& sequence);
  void take_rows_again(RunningSequence& sequence, const PlanRound& round);

  ExecutorSetting setting_;
  std::unique_ptr<PlannedRounds> rounds_;  // kept for later generations of the same shape
  DevicePlan plan_;                        // of this generation
  PlanStart begun_;
  const PlanRound* round_ = nullptr;  // the finished round of this step
  std::vector<std::int32_t> parents_;
  std::vector<float> draft_rows_;
  SiblingDraw siblings_;
};

// Returns no plan if the strategy has none, if the host must look for stop strings, if there are too many end
// tokens for the device, or if draft and target are on different backends.
std::optional<DevicePlan> DeviceStepsExecutor::plan_of(const RunningSequence& sequence) const {
  if (sequence.stops.active() || sequence.sequence.eos.size() > kMostPlanEnds) return std::nullopt;
  std::optional<DevicePlan> plan = setting_.strategy->device_plan(sequence.request.options.sampling);
  if (!plan || plan->widths.empty()) return plan;
  SPECLAB_CHECK(sequence.draft_sessions.size() == 1, "{} draft sessions under a plan",
                sequence.draft_sessions.size());
  const bool together = &sequence.draft_sessions.front()->model().backend() == &setting_.target->backend();
  return together ? plan : std::nullopt;
}

std::string DeviceStepsExecutor::begin(RunningSequence& sequence) {
  std::string reason;
  std::optional<PlanShape> shape = target_plan_shape(setting_, sequence, reason);
  if (!shape) return reason;
  if (setting_.options->batch > 1) return "the loop decodes several sequences at once";
  const std::optional<DevicePlan> plan = plan_of(sequence);
  if (!plan) return fmt::format("{} has no plan of whole steps for this generation", setting_.strategy_name);
  if (!setting_.reads->hidden.empty()) return fmt::format("{} reads hidden states", setting_.strategy_name);
  const bool tree =
      std::any_of(plan->widths.begin(), plan->widths.end(), [](int width) { return width > 1; });
  if (tree && sequence.rule->require != nullptr)
    return fmt::format("rule {} does not judge every tree, and the host checks each draft",
                       sequence.rule->name);
  shape->widths = plan->widths;
  if (shape->depth() >= kMostPlanNodes || shape->nodes() > kMostPlanNodes)
    return fmt::format("{} drafts trees of more than {} nodes", setting_.strategy_name, kMostPlanNodes);
  Session* const draft = plan->widths.empty() ? nullptr : sequence.draft_sessions.front();
  if (draft != nullptr) {
    const ModelConfig& config = draft->model().config();
    shape->draft = device_sampling(plan->draft);
    shape->draft_columns = config.head_rows();
    shape->draft_ids = {config.head_ids.begin(), config.head_ids.end()};
    shape->draft_offset = config.position_offset;
    shape->draft_capacity = draft->capacity();
  }
  if (!rounds_ || !rounds_->is_of(*shape, *sequence.session, draft))
    rounds_ = PlannedRounds::make(*shape, *sequence.session, draft);
  if (!rounds_) return fmt::format("backend {} runs no steps by itself", setting_.target->backend().name());
  plan_ = *plan;

  const std::vector<Token>& text = sequence.sequence.tokens;
  begun_ = PlanStart();
  begun_.position = sequence.sequence.position();
  begun_.previous = text[text.size() - 2];
  begun_.pending = text.back();
  begun_.emitted = static_cast<int>(sequence.out.tokens.size());
  begun_.max_tokens = sequence.request.options.max_tokens;
  begun_.key = sequence.sequence.coins.key();
  begun_.ends = {sequence.sequence.eos.begin(), sequence.sequence.eos.end()};
  round_ = nullptr;  // the first step starts the device
  return {};
}

// Reads the next finished step: the draft and its verdict.
void DeviceStepsExecutor::draft(Strategy&, const StepGroup& group) {
  RunningSequence& sequence = *group.running.front();
  if (round_ == nullptr) {
    rounds_->start(begun_, queue_of(sequence.request.options.device_graph), false);
    sequence.out.device_graph = name_of(rounds_->queued_as());
    sequence.out.device_graph_problem = rounds_->loop_problem();
  }
  const PlanRound& round = *(round_ = &rounds_->next());
  SPECLAB_CHECK(
      round.position == sequence.sequence.position() && round.tokens[0] == sequence.sequence.tokens.back(),
      "a round at {} where the text is at {}", round.position, sequence.sequence.position());
  sequence.decided_from = round.position;
  if (round.nodes > 1) {
    sequence.draft.source = "draft";
    for (int node = 1; node < round.nodes; ++node)
      sequence.draft.add(round.tokens[node], rounds_->parents()[static_cast<std::size_t>(node)],
                         Draft::kOneHot, round.confidence[node]);
    follow_draft(sequence);
  }
  sequence.fed.assign(sequence.draft.tree.tokens().begin(), sequence.draft.tree.tokens().end());
  read_verdict(round, sequence.acceptance);
}

// Keeps the host's side of the draft's session up to date. The device fed the token before the pending token,
// the pending token, and then all levels of the tree except the last one. The token before the pending token
// counts only if the cache did not hold it yet, because it was on the last level of the previous draft. The
// cache keeps the accepted nodes that were fed.
void DeviceStepsExecutor::follow_draft(RunningSequence& sequence) {
  const TokenTree& tree = sequence.draft.tree;
  Session& draft = *sequence.draft_sessions.front();
  const auto position = static_cast<int>(sequence.sequence.position());
  draft.rewind(std::min(draft.length(), position));
  const int behind = position + 1 - draft.length();
  parents_.resize(static_cast<std::size_t>(behind));
  std::iota(parents_.begin(), parents_.end(), -1);
  draft.follow(parents_, false, 1);
  draft.follow_commit(behind);
  const int levels = tree.max_depth() - 1;
  for (int depth = 1, node = 1; depth <= levels; ++depth) {
    parents_.clear();
    for (; tree.depth(node) == depth; ++node) parents_.push_back(tree.parent(node) - 1);
    draft.follow(parents_, depth > 1, static_cast<int>(parents_.size()));
  }
  draft.follow_commit(std::min(round_->accepted, levels));
}

void DeviceStepsExecutor::commit(RunningSequence& sequence) {
  SPECLAB_CHECK(sequence.emitted == round_->emitted && sequence.running == (round_->end == PlanEnd::kNone),
                "the device took {} tokens and ended as {}, the host took {}", round_->emitted,
                static_cast<int>(round_->end), sequence.emitted);
  sequence.session->follow(sequence.draft.tree.parents(), false, sequence.draft.tree.size());
  sequence.session->follow_commit(sequence.emitted);
}

void DeviceStepsExecutor::finish(RunningSequence& sequence) {
  GenerationRecord& out = sequence.out;
  out.planned_steps = static_cast<int>(out.steps.size());
  for (StepRecord& step : out.steps) step.times = PhaseTimes();
  if (out.finish == Finish::cancelled) return;  // a user who cancels does not wait for a second run
  if (setting_.options->hash_rows || setting_.options->details) run_again(sequence);
  // The phase times come from the second run. The time that the first run took beyond them is divided equally
  // among all steps, as phase "other".
  const auto steps = static_cast<std::int64_t>(out.steps.size());
  const std::int64_t rest = std::max<std::int64_t>(0, out.decode_ns - out.stamped_ns);
  for (std::int64_t i = 0; i < steps; ++i)
    out.steps[static_cast<std::size_t>(i)].times[Phase::other] = rest * (i + 1) / steps - rest * i / steps;
}

void DeviceStepsExecutor::run_again(RunningSequence& sequence) {
  GenerationRecord& out = sequence.out;
  const bool launches = sequence.request.options.device_graph == DeviceGraph::off;
  rounds_->start(begun_, launches ? RoundQueue::kLaunches : RoundQueue::kGraph, true);
  for (int index = 0; index < static_cast<int>(out.steps.size()); ++index) {
    const PlanRound& round = rounds_->next(1);
    StepRecord& step = out.steps[static_cast<std::size_t>(index)];
    const int drafted = round.nodes - 1;
    SPECLAB_CHECK(drafted == static_cast<int>(step.drafted.size()) && round.emitted == step.emitted,
                  "step {} drafted {} and emitted {}, and when run again {} and {}", index,
                  step.drafted.size(), step.emitted, drafted, round.emitted);
    sequence.decided_from = round.position;
    sequence.emitted = round.emitted;
    take_rows_again(sequence, round);
    for (int node = 1; node <= drafted; ++node) {
      SPECLAB_CHECK(sequence.draft.tree.token(node) == step.drafted[static_cast<std::size_t>(node - 1)].id,
                    "step {} drafted another token {} when it was run again", index, node);
    }
    sequence.expect_rows();
    read_verdict(round, sequence.acceptance);
    const auto between = [&](int from, int to) {
      return static_cast<std::int64_t>(round.stamp_ns[to] - round.stamp_ns[from]);
    };
    step.times[Phase::draft] = between(0, 1);
    step.times[Phase::target] = between(1, 2);
    step.times[Phase::accept] = between(2, 3);
    out.stamped_ns += between(0, 3);
    look_closer(sequence, index, *setting_.options);
  }
}

// Downloads the rows of a round of the second run. Makes the draft again on the host, with the q of each
// token.
void DeviceStepsExecutor::take_rows_again(RunningSequence& sequence, const PlanRound& round) {
  const PlanShape& shape = rounds_->shape();
  const auto vocab = static_cast<std::size_t>(shape.vocab),
             columns = static_cast<std::size_t>(shape.draft_columns);
  sequence.draft.reset(round.tokens[0]);
  const auto rows = static_cast<std::size_t>(round.nodes);
  const int inner = round.nodes > 1  // nodes with children
                        ? rounds_->parents()[static_cast<std::size_t>(round.nodes) - 1] + 1
                        : 0;
  draft_rows_.resize(static_cast<std::size_t>(inner) * columns);
  sequence.logits.resize(std::max(sequence.logits.size(), rows * vocab));
  rounds_->download(std::span(sequence.logits).first(rows * vocab), draft_rows_);
  for (int node = 0; node < inner; ++node) {
    const ModelConfig& config = sequence.draft_sessions.front()->model().config();
    siblings_.add(sequence.draft, node,
                  shape.widths[static_cast<std::size_t>(sequence.draft.tree.depth(node))],
                  std::span(draft_rows_).subspan(static_cast<std::size_t>(node) * columns, columns),
                  plan_.draft, config.head_ids, shape.vocab,
                  [&](const Distribution&) { return Token{round.tokens[sequence.draft.tree.size()]}; });
  }
}

}  // namespace

std::unique_ptr<StepExecutor> make_device_steps_executor(const ExecutorSetting& setting) {
  return std::make_unique<DeviceStepsExecutor>(setting);
}

}  // namespace speclab
