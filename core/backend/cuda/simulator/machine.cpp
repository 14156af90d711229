#include "core/backend/cuda/simulator/machine.h"

#include <algorithm>
#include <bit>
#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <string_view>

#include "core/backend/cuda/simulator/simt.h"
#include "core/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace speclab::simt {

namespace context = boost::context;

constinit thread_local Thread* self = nullptr;

namespace {

constexpr int kMain = -1;
constexpr int kMostShared = 227 << 10;            // of a block on sm_90
constexpr std::size_t kStack = 256 << 10;         // reserved, not touched
constexpr int kGranule = 2;                       // bytes of memory that are watched together
constexpr std::uint64_t kMostPauses = 1'000'000;  // while nothing happens
// Readers of a granule since the last barrier: one thread, several of one warp, or several warps.
constexpr std::uint16_t kOfWarp = 0x4000, kOfMany = 0x8000;

bool same(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() && std::string_view(a.file_name()) == b.file_name();
}

std::string text_of(const std::source_location& where) {
  std::string_view file = where.file_name();
  if (const auto slash = file.rfind('/'); slash != file.npos) file.remove_prefix(slash + 1);
  return fmt::format("{}:{}", file, where.line());
}

}  // namespace

struct Machine::Fibers {
  struct Stack {
    const void* bottom = nullptr;
    std::size_t bytes = 0;
  };
  struct Stop {};  // thrown in a fiber that has to end

  std::vector<context::fiber> of_threads;
  std::vector<Stack> stacks;
  context::fiber main;
  Stack main_stack;
  int from = kMain;  // who switched last
  bool stopping = false;
  std::exception_ptr error;

  context::fiber& of(int thread) {
    return thread == kMain ? main : of_threads[static_cast<std::size_t>(thread)];
  }

  // What AddressSanitizer must know: which stack is next, and that it is there.
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

// ---- Global memory

void* Machine::allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* data = size < bytes ? nullptr : std::aligned_alloc(kAlignment, size);
  if (data == nullptr) {
    throw Error(
        {fmt::format("memory of the simulated GPU for {:.1f} MiB", static_cast<double>(bytes) / (1 << 20)),
         "none left", "", "Use a smaller model or context, or free memory."});
  }
  std::memset(data, 0xff, size);
  const Range range{reinterpret_cast<std::uintptr_t>(data), bytes};
  ranges_.insert(std::upper_bound(ranges_.begin(), ranges_.end(), range,
                                  [](const Range& a, const Range& b) { return a.begin < b.begin; }),
                 range);
  return data;
}

void Machine::release(void* p) {
  if (p == nullptr) return;
  const auto at = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.begin == reinterpret_cast<std::uintptr_t>(p);
  });
  SPECLAB_CHECK(at != ranges_.end(), "{} is released and was not allocated", p);
  ranges_.erase(at);
  std::fill(std::begin(recent_), std::end(recent_), Range{});
  std::free(p);
}

void Machine::find_global(const void* p, std::size_t bytes, const std::source_location& where) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                      [](std::uintptr_t a, const Range& b) { return a < b.begin; });
  if (after == ranges_.begin()) fail(fmt::format("{} bytes at {} lie in no allocation", bytes, p), where);
  const Range& range = *std::prev(after);
  const std::size_t offset = address - range.begin;
  if (offset > range.bytes || range.bytes - offset < bytes) {
    fail(fmt::format("{} bytes at {} lie {} bytes into an allocation of {}", bytes, p, offset, range.bytes),
         where);
  }
  if (address % bytes != 0) fail(fmt::format("{} bytes at {} are not aligned", bytes, p), where);
  recent_[next_recent_++ % 4] = range;
}

// ---- Shared memory

void Machine::check_shared(int offset, int count, std::size_t size, std::size_t alignment,
                           const std::source_location& where) {
  if (offset < 0 || count < 0 ||
      static_cast<std::size_t>(offset) % std::max<std::size_t>(alignment, kGranule) != 0 ||
      static_cast<std::size_t>(offset) + static_cast<std::size_t>(count) * size >
          static_cast<std::size_t>(self->group->shared_bytes)) {
    fail(fmt::format("{} elements of {} bytes at offset {} of {} bytes of shared memory", count, size, offset,
                     self->group->shared_bytes),
         where);
  }
}

void Machine::fail_shared_index(int i, int bytes, int count, const std::source_location& where) {
  fail(fmt::format("{} bytes at element {} of a shared array of {}", bytes, i, count), where);
}

std::byte* Machine::touch_shared(int offset, int bytes, bool write, const std::source_location& where) {
  offset += self->group->shared_begin;
  for (int at = offset / kGranule; at < (offset + bytes) / kGranule; ++at)
    mark(shadows_[static_cast<std::size_t>(at)], write, where);
  return shared_.data() + offset;
}

void Machine::mark(Shadow& shadow, bool write, const std::source_location& where) {
  const Thread& me = *self;
  const auto id = static_cast<std::uint16_t>(me.index);
  const int warp = me.index / kWarp;
  const std::uint64_t epoch = me.group->epoch;
  if (!write && shadow.written < me.group->begin)
    fail("shared memory is read that no thread of the block has written", where);
  if (shadow.written == epoch && shadow.writer != id &&
      !(shadow.writer / kWarp == warp && shadow.write_warp_epoch < me.warp_epoch)) {
    fail(fmt::format("race: shared memory is {} that thread {} writes between the same barriers",
                     write ? "written" : "read", shadow.writer),
         where);
  }
  const bool read_now = shadow.read == epoch;
  const bool same_warp = read_now && shadow.reader < kOfMany &&
                         (shadow.reader & kOfWarp ? shadow.reader - kOfWarp : shadow.reader / kWarp) == warp;
  const bool ordered = same_warp && shadow.read_warp_epoch < me.warp_epoch;
  if (write) {
    if (read_now && shadow.reader != id && !ordered)
      fail("race: shared memory is written that another thread reads between the same barriers", where);
    shadow.written = epoch;
    shadow.writer = id;
    shadow.write_warp_epoch = me.warp_epoch;
    return;
  }
  if (!read_now || ordered) shadow.reader = id;
  else if (shadow.reader != id)
    shadow.reader = same_warp ? static_cast<std::uint16_t>(kOfWarp | warp) : kOfMany;
  shadow.read = epoch;
  shadow.read_warp_epoch = me.warp_epoch;
}

void Machine::finish_copies(int groups_left) {
  Thread& me = *self;
  if (me.groups.size() <= static_cast<std::size_t>(groups_left)) return;
  const std::size_t done = me.groups.size() - static_cast<std::size_t>(groups_left),
                    count = me.groups[done - 1];
  for (std::size_t i = 0; i < count; ++i) me.copies[i].write(load16(me.copies[i].from, me.copies[i].where));
  me.copies.erase(me.copies.begin(), me.copies.begin() + static_cast<std::ptrdiff_t>(count));
  me.groups.erase(me.groups.begin(), me.groups.begin() + static_cast<std::ptrdiff_t>(done));
  for (std::size_t& group : me.groups) group -= count;
}

// ---- Collectives and barriers

int Machine::random_warp(std::uint64_t among) {
  for (auto skip = static_cast<int>(random_() % static_cast<unsigned>(std::popcount(among))); skip > 0;
       --skip)
    among &= among - 1;
  return std::countr_zero(among);
}

const std::uint64_t* Machine::exchange(std::uint64_t value, const std::source_location& where) {
  Thread& me = *self;
  Warp& warp = warps_[static_cast<std::size_t>(me.id / kWarp)];
  std::uint64_t* values = warp.values[me.collectives++ % 2];
  values[me.lane] = value;
  arrive(where);
  return values;
}

// Returns when all lanes of the warp have arrived; the last one goes on first.
void Machine::arrive(const std::source_location& where) {
  Thread& me = *self;
  Warp& warp = warps_[static_cast<std::size_t>(me.id / kWarp)];
  const std::uint32_t bit = 1u << me.lane;
  if (warp.waiting == 0) warp.where = where;
  else if (!same(warp.where, where))
    fail("the lanes of a warp are in different collectives, others at " + text_of(warp.where), where);
  warp.waiting |= bit;
  warp.runnable &= ~bit;
  if (warp.waiting == 0xffffffffu) {
    warp.waiting = 0;
    warp.runnable = 0xffffffffu;
    pauses_ = 0;
  } else {
    leave_to_others("in a collective", where);
  }
}

void Machine::block_sync(const std::source_location& where) {
  Thread& me = *self;
  Group& group = *me.group;
  Warp& own = warps_[static_cast<std::size_t>(me.id / kWarp)];
  if (group.parked > 0 && !same(group.barrier, where))
    fail("threads of a block are at different barriers, others at " + text_of(group.barrier), where);
  group.barrier = where;
  own.parked |= 1u << me.lane;
  own.runnable &= ~(1u << me.lane);
  if (++group.parked < group.threads) return leave_to_others("at a barrier", where);
  group.parked = 0;
  group.epoch = ++epochs_;
  wake(group.first / kWarp, group.threads / kWarp);
}

// Whole warps go on, in a random order among all that can; the running thread belongs to one of them.
void Machine::wake(int first_warp, int warps) {
  pauses_ = 0;
  for (int warp = first_warp; warp < first_warp + warps; ++warp) {
    warps_[static_cast<std::size_t>(warp)].parked = 0;
    warps_[static_cast<std::size_t>(warp)].runnable = 0xffffffffu;
    awake_ |= 1ull << warp;
  }
  const int next = random_warp(awake_);
  if (next != self->id / kWarp)
    switch_to(next * kWarp + std::countr_zero(warps_[static_cast<std::size_t>(next)].runnable));
}

// Of a thread that waits for another block.
void Machine::pause(const std::source_location& where) {
  if (++pauses_ > kMostPauses) fail("blocks wait for each other and nobody comes", where);
  const int next = random_warp(awake_),
            thread = next * kWarp + std::countr_zero(warps_[static_cast<std::size_t>(next)].runnable);
  if (thread != self->id) switch_to(thread);
}

// The running thread cannot go on: another lane of its warp does, or else another warp.
void Machine::leave_to_others(const char* doing, const std::source_location& where) {
  const int id = self->id;
  Warp& warp = warps_[static_cast<std::size_t>(id / kWarp)];
  if (warp.runnable != 0) {
    const std::uint32_t later = warp.runnable & ~((2u << self->lane) - 1);
    return switch_to(id / kWarp * kWarp + std::countr_zero(later != 0 ? later : warp.runnable));
  }
  awake_ &= ~(1ull << (id / kWarp));
  if (warp.waiting != 0) {
    fail(fmt::format("divergence: {} lanes of the warp are in the collective at {}, this one is {}",
                     std::popcount(warp.waiting), text_of(warp.where), doing),
         where);
  }
  if (awake_ != 0) {
    const int next = random_warp(awake_);
    return switch_to(next * kWarp + std::countr_zero(warps_[static_cast<std::size_t>(next)].runnable));
  }
  if (ended_ == running_) return switch_to(kMain);
  const Group& group = *self->group;
  fail(fmt::format("divergence: {} threads are at the barrier at {}, {} have ended, this one is {}",
                   group.parked, text_of(group.barrier), ended_, doing),
       where);
}

// ---- Blocks inside of blocks

void Machine::enter_block(const InnerBlock& inner, const std::source_location& where) {
  Thread& me = *self;
  const Group& block = *me.block;
  const int thread = me.id - block.first, end = inner.first_thread + inner.threads;
  if (me.group != &block) fail("a block inside is entered from another one", where);
  if (inner.first_thread % kWarp != 0 || inner.threads % kWarp != 0 || thread < inner.first_thread ||
      thread >= end || end > block.threads || inner.shared_begin < 0 || inner.shared_begin % 16 != 0 ||
      inner.shared_begin + inner.shared_bytes > block.shared_bytes) {
    fail(fmt::format("a block inside of threads {} to {} of {}, with {} bytes at {} of {} of shared memory",
                     inner.first_thread, end, block.threads, inner.shared_bytes, inner.shared_begin,
                     block.shared_bytes),
         where);
  }
  const int first_warp = (block.first + inner.first_thread) / kWarp, warps = inner.threads / kWarp;
  Group& group = inner_[static_cast<std::size_t>(first_warp)];
  Warp& own = warps_[static_cast<std::size_t>(me.id / kWarp)];
  own.parked |= 1u << me.lane;
  own.runnable &= ~(1u << me.lane);
  if (++group.entering < inner.threads) {
    leave_to_others("before a block inside", where);
  } else {
    group.entering = 0;
    for (int warp = first_warp; warp < first_warp + warps; ++warp) {
      if (inner_[static_cast<std::size_t>(warp)].inside > 0)
        fail("a block inside is entered while threads are in the one before it", where);
    }
    const int index[3] = {inner.x, inner.y, inner.z}, grid[3] = {inner.grid_x, inner.grid_y, inner.grid_z};
    std::copy_n(index, 3, group.index);
    std::copy_n(grid, 3, group.grid);
    group.first = block.first + inner.first_thread;
    group.threads = group.inside = inner.threads;
    group.shared_begin = block.shared_begin + inner.shared_begin;
    group.shared_bytes = inner.shared_bytes;
    group.epoch = group.begin = ++epochs_;
    std::fill_n(shared_.begin() + group.shared_begin, group.shared_bytes, std::byte{0xff});
    wake(first_warp, warps);
  }
  me.group = &group;
  me.index = thread - inner.first_thread;
}

void Machine::leave_block(const std::source_location& where) {
  Thread& me = *self;
  if (me.products.count > 0) fail("a block inside is left with matrix products under way", where);
  if (!me.copies.empty()) fail("a block inside is left with copies under way", where);
  if (me.group != me.block) --me.group->inside;
  me.group = me.block;
  me.index = me.id - me.block->first;
}

// ---- Blocks that run together

void Machine::released(const void* p) {
  if (clocks_.empty()) return;
  const std::size_t block = static_cast<std::size_t>(self->block - blocks_.data());
  Clock& published = published_.try_emplace(p, Clock(clocks_.size())).first->second;
  Clock& own = clocks_[block];
  for (std::size_t i = 0; i < own.size(); ++i) published[i] = std::max(published[i], own[i]);
  ++own[block];
}

void Machine::acquired(const void* p) {
  const auto at = published_.find(p);
  if (clocks_.empty() || at == published_.end()) return;
  Clock& own = clocks_[static_cast<std::size_t>(self->block - blocks_.data())];
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], at->second[i]);
}

void Machine::watch(const void* p, std::size_t bytes, Access access, const std::source_location& where) {
  const auto me = static_cast<std::size_t>(self->block - blocks_.data());
  const Clock& own = clocks_[me];
  for (auto at = reinterpret_cast<std::uintptr_t>(p) / kGranule;
       at < (reinterpret_cast<std::uintptr_t>(p) + bytes) / kGranule; ++at) {
    if (access == Access::kConstant) {
      const auto found = watched_.find(at);
      if (found != watched_.end() && found->second.writer >= 0)
        fail("memory is read as constant that this launch has written", where);
      continue;
    }
    Watched& last = watched_[at];
    if (last.writer >= 0 && static_cast<std::size_t>(last.writer) != me &&
        own[static_cast<std::size_t>(last.writer)] < last.written) {
      fail(fmt::format("race: memory is {} that block {} writes, and nothing orders the two",
                       access == Access::kWrite ? "written" : "read", last.writer),
           where);
    }
    if (access == Access::kRead) {
      last.read.resize(clocks_.size());
      last.read[me] = own[me];
      continue;
    }
    for (std::size_t block = 0; block < last.read.size(); ++block) {
      if (block != me && own[block] < last.read[block])
        fail(fmt::format("race: memory is written that block {} reads, and nothing orders the two", block),
             where);
    }
    last.writer = static_cast<std::int16_t>(me);
    last.written = own[me];
    last.read.clear();
  }
}

// ---- Matrix products

void Machine::finish_products(const std::source_location& where) {
  Thread& me = *self;
  if (me.products.count == 0) return;
  const int warp = me.id / kWarp;
  Warp& state = warps_[static_cast<std::size_t>(warp)];
  const bool last = (state.waiting | 1u << me.lane) == 0xffffffffu;
  if (state.waiting != 0) {
    const auto first = static_cast<std::size_t>(warp * kWarp + std::countr_zero(state.waiting));
    if (threads_[first]->products.count != me.products.count)
      fail("the lanes of a warp have started different numbers of matrix products", where);
  }
  arrive(where);
  if (last) multiply_queued(warp);
}

void Machine::multiply_queued(int warp) {
  const std::unique_ptr<Thread>* lanes = threads_.data() + static_cast<std::size_t>(warp) * kWarp;
  const int count = lanes[0]->products.count;
  const auto low = [](std::uint32_t pair) { return std::bit_cast<float>(pair << 16); };
  const auto high = [](std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); };
  for (int step = 0; step < count; ++step) {
    float a[16][16], b[16][8], c[16][8];
    for (int lane = 0; lane < kWarp; ++lane) {
      const MmaQueue::Item& item = lanes[lane]->products.item[step];
      const int g = lane / 4, t = lane % 4;
      for (int part = 0; part < 4; ++part) {
        float* to = &a[g + part % 2 * 8][2 * t + part / 2 * 8];
        to[0] = low(item.a[part]);
        to[1] = high(item.a[part]);
      }
      for (int part = 0; part < 2; ++part) {
        b[2 * t + part * 8][g] = low(item.b[part]);
        b[2 * t + part * 8 + 1][g] = high(item.b[part]);
      }
      for (int i = 0; i < 4; ++i) c[g + i / 2 * 8][2 * t + i % 2] = item.c->c[i];
    }
    for (int m = 0; m < 16; ++m) {
      for (int k = 0; k < 16; ++k) {
        for (int n = 0; n < 8; ++n) c[m][n] += a[m][k] * b[k][n];
      }
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      AccumulatorFragment& to = *lanes[lane]->products.item[step].c;
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i) to.c[i] = c[g + i / 2 * 8][2 * t + i % 2];
      --to.pending;
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) lanes[lane]->products.count = 0;
}

// ---- Fibers

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

// Ends all fibers; what they were doing is unwound.
void Machine::stop_threads() {
  fibers_->stopping = true;
  for (int index = 0; index < static_cast<int>(threads_.size()); ++index) switch_to(index);
  fibers_->stopping = false;
  fibers_->of_threads.clear();
  fibers_->stacks.clear();
  threads_.clear();
}

// One thread: a block after the other, until it is stopped.
void Machine::thread_main(int index) {
  while (!fibers_->stopping) {
    try {
      call_(kernel_);
      Thread& me = *threads_[static_cast<std::size_t>(index)];
      const std::source_location nowhere;
      if (me.products.count > 0) fail("a thread ends with matrix products under way", nowhere);
      if (!me.copies.empty()) fail("a thread ends with copies under way", nowhere);
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

void Machine::fail(const std::string& message, const std::source_location& where) {
  const int* block = self->group->index;
  throw Bug(fmt::format("kernel {}, block ({}, {}, {}), thread {}{}{}: {}", name_, block[0], block[1],
                        block[2], self->index, where.line() > 0 ? ", " : "",
                        where.line() > 0 ? text_of(where) : "", message));
}

// Block number `which` of the launch, from its beginning.
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
  }
}

// All threads of the blocks that are placed, to their end.
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
    clocks_.clear();
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
