#include "core/backend/cuda/launch/launcher.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/backend/cuda/program/program.h"
#include "core/base/error.h"

namespace speclab::cuda {

Launcher::Launcher(Device& device, CudaKernels kernels)
    : device_(device),
      kernels_(kernels == CudaKernels::kSerial || kernels == CudaKernels::kGraphs ? CudaKernels::kLaunches
                                                                                  : kernels),
      records_forwards_(kernels == CudaKernels::kGraphs),
      most_shared_bytes_(device.most_shared_bytes()),
      overlaps_(kernels != CudaKernels::kSerial && device.overlaps()) {
  if (kernels_ == CudaKernels::kLaunches) return;
  const PersistentLimits limits = device_.persistent_limits();
  if (kernels_ == CudaKernels::kAuto && (!limits.cooperative || limits.resident < 1)) {
    kernels_ = CudaKernels::kLaunches;
    return;
  }
  blocks_ = persistent_blocks(limits, device_.description());
  const std::vector<std::byte> zeros(sizeof(simt::u64) +
                                     static_cast<std::size_t>(blocks_) * sizeof(simt::u32));
  counters_ = device_.allocate(zeros.size());
  device_.upload(zeros.data(), zeros.size(), counters_.get());
  late_ = device_.allocate_shared(sizeof(LateBlock));
  *late() = {};
  device_.explain_failures(
      [late = late_, blocks = blocks_] { check_late(*static_cast<const LateBlock*>(late.get()), blocks); });
}

void Launcher::submit() {
  if (waiting_.empty()) return;
  const std::vector<Task> tasks = std::exchange(waiting_, {});
  if (worth_one_launch(tasks, kernels_)) return start_together(tasks);
  for (const Task& task : fuse(tasks)) start_now(describe(task, most_shared_bytes_).kernel.data(), task);
}

// Takes over the task: holds it back, or launches it fused with the one that was held back. Returns false if
// the task must be launched by itself.
bool Launcher::hold_back(const Task& task) {
  if (kernels_ != CudaKernels::kLaunches) {
    waiting_.push_back(task);
    return true;
  }
  if (!waiting_.empty()) {
    const std::vector<Task> fused = fuse(std::array{waiting_.front(), task});
    if (fused.size() == 1) {
      waiting_.clear();
      start_now(describe(fused.front(), most_shared_bytes_).kernel.data(), fused.front());
      return true;
    }
  }
  if (!may_fuse_with_next(task)) return false;
  submit();
  waiting_.push_back(task);
  return true;
}

void Launcher::start_together(const std::vector<Task>& tasks) {
  Persistent table;
  if (recording_) {  // the graph gets its own table, which no later launch overwrites
    const TaskTable made = make_table(fuse(tasks));
    std::vector<std::byte> bytes(made.bytes());
    made.write(bytes.data());
    const std::shared_ptr<void> own = device_.allocate(bytes.size());
    device_.upload_beside(bytes.data(), bytes.size(), own.get());
    ++uploaded_tables_;
    recording_->kept.push_back(own);
    table = made.arguments(own.get(), counters(), late());
  } else {
    table = kept_table(tasks);
  }
  note("persistent task", static_cast<std::size_t>(table.count));
  start_now("persistent", TableLaunch{table, blocks_});
}

GridCounters Launcher::counters() const {
  auto* arrived = static_cast<simt::u64*>(counters_.get());
  return {arrived, reinterpret_cast<simt::u32*>(arrived + 1)};
}

// Makes and copies a table only if the device does not have it yet. All bytes of a task are defined
// (put_kernel()), so equal tasks have equal bytes. The copy may overwrite the table that was unused for the
// longest time. This is safe, because the copy runs in the order of the stream, after the launches that still
// read the old table.
Persistent Launcher::kept_table(const std::vector<Task>& tasks) {
  static_assert(std::has_unique_object_representations_v<Task>, "bytes that belong to no member");
  ++uses_;
  for (KeptTable& kept : tables_) {
    if (kept.tasks.size() != tasks.size() ||
        std::memcmp(kept.tasks.data(), tasks.data(), tasks.size() * sizeof(Task)) != 0)
      continue;
    kept.last_used = uses_;
    return kept.table;
  }
  const TaskTable made = make_table(fuse(tasks));
  std::vector<std::byte> bytes(made.bytes());
  made.write(bytes.data());
  if (tables_.size() < kMostTables) tables_.emplace_back();
  KeptTable& oldest =
      *std::min_element(tables_.begin(), tables_.end(),
                        [](const KeptTable& a, const KeptTable& b) { return a.last_used < b.last_used; });
  oldest.tasks.clear();  // in case the copy fails
  if (oldest.room < bytes.size()) {
    oldest.memory = device_.allocate(bytes.size());
    oldest.room = bytes.size();
  }
  device_.upload(bytes.data(), bytes.size(), oldest.memory.get());
  separate();
  ++uploaded_tables_;
  oldest.tasks = tasks;
  oldest.table = made.arguments(oldest.memory.get(), counters(), late());
  oldest.last_used = uses_;
  return oldest.table;
}

std::shared_ptr<Graph> Launcher::record(bool loop, std::span<const std::shared_ptr<void>> memory,
                                        const std::function<void()>& operations) {
  SPECLAB_CHECK(!recording_, "record() is called during a recording");
  submit();
  const auto graph = std::make_shared<Graph>();
  graph->loop = loop;
  recording_ = graph;
  separate();  // the first launch of a graph has no launch before it
  for (const auto& each : memory) keep(each);
  keep(counters_);
  keep(late_);
  try {
    condition_ = device_.begin_capture(loop);
    operations();
    submit();
  } catch (...) {
    waiting_.clear();
    recording_.reset();
    separate();
    device_.drop_capture();
    throw;
  }
  recording_.reset();
  separate();
  graph->own = device_.end_capture(graph->nodes.size());
  return graph;
}

void Launcher::replay(const Graph& graph) {
  SPECLAB_CHECK(!recording_, "replay() is called during a recording");
  submit();
  if (noted_ != nullptr) noted_->push_back("graph");
  device_.started("graph");
  device_.replay(graph.own.get());
  separate();
}

std::uint64_t Launcher::loop_condition() const {
  SPECLAB_CHECK(recording_ && recording_->loop, "loop_condition() is called, but no loop is being recorded");
  return condition_;
}

void Launcher::keep(const std::shared_ptr<void>& memory) {
  if (recording_ && memory &&
      std::find(recording_->kept.begin(), recording_->kept.end(), memory) == recording_->kept.end())
    recording_->kept.push_back(memory);
}

}  // namespace speclab::cuda
