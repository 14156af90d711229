#include "core/decoding/loop/decode_loop.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/measure/clock.h"
#include "core/decoding/loop/step_record.h"

namespace speclab {

void DecodeLoop::step() {
  if (running_.empty()) return;
  PhaseClock clock;
  const std::int64_t cpu_before = cpu_now_ns();
  clock.start(Phase::other);
  try {
    begin_step();
    clock.enter(Phase::draft);
    for (const StepGroup& group : groups_) group.executor->draft(*strategy_, group);
    clock.enter(Phase::other);
    for (const StepGroup& group : groups_) group.executor->lay_out(group);
    clock.enter(Phase::target);
    for (const StepGroup& group : groups_) group.executor->forward(group);
    clock.enter(Phase::accept);
    for (const StepGroup& group : groups_) group.executor->judge(group);
    clock.enter(Phase::other);
    outcomes_.clear();
    for (RunningSequence* sequence : running_) {
      sequence->emit(capacity_, options_.token_bytes);
      sequence->executor->commit(*sequence);
      sequence->fetch_states(reads_);
      outcomes_.push_back({&sequence->draft, &sequence->acceptance, sequence->emitted,
                           reads_.rows ? sequence->step_rows() : StepRows(), sequence->states.states()});
    }
    clock.enter(Phase::draft);
    std::size_t first = 0;
    for (const StepGroup& group : groups_) {
      const std::size_t count = group.running.size();
      group.executor->observe(*strategy_, group, std::span(outcomes_).subspan(first, count));
      first += count;
    }
    clock.enter(Phase::other);
    for (RunningSequence* sequence : running_) record_step(*sequence);
    const PhaseTimes times = clock.lap();
    const std::int64_t cpu = cpu_now_ns() - cpu_before;
    for (RunningSequence* sequence : running_) {  // after the clock was read
      GenerationRecord& out = sequence->out;
      out.steps.push_back(sequence->step);
      out.steps.back().times = times;
      out.decode_ns += times.total();
      out.cpu_ns += cpu;
      if (sequence->executor->fetch_rows(*sequence)) {
        look_closer(*sequence, static_cast<int>(out.steps.size()) - 1, options_);
        if (options_.on_judged) show_judged_step(*sequence, options_.on_judged);
      }
      if (options_.on_emit) {
        options_.on_emit(sequence->sequence.slot, out.steps.back(),
                         TokenSpan(out.tokens).last(static_cast<std::size_t>(sequence->emitted)));
      }
      if (!sequence->running) retire(*sequence);
    }
  } catch (...) {
    strategy_->halt();
    drop_all();
    throw;
  }
  std::erase_if(running_, [](const RunningSequence* sequence) { return !sequence->running; });
}

// Sets the limits of the next drafts and groups the running sequences by executor.
void DecodeLoop::begin_step() {
  sequences_.clear();
  drafts_.clear();
  for (RunningSequence* sequence : running_) {
    sequence->begin_step(capacity_);
    sequences_.push_back(&sequence->sequence);
    drafts_.push_back(&sequence->draft);
  }
  groups_.clear();
  for (std::size_t first = 0, end = 0; first < running_.size(); first = end) {
    while (end < running_.size() && running_[end]->executor == running_[first]->executor) ++end;
    groups_.push_back({running_[first]->executor, std::span(running_).subspan(first, end - first),
                       std::span(sequences_).subspan(first, end - first),
                       std::span(drafts_).subspan(first, end - first)});
  }
}

// Completes the record of a sequence that has ended, and moves it to finished_. The slot is free when the
// caller has removed the sequence from running_.
void DecodeLoop::retire(RunningSequence& sequence) {
  sequence.running = false;
  sequence.out.target = sequence.session->work() - sequence.target_begun - sequence.drafted_on_target;
  sequence.out.draft = sequence.draft_work() - sequence.draft_begun;
  if (draft_models_.size() > 1) {
    sequence.out.drafts = sequence.work_by_draft(draft_models_.size());
    for (std::size_t i = 0; i < draft_models_.size(); ++i)
      sequence.out.drafts[i] = sequence.out.drafts[i] - sequence.drafts_begun[i];
  }
  if (sequence.executor != nullptr) sequence.executor->finish(sequence);
  finished_.push_back({sequence.ticket, std::move(sequence.out)});
}

void DecodeLoop::cancel() {
  for (RunningSequence* sequence : running_) {
    sequence->out.finish = Finish::cancelled;
    retire(*sequence);
  }
  running_.clear();
}

void DecodeLoop::drop_all() {
  for (RunningSequence* sequence : running_) sequence->running = false;
  running_.clear();
}

bool DecodeLoop::idle() const { return running_.empty(); }

bool DecodeLoop::has_room() const { return running_.size() < slots_.size(); }

std::vector<DecodeLoop::Finished> DecodeLoop::finished() { return std::exchange(finished_, {}); }

GenerationRecord DecodeLoop::run(const Request& request, std::stop_token stop) {
  return std::move(run(std::span<const Request>(&request, 1), std::move(stop)).front());
}

std::vector<GenerationRecord> DecodeLoop::run(std::span<const Request> requests, std::stop_token stop) {
  SPECLAB_CHECK(!requests.empty() && requests.size() <= slots_.size(), "{} requests for a batch of {}",
                requests.size(), slots_.size());
  SPECLAB_CHECK(idle(), "run() while {} sequences are running", running_.size());
  finished_.clear();
  const std::uint64_t first = tickets_;
  try {
    for (const Request& request : requests) add(request);
  } catch (...) {
    drop_all();
    throw;
  }
  if (options_.on_steps) options_.on_steps(true);
  while (!idle()) {
    if (stop.stop_requested()) cancel();
    else step();
  }
  if (options_.on_steps) options_.on_steps(false);
  std::vector<GenerationRecord> records(requests.size());
  for (Finished& ended : finished())
    records[static_cast<std::size_t>(ended.ticket - first)] = std::move(ended.record);
  return records;
}

}  // namespace speclab
