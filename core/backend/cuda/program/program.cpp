#include "core/backend/cuda/program/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/backend/cuda/launch/launch.h"
#include "core/base/error.h"

namespace speclab::cuda {

int persistent_blocks(const PersistentLimits& limits, const std::string& device) {
  const auto fail = [&](const std::string& got, const std::string& expected) {
    throw Error({.what = "persistent kernels on " + device,
                 .got = got,
                 .expected = expected,
                 .advice = "Use --kernels launches."});
  };
  if (!limits.cooperative)
    fail("a device without cooperative launches", "one where all blocks of a kernel may wait for each other");
  if (limits.resident < 1 || limits.multiprocessors < 1) {
    fail(fmt::format("room for {} blocks on each of {} multiprocessors", limits.resident,
                     limits.multiprocessors),
         fmt::format("room for a block of {} threads and {} KiB of shared memory", kPersistentThreads,
                     kPersistentShared >> 10));
  }
  return limits.multiprocessors * std::min(limits.resident, kMostResident);
}

void TaskTable::write(std::byte* to) const {
  const std::size_t first = tasks.size() * sizeof(Task);
  std::memcpy(to, tasks.data(), first);
  if (!prefetches.empty()) std::memcpy(to + first, prefetches.data(), prefetches.size() * sizeof(Prefetch));
}

Persistent TaskTable::arguments(const void* table, const GridCounters& counters, LateBlock* late) const {
  Persistent out;
  out.tasks = static_cast<const Task*>(table);
  out.count = static_cast<int>(tasks.size());
  out.first_prefetches = first_prefetches;
  out.prefetches =
      reinterpret_cast<const Prefetch*>(static_cast<const std::byte*>(table) + tasks.size() * sizeof(Task));
  out.counters = counters;
  out.late = late;
  return out;
}

void check_late(const LateBlock& late, int blocks) {
  if (late.found == 0) return;
  throw Error(
      {.what = fmt::format("a persistent kernel of {} blocks", blocks),
       .got = fmt::format("a launch in which {} did not arrive at the barrier after task {} ({}) within {} s",
                          late.block < 0 ? "a block" : fmt::format("block {}", late.block), late.task,
                          kernel_name(late.kernel), simt::kMostWaitNs / 1'000'000'000),
       .expected = "every block at the barrier",
       .advice = "Use --kernels launches. If this kernel fails there too, the kernel is at fault."});
}

TaskTable make_table(std::vector<Task> tasks, std::size_t ahead) {
  TaskTable table;
  table.tasks = std::move(tasks);
  std::vector<std::size_t> begins(table.tasks.size() +
                                  1);  // [i]: bytes of the weights of the tasks before task i
  for (std::size_t i = 0; i < table.tasks.size(); ++i)
    begins[i + 1] = begins[i] + table.tasks[i].weight_bytes;
  std::size_t asked = 0, of = 0;  // bytes of weights prefetched so far; the task with the next weights
  const auto ask_up_to = [&](std::size_t limit) {
    limit = std::min(limit, begins.back());
    while (asked < limit) {
      while (begins[of + 1] <= asked) ++of;
      const std::size_t end = std::min(limit, begins[of + 1]);
      table.prefetches.push_back(
          {static_cast<const std::byte*>(table.tasks[of].weights) + (asked - begins[of]), end - asked});
      asked = end;
    }
    return static_cast<int>(table.prefetches.size());
  };
  table.first_prefetches = ask_up_to(ahead);
  for (std::size_t i = 0; i < table.tasks.size(); ++i)
    table.tasks[i].prefetch_end = ask_up_to(begins[i + 1] + ahead);
  return table;
}

bool worth_one_launch(std::span<const Task> tasks, CudaKernels kernels) {
  if (kernels == CudaKernels::kLaunches || tasks.size() < kLeastTasks) return false;
  return kernels == CudaKernels::kPersistent || distinct_weights(tasks) <= kMostAutoWeights;
}

std::size_t distinct_weights(std::span<const Task> tasks) {
  std::vector<std::pair<const void*, std::size_t>> all;
  for (const Task& task : tasks) {
    if (task.weight_bytes > 0) all.emplace_back(task.weights, task.weight_bytes);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::size_t sum = 0;
  for (const auto& each : all) sum += each.second;
  return sum;
}

}  // namespace speclab::cuda
