#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/backend/cuda/launch/launch.h"
#include "core/backend/cuda/program/persistent.h"
#include "core/backend/cuda/runtime/device.h"
#include "core/backend/cuda_kernels.h"
#include "core/backend/graph.h"

namespace speclab::cuda {

/// True if the kernel of these arguments writes weights. Such arguments define kWritesWeights. The launch
/// after such a kernel must not overlap with it, because kernels may read weights before they wait for the
/// previous launch (simt.h).
template <typename Arguments>
inline constexpr bool kWritesWeights = requires { Arguments::kWritesWeights; };

/// False for the persistent kernel, which does not wait and so never overlaps with the launch before it.
template <typename Arguments>
inline constexpr bool kWaitsForPrevious = !std::is_same_v<Arguments, TableLaunch>;

/// Starts the kernels of a backend on its device. It can fuse neighbouring launches (fuse()), gather launches
/// into one persistent kernel (Task) and record them as a graph. To fuse or gather launches it holds them
/// back: it keeps them as tasks until it knows what follows.
class Launcher {
 public:
  /// Throws Error for kPersistent on a device that cannot run persistent kernels.
  Launcher(Device& device, CudaKernels kernels);

  /// Launches the kernel of `arguments`, or holds it back: with gathers(), if it can be a task of a
  /// persistent kernel; otherwise, if it may fuse with the next launch. A kernel that is held back is
  /// launched at the next submit() at the latest, and before any kernel that cannot be held back. `kernel`:
  /// the name of the kernel, for error messages and note_into().
  template <typename Arguments>
  void start(const char* kernel, const Arguments& arguments) {
    const std::optional<Task> task = task_of(arguments);
    if (task && hold_back(*task)) return;
    submit();
    start_now(kernel, arguments);
  }
  /// Launches the tasks that were held back.
  void submit();
  /// True if this object gathers launches into persistent kernels, which are cooperative launches.
  bool gathers() const { return kernels_ != CudaKernels::kLaunches; }
  bool idle() const { return waiting_.empty() && device_.idle(); }

  /// See DeviceProgram::record(). The graph keeps `memory`.
  std::shared_ptr<Graph> record(bool loop, std::span<const std::shared_ptr<void>> memory,
                                const std::function<void()>& operations);
  void replay(const Graph& graph);
  bool recording() const { return recording_ != nullptr; }
  /// True with CudaKernels::kGraphs.
  bool records_forwards() const { return records_forwards_; }
  /// Keeps the next launch from overlapping with what is in the stream now. Call it after queueing anything
  /// that is not a launch of this object, such as an upload.
  void separate() { apart_ = true; }
  /// Handle of the loop that is being recorded, for the kernel that ends it.
  std::uint64_t loop_condition() const;
  /// Number of tables of tasks that were made and copied to the device so far. A recorded graph has its own
  /// tables. Of all other tables, the kMostTables that were used last stay on the device. A launch with the
  /// same tasks uses such a table again.
  std::uint64_t uploaded_tables() const { return uploaded_tables_; }
  static constexpr std::size_t kMostTables = 8;
  /// Makes the graph that is being recorded, if any, keep this memory.
  void keep(const std::shared_ptr<void>& memory);
  /// Appends the name of every launch to `names` until the next call. A persistent kernel also appends one
  /// entry "persistent task" for each of its tasks, before its name. Null ends the noting.
  void note_into(std::vector<std::string_view>* names) { noted_ = names; }
  /// Ends what note_into(&names) began, unless note_into() was called again since then.
  void stop_noting(const std::vector<std::string_view>& names) {
    if (noted_ == &names) noted_ = nullptr;
  }

 private:
  template <typename What>
  void start_now(const char* kernel, const What& what) {
    Stream stream = device_.stream();
    const bool apart = std::exchange(apart_, kWritesWeights<What>);
    stream.overlap = kWaitsForPrevious<What> && overlaps_ && !apart && !(recording_ && recording_->loop);
    if (recording_) {
      recording_->nodes.push_back(describe(what, most_shared_bytes_));
      recording_->nodes.back().overlap = stream.overlap;
    }
    note(kernel);
    device_.started(kernel);
    if (auto* captured = device_.captured_launches()) {
      captured->push_back([what, stream] { launch(what, stream); });
      return;
    }
    try {
      launch(what, stream);
    } catch (...) {  // an earlier kernel may have failed
      device_.explain();
      throw;
    }
  }
  /// Notes launches, except during a recording: recorded kernels are launched later, by a replay.
  void note(std::string_view kernel, std::size_t times = 1) {
    if (noted_ != nullptr && !recording_) noted_->insert(noted_->end(), times, kernel);
  }
  bool hold_back(const Task& task);
  void start_together(const std::vector<Task>& tasks);
  Persistent kept_table(const std::vector<Task>& tasks);
  GridCounters counters() const;
  LateBlock* late() const { return static_cast<LateBlock*>(late_.get()); }

  /// A table in memory of the device.
  struct KeptTable {
    std::vector<Task> tasks;  // as they were held back, before they are fused
    Persistent table;
    std::shared_ptr<void> memory;
    std::size_t room = 0;         // bytes of `memory`
    std::uint64_t last_used = 0;  // value of uses_ when the table was last used
  };

  Device& device_;
  CudaKernels kernels_;
  bool records_forwards_;
  int most_shared_bytes_;  // of a block, for the description of launches
  bool overlaps_;      // launches may overlap, except in the body of a loop, where CUDA does not promise it
  bool apart_ = true;  // the next launch must not overlap
  int blocks_ = 0;     // blocks of a persistent kernel
  std::vector<Task> waiting_;       // tasks that are held back, in order; with kLaunches at most one
  std::shared_ptr<void> counters_;  // memory of a GridCounters: one u64, then a u32 per block
  std::shared_ptr<void> late_;      // a LateBlock that the host shares
  std::vector<KeptTable> tables_;   // at most kMostTables
  std::uint64_t uses_ = 0, uploaded_tables_ = 0;
  std::shared_ptr<Graph> recording_;  // null: launches are started, not recorded
  std::uint64_t condition_ = 0;       // handle of the condition of the loop that is being recorded
  std::vector<std::string_view>* noted_ = nullptr;  // null: launches are not noted
};

}  // namespace speclab::cuda
