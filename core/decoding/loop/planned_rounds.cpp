#include "core/decoding/loop/planned_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "core/base/error.h"
#include "core/measure/clock.h"

namespace speclab {
namespace {

// next() gives up on a round when the device has been idle for this long.
constexpr std::int64_t kPatienceNs = 5'000'000'000;

void check_round(const PlanRound& round) {
  if (round.end == PlanEnd::kBadTarget || round.end == PlanEnd::kBadDraft) {
    const bool target = round.end == PlanEnd::kBadTarget;
    throw Error({fmt::format("logits of the {}, entry {}", target ? "target" : "draft", round.bad_entry),
                 "no finite number", "finite numbers (or -inf for some)",
                 "The weights or the numerics class are broken: check the model file with `speclab model`."});
  }
  SPECLAB_CHECK(round.end != PlanEnd::kNoMass, "a token was drawn from a row that gives it no mass");
}

}  // namespace

void read_verdict(const PlanRound& round, Acceptance& out) {
  out.path.assign(round.path, round.path + round.accepted);
  out.tested.clear();
  out.want_expected = false;
  for (int i = 0; i < round.tested; ++i) {
    const int node = round.tested_node[i];
    const bool accepted = std::find(out.path.begin(), out.path.end(), node) != out.path.end();
    out.tested.push_back({node, round.p[node], round.q[node], -1, -1, accepted});
  }
  out.next = round.next;
  out.bonus = round.bonus != 0;
}

std::unique_ptr<PlannedRounds> PlannedRounds::make(const PlanShape& shape, Session& target, Session* draft) {
  SPECLAB_CHECK(shape.depth() == 0 || draft != nullptr, "a depth of {} without a draft", shape.depth());
  DeviceProgram* program = target.model().backend().device_program();
  if (program == nullptr) return nullptr;
  std::shared_ptr<Plan> plan = program->make_plan(shape);
  plan->target_cache = target.cache();
  if (draft != nullptr) plan->draft_cache = draft->cache();
  return std::unique_ptr<PlannedRounds>(new PlannedRounds(*program, std::move(plan), target, draft));
}

void PlannedRounds::start(PlanStart start, RoundQueue queue, bool stamps) {
  loop_problem_ = queue == RoundQueue::kLoop ? program_->loop_problem() : "";
  if (!loop_problem_.empty()) queue = RoundQueue::kGraph;
  mode_ = queue;
  stamps_ = stamps;
  position_ = start.position;
  // The number of the first round of a loop is a multiple of kPlanLoop, so that the loop runs kPlanLoop
  // rounds.
  if (queue == RoundQueue::kLoop) queued_ = (queued_ + kPlanLoop - 1) / kPlanLoop * kPlanLoop;
  start.rounds = read_ = queued_;
  program_->start(*plan_, start);
}

void PlannedRounds::queue() {
  Plan& plan = *plan_;
  const PlanShape& shape = plan.shape;
  const bool loop = mode_ == RoundQueue::kLoop;
  const int rounds = loop ? kPlanLoop : 1;
  // Each round that is queued but not read may append depth() + 1 tokens to the sequence.
  const std::int64_t most =
      position_ + (static_cast<std::int64_t>(queued_ - read_) + rounds - 1) * (shape.depth() + 1);
  std::int64_t tier = kTier;
  while (tier <= most) tier *= 2;
  const auto bound = [](std::int64_t committed, int capacity) {
    return static_cast<int>(std::min<std::int64_t>(committed, capacity - 1));
  };
  for (QueuedRows& rows : plan.draft) rows.rows.committed = bound(tier + 1, shape.draft_capacity);
  plan.target.rows.committed = bound(tier, shape.target_capacity);
  queued_ += static_cast<std::uint32_t>(rounds);
  if (mode_ == RoundQueue::kLaunches) {
    queue_round();
    return;
  }
  std::shared_ptr<Graph>& graph = graphs_[{tier, loop, stamps_}];
  if (!graph) {
    graph = program_->record(loop, [&] {
      queue_round();
      if (loop) program_->repeat(plan);
    });
  }
  program_->replay(*graph);
}

void PlannedRounds::queue_round() {
  Plan& plan = *plan_;
  const PlanShape& shape = plan.shape;
  if (stamps_) program_->stamp(plan, 0);
  for (int depth = 1; depth <= shape.depth(); ++depth) {
    program_->draft_rows(plan, depth);
    draft_->model().forward(*draft_, plan.draft[static_cast<std::size_t>(depth - 1)],
                            plan.draft_logits + static_cast<std::size_t>(shape.level_begin(depth - 1)) *
                                                    static_cast<std::size_t>(shape.draft_columns));
    program_->draw(plan, depth);
  }
  if (stamps_) program_->stamp(plan, 1);
  program_->target_rows(plan);
  target_->model().forward(*target_, plan.target, plan.target_logits);
  if (stamps_) program_->stamp(plan, 2);
  program_->settle(plan);
}

const PlanRound& PlannedRounds::next(int ahead) {
  SPECLAB_CHECK(ahead >= 1 && ahead + kPlanLoop <= kPlanRing, "{} rounds ahead", ahead);
  while (static_cast<int>(queued_ - read_) < ahead) queue();
  Backend& backend = target_->model().backend();
  ++read_;
  // The device may report that it is idle while a looping graph still runs. So this gives up only when the
  // device has been idle for kPatienceNs.
  std::int64_t idle_since = 0;
  for (;;) {
    if (const PlanRound* round = plan_->round(read_)) {
      check_round(*round);
      position_ = round->position + round->emitted;
      return *round;
    }
    const std::int64_t now = wall_now_ns();
    if (!backend.idle() || idle_since == 0) idle_since = now;
    SPECLAB_CHECK(now - idle_since < kPatienceNs,
                  "the device is idle, but round {} of {} queued rounds has not finished", read_, queued_);
    std::this_thread::yield();
  }
}

void PlannedRounds::download(std::span<float> target, std::span<float> draft) {
  Backend& backend = target_->model().backend();
  if (!target.empty()) backend.download(plan_->target_logits, target.size_bytes(), target.data());
  if (!draft.empty()) backend.download(plan_->draft_logits, draft.size_bytes(), draft.data());
}

}  // namespace speclab
