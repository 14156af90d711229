#include "core/backend/cuda/launch/launcher.h"

#include <algorithm>
#include <utility>

#include "core/backend/cuda/program/program.h"
#include "core/base/error.h"

namespace speclab::cuda {

Launcher::Launcher(Device& device, CudaKernels kernels) : device_(device), kernels_(kernels) {
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
  for (const Task& task : tasks) start_now(describe(task).kernel.data(), task);
}

void Launcher::start_together(const std::vector<Task>& tasks) {
  std::vector<Task> fused = fuse(tasks);
  if (noted_ != nullptr) noted_->insert(noted_->end(), fused.size(), "persistent task");
  const TaskTable table = make_table(std::move(fused));
  std::vector<std::byte> bytes(table.bytes());
  table.write(bytes.data());
  const void* at = nullptr;
  if (recording_) {  // the graph gets its own table, which no later launch overwrites
    const std::shared_ptr<void> own = device_.allocate(bytes.size());
    device_.upload_beside(bytes.data(), bytes.size(), own.get());
    ++uploaded_tables_;
    recording_->kept.push_back(own);
    at = own.get();
  } else {
    at = there(bytes);
  }
  auto* arrived = static_cast<simt::u64*>(counters_.get());
  const GridCounters counters{arrived, reinterpret_cast<simt::u32*>(arrived + 1)};
  start_now("persistent", TableLaunch{table.arguments(at, counters, late()), blocks_});
}

// Returns the address of this table on the device, and copies it only if it is not there yet. The copy runs
// in the order of the stream, so it may overwrite the table that was unused for the longest time.
const void* Launcher::there(const std::vector<std::byte>& table) {
  ++uses_;
  for (KeptTable& kept : tables_) {
    if (kept.content != table) continue;
    kept.last_used = uses_;
    return kept.memory.get();
  }
  if (tables_.size() < kMostTables) tables_.emplace_back();
  KeptTable& oldest =
      *std::min_element(tables_.begin(), tables_.end(),
                        [](const KeptTable& a, const KeptTable& b) { return a.last_used < b.last_used; });
  oldest.content.clear();  // in case the copy fails
  if (oldest.room < table.size()) {
    oldest.memory = device_.allocate(table.size());
    oldest.room = table.size();
  }
  device_.upload(table.data(), table.size(), oldest.memory.get());
  ++uploaded_tables_;
  oldest.content = table;
  oldest.last_used = uses_;
  return oldest.memory.get();
}

std::shared_ptr<Graph> Launcher::record(bool loop, std::span<const std::shared_ptr<void>> memory,
                                        const std::function<void()>& operations) {
  SPECLAB_CHECK(!recording_, "a recording in a recording");
  submit();
  const auto graph = std::make_shared<Graph>();
  graph->loop = loop;
  recording_ = graph;
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
    device_.drop_capture();
    throw;
  }
  recording_.reset();
  graph->own = device_.end_capture(graph->nodes.size());
  return graph;
}

void Launcher::replay(const Graph& graph) {
  SPECLAB_CHECK(!recording_, "a replay in a recording");
  submit();
  if (noted_ != nullptr) noted_->push_back("graph");
  device_.started("graph");
  device_.replay(graph.own.get());
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
