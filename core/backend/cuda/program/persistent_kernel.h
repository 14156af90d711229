#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "core/backend/cuda/program/grid_barrier.h"
#include "core/backend/cuda/program/persistent_tasks.h"

// The persistent kernel that persistent.h describes. An inner block is a group of warps within one of its
// blocks. The group runs a block of a task as if the group were a whole block (simt.h). Include this header
// only where simt.h is compiled with inner blocks: on the host, and in
// core/backend/cuda/launch/device_persistent.cu.

namespace speclab::cuda {
inline namespace SPECLAB_SIDE {

struct PersistentKernel {
  static constexpr const char* kName = "persistent";
  static constexpr int kThreads = kPersistentThreads;
  static constexpr int kTaskPieces = static_cast<int>(sizeof(Task)) / 16;
  Persistent a;

  SPECLAB_DEVICE void operator()() const {
    simt::leave_block();
    simt::block_sync();
    GridBarrier barrier(a.counters);
    fetch_task(0);
    prefetch(0, a.first_prefetches);
    simt::block_sync();
    for (int i = 0, prefetched = a.first_prefetches;;) {
      const auto slot = task_slot();
      const int kernel = slot.template view<std::int32_t>(word_at(offsetof(Task, kernel))),
                end = slot.template view<std::int32_t>(word_at(offsetof(Task, prefetch_end)));
      run_task<0>(kernel, static_cast<const PersistentKernels*>(nullptr));
      run_task<static_cast<int>(std::tuple_size_v<PersistentKernels>)>(
          kernel, static_cast<const FusedKernels*>(nullptr));
      if (++i == a.count) return;
      barrier.arrive();
      fetch_task(i);  // all threads have read the previous task: arrive() waited for them
      prefetch(prefetched, end);
      prefetched = end;
      barrier.wait([&](int block) { report(i - 1, kernel, block); });
    }
  }

 private:
  SPECLAB_BOTH static constexpr int word_at(std::size_t bytes) { return static_cast<int>(bytes) / 4; }
  SPECLAB_DEVICE static simt::Shared<simt::u32> task_slot() {
    return simt::shared<simt::u32>(0, 4 * kTaskPieces);
  }

  // The first warp polls the barrier, so other warps fetch the task and prefetch.
  static constexpr int kWarps = kThreads / simt::kWarp, kFetchWarp = kWarps - 2, kPrefetchWarp = kWarps - 1;
  static_assert(kTaskPieces <= simt::kWarp);

  SPECLAB_DEVICE void fetch_task(int i) const {
    if (simt::warp_index() != kFetchWarp) return;
    const auto slot = task_slot();
    const int piece = simt::lane();
    if (piece < kTaskPieces)
      slot.set16(4 * piece, simt::load16(reinterpret_cast<const std::byte*>(a.tasks + i) + 16 * piece));
  }

  /// Prefetches this block's share of the entries `begin` to end - 1 of the list of prefetches. The pieces of
  /// an entry are dealt to the blocks in turn.
  SPECLAB_DEVICE void prefetch(int begin, int end) const {
    if (simt::warp_index() != kPrefetchWarp) return;
    SPECLAB_ROLLED
    for (int i = begin; i < end; ++i) {
      const auto* from = static_cast<const std::byte*>(simt::load(&a.prefetches[i].from));
      const simt::u64 bytes = simt::load(&a.prefetches[i].bytes),
                      step = static_cast<simt::u64>(simt::grid_x() * simt::kWarp) * kPrefetchPiece;
      SPECLAB_ROLLED
      for (simt::u64 at =
               static_cast<simt::u64>(simt::lane() * simt::grid_x() + simt::block_x()) * kPrefetchPiece;
           at < bytes; at += step) {
        const simt::u64 left = bytes - at;
        simt::prefetch(from + at, left < kPrefetchPiece ? static_cast<simt::u32>(left)
                                                        : static_cast<simt::u32>(kPrefetchPiece));
      }
    }
  }

  /// Tells the host which block is missing at the barrier after a task.
  SPECLAB_DEVICE void report(int task, int kernel, int block) const {
    if (a.late == nullptr) return;
    simt::store(&a.late->task, task);
    simt::store(&a.late->kernel, kernel);
    simt::store(&a.late->block, block);
    simt::fence_system();
    simt::store(&a.late->found, 1u);
    simt::fence_system();
  }

  template <int kFirst, typename... Kernels>
  SPECLAB_DEVICE static void run_task(int kernel, const std::tuple<Kernels...>*) {
    int index = kFirst;
    ((kernel == index++ ? run_as<Kernels>() : void()), ...);
  }
  // Runs this block's share of the inner blocks of a task. Inner blocks with neighbouring numbers run in
  // different blocks.
  template <typename Kernel>
  SPECLAB_DEVICE static void run_as() {
    static_assert(sizeof(Kernel) <= kTaskBytes && std::is_trivially_copyable_v<Kernel>);
    const auto slot = task_slot();
    const auto word = [&](std::size_t bytes) { return slot.template view<std::int32_t>(word_at(bytes)); };
    const Kernel& run = slot.template view<Kernel>(word_at(offsetof(Task, arguments)));
    const int grid_x = word(offsetof(Task, grid)), grid_y = word(offsetof(Task, grid) + 4),
              grid_z = word(offsetof(Task, grid) + 8);
    const int threads = word(offsetof(Task, threads)), shared_bytes = word(offsetof(Task, shared_bytes)),
              together = word(offsetof(Task, together));
    const int place = simt::thread_index() / threads, block = simt::block_x(), blocks = simt::grid_x(),
              count = grid_x * grid_y * grid_z;
    if (place < together) {
      for (int i = block + place * blocks; i < count; i += blocks * together) {
        simt::enter_block({i % grid_x, i / grid_x % grid_y, i / grid_x / grid_y, grid_x, grid_y, grid_z,
                           place * threads, threads, static_cast<int>(sizeof(Task)) + place * shared_bytes,
                           shared_bytes});
        run();
        simt::leave_block();
      }
    }
  }
};

}  // namespace SPECLAB_SIDE
}  // namespace speclab::cuda
