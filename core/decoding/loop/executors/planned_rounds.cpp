#include "core/decoding/loop/executors/planned_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "core/base/error.h"
#include "core/measure/clock.h"

namespace speclab {
namespace {

// next() waits for a round for at most kWaitSeconds by default, and for at most kIdleSeconds while the device
// reports that it is idle. A profiler or a sanitizer makes a round of milliseconds last for seconds.
constexpr double kWaitSeconds = 60, kIdleSeconds = 5;
constexpr const char* kWaitName = "SPECLAB_DEVICE_WAIT_SECONDS";

double wait_seconds() {
  const char* text = std::getenv(kWaitName);
  if (text == nullptr || *text == '\0') return kWaitSeconds;
  const std::string_view digits = text;
  double seconds = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  if (code != std::errc{} || end != digits.data() + digits.size() || !(seconds > 0 && seconds <= 86400)) {
    throw Error({fmt::format("{} in the environment", kWaitName), fmt::format("\"{}\"", text),
                 "seconds, above 0 and at most 86400", "Unset it to wait up to 60 s for a step."});
  }
  return seconds;
}

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

std::unique_ptr<PlannedRounds> PlannedRounds::make(const PlanShape& shape, Session& target, Session* draft,
                                                   std::span<const int> hidden) {
  SPECLAB_CHECK(shape.depth() == 0 || draft != nullptr, "a depth of {} without a draft", shape.depth());
  DeviceProgram* program = target.model().backend().device_program();
  if (program == nullptr) return nullptr;
  std::shared_ptr<Plan> plan = program->make_plan(shape);
  plan->target_cache = target.cache();
  if (draft != nullptr) plan->draft_cache = draft->cache();
  std::unique_ptr<PlannedRounds> rounds(new PlannedRounds(*program, std::move(plan), target, draft));
  rounds->tap(hidden);
  return rounds;
}

// All rows of the target's forward have logits, so its taps give the states of all nodes.
void PlannedRounds::tap(std::span<const int> layers) {
  if (layers.empty()) return;
  const Model& model = target_->model();
  const std::size_t size =
      static_cast<std::size_t>(plan_->target.wanted_count) * static_cast<std::size_t>(model.config().hidden);
  states_ = model.backend().allocate_buffer<float>(layers.size() * size);
  for (std::size_t i = 0; i < layers.size(); ++i)
    taps_.push_back({layers[i], states_.data() + i * size, {}, Memory::kBackend});
}

void PlannedRounds::start(PlanStart start, RoundQueue queue, bool stamps) {
  loop_problem_ = queue == RoundQueue::kLoop ? program_->loop_problem() : "";
  if (!loop_problem_.empty()) queue = RoundQueue::kGraph;
  mode_ = queue;
  stamps_ = stamps;
  position_ = start.position;
  // A loop stops after a round whose number is a multiple of kPlanLoop, and the next round has the number
  // queued_ + 1. queued_ is rounded up to a multiple, so that the first loop runs kPlanLoop rounds.
  if (queue == RoundQueue::kLoop) queued_ = (queued_ + kPlanLoop - 1) / kPlanLoop * kPlanLoop;
  start.rounds = read_ = queued_;
  program_->start(*plan_, start);
}

void PlannedRounds::queue() {
  Plan& plan = *plan_;
  const PlanShape& shape = plan.shape;
  const bool loop = mode_ == RoundQueue::kLoop;
  const int rounds = loop ? kPlanLoop : 1;
  // The largest position at which one of the new rounds may begin. Before the last new round, each round that
  // is queued but not read and each other new round may append depth() + 1 tokens.
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
  target_->model().forward(*target_, plan.target, plan.target_logits, taps_);
  if (stamps_) program_->stamp(plan, 2);
  program_->settle(plan);
}

const PlanRound& PlannedRounds::next(int ahead) {
  SPECLAB_CHECK(ahead >= 1 && ahead + kPlanLoop <= kPlanRing, "{} rounds ahead", ahead);
  while (static_cast<int>(queued_ - read_) < ahead) queue();
  ++read_;
  if (const PlanRound* round = plan_->round(read_)) return read(*round);
  Backend& backend = target_->model().backend();
  const double limit = wait_seconds();
  const std::int64_t begun = wall_now_ns();
  const auto since = [](std::int64_t then) { return 1e-9 * static_cast<double>(wall_now_ns() - then); };
  // The device may report that it is idle while a looping graph still runs, so one such report proves
  // nothing.
  std::int64_t idle_since = 0;
  for (;;) {
    if (const PlanRound* round = plan_->round(read_)) return read(*round);
    const bool idle = backend.idle();
    if (!idle) idle_since = 0;
    else if (idle_since == 0) idle_since = wall_now_ns();
    const bool lost = idle && since(idle_since) >= std::min(limit, kIdleSeconds);
    if (lost || since(begun) >= limit) give_up(since(begun), idle);
    std::this_thread::yield();
  }
}

const PlanRound& PlannedRounds::read(const PlanRound& round) {
  check_round(round);
  position_ = round.position + round.emitted;
  return round;
}

// Throws the error about a device that does not answer. First tells the backend to give the device up.
// Otherwise the destructors that run during the unwinding would wait for the device without end.
void PlannedRounds::give_up(double seconds, bool idle) {
  Backend& backend = target_->model().backend();
  backend.give_up();
  throw Error(
      {fmt::format("round {} of a device program (last round queued on {}: {})", read_, backend.device_name(),
                   queued_),
       fmt::format("no result after {:.1f} s; the device {}", seconds,
                   idle ? "has nothing left to do" : "is still busy"),
       "its result in the ring that host and device share",
       fmt::format(
           "A kernel hangs, or another program uses the device. End this run of speclab and try again "
           "with --set device_loop=off. {} sets how long speclab waits for a step.",
           kWaitName)});
}

void PlannedRounds::download(std::span<float> target, std::span<float> draft) {
  Backend& backend = target_->model().backend();
  if (!target.empty()) backend.download(plan_->target_logits, target.size_bytes(), target.data());
  if (!draft.empty()) backend.download(plan_->draft_logits, draft.size_bytes(), draft.data());
}

}  // namespace speclab
