#include "core/backend/cuda/launch/launcher.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/backend/cuda/program/program.h"
#include "core/base/error.h"

namespace speclab::cuda {

Launcher::Launcher(Device& device, CudaKernels kernels)
    : device_(device),
      kernels_(kernels == CudaKernels::kSerial || kernels == CudaKernels::kGraphs ? CudaKernels::kLaunches
                                                                                  : kernels),
      records_forwards_(kernels == CudaKernels::kGraphs),
      overlaps_(kernels != CudaKernels::kSerial && device.overlaps()) {
  if (kernels_ == CudaKernels::kLaunches) return;
  const PersistentLimits limits = device_.persistent_limits();
  if (kernels_ == CudaKernels::kAuto && (!limits.cooperative || limits.resident < 1)) {
    kernels_ = CudaKernels::kLaunches;
    return;
  }
  blocks_ = persistent_blocks(limits, device_.description());
  const simt::u64 none = 0;
  arrived_ = device_.allocate(sizeof none);
  device_.upload(&none, sizeof none, arrived_.get());
}

void Launcher::submit() {
  if (waiting_.empty()) return;
  const std::vector<Task> tasks = std::exchange(waiting_, {});
  if (worth_one_launch(tasks, kernels_)) return start_together(tasks);
  for (const Task& task : fuse(tasks)) start_now(describe(task).kernel.data(), task);
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
      start_now(describe(fused.front()).kernel.data(), fused.front());
      return true;
    }
  }
  if (!may_fuse_with_next(task)) return false;
  submit();
  waiting_.push_back(task);
  return true;
}

void Launcher::start_together(const std::vector<Task>& tasks) {
  const TaskTable table = make_table(fuse(tasks));
  std::vector<std::byte> bytes(table.bytes());
  table.write(bytes.data());
  void* there = nullptr;
  if (recording_) {  // the graph gets its own table, which no later launch overwrites
    const std::shared_ptr<void> own = device_.allocate(bytes.size());
    device_.upload_beside(bytes.data(), bytes.size(), own.get());
    recording_->kept.push_back(own);
    there = own.get();
  } else {  // the upload runs in the order of the stream, so the previous table has been read by then
    there = table_room(bytes.size());
    device_.upload(bytes.data(), bytes.size(), there);
    separate();
  }
  start_now("persistent",
            TableLaunch{table.arguments(there, static_cast<simt::u64*>(arrived_.get())), blocks_});
}

std::byte* Launcher::table_room(std::size_t bytes) {
  if (table_bytes_ < bytes) {
    table_ = device_.allocate(bytes);
    table_bytes_ = bytes;
  }
  return static_cast<std::byte*>(table_.get());
}

std::shared_ptr<Graph> Launcher::record(bool loop, std::span<const std::shared_ptr<void>> memory,
                                        const std::function<void()>& operations) {
  SPECLAB_CHECK(!recording_, "a recording in a recording");
  submit();
  const auto graph = std::make_shared<Graph>();
  graph->loop = loop;
  recording_ = graph;
  separate();  // the first launch of a graph has none before it
  for (const auto& each : memory) keep(each);
  keep(arrived_);
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
  SPECLAB_CHECK(!recording_, "a replay in a recording");
  submit();
  device_.started("graph");
  device_.replay(graph.own.get());
  separate();
}

std::uint64_t Launcher::loop_condition() const {
  SPECLAB_CHECK(recording_ && recording_->loop, "the end of a loop without a loop");
  return condition_;
}

void Launcher::keep(const std::shared_ptr<void>& memory) {
  if (recording_ && memory &&
      std::find(recording_->kept.begin(), recording_->kept.end(), memory) == recording_->kept.end())
    recording_->kept.push_back(memory);
}

}  // namespace speclab::cuda
