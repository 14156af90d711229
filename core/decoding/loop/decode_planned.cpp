// The decode loop where a device runs the steps: rounds are read from it, and each is taken into the text and
// written down as a step of the host's would be. What needs rows (hashes, expected acceptance, ranks) and the
// times of the phases come from a second run of the same rounds, one by one and with stamps, so that the
// first one is as fast as it can be.
#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/measure/clock.h"
#include "core/decoding/loop/decode_slot.h"
#include "core/decoding/drafting/draft_model.h"

namespace speclab {
namespace {

RoundQueue queue_of(const std::string& device_graph) {
  return device_graph == "loop"    ? RoundQueue::kLoop
         : device_graph == "round" ? RoundQueue::kGraph
                                   : RoundQueue::kLaunches;
}

}  // namespace

// The strategy's plan for whole steps; none where something in each is the host's.
std::optional<DevicePlan> DecodeLoop::plan_of_steps(const Slot& slot) const {
  if (slot.stops.active() || slot.sequence.eos.size() > kMostPlanEnds) return std::nullopt;
  std::optional<DevicePlan> plan = strategy_->device_plan(slot.request->options.sampling);
  if (!plan || plan->widths.empty()) return plan;
  SPECLAB_CHECK(slot.draft_sessions.size() == 1, "{} draft sessions under a plan",
                slot.draft_sessions.size());
  const bool together = &slot.draft_sessions.front()->model().backend() == &target_->backend();
  return together ? plan : std::nullopt;
}

// Decides what the device does of the steps of this sequence, and prepares it; says why that is nothing.
std::string DecodeLoop::plan(Slot& slot) {
  const Request& request = *slot.request;
  const std::optional<DeviceRule> rule =
      device_rule(*slot.rule, request.options.rule_options, request.options.sampling);
  if (!rule) return fmt::format("rule {} runs on the host", slot.rule->name);
  if (options_.batch_of_prefixes) return "drafts are verified as a batch of prefixes";
  if (options_.devices > 1) return "steps are divided over devices";
  if (slot.processors) return "logits depend on the text";
  if (request.coins.is_scripted() || request.coins.is_watched())
    return "scripted and watched coins are the host's";
  PlanShape shape;
  shape.vocab = slot.vocab();
  shape.target = device_sampling(request.options.sampling);
  shape.rule = rule->rule;
  shape.form = rule->form;
  shape.criterion = rule->criterion;
  shape.target_offset = target_->config().position_offset;
  shape.target_capacity = capacity_;
  const std::optional<DevicePlan> steps = plan_of_steps(slot);
  if (!steps) {
    const std::string reason = plan_verdicts(slot, shape);
    if (reason.empty()) on_device_ = OnDevice::kVerdicts;
    return reason;
  }
  shape.widths = steps->widths;
  Session* const draft = steps->widths.empty() ? nullptr : slot.draft_sessions.front();
  if (draft != nullptr) {
    const ModelConfig& config = draft->model().config();
    shape.draft = device_sampling(steps->draft);
    shape.draft_columns = config.head_rows();
    shape.draft_ids = {config.head_ids.begin(), config.head_ids.end()};
    shape.draft_offset = config.position_offset;
    shape.draft_capacity = draft->capacity();
  }
  if (!rounds_ || !rounds_->is_of(shape, *slot.session, draft))
    rounds_ = PlannedRounds::make(shape, *slot.session, draft);
  if (!rounds_) return fmt::format("backend {} runs no steps by itself", target_->backend().name());
  on_device_ = OnDevice::kSteps;
  return {};
}

void DecodeLoop::decode_planned(Slot& slot, const std::stop_token& stop) {
  const std::vector<Token>& text = slot.sequence.tokens;
  PlanStart begun;
  begun.position = slot.sequence.position();
  begun.previous = text[text.size() - 2];
  begun.pending = text.back();
  begun.emitted = static_cast<int>(slot.out.tokens.size());
  begun.max_tokens = slot.request->options.max_tokens;
  begun.key = slot.sequence.coins.key();
  begun.ends = {slot.sequence.eos.begin(), slot.sequence.eos.end()};

  const std::int64_t cpu_before = cpu_now_ns(), wall_before = wall_now_ns();
  rounds_->start(begun, queue_of(slot.request->options.device_graph), false);
  while (slot.running) {
    if (stop.stop_requested()) {
      slot.out.finish = Finish::cancelled;
      break;
    }
    const PlanRound& round = rounds_->next();
    take_round(slot, round);
    emit(slot);
    SPECLAB_CHECK(slot.emitted == round.emitted && slot.running == (round.end == PlanEnd::kNone),
                  "the device took {} tokens and ended as {}, the host took {}", round.emitted,
                  static_cast<int>(round.end), slot.emitted);
    slot.session->follow(slot.draft.tree.parents(), false, slot.draft.tree.size());
    slot.session->follow_commit(slot.emitted);
    record(slot);
    slot.out.steps.push_back(slot.step);
    tell(slot);
  }
  GenerationRecord& out = slot.out;
  out.decode_ns = wall_now_ns() - wall_before;
  out.cpu_ns = cpu_now_ns() - cpu_before;
  out.planned_steps = static_cast<int>(out.steps.size());
  if (out.finish == Finish::cancelled) return;  // whoever stopped it does not wait for the same rounds again
  if (options_.hash_rows || options_.details) watch_rounds(slot, begun);

  // What the phases leave of the time of the first run is nobody's: all steps share it.
  const auto steps = static_cast<std::int64_t>(out.steps.size());
  const std::int64_t rest = std::max<std::int64_t>(0, out.decode_ns - out.stamped_ns);
  for (std::int64_t i = 0; i < steps; ++i)
    out.steps[static_cast<std::size_t>(i)].times[Phase::other] = rest * (i + 1) / steps - rest * i / steps;
}

// What draft(), verify() and the draft's catching up do in a step of the host's: the draft, the verdict, the
// work.
void DecodeLoop::take_round(Slot& slot, const PlanRound& round) {
  const Sequence& sequence = slot.sequence;
  SPECLAB_CHECK(round.position == sequence.position() && round.tokens[0] == sequence.tokens.back(),
                "a round at {} where the text is at {}", round.position, sequence.position());
  slot.draft.reset(round.tokens[0]);
  slot.draft_before = slot.draft_work();
  slot.decided_from = round.position;
  if (round.nodes > 1) {
    slot.draft.source = "draft";
    for (int node = 1; node < round.nodes; ++node)
      slot.draft.add(round.tokens[node], rounds_->parents()[static_cast<std::size_t>(node)], Draft::kOneHot,
                     round.confidence[node]);
    follow_draft(slot, round.accepted);
  }
  slot.fed.assign(slot.draft.tree.tokens().begin(), slot.draft.tree.tokens().end());
  read_verdict(round, slot.acceptance);
}

// The draft's session: the pending token was fed, and the one before it where that was the last of a draft;
// then the levels of the tree but the last. What was accepted of them is in the cache.
void DecodeLoop::follow_draft(Slot& slot, int accepted) {
  const TokenTree& tree = slot.draft.tree;
  Session& draft = *slot.draft_sessions.front();
  const auto position = static_cast<int>(slot.sequence.position());
  draft.rewind(std::min(draft.length(), position));
  const int behind = position + 1 - draft.length();
  slot.parents.resize(static_cast<std::size_t>(behind));
  std::iota(slot.parents.begin(), slot.parents.end(), -1);
  draft.follow(slot.parents, false, 1);
  draft.follow_commit(behind);
  const int levels = tree.max_depth() - 1;
  for (int depth = 1, node = 1; depth <= levels; ++depth) {
    slot.parents.clear();
    for (; tree.depth(node) == depth; ++node) slot.parents.push_back(tree.parent(node) - 1);
    draft.follow(slot.parents, depth > 1, static_cast<int>(slot.parents.size()));
  }
  draft.follow_commit(std::min(accepted, levels));
}

// The same rounds again, for what the record has besides tokens and counts.
void DecodeLoop::watch_rounds(Slot& slot, const PlanStart& begun) {
  GenerationRecord& out = slot.out;
  const PlanShape& shape = rounds_->shape();
  const auto vocab = static_cast<std::size_t>(shape.vocab),
             columns = static_cast<std::size_t>(shape.draft_columns);
  std::vector<float> draft_rows;
  SiblingDraw siblings;
  const SamplingParams sampling =
      shape.depth() > 0 ? strategy_->device_plan(slot.sequence.sampling)->draft : SamplingParams{};
  const bool launches = slot.request->options.device_graph == "off";
  rounds_->start(begun, launches ? RoundQueue::kLaunches : RoundQueue::kGraph, true);
  for (int index = 0; index < static_cast<int>(out.steps.size()); ++index) {
    const PlanRound& round = rounds_->next(1);
    StepRecord& step = out.steps[static_cast<std::size_t>(index)];
    const int drafted = round.nodes - 1;
    SPECLAB_CHECK(drafted == static_cast<int>(step.drafted.size()) && round.emitted == step.emitted,
                  "step {} drafted {} and emitted {}, and when run again {} and {}", index,
                  step.drafted.size(), step.emitted, drafted, round.emitted);
    slot.draft.reset(round.tokens[0]);
    slot.decided_from = round.position;
    slot.emitted = round.emitted;
    const std::size_t rows = static_cast<std::size_t>(round.nodes);
    const int inner =
        drafted > 0 ? rounds_->parents()[static_cast<std::size_t>(drafted)] + 1 : 0;  // nodes with children
    draft_rows.resize(static_cast<std::size_t>(inner) * columns);
    slot.logits.resize(std::max(slot.logits.size(), rows * vocab));
    rounds_->download(std::span(slot.logits).first(rows * vocab), draft_rows);
    for (int node = 0; node < inner; ++node) {
      const ModelConfig& config = slot.draft_sessions.front()->model().config();
      siblings.add(slot.draft, node, shape.widths[static_cast<std::size_t>(slot.draft.tree.depth(node))],
                   std::span(draft_rows).subspan(static_cast<std::size_t>(node) * columns, columns), sampling,
                   config.head_ids, shape.vocab,
                   [&](const Distribution&) { return Token{round.tokens[slot.draft.tree.size()]}; });
    }
    for (int node = 1; node <= drafted; ++node) {
      SPECLAB_CHECK(slot.draft.tree.token(node) == step.drafted[static_cast<std::size_t>(node - 1)].id,
                    "step {} drafted another token {} when it was run again", index, node);
    }
    slot.expect_rows();
    read_verdict(round, slot.acceptance);
    const auto between = [&](int from, int to) {
      return static_cast<std::int64_t>(round.stamp_ns[to] - round.stamp_ns[from]);
    };
    step.times[Phase::draft] = between(0, 1);
    step.times[Phase::target] = between(1, 2);
    step.times[Phase::accept] = between(2, 3);
    out.stamped_ns += between(0, 3);
    look_closer(slot, index);
  }
}

}  // namespace speclab
