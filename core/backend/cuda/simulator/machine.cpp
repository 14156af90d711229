#include "core/backend/cuda/simulator/machine.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <string_view>

#include "core/backend/cuda/kernels/simt.h"
#include "core/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// The fibers of the simulated GPU, and the order in which blocks run. Memory is in machine_memory.cpp,
// barriers are in machine_barriers.cpp.

namespace speclab::simt {

namespace context = boost::context;

constinit thread_local Thread* self = nullptr;

namespace {

constexpr int kMostShared = 227 << 10;     // largest shared memory of a block on sm_90
constexpr std::size_t kStack = 256 << 10;  // address space per fiber; unused pages take no memory

}  // namespace

std::string text_of(const std::source_location& where) {
  std::string_view file = where.file_name();
  if (const auto slash = file.rfind('/'); slash != file.npos) file.remove_prefix(slash + 1);
  return fmt::format("{}:{}", file, where.line());
}

struct Machine::Fibers {
  struct Stack {
    const void* bottom = nullptr;
    std::size_t bytes = 0;
  };
  struct Stop {};  // thrown in a fiber to end it

  std::vector<context::fiber> of_threads;
  std::vector<Stack> stacks;
  context::fiber main;
  Stack main_stack;
  int from = kMain;  // the thread that switched last
  bool stopping = false;
  std::exception_ptr error;

  context::fiber& of(int thread) {
    return thread == kMain ? main : of_threads[static_cast<std::size_t>(thread)];
  }

  // announce() tells AddressSanitizer which stack comes next. arrived() tells it that this stack is now
  // active.
  void announce([[maybe_unused]] int thread, [[maybe_unused]] void** fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
    const Stack& stack = thread == kMain ? main_stack : stacks[static_cast<std::size_t>(thread)];
    __sanitizer_start_switch_fiber(fake_stack, stack.bottom, stack.bytes);
#endif
  }
  void arrived([[maybe_unused]] void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
    Stack left;
    __sanitizer_finish_switch_fiber(fake_stack, &left.bottom, &left.bytes);
    if (from == kMain) main_stack = left;
#endif
  }
};

Machine::Machine(std::uint64_t seed) : random_(seed), fibers_(std::make_unique<Fibers>()) {}

Machine::~Machine() {
  stop_threads();
  for (const Range& range : ranges_) std::free(reinterpret_cast<void*>(range.begin));
}

void Machine::switch_to(int thread) {
  fibers_->from = self == nullptr ? kMain : self->id;
  self = thread == kMain ? nullptr : threads_[static_cast<std::size_t>(thread)].get();
  void* fake_stack = nullptr;
  fibers_->announce(thread, &fake_stack);
  context::fiber back = std::move(fibers_->of(thread)).resume();
  fibers_->arrived(fake_stack);
  fibers_->of(fibers_->from) = std::move(back);
  if (fibers_->stopping && self != nullptr) throw Fibers::Stop();
}

// Ends all fibers and unwinds their stacks.
void Machine::stop_threads() {
  fibers_->stopping = true;
  for (int index = 0; index < static_cast<int>(threads_.size()); ++index) switch_to(index);
  fibers_->stopping = false;
  fibers_->of_threads.clear();
  fibers_->stacks.clear();
  threads_.clear();
}

// A thread runs one block after the other until it is stopped.
void Machine::thread_main(int index) {
  while (!fibers_->stopping) {
    try {
      const Thread& starts = *threads_[static_cast<std::size_t>(index)];
      const bool lost = !clocks_.empty() && starts.block - blocks_.data() == lost_;
      if (!lost) call_(kernel_);
      Thread& me = *threads_[static_cast<std::size_t>(index)];
      const std::source_location nowhere;
      if (me.products.count > 0) fail("a thread ends with matrix products under way", nowhere);
      if (!me.copies.empty()) fail("a thread ends with copies under way", nowhere);
      if (!me.waited)
        fail(
            "a thread ends without wait_for_previous(), so the next launch could overtake the launch before "
            "this one",
            nowhere);
      ++ended_;
      warps_[static_cast<std::size_t>(me.id / kWarp)].runnable &= ~(1u << me.lane);
      leave_to_others("at its end", nowhere);
    } catch (const Fibers::Stop&) {
    } catch (...) {
      fibers_->error = std::current_exception();
    }
    if (fibers_->error && !fibers_->stopping) {
      try {
        switch_to(kMain);
      } catch (const Fibers::Stop&) {
      }
    }
  }
}

std::string Machine::at_place(const std::string& message, const std::source_location& where) const {
  const int* block = self->group->index;
  return fmt::format("kernel {}, block ({}, {}, {}), thread {}{}{}: {}", name_, block[0], block[1], block[2],
                     self->index, where.line() > 0 ? ", " : "", where.line() > 0 ? text_of(where) : "",
                     message);
}

void Machine::fail(const std::string& message, const std::source_location& where) {
  throw Bug(at_place(message, where));
}

void Machine::trap(const std::source_location& where) { throw Trap(at_place("a trap", where)); }

// Prepares block number `which` of the launch.
void Machine::place_block(Group& block, int which) {
  block.index[0] = which % shape_.grid_x;
  block.index[1] = which / shape_.grid_x % shape_.grid_y;
  block.index[2] = which / shape_.grid_x / shape_.grid_y;
  block.parked = 0;
  block.epoch = block.begin = ++epochs_;
  std::fill_n(shared_.begin() + block.shared_begin, block.shared_bytes, std::byte{0xff});
  for (int id = block.first; id < block.first + block.threads; ++id) {
    Thread& thread = *threads_[static_cast<std::size_t>(id)];
    thread.block = thread.group = &block;
    thread.index = id - block.first;
    thread.waited = !clocks_.empty();  // a cooperative launch does not overlap
  }
}

// Runs all threads of the placed blocks to their end. If a thread throws, stops all and rethrows its error.
void Machine::run_placed() {
  for (Warp& warp : warps_) {
    warp.runnable = 0xffffffffu;
    warp.waiting = warp.parked = 0;
  }
  awake_ = warps_.size() == 64 ? ~0ull : (1ull << warps_.size()) - 1;
  ended_ = 0;
  pauses_ = 0;
  switch_to(random_warp(awake_) * kWarp);
  if (fibers_->error) {
    stop_threads();
    lost_ = -1;
    clocks_.clear();
    shadows_.assign(shadows_.size(), {});  // forgets copies in flight
    std::rethrow_exception(std::exchange(fibers_->error, nullptr));
  }
}

void Machine::make_threads(int count) {
  for (int id = static_cast<int>(threads_.size()); id < count; ++id) {
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->machine = this;
    threads_.back()->id = id;
    threads_.back()->lane = id % kWarp;
    context::protected_fixedsize_stack allocator(kStack);
    const context::stack_context stack = allocator.allocate();
    fibers_->stacks.push_back({static_cast<std::byte*>(stack.sp) - stack.size, stack.size});
    fibers_->of_threads.emplace_back(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack),
                                     allocator, [this, id](context::fiber&& back) {
                                       fibers_->arrived(nullptr);
                                       fibers_->of(fibers_->from) = std::move(back);
                                       thread_main(id);
                                       self = nullptr;
                                       fibers_->announce(kMain, nullptr);
                                       return std::move(fibers_->main);
                                     });
  }
}

void Machine::run_blocks(const char* name, int most_threads, const cuda::LaunchShape& shape, bool together,
                         void (*call)(const void*), const void* kernel) {
  SPECLAB_CHECK(self == nullptr, "kernel {} is started inside kernel {}", name, name_);
  SPECLAB_CHECK(shape.threads > 0 && shape.threads % kWarp == 0 && shape.threads <= most_threads &&
                    most_threads <= 1024,
                "kernel {} with {} of at most {} threads", name, shape.threads, most_threads);
  SPECLAB_CHECK(shape.grid_x > 0 && shape.grid_y > 0 && shape.grid_z > 0 && shape.grid_y < 65536 &&
                    shape.grid_z < 65536,
                "kernel {} with {} x {} x {} blocks", name, shape.grid_x, shape.grid_y, shape.grid_z);
  SPECLAB_CHECK(shape.shared_bytes >= 0 && shape.shared_bytes <= kMostShared,
                "kernel {} with {} bytes of shared memory", name, shape.shared_bytes);
  const std::size_t blocks = static_cast<std::size_t>(shape.grid_x) * static_cast<std::size_t>(shape.grid_y) *
                             static_cast<std::size_t>(shape.grid_z);
  const std::size_t placed = together ? blocks : 1,
                    warps = placed * static_cast<std::size_t>(shape.threads / kWarp);
  SPECLAB_CHECK(warps <= kMostTogether, "kernel {} with {} warps at once, of at most {}", name, warps,
                kMostTogether);
  forget_writes();
  name_ = name;
  call_ = call;
  kernel_ = kernel;
  shape_ = shape;
  running_ = static_cast<int>(warps) * kWarp;
  make_threads(running_);
  warps_.resize(warps);
  const std::size_t bytes_of_block = (static_cast<std::size_t>(shape.shared_bytes) + 15) / 16 * 16;
  if (shared_.size() < placed * bytes_of_block) {
    shared_.resize(placed * bytes_of_block);
    shadows_.resize(shared_.size() / kGranule + 1);
  }
  blocks_.assign(placed, {});
  for (std::size_t i = 0; i < placed; ++i) {
    const int grid[3] = {shape.grid_x, shape.grid_y, shape.grid_z};
    std::copy_n(grid, 3, blocks_[i].grid);
    blocks_[i].first = static_cast<int>(i) * shape.threads;
    blocks_[i].threads = shape.threads;
    blocks_[i].shared_begin = static_cast<int>(i * bytes_of_block);
    blocks_[i].shared_bytes = shape.shared_bytes;
  }
  inner_.assign(warps, {});
  if (together) {
    clocks_.assign(blocks, Clock(blocks));
    for (std::size_t i = 0; i < blocks; ++i) clocks_[i][i] = 1;
    published_.clear();
    watched_.clear();
    for (std::size_t i = 0; i < blocks; ++i) place_block(blocks_[i], static_cast<int>(i));
    run_placed();
    lost_ = -1;
    clocks_.clear();
    watched_.clear();
    return;
  }
  std::vector<int> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  for (const int block : order) {
    place_block(blocks_[0], block);
    run_placed();
  }
}

}  // namespace speclab::simt
