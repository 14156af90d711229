#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <source_location>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/backend/cuda/launch/launch_shape.h"
#include "core/base/error.h"

// A simulated GPU for kernels over simt.h. The threads of a block run as fibers on the CPU, so kernels can be
// tested and whole models can run ("host-simt") without a GPU. The simulated GPU is slow, deterministic for a
// seed, and enforces the rules in simt.h.

namespace speclab::simt {

class Machine;
struct InnerBlock;

/// A kernel has called trap().
class Trap final : public Bug {
 public:
  using Bug::Bug;
};

/// An index, and the line of the kernel that uses it.
struct Index {
  Index(int i, std::source_location at = std::source_location::current()) : value(i), where(at) {}
  int value;
  std::source_location where;
};

/// One lane's part of a 16 x 8 accumulator.
struct AccumulatorFragment {
  float c[4] = {};
  int pending = 0;  ///< products that are queued but not yet added
};
/// One lane's matrix products that the warp has not computed yet. They are computed in batches, because a
/// switch between fibers costs more than the arithmetic.
struct MmaQueue {
  static constexpr int kRoom = 32;
  struct Item {
    AccumulatorFragment* c;
    std::uint32_t a[4], b[2];
  };
  int count = 0;
  Item item[kRoom];
};
/// A copy that async_copy16() has started and async_wait() finishes.
struct AsyncCopy {
  int to;  ///< offset in the shared memory of all placed blocks, that is, of the blocks that run now
  const void* from;
  std::array<std::byte, 16> bytes;  ///< the bytes at `from` when the copy started
  std::source_location where;
};

/// Threads that share barriers and a part of shared memory: a block or an inner block (simt.h).
struct Group {
  int index[3] = {}, grid[3] = {1, 1, 1};
  int first = 0, threads = 0;              ///< thread ids from `first` to first + threads - 1
  int shared_begin = 0, shared_bytes = 0;  ///< within the shared memory of all placed blocks
  std::uint64_t epoch = 0, begin = 0;  ///< numbers from Machine::epochs_. epoch: of the last barrier or start
                                       ///< of this group; begin: of its start, which undefines shared memory
  int parked = 0;                      ///< threads at the barrier
  std::source_location barrier;
  int inside = 0,
      entering = 0;  ///< of an inner block. inside: threads that have not left it; entering: threads that
                     ///< wait to enter the next inner block
  const void* counter = nullptr;  ///< address of the last atomic_add of its threads
};

/// One simulated thread.
struct Thread {
  Machine* machine;
  int id;                         ///< among the placed threads
  int index, lane;                ///< index: within `group`
  Group* block = nullptr;         ///< the block
  Group* group = nullptr;         ///< the inner block that it has entered, or its block
  std::uint32_t collectives = 0;  ///< calls of exchange() so far; equal for all lanes of a warp, unless some
                                  ///< of these lanes wait in exchange()
  std::uint32_t warp_epoch = 0;   ///< calls of warp_sync() so far
  bool fenced = false;            ///< the thread has called fence() since its last atomic_add
  bool waited = false;            ///< the thread has called wait_for_previous(), or need not call it
  MmaQueue products;
  std::vector<AsyncCopy> copies;    ///< not finished, oldest first
  std::vector<std::size_t> groups;  ///< [i]: number of `copies` in groups 0 .. i
};

/// The running thread; null outside of kernels.
extern constinit thread_local Thread* self;

/// "linear_few.h:12"
std::string text_of(const std::source_location& where);

class Machine {
 public:
  /// `seed` determines the order of blocks and warps.
  explicit Machine(std::uint64_t seed = 0);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Changes the order from here on.
  void reseed(std::uint64_t seed) { random_.seed(seed); }

  /// Allocates global memory and fills it with 0xff bytes (NaN as float and as bf16). Kernels may access no
  /// other global memory. Throws Error if none is left. release(nullptr) does nothing. release() of any
  /// other pointer throws Bug, unless allocate() returned this pointer and it was not released since.
  void* allocate(std::size_t bytes);
  void release(void* p);
  template <typename T>
  T* allocate_array(std::size_t count) {
    return static_cast<T*>(allocate(count * sizeof(T)));
  }

  /// Runs all blocks of a kernel, one after the other. Throws Bug if the kernel breaks a rule. `overlap`: on
  /// a GPU the launch could start while the one before it ends.
  template <typename Kernel>
  void run(const Kernel& kernel, const cuda::LaunchShape& shape, bool overlap = false) {
    overlap_ = overlap;
    run_blocks(
        Kernel::kName, Kernel::kThreads, shape, false,
        [](const void* k) {
          if constexpr (!requires { Kernel::kWaits; }) self->waited = true;
          (*static_cast<const Kernel*>(k))();
        },
        &kernel);
  }
  /// Runs all blocks at once, like a cooperative launch, so they may wait for each other. The blocks may have
  /// at most kMostTogether warps together.
  template <typename Kernel>
  void run_together(const Kernel& kernel, const cuda::LaunchShape& shape) {
    run_blocks(
        Kernel::kName, Kernel::kThreads, shape, true,
        [](const void* k) { (*static_cast<const Kernel*>(k))(); }, &kernel);
  }
  static constexpr int kMostTogether = 64;
  /// In the next run_together(), block number `block` ends before it does anything. With this, tests simulate
  /// a block that never arrives.
  void lose_block(int block) { lost_ = block; }

  /// Makes a condition for a loop and returns its handle. Handles count from 1.
  std::uint64_t make_conditional() {
    conditionals_.push_back(0);
    return conditionals_.size();
  }
  std::uint32_t conditional(std::uint64_t handle) const { return conditionals_.at(handle - 1); }
  void set_conditional(std::uint64_t handle, std::uint32_t value) { conditionals_.at(handle - 1) = value; }

  // The functions from here on are for simt_host.h.
  enum class Access { kRead, kWrite, kConstant };
  void check_global(const void* p, std::size_t bytes, const std::source_location& where) {
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    for (const Range& range : recent_) {
      if (at - range.begin < range.bytes && at - range.begin + bytes <= range.bytes && at % bytes == 0)
        return;
    }
    find_global(p, bytes, where);
  }
  /// Checks an access to global memory. Fails if the thread must first call wait_for_previous() and has not.
  /// If blocks run together, also fails if no release and acquire order this access after a conflicting
  /// access of another block, or if it reads constant memory that this launch has written.
  void watch_global(const void* p, std::size_t bytes, Access access, const std::source_location& where) {
    if (!self->waited) check_unwaited(p, access, where);
    if (access == Access::kWrite) note_write(p);
    if (!clocks_.empty()) watch(p, bytes, access, where);
  }
  /// Checks an atomic operation. It is never a race, so only its place before or after wait_for_previous()
  /// matters.
  void watch_atomic(const void* p, Access access, const std::source_location& where) {
    if (!self->waited) check_unwaited(p, access, where);
    if (access == Access::kWrite) note_write(p);
  }
  void wait_for_previous(const std::source_location& where);
  void launch_next(const std::source_location& where);
  void released(const void* p);
  void acquired(const void* p);
  /// fence() of simt.h calls this fence(), and atomic_add calls counted(). An atomic_add after a fence is a
  /// release. A fence after an atomic_add of the same group is an acquire.
  void fence();
  void counted(const void* p);
  void pause(const std::source_location& where);
  /// True if so many pauses have followed one another, without a collective or a barrier, that the missing
  /// block will not arrive.
  bool waited_long() const { return pauses_ > kLongWait; }
  [[noreturn]] void trap(const std::source_location& where);
  void enter_block(const InnerBlock& inner, const std::source_location& where);
  void leave_block(const std::source_location& where);
  void check_shared(int offset, int count, std::size_t size, std::size_t alignment,
                    const std::source_location& where);
  std::byte* touch_shared(int offset, int bytes, bool write, const std::source_location& where);
  /// Deposits the lane's value and returns the values of all lanes. They stay valid during the warp's next
  /// exchange. The exchange after that overwrites them.
  const std::uint64_t* exchange(std::uint64_t value, const std::source_location& where);
  void block_sync(const std::source_location& where);
  void finish_products(const std::source_location& where);
  /// Starts a copy of 16 bytes to `offset` in the shared memory of the running thread's group.
  void start_copy(int offset, const void* from, Access access, const std::source_location& where);
  void finish_copies(int groups_left);
  [[noreturn]] void fail(const std::string& message, const std::source_location& where);
  [[noreturn]] void fail_shared_index(int i, int bytes, int count, const std::source_location& where);

 private:
  struct Fibers;                      // of Boost.Context
  static constexpr int kMain = -1;    // as thread number: the caller of run()
  static constexpr int kGranule = 2;  // bytes of memory whose last accesses are recorded together
  static constexpr std::uint64_t kLongWait = 500'000;  // pauses without a collective or barrier
  struct Range {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
  };
  struct Warp {
    std::uint32_t runnable = 0;  ///< lanes that can go on
    std::uint32_t waiting = 0;   ///< lanes that wait in a collective for the others
    std::uint32_t parked = 0;    ///< lanes that wait at a barrier or before an inner block
    std::source_location where;  ///< line of the collective
    std::uint64_t values[2][32];
  };
  // The last accesses to two bytes of shared memory. Epochs count the barriers and the starts of all groups,
  // so nothing needs to be reset.
  struct Shadow {
    std::uint64_t written = 0, read = 0;  ///< epochs of the last accesses
    std::uint32_t write_warp_epoch = 0, read_warp_epoch = 0;
    std::uint16_t writer = 0, reader = 0;
    std::uint16_t copier = 0;  ///< 1 + index of the thread whose copy to these bytes is in flight; 0: none

    bool read_by(int warp, std::uint64_t epoch) const;
  };

  // The last accesses to two bytes of global memory, in clocks of the blocks that run together (Flanagan and
  // Freund 2009, "FastTrack").
  struct Watched {
    std::int16_t writer = -1;
    std::uint32_t written = 0;
    std::vector<std::uint32_t> read;  ///< clocks of reads since the last write, by block; empty: none
  };
  using Clock = std::vector<std::uint32_t>;  ///< [i]: the last release of block i that this block knows; for
                                             ///< the block itself, its next release

  void run_blocks(const char* name, int most_threads, const cuda::LaunchShape& shape, bool together,
                  void (*call)(const void*), const void* kernel);
  std::string at_place(const std::string& message, const std::source_location& where) const;
  void make_threads(int count);
  void place_block(Group& block, int which);
  void run_placed();
  void wake(int first_warp, int warps);
  void check_unwaited(const void* p, Access access, const std::source_location& where);
  void note_write(const void* p) {
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    for (const Range& range : recently_written_) {
      if (at - range.begin < range.bytes) return;
    }
    note_range(at);
  }
  void note_range(std::uintptr_t at);
  void forget_writes();
  void watch(const void* p, std::size_t bytes, Access access, const std::source_location& where);
  void thread_main(int index);
  void stop_threads();
  void arrive(const std::source_location& where);
  void leave_to_others(const char* doing, const std::source_location& where);
  void switch_to(int thread);
  int random_warp(std::uint64_t among);
  void find_global(const void* p, std::size_t bytes, const std::source_location& where);
  void multiply_queued(int warp);
  void check_race(const Shadow& shadow, bool write, const std::source_location& where);
  void mark(Shadow& shadow, bool write, const std::source_location& where);

  std::mt19937_64 random_;
  cuda::LaunchShape shape_;
  const char* name_ = "";
  void (*call_)(const void*) = nullptr;
  const void* kernel_ = nullptr;

  std::unique_ptr<Fibers> fibers_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  std::uint64_t awake_ = 0;  ///< bits of the warps with a runnable lane
  int running_ = 0;          ///< number of placed threads
  int ended_ = 0;
  int lost_ = -1;              ///< block that does nothing in the next run_together(); -1: none
  std::uint64_t pauses_ = 0;   ///< pauses since the last collective or barrier
  std::vector<Group> blocks_;  ///< the placed blocks, that is, those that run now
  std::vector<Group> inner_;   ///< inner blocks, by their first warp

  std::uint64_t epochs_ = 0;
  std::vector<std::byte> shared_;
  std::vector<Shadow> shadows_;

  std::vector<Range> ranges_;  ///< allocations by address
  Range recent_[4];
  int next_recent_ = 0;

  // Allocations that the running launch and the launch before it have written.
  std::vector<Range> written_, written_before_;
  Range recently_written_[4];
  int next_written_ = 0;
  bool overlap_ = false;  ///< the running launch may overlap with the launch before it

  std::vector<Clock> clocks_;                         ///< clocks of blocks that run together; empty otherwise
  std::unordered_map<const void*, Clock> published_;  ///< by the address of the release
  std::unordered_map<std::uintptr_t, Watched> watched_;
  std::vector<std::uint32_t> conditionals_;
};

}  // namespace speclab::simt
