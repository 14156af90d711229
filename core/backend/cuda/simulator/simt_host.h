#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <utility>

#include "core/backend/cuda/simulator/machine.h"
#include "core/backend/cuda/kernels/simt.h"
#include "core/base/bf16.h"

// Implements the functions of simt.h on the CPU. The threads of a block are fibers of a Machine (machine.h).
// Kernels include simt.h, not this header.

namespace speclab::simt {
inline namespace SPECLAB_SIDE {

using Where = std::source_location;

SPECLAB_DEVICE int thread_index() { return self->index; }
SPECLAB_DEVICE int lane() { return self->lane; }
SPECLAB_DEVICE int warp_index() { return self->index / kWarp; }
SPECLAB_DEVICE int block_threads() { return self->group->threads; }
SPECLAB_DEVICE int block_x() { return self->group->index[0]; }
SPECLAB_DEVICE int block_y() { return self->group->index[1]; }
SPECLAB_DEVICE int block_z() { return self->group->index[2]; }
SPECLAB_DEVICE int grid_x() { return self->group->grid[0]; }
SPECLAB_DEVICE int grid_y() { return self->group->grid[1]; }
SPECLAB_DEVICE int grid_z() { return self->group->grid[2]; }
SPECLAB_DEVICE void enter_block(const InnerBlock& inner, Where where = Where::current()) {
  self->machine->enter_block(inner, where);
}
SPECLAB_DEVICE void leave_block(Where where = Where::current()) { self->machine->leave_block(where); }

// Global memory.

template <typename T>
SPECLAB_DEVICE std::remove_const_t<T> load(T* p, Where where = Where::current()) {
  self->machine->check_global(p, sizeof(T), where);
  self->machine->watch_global(p, sizeof(T), Machine::Access::kRead, where);
  return *p;
}
template <typename T>
SPECLAB_DEVICE std::remove_const_t<T> load_constant(T* p, Where where = Where::current()) {
  return load(p, where);
}
template <typename T>
SPECLAB_DEVICE void store(T* p, std::type_identity_t<T> value, Where where = Where::current()) {
  self->machine->check_global(p, sizeof(T), where);
  self->machine->watch_global(p, sizeof(T), Machine::Access::kWrite, where);
  *p = value;
}
SPECLAB_DEVICE Bytes16 load16(const void* p, Where where = Where::current()) {
  self->machine->check_global(p, 16, where);
  self->machine->watch_global(p, 16, Machine::Access::kRead, where);
  Bytes16 v;
  std::memcpy(&v, p, 16);
  return v;
}
SPECLAB_DEVICE Bytes16 load16_constant(const void* p, Where where = Where::current()) {
  return load16(p, where);
}
SPECLAB_DEVICE Bytes16 load16_streamed(const void* p, Where where = Where::current()) {
  self->machine->check_global(p, 16, where);
  self->machine->watch_global(p, 16, Machine::Access::kConstant, where);
  Bytes16 v;
  std::memcpy(&v, p, 16);
  return v;
}
SPECLAB_DEVICE void prefetch(const void* p, u32 bytes, Where where = Where::current()) {
  for (u32 at = 0; at < bytes; at += 16)
    self->machine->check_global(static_cast<const std::byte*>(p) + at, 16, where);
}
SPECLAB_DEVICE void store16(void* p, Bytes16 v, Where where = Where::current()) {
  self->machine->check_global(p, 16, where);
  self->machine->watch_global(p, 16, Machine::Access::kWrite, where);
  std::memcpy(p, &v, 16);
}
template <typename T>
SPECLAB_DEVICE T atomic_add(T* p, std::type_identity_t<T> value, Where where = Where::current()) {
  static_assert(std::is_same_v<T, u32> || std::is_same_v<T, u64>);
  self->machine->check_global(p, sizeof *p, where);
  self->machine->counted(p);
  self->machine->watch_atomic(p, Machine::Access::kWrite, where);
  return std::exchange(*p, *p + value);
}
SPECLAB_DEVICE u64 atomic_max(u64* p, u64 value, Where where = Where::current()) {
  self->machine->check_global(p, sizeof *p, where);
  self->machine->watch_atomic(p, Machine::Access::kWrite, where);
  return std::exchange(*p, std::max(*p, value));
}
SPECLAB_DEVICE void add_in_any_order(float* p, float value, Where where = Where::current()) {
  store(p, load(p, where) + value, where);
}
SPECLAB_DEVICE void add_release(u64* p, u64 value, Where where = Where::current()) {
  self->machine->check_global(p, sizeof *p, where);
  self->machine->watch_atomic(p, Machine::Access::kWrite, where);
  self->machine->released(p);
  *p += value;
}
SPECLAB_DEVICE u64 load_acquire(const u64* p, Where where = Where::current()) {
  self->machine->check_global(p, sizeof *p, where);
  self->machine->watch_atomic(p, Machine::Access::kRead, where);
  self->machine->acquired(p);
  return *p;
}
SPECLAB_DEVICE void pause(Where where = Where::current()) { self->machine->pause(where); }
SPECLAB_DEVICE void fence() { self->machine->fence(); }
SPECLAB_DEVICE void fence_system() {}
SPECLAB_DEVICE Waiting wait_begin() { return {}; }
SPECLAB_DEVICE bool waited_long(Waiting& /*waiting*/) { return self->machine->waited_long(); }
SPECLAB_DEVICE void trap(Where where = Where::current()) { self->machine->trap(where); }
SPECLAB_DEVICE void wait_for_previous(Where where = Where::current()) {
  self->machine->wait_for_previous(where);
}
SPECLAB_DEVICE void launch_next(Where where = Where::current()) { self->machine->launch_next(where); }
SPECLAB_DEVICE void set_conditional(u64 handle, u32 value) { self->machine->set_conditional(handle, value); }
SPECLAB_DEVICE u64 globaltimer() {
  return static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::steady_clock::now().time_since_epoch())
                              .count());
}

// Shared memory.

template <typename T>
class Shared {
 public:
  static_assert(sizeof(T) >= 2 && std::is_trivially_copyable_v<T>);
  Shared(int offset_bytes, int count) : offset_(offset_bytes), count_(count) {}
  T operator[](Index i) const {
    T value;
    std::memcpy(&value, at(i.value, sizeof(T), alignof(T), false, i.where), sizeof(T));
    return value;
  }
  void set(Index i, T value) const {
    std::memcpy(at(i.value, sizeof(T), alignof(T), true, i.where), &value, sizeof(T));
  }
  Bytes16 get16(Index i) const {
    Bytes16 value;
    std::memcpy(&value, at(i.value, 16, 16, false, i.where), 16);
    return value;
  }
  void set16(Index i, Bytes16 value) const { std::memcpy(at(i.value, 16, 16, true, i.where), &value, 16); }
  template <typename Object>
  const Object& view(Index i) const {
    static_assert(std::is_trivially_copyable_v<Object> && sizeof(Object) % 2 == 0);
    return *reinterpret_cast<const Object*>(at(i.value, sizeof(Object), alignof(Object), false, i.where));
  }

  /// Returns the offset of element i in the shared memory of the block. The 16 bytes from there on must lie
  /// in this array.
  int place16(Index i) const { return place(i.value, 16, 16, i.where); }

 private:
  int place(int i, int bytes, int alignment, const Where& where) const {
    const int begin = i * static_cast<int>(sizeof(T));
    if (i < 0 || begin + bytes > count_ * static_cast<int>(sizeof(T)) || (offset_ + begin) % alignment != 0) {
      self->machine->fail_shared_index(i, bytes, count_, where);
    }
    return offset_ + begin;
  }
  std::byte* at(int i, int bytes, int alignment, bool write, const Where& where) const {
    return self->machine->touch_shared(place(i, bytes, alignment, where), bytes, write, where);
  }
  int offset_, count_;
};

template <typename T>
SPECLAB_DEVICE Shared<T> shared(int offset_bytes, int count, Where where = Where::current()) {
  self->machine->check_shared(offset_bytes, count, sizeof(T), alignof(T), where);
  return {offset_bytes, count};
}

template <typename T>
SPECLAB_DEVICE void async_copy16(Shared<T> to, Index i, const void* from) {
  self->machine->start_copy(to.place16(i), from, Machine::Access::kRead, i.where);
}
template <typename T>
SPECLAB_DEVICE void async_copy16_streamed(Shared<T> to, Index i, const void* from) {
  self->machine->start_copy(to.place16(i), from, Machine::Access::kConstant, i.where);
}
SPECLAB_DEVICE void async_commit() { self->groups.push_back(self->copies.size()); }
template <int N>
SPECLAB_DEVICE void async_wait() {
  self->machine->finish_copies(N);
}

// Warps and blocks.

template <typename T>
SPECLAB_DEVICE T shuffle(T v, int source_lane, Where where = Where::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  u64 bits = 0;
  std::memcpy(&bits, &v, sizeof(T));
  bits = self->machine->exchange(bits, where)[source_lane & (kWarp - 1)];
  std::memcpy(&v, &bits, sizeof(T));
  return v;
}
template <typename T>
SPECLAB_DEVICE T shuffle_xor(T v, int mask, Where where = Where::current()) {
  return simt::shuffle(v, lane() ^ mask, where);  // not std::shuffle
}
SPECLAB_DEVICE u32 ballot(bool predicate, Where where = Where::current()) {
  const u64* votes = self->machine->exchange(predicate, where);
  u32 bits = 0;
  for (int i = 0; i < kWarp; ++i) bits |= static_cast<u32>(votes[i]) << i;
  return bits;
}
SPECLAB_DEVICE bool any(bool predicate, Where where = Where::current()) {
  return ballot(predicate, where) != 0;
}
SPECLAB_DEVICE bool all(bool predicate, Where where = Where::current()) {
  return ballot(predicate, where) == 0xffffffffu;
}
template <typename Combine>
SPECLAB_DEVICE float warp_tree(float v, const Combine& combine, const Where& where) {
  const u64* bits = self->machine->exchange(std::bit_cast<u32>(v), where);
  float level[kWarp];  // what lane 0 of the butterfly computes; by symmetry every lane gets the same
  for (int i = 0; i < kWarp; ++i) level[i] = std::bit_cast<float>(static_cast<u32>(bits[i]));
  for (int half = kWarp / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) level[i] = combine(level[i], level[i + half]);
  }
  return level[0];
}
SPECLAB_DEVICE float warp_sum(float v, Where where = Where::current()) {
  return warp_tree(v, [](float a, float b) { return a + b; }, where);
}
SPECLAB_DEVICE float warp_max(float v, Where where = Where::current()) {
  return warp_tree(v, [](float a, float b) { return std::fmax(a, b); }, where);
}
SPECLAB_DEVICE void warp_sync(Where where = Where::current()) {
  self->machine->exchange(0, where);
  ++self->warp_epoch;
}
SPECLAB_DEVICE void block_sync(Where where = Where::current()) { self->machine->block_sync(where); }

// Matrix fragments.

class Accumulator {
 public:
  Accumulator() = default;
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;
  void clear() { fragment_ = {}; }
  float operator[](Index i) const {
    if (fragment_.pending > 0) self->machine->fail("an accumulator is read before mma_wait()", i.where);
    return fragment_.c[i.value];
  }
  AccumulatorFragment& fragment() { return fragment_; }

 private:
  AccumulatorFragment fragment_;
};
SPECLAB_DEVICE void mma(Accumulator& c, const u32 (&a)[4], const u32 (&b)[2],
                        Where where = Where::current()) {
  MmaQueue& queue = self->products;
  queue.item[queue.count++] = {&c.fragment(), {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  ++c.fragment().pending;
  if (queue.count == MmaQueue::kRoom) self->machine->finish_products(where);
}
SPECLAB_DEVICE void mma_wait(Where where = Where::current()) { self->machine->finish_products(where); }

// Numbers.

SPECLAB_DEVICE float fma(float a, float b, float c) { return std::fmaf(a, b, c); }
SPECLAB_DEVICE float exp(float x) { return std::exp(x); }
SPECLAB_DEVICE float log(float x) { return std::log(x); }
SPECLAB_DEVICE float tanh(float x) { return std::tanh(x); }
SPECLAB_DEVICE float erf(float x) { return std::erf(x); }
SPECLAB_DEVICE float sqrt(float x) { return std::sqrt(x); }
SPECLAB_DEVICE float sin(float x) { return std::sin(x); }
SPECLAB_DEVICE float cos(float x) { return std::cos(x); }
SPECLAB_DEVICE float abs(float x) { return std::fabs(x); }
SPECLAB_DEVICE float max(float a, float b) { return std::fmax(a, b); }
SPECLAB_DEVICE float min(float a, float b) { return std::fmin(a, b); }
SPECLAB_DEVICE int max(int a, int b) { return a > b ? a : b; }
SPECLAB_DEVICE int min(int a, int b) { return a < b ? a : b; }
SPECLAB_DEVICE u32 bits_of(float x) { return std::bit_cast<u32>(x); }
SPECLAB_DEVICE float float_of(u32 bits) { return std::bit_cast<float>(bits); }
SPECLAB_DEVICE float from_bf16(u16 value) { return bf16_to_float(value); }
SPECLAB_DEVICE u16 to_bf16(float x) { return float_to_bf16(x); }
SPECLAB_DEVICE u32 pack_bf16(float low, float high) {
  return to_bf16(low) | static_cast<u32>(to_bf16(high)) << 16;
}
SPECLAB_DEVICE int popcount(u32 x) { return std::popcount(x); }
SPECLAB_DEVICE int lowest_bit(u32 x) { return x == 0 ? -1 : std::countr_zero(x); }

}  // namespace SPECLAB_SIDE
}  // namespace speclab::simt
