#pragma once

#include <cstdint>

#include "core/backend/cuda/launch/launch_shape.h"

// The thin layer that kernels are written over: what a warp, a block and its memory can do, and nothing else.
// It has two implementations with the same names. nvcc gets simt_device.h (PTX); g++ gets simt_host.h, which
// runs the threads of a block as fibers of a simt::Machine (machine.h). A kernel is written once, in a header
// *_kernel.h:
//
//   namespace speclab::cuda {
//   struct Scale {                     // arguments: plain data, the same type for both compilers
//     float* x; float factor; int count;
//   };
//   inline namespace SPECLAB_SIDE {    // everything that calls the layer: the compilers must not share such
//   symbols struct ScaleKernel {
//     static constexpr const char* kName = "scale";
//     static constexpr int kThreads = 256;   // of a block, at most
//     Scale a;
//     SPECLAB_DEVICE void operator()() const {
//       const int i = simt::block_x() * kThreads + simt::thread_index();
//       if (i < a.count) simt::store(a.x + i, simt::load(a.x + i) * a.factor);
//     }
//   };
//   }
//   // Picks the instance and the geometry; `visit(kernel, shape)` starts it. Host code on both sides.
//   template <typename Visit> void with_kernel(const Scale& a, const Visit& visit) {
//     visit(ScaleKernel{a}, LaunchShape{.grid_x = (a.count + 255) / 256, .threads = 256});
//   }
//   }
//
// It is started by launch(arguments, stream) after one line in device_kernels.cu and one in host_kernels.cpp
// (launch.h).
//
// Rules, and what the Machine does about them ("fails": throws Bug with kernel, block, thread, file and
// line):
// - Warps have 32 threads; blocks are whole warps. Between barriers the Machine runs the warps in a random
// order.
// - Collectives (shuffle*, ballot, any, all, warp_sum, warp_max, warp_sync, mma_wait) are called by all 32
// lanes of a
//   warp at the same place; barriers (block_sync) by all threads of a block. Anything else fails, and so does
//   a thread that ends while others wait. Leave early by whole blocks only.
// - Shared memory is reached through Shared<T> only. It is poisoned when a block begins; reading what no
// thread has
//   written fails, and so does an index outside, and so does a race: two threads touch the same element, one
//   of them writes, and neither block_sync nor (within a warp) warp_sync lies between. sizeof(T) is 2 or
//   more.
// - Global memory is reached through load/store only, at addresses from Machine::allocate (fails elsewhere)
// and with
//   natural alignment (16 bytes for load16). Blocks run in a random order, one after the other: a block must
//   not wait for another one, but the last to finish may be found with atomic_add (publish with fence()
//   before it).
// - Blocks of a cooperative launch (Machine::run_together) run at once, their warps in a random order, and
// may wait for each other
//   with add_release and load_acquire, with pause() in the loop. Then global memory is watched too: two
//   blocks that touch the same bytes, one of them writing, with no release and acquire in between; a
//   load16_streamed of what this launch has written.
// - Blocks inside (enter_block): some warps of a block run as the block of another kernel, with a part of the
// shared memory.
// - mma() may be carried out late: an Accumulator is read only after mma_wait() (fails before).
// - async_copy16() may be carried out late: the data are there after async_wait<N>() and a barrier.
// - No float atomics, but for benchmarks: their order is not fixed. Sums are written as fixed trees,
// multiply-adds as fma(): nvcc runs with
//   -fmad=false and g++ with -ffp-contract=off, so arithmetic without exp and the like has the same bits on
//   both.
//
// mma() on a GPU adds the 16 products of a step in an order and precision of the hardware's own; the Machine
// adds them one by one in ascending k, each product exact and each sum rounded to float. Hence the numerics
// classes: "host-simt" is one of its own, and results of the two are compared by error bounds, never by bits.

#if defined(__CUDACC__)
#if defined(SPECLAB_INNER_BLOCKS)  // of the one source that has blocks inside of blocks, which cost a little
#define SPECLAB_SIDE inner_side
#else
#define SPECLAB_SIDE device_side
#endif
#define SPECLAB_DEVICE __device__ __forceinline__
#define SPECLAB_BOTH __host__ __device__ __forceinline__
#define SPECLAB_UNROLL _Pragma("unroll")  // before a loop of fixed length that indexes registers
#define SPECLAB_ROLLED \
  _Pragma("unroll 1")  // before a loop whose copies would only take registers from others
#else
#define SPECLAB_SIDE host_side
#define SPECLAB_DEVICE inline
#define SPECLAB_BOTH inline
#define SPECLAB_UNROLL
#define SPECLAB_ROLLED
#endif

namespace speclab::simt {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

inline constexpr int kWarp = 32;

/// What one lane moves with one 16-byte access: eight bf16 or four floats. Word 0 is first in memory.
struct alignas(16) Bytes16 {
  u32 word[4];
};

/// A block inside of a block: threads first_thread .. first_thread + threads - 1 of it, whole warps, and a
/// part of its shared memory.
struct InnerBlock {
  int x, y, z, grid_x, grid_y, grid_z;
  int first_thread, threads;
  int shared_begin, shared_bytes;  ///< shared_begin: a multiple of 16
};

}  // namespace speclab::simt

// Declared by both implementations:
//
//   int lane(), warp_index(), thread_index(), block_threads()    // thread_index() = 32 * warp_index() +
//   lane() int block_x(), block_y(), block_z(), grid_x(), grid_y(), grid_z() void enter_block(const
//   InnerBlock&)      by all threads of the block inside: waits until they have left the one before; from
//                                            here on everything above, block_sync() and shared() are of that
//                                            block
//   void leave_block()                       back; before the first enter_block it is called once
//
//   T load(const T* p)                       global memory; T of 2, 4 or 8 bytes
//   T load_constant(const T* p)              the same for memory that nobody writes during the kernel
//   void store(T* p, T value)
//   Bytes16 load16(const void* p), void store16(void* p, Bytes16)
//   Bytes16 load16_constant(const void* p)   read-only, kept in L1: activations
//   Bytes16 load16_streamed(const void* p)   read-only, read once: weights; does not push others out of L1
//   void prefetch(const void* p, u32 bytes)  into L2, some time; multiples of 16 bytes
//   u32 atomic_add(u32* p, u32 value)        returns the old value; relaxed
//   u64 atomic_max(u64* p, u64 value)
//   void add_in_any_order(float* p, float value)   for benchmarks
//   void add_release(u64* p, u64 value)      what the block did before is seen by one that has seen it with
//   load_acquire u64 load_acquire(const u64* p) void pause()                             in a loop that waits
//   for another block void fence()                             stores before it are seen by any block that
//   sees a store after it void fence_system()                      the same, and by the host in memory that
//   it shares u64 globaltimer()                        ns; a clock of the device void set_conditional(u64
//   handle, u32 value)   of a graph's loop: its body runs again unless the last value is 0
//
//   Shared<T> shared<T>(int offset_bytes, int count)   part of the block's dynamic shared memory
//     T operator[](int i); void set(int i, T); Bytes16 get16(int i), void set16(int i, Bytes16)  // i:
//     element of T const Object& view<Object>(int i)      plain data from element i on, which nobody writes
//     while it is looked at
//   void async_copy16(Shared<T> to, int i, const void* from)   16 bytes, global to shared
//   void async_commit(); void async_wait<N>()    N: groups that may still be under way
//
//   T shuffle(T v, int source_lane), shuffle_xor(T v, int mask)   T of 4 or 8 bytes
//   u32 ballot(bool); bool any(bool), all(bool)
//   float warp_sum(float), warp_max(float)   trees over lanes l and l^16, l^8, ... l^1; every lane gets the
//   result void warp_sync(), block_sync()
//
//   Accumulator c; c.clear(); float c[i]     16 x 8 floats over a warp: lane = 4 g + t has
//                                            c[0], c[1] = row g, columns 2t, 2t+1; c[2], c[3] = row g + 8
//   mma(Accumulator& c, a, b)                c += A B, m16n8k16, bf16 in, float out. u32 a[4], b[2]: pairs of
//   bf16, lower
//                                            k in the lower half: a[0] = A(g, 2t), a[1] = A(g+8, 2t), a[2] =
//                                            A(g, 2t+8), a[3] = A(g+8, 2t+8); b[0] = B(2t, g), b[1] = B(2t+8,
//                                            g)
//   void mma_wait()
//
//   float fma(a, b, c), exp(x), log(x), tanh(x), erf(x), sqrt(x), sin(x), cos(x), abs(x), max(a, b), min(a,
//   b) u32 bits_of(float), float float_of(u32); float from_bf16(u16), u16 to_bf16(float)  // to nearest, ties
//   to even u32 pack_bf16(float low, float high) int popcount(u32), lowest_bit(u32)       lowest_bit(0) is -1

#if defined(__CUDACC__)
#include "core/backend/cuda/kernels/simt_device.h"
#else
#include "core/backend/cuda/simulator/simt_host.h"
#endif
