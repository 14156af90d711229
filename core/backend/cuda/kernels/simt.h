#pragma once

#include <cstdint>

#include "core/backend/cuda/launch/launch_shape.h"

// clang-format off
// The layer that kernels are written against: what a thread, a warp and a block can do. It has two
// implementations with the same names. nvcc compiles simt_device.h (PTX). g++ compiles
// core/backend/cuda/simulator/simt_host.h, which runs the threads of a block as fibers of a simt::Machine. A
// kernel is written once, in a header *_kernel.h:
//
//   namespace speclab::cuda {
//   struct Scale {                     // arguments: plain data, the same type for both compilers
//     float* x; float factor; int count;
//   };
//   inline namespace SPECLAB_SIDE {    // all code that calls the layer, because its symbols differ between
//                                      compilers
//   struct ScaleKernel {
//     static constexpr const char* kName = "scale";
//     static constexpr int kThreads = 256;   // most threads per block
//     Scale a;
//     SPECLAB_DEVICE void operator()() const {
//       const int i = simt::block_x() * kThreads + simt::thread_index();
//       if (i < a.count) simt::store(a.x + i, simt::load(a.x + i) * a.factor);
//     }
//   };
//   }
//   // Chooses the kernel and its geometry; `visit(kernel, shape)` starts it. Host code for both compilers.
//   template <typename Visit> void with_kernel(const Scale& a, const Visit& visit) {
//     visit(ScaleKernel{a}, LaunchShape{.grid_x = (a.count + 255) / 256, .threads = 256});
//   }
//   }
//
// launch(arguments, stream) starts it. For that its arguments are one word in
// core/backend/cuda/launch/families.h and its header is included in launch.h.
//
// Rules. "Fails" means that the Machine throws Bug with the kernel, block, thread, file and line.
// - A warp has 32 threads, and a block consists of whole warps. Between barriers the Machine runs warps in
//   random order.
// - All 32 lanes of a warp call a collective (shuffle*, ballot, any, all, warp_sum, warp_max, warp_sync,
//   mma_wait) at the same place. All threads of a block call a barrier (block_sync) at the same place.
//   Anything else fails, and so does a thread that ends while others wait. Only whole blocks may return
//   early.
// - Shared memory is accessed through Shared<T> only. It is poisoned when a block starts. Reading memory that
//   no thread has written fails, and so does an index out of range. A race fails: two threads touch the same
//   element, one of them writes, and neither block_sync nor (within a warp) warp_sync is between them.
//   sizeof(T) is at least 2.
// - Global memory is accessed through load and store only, at addresses from Machine::allocate (others fail)
//   and with natural alignment (16 bytes for load16). Blocks run one after the other in random order. A block
//   must not wait for another block, but atomic_add can find out which block finishes last (publish results
//   with fence() before it).
// - The blocks of a cooperative launch (Machine::run_together) run at once, with their warps in random order.
//   They may wait for each other with add_release and load_acquire; the loop that waits calls pause(). Here
//   races in global memory fail, too: two blocks touch the same bytes, one of them writes, and no release and
//   acquire is between them. A load16_streamed of memory that this launch has written fails.
// - Inner blocks (enter_block): some warps of a block run as the block of another kernel, with a part of the
//   shared memory.
// - mma() may execute late. Reading an Accumulator before mma_wait() fails.
// - async_copy16() may execute late. The data have arrived after async_wait<N>() and a barrier.
// - No float atomics, except in benchmarks, because their order is not fixed. Sums are fixed trees and
//   multiply-adds are fma(). nvcc runs with -fmad=false and g++ with -ffp-contract=off, so arithmetic without
//   exp and the like has the same bits on both.
//
// On a GPU the hardware chooses the order and the precision in which mma() adds the 16 products of a step.
// The Machine adds them one by one in ascending k; each product is exact and each sum is rounded to float. So
// "host-simt" is a numerics class of its own, and its results are compared with those of a GPU by error
// bounds, never by bits.
// clang-format on

#if defined(__CUDACC__)
#if defined(SPECLAB_INNER_BLOCKS)  // set by the one source that uses inner blocks, which cost a little time
#define SPECLAB_SIDE inner_side
#else
#define SPECLAB_SIDE device_side
#endif
#define SPECLAB_DEVICE __device__ __forceinline__
#define SPECLAB_BOTH __host__ __device__ __forceinline__
#define SPECLAB_UNROLL _Pragma("unroll")    // for a loop of fixed length that indexes registers
#define SPECLAB_ROLLED _Pragma("unroll 1")  // for a loop whose unrolled copies would only take registers
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

/// 16 bytes that a lane moves with one access: eight bf16 or four floats. Word 0 is first in memory.
struct alignas(16) Bytes16 {
  u32 word[4];
};

/// An inner block: `threads` threads of a block from first_thread on (whole warps), with a part of its shared
/// memory.
struct InnerBlock {
  int x, y, z, grid_x, grid_y, grid_z;
  int first_thread, threads;
  int shared_begin, shared_bytes;  ///< shared_begin: a multiple of 16
};

}  // namespace speclab::simt

// clang-format off
// Both implementations declare:
//
//   int lane(), warp_index(), thread_index(), block_threads()   thread_index() is 32 * warp_index() + lane().
//   int block_x(), block_y(), block_z(), grid_x(), grid_y(), grid_z()
//   void enter_block(const InnerBlock&)      Called by all threads of the inner block. Waits until they have
//                                            left the previous one. From here on all functions above,
//                                            block_sync() and shared() refer to the inner block.
//   void leave_block()                       Ends it. Must also be called once before the first
//                                            enter_block().
//
//   T load(const T* p)                       Global memory; T has 2, 4 or 8 bytes.
//   T load_constant(const T* p)              The same for memory that nobody writes during the kernel.
//   void store(T* p, T value)
//   Bytes16 load16(const void* p), void store16(void* p, Bytes16)
//   Bytes16 load16_constant(const void* p)   Read-only memory that is worth a place in L1: activations.
//   Bytes16 load16_streamed(const void* p)   Read-only memory that is read once: weights. Bypasses L1.
//   void prefetch(const void* p, u32 bytes)  Into L2 at some later time; multiples of 16 bytes.
//   u32 atomic_add(u32* p, u32 value)        Returns the old value; relaxed.
//   u64 atomic_max(u64* p, u64 value)
//   void add_in_any_order(float* p, float value)   For benchmarks.
//   void add_release(u64* p, u64 value)      A block that sees this with load_acquire also sees what this
//                                            block did before.
//   u64 load_acquire(const u64* p)
//   void pause()                             In a loop that waits for another block.
//   void fence()                             Whoever sees a store after it also sees the stores before it.
//   void fence_system()                      The same, for the host in shared memory, too.
//   u64 globaltimer()                        A clock of the device in ns.
//   void set_conditional(u64 handle, u32 value)   Condition of a graph's loop: it runs again unless the last
//                                                 value is 0.
//
//   Shared<T> shared<T>(int offset_bytes, int count)   A part of the block's dynamic shared memory.
//     T operator[](int i); void set(int i, T); Bytes16 get16(int i), void set16(int i, Bytes16)
//                                            i: an element of T
//     const Object& view<Object>(int i)      Plain data from element i on. It must not be written meanwhile.
//   void async_copy16(Shared<T> to, int i, const void* from)   Copies 16 bytes from global to shared memory.
//   void async_commit(); void async_wait<N>()    N: number of groups that may still be in flight.
//
//   T shuffle(T v, int source_lane), shuffle_xor(T v, int mask)   T has 4 or 8 bytes.
//   u32 ballot(bool); bool any(bool), all(bool)
//   float warp_sum(float), warp_max(float)   Trees over lanes l and l^16, l^8, ... l^1. Every lane gets the
//                                            result.
//   void warp_sync(), block_sync()
//
//   Accumulator c; c.clear(); float c[i]     A 16 x 8 matrix of floats over a warp. Lane 4 g + t has c[0],
//                                            c[1] in row g, columns 2t, 2t+1, and c[2], c[3] in row g + 8.
//   mma(Accumulator& c, a, b)                c += A B, m16n8k16, bf16 in, float out. u32 a[4], b[2] hold
//                                            pairs of bf16, the lower k in the lower half: a[0] = A(g, 2t),
//                                            a[1] = A(g+8, 2t), a[2] = A(g, 2t+8), a[3] = A(g+8, 2t+8); b[0]
//                                            = B(2t, g), b[1] = B(2t+8, g).
//   void mma_wait()
//
//   float fma(a, b, c), exp(x), log(x), tanh(x), erf(x), sqrt(x), sin(x), cos(x), abs(x)
//   float max(a, b), min(a, b)
//   u32 bits_of(float), float float_of(u32); float from_bf16(u16), u16 to_bf16(float)
//                                            to_bf16 rounds to nearest, ties to even.
//   u32 pack_bf16(float low, float high)
//   int popcount(u32), lowest_bit(u32)       lowest_bit(0) is -1.
// clang-format on

#if defined(__CUDACC__)
#include "core/backend/cuda/kernels/simt_device.h"
#else
#include "core/backend/cuda/simulator/simt_host.h"
#endif
