#include <algorithm>
#include <bit>
#include <string_view>

#include "core/backend/cuda/kernels/simt.h"
#include "core/backend/cuda/simulator/machine.h"
#include "core/base/error.h"

// The operations of the simulated GPU in which threads wait for each other: collectives of a warp, barriers,
// inner blocks, and matrix products.

namespace speclab::simt {
namespace {

constexpr std::uint64_t kMostPauses = 1'000'000;  // without a collective or barrier in between

bool same(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() && std::string_view(a.file_name()) == b.file_name();
}

}  // namespace

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

// Returns when all lanes of the warp have arrived. The last lane to arrive continues first.
void Machine::arrive(const std::source_location& where) {
  Thread& me = *self;
  Warp& warp = warps_[static_cast<std::size_t>(me.id / kWarp)];
  const std::uint32_t bit = 1u << me.lane;
  if (warp.waiting == 0) warp.where = where;
  else if (!same(warp.where, where))
    fail("lanes of a warp are in different collectives; some are at " + text_of(warp.where), where);
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
    fail("threads of a block are at different barriers; some are at " + text_of(group.barrier), where);
  group.barrier = where;
  own.parked |= 1u << me.lane;
  own.runnable &= ~(1u << me.lane);
  if (++group.parked < group.threads) return leave_to_others("at a barrier", where);
  group.parked = 0;
  group.epoch = ++epochs_;
  wake(group.first / kWarp, group.threads / kWarp);
}

// Wakes whole warps. The running thread belongs to one of them. Continues with a random warp of all that can
// run.
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

// Called by a thread that waits for another block.
void Machine::pause(const std::source_location& where) {
  if (++pauses_ > kMostPauses) fail("blocks wait for each other without end", where);
  const int next = random_warp(awake_),
            thread = next * kWarp + std::countr_zero(warps_[static_cast<std::size_t>(next)].runnable);
  if (thread != self->id) switch_to(thread);
}

// Suspends the running thread, which waits or has ended. Continues with a lane of its warp if one can run,
// otherwise with another warp. If all threads have ended, returns to the caller of run(). Fails if lanes of
// the warp wait in a collective that no other lane can reach, and if nothing can go on.
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

// ---- Inner blocks

void Machine::enter_block(const InnerBlock& inner, const std::source_location& where) {
  Thread& me = *self;
  const Group& block = *me.block;
  const int thread = me.id - block.first, end = inner.first_thread + inner.threads;
  if (me.group != &block) fail("an inner block is entered from another inner block", where);
  if (inner.first_thread % kWarp != 0 || inner.threads % kWarp != 0 || thread < inner.first_thread ||
      thread >= end || end > block.threads || inner.shared_begin < 0 || inner.shared_begin % 16 != 0 ||
      inner.shared_begin + inner.shared_bytes > block.shared_bytes) {
    fail(fmt::format("an inner block with threads [{}, {}) of {}, and {} bytes at offset {} of {} bytes of "
                     "shared memory",
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
    leave_to_others("before an inner block", where);
  } else {
    group.entering = 0;
    for (int warp = first_warp; warp < first_warp + warps; ++warp) {
      if (inner_[static_cast<std::size_t>(warp)].inside > 0)
        fail("an inner block is entered while threads are still in the previous one", where);
    }
    const int index[3] = {inner.x, inner.y, inner.z}, grid[3] = {inner.grid_x, inner.grid_y, inner.grid_z};
    std::copy_n(index, 3, group.index);
    std::copy_n(grid, 3, group.grid);
    group.first = block.first + inner.first_thread;
    group.threads = group.inside = inner.threads;
    group.shared_begin = block.shared_begin + inner.shared_begin;
    group.shared_bytes = inner.shared_bytes;
    group.counter = nullptr;
    group.epoch = group.begin = ++epochs_;
    std::fill_n(shared_.begin() + group.shared_begin, group.shared_bytes, std::byte{0xff});
    wake(first_warp, warps);
  }
  me.group = &group;
  me.index = thread - inner.first_thread;
}

void Machine::leave_block(const std::source_location& where) {
  Thread& me = *self;
  if (me.products.count > 0) fail("an inner block is left with matrix products under way", where);
  if (!me.copies.empty()) fail("an inner block is left with copies under way", where);
  if (me.group != me.block) --me.group->inside;
  me.group = me.block;
  me.index = me.id - me.block->first;
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

}  // namespace speclab::simt
