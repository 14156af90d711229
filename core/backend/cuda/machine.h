#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <source_location>
#include <vector>

#include "core/backend/cuda/launch_shape.h"

// A simulated GPU for kernels over simt.h: the threads of a block run as fibers on the CPU, so that kernels are tested, and
// whole models run ("host-simt"), without a device. Slow, deterministic for a seed, and strict: see the rules in simt.h.

namespace speclab::simt {

class Machine;
struct Bytes16;

/// An index together with the line of the kernel that uses it.
struct Index {
  Index(int i, std::source_location at = std::source_location::current()) : value(i), where(at) {}
  int value;
  std::source_location where;
};

/// One lane's part of a 16 x 8 accumulator.
struct AccumulatorFragment {
  float c[4] = {};
  int pending = 0;  ///< products that are queued and not yet added
};
/// One lane's matrix products that the warp has not carried out yet: in batches, because a switch between fibers costs
/// more than the arithmetic.
struct MmaQueue {
  static constexpr int kRoom = 32;
  struct Item {
    AccumulatorFragment* c;
    std::uint32_t a[4], b[2];
  };
  int count = 0;
  Item item[kRoom];
};
struct AsyncCopy {
  std::function<void(Bytes16)> write;
  const void* from;
  std::source_location where;
};

/// One simulated thread.
struct Thread {
  Machine* machine;
  int index, lane;
  std::uint32_t collectives = 0;  ///< passed so far; all lanes of a warp agree when it is at rest
  std::uint32_t warp_epoch = 0;   ///< warp_sync passed
  MmaQueue products;
  std::vector<AsyncCopy> copies;    ///< not finished, oldest first
  std::vector<std::size_t> groups;  ///< how many of `copies` belong to the groups up to this one
};

/// The thread that is running.
extern constinit thread_local Thread* self;

class Machine {
 public:
  /// `seed` chooses the order of blocks and warps.
  explicit Machine(std::uint64_t seed = 0);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Another order from here on.
  void reseed(std::uint64_t seed) { random_.seed(seed); }

  /// Global memory, poisoned with 0xff bytes (NaN as float and as bf16); kernels reach no other. Throws Error when there is
  /// none left. release(nullptr) is allowed; of anything else that is not an allocation it is a Bug.
  void* allocate(std::size_t bytes);
  void release(void* p);
  template <typename T>
  T* allocate_array(std::size_t count) {
    return static_cast<T*>(allocate(count * sizeof(T)));
  }

  /// Runs all blocks of a kernel to their end. Throws Bug for a violation of the rules.
  template <typename Kernel>
  void run(const Kernel& kernel, const cuda::LaunchShape& shape) {
    run_blocks(Kernel::kName, Kernel::kThreads, shape, [](const void* k) { (*static_cast<const Kernel*>(k))(); }, &kernel);
  }

  /// Condition of a loop, from 1 on.
  std::uint64_t make_conditional() {
    conditionals_.push_back(0);
    return conditionals_.size();
  }
  std::uint32_t conditional(std::uint64_t handle) const { return conditionals_.at(handle - 1); }
  void set_conditional(std::uint64_t handle, std::uint32_t value) { conditionals_.at(handle - 1) = value; }

  // For simt_host.h.
  const cuda::LaunchShape& shape() const { return shape_; }
  int block(int axis) const { return block_[axis]; }
  void check_global(const void* p, std::size_t bytes, const std::source_location& where) {
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    for (const Range& range : recent_) {
      if (at - range.begin < range.bytes && at - range.begin + bytes <= range.bytes && at % bytes == 0) return;
    }
    find_global(p, bytes, where);
  }
  void check_shared(int offset, int count, std::size_t size, std::size_t alignment, const std::source_location& where);
  std::byte* touch_shared(int offset, int bytes, bool write, const std::source_location& where);
  /// Deposits the lane's value; returns those of all lanes, valid until the next but one exchange of the warp.
  const std::uint64_t* exchange(std::uint64_t value, const std::source_location& where);
  void block_sync(const std::source_location& where);
  void finish_products(const std::source_location& where);
  void finish_copies(int groups_left);
  [[noreturn]] void fail(const std::string& message, const std::source_location& where);
  [[noreturn]] void fail_shared_index(int i, int bytes, int count, const std::source_location& where);

 private:
  struct Fibers;  // of Boost.Context
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
  };
  struct Warp {
    std::uint32_t runnable = 0;  ///< lanes that can go on
    std::uint32_t waiting = 0;   ///< lanes in a collective that others have not reached
    std::uint32_t parked = 0;    ///< lanes at the barrier
    std::source_location where;  ///< of the collective
    std::uint64_t values[2][32];
  };
  // Who touched two bytes of shared memory last. Epochs count the barriers of all blocks, so nothing is ever reset.
  struct Shadow {
    std::uint64_t written = 0, read = 0;                  ///< block epoch
    std::uint32_t write_warp_epoch = 0, read_warp_epoch = 0;
    std::uint16_t writer = 0, reader = 0;
  };

  void run_blocks(const char* name, int most_threads, const cuda::LaunchShape& shape, void (*call)(const void*), const void* kernel);
  void run_block();
  void thread_main(int index);
  void stop_threads();
  void arrive(const std::source_location& where);
  void leave_to_others(const char* doing, const std::source_location& where);
  void switch_to(int thread);
  int random_warp(std::uint64_t among);
  void find_global(const void* p, std::size_t bytes, const std::source_location& where);
  void multiply_queued(int warp);
  void mark(Shadow& shadow, bool write, const std::source_location& where);

  std::mt19937_64 random_;
  cuda::LaunchShape shape_;
  int block_[3] = {};
  const char* name_ = "";
  void (*call_)(const void*) = nullptr;
  const void* kernel_ = nullptr;

  std::unique_ptr<Fibers> fibers_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  std::uint64_t awake_ = 0;  ///< warps with a runnable lane
  int parked_ = 0;           ///< threads at the barrier
  int ended_ = 0;
  std::source_location barrier_;

  std::uint64_t epoch_ = 1, block_begin_ = 1;
  std::vector<std::byte> shared_;
  std::vector<Shadow> shadows_;

  std::vector<Range> ranges_;  ///< by address
  Range recent_[4];
  int next_recent_ = 0;
  std::vector<std::uint32_t> conditionals_;
};

}  // namespace speclab::simt
