#pragma once

#include <cstdint>

#include "core/backend/cuda/launch/launch_shape.h"

// clang-format off
// The functions that CUDA kernels use instead of CUDA's own: indices, memory, shuffles, barriers and matrix
// products. With them a kernel is written once and runs on a GPU and in a simulator on the CPU. nvcc compiles
// the functions in simt_device.h (PTX). g++ compiles those in core/backend/cuda/simulator/simt_host.h, where
// a simt::Machine runs the threads of a block as fibers. A kernel is written in a header *_kernel.h:
//
//   namespace speclab::cuda {
//   struct Scale {                     // arguments: plain data, the same type for both compilers
//     float* x; float factor; int count;
//   };
//   inline namespace SPECLAB_SIDE {    // for all code that calls functions of simt. Each compiler gives the
//                                      // namespace another name, so that symbols differ.
//   struct ScaleKernel {
//     static constexpr const char* kName = "scale";
//     static constexpr int kThreads = 256;   // largest number of threads per block
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
// launch(arguments, stream) starts a kernel, here launch(Scale{...}, stream). Two lines make the kernel known
// to launch(): the name of its arguments (Scale) in core/backend/cuda/launch/families.h, and an include of
// its header in launch.h.
//
// Rules. "Fails" means that the Machine throws Bug with the kernel, block, thread and (except at the end of a
// thread) file and line.
// - A warp has 32 threads, and a block consists of whole warps. Between barriers the Machine runs warps in
//   random order.
// - All 32 lanes of a warp call a collective (shuffle*, ballot, any, all, warp_sum, warp_max, warp_sync,
//   mma_wait) at the same place. All threads of a block call a barrier (block_sync) at the same place.
//   Anything else fails. A thread that ends while others wait for it fails, too. So a thread may return
//   before the others only if no collective of its warp and no barrier of its block comes after that.
// - Kernels access shared memory through Shared<T> only, where sizeof(T) is at least 2. The contents of
//   shared memory are undefined when a block starts, and reading an element that no thread has written fails.
//   An index out of range fails. A race fails, too: two threads access the same element, at least one of them
//   writes, and no block_sync separates the accesses (within a warp, warp_sync is enough).
// - Kernels access global memory through the functions below only. Addresses must come from Machine::allocate
//   (others fail) and must be aligned to the size of the access (16 bytes for load16). The Machine runs
//   blocks one after the other in random order. So a block must not wait for another block. To find out which
//   block finishes last, each block stores its results, calls fence() and then atomic_add on a counter.
// - The blocks of a cooperative launch (Machine::run_together) run at the same time, with their warps in
//   random order. They may wait for each other with add_release and load_acquire. A loop that waits calls
//   pause(). In such a launch, races in global memory fail, too: two blocks access the same bytes, at least
//   one of them writes, and no release and acquire separate the accesses. An atomic_add after a fence() is a
//   release, and a fence() after an atomic_add of the same block is an acquire. A load16_streamed or an
//   async_copy16_streamed of memory that this launch has written fails.
// - An inner block (enter_block) is a group of warps of a block. They run another kernel as if they were a
//   whole block, and use a part of the block's shared memory.
// - mma() may finish after it returns. Reading an Accumulator before mma_wait() fails.
// - async_copy16() may finish at any time before async_wait<N>() of the same thread returns. Until then no
//   thread may access the 16 bytes that the copy writes, or change the 16 bytes that it reads. After the wait
//   this thread sees the data. Other lanes of the warp see them after a warp_sync, other warps after a
//   block_sync.
// - Launches of a stream may overlap: on sm_90 a launch may start while the one before it ends (programmatic
//   dependent launch). So wait_for_previous() is called exactly once by every thread, and launch_next() only
//   after it. By default both calls are made for the kernel, before its first line (as for Scale above). A
//   kernel that defines kWaits = true makes both calls itself. Before the wait it reads nothing but weights,
//   with load16_streamed or async_copy16_streamed, and writes nothing. A thread that ends without having
//   waited fails, because the next launch could then overtake the previous one. Because launch_next() comes
//   after the wait, at most one earlier launch is unfinished when a kernel begins. That launch does not write
//   weights, because Launcher never lets a launch overlap with a writer of weights (pack_weights, uploads)
//   before it. A read before the wait fails if the previous launch wrote the memory that is read.
//   A cooperative launch never overlaps with the launch before it, so it does not wait. Inner blocks run only
//   in cooperative launches, so they do not wait either.
// - Only benchmarks may add floats atomically, because the order of atomic additions is not fixed. A kernel
//   adds floats in a fixed order and calls fma() wherever it wants a multiply-add. nvcc runs with
//   -fmad=false and g++ with -ffp-contract=off. So arithmetic without functions such as exp gives the same
//   bits on both.
//
// On a GPU the hardware chooses the order and the precision in which mma() adds the 16 products of a step.
// The Machine adds them one by one in ascending k; each product is exact and each sum is rounded to float. So
// "host-simt" is a numerics class of its own, and its results are compared with those of a GPU by error
// bounds, never by bits.
// clang-format on

#if defined(__CUDACC__)
#if defined(SPECLAB_INNER_BLOCKS)  // only one file defines this, because inner blocks make kernels slower
#define SPECLAB_SIDE inner_side
#else
#define SPECLAB_SIDE device_side
#endif
#define SPECLAB_DEVICE __device__ __forceinline__
#define SPECLAB_BOTH __host__ __device__ __forceinline__
#define SPECLAB_UNROLL _Pragma("unroll")    // for a loop of fixed length that indexes registers
#define SPECLAB_ROLLED _Pragma("unroll 1")  // for a loop where unrolling would only cost registers
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
/// A loop that waits for another block gives up after kMostWaitNs. The time between two calls of
/// waited_long() counts as at most kMostGapNs.
inline constexpr u64 kMostWaitNs = 2'000'000'000, kMostGapNs = 1'000'000;
struct Waiting {
  u64 last = 0, waited = 0;  ///< ns of the device's clock
};

/// 16 bytes that a lane moves with one access: eight bf16 or four floats. Word 0 is first in memory.
struct alignas(16) Bytes16 {
  u32 word[4];
};

/// An inner block: the place of the block in its grid, its threads within the outer block (whole warps), and
/// its part of the shared memory.
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
//                                            left their previous inner block. From here on all functions
//                                            above, block_sync() and shared() refer to the inner block.
//   void leave_block()                       Leaves the inner block. Every thread must also call it once
//                                            before its first enter_block().
//
//   T load(const T* p)                       Global memory; T has 2, 4 or 8 bytes.
//   T load_constant(const T* p)              The same for memory that no thread writes between the wait and
//                                            the end of the kernel.
//   void store(T* p, T value)
//   Bytes16 load16(const void* p), void store16(void* p, Bytes16)
//   Bytes16 load16_constant(const void* p)   For read-only memory that is read often, such as activations.
//                                            May keep it in L1.
//   Bytes16 load16_streamed(const void* p)   For read-only memory that is read once, such as weights.
//                                            Bypasses L1.
//   void prefetch(const void* p, u32 bytes)  Starts to load into the L2 cache. p, bytes: multiples of 16.
//   T atomic_add(T* p, T value)              T is u32 or u64. Returns the old value. Orders no other access
//                                            (relaxed).
//   u64 atomic_max(u64* p, u64 value)
//   void add_in_any_order(float* p, float value)   For benchmarks.
//   void add_release(u64* p, u64 value)      A block that reads the sum with load_acquire also sees all that
//                                            this block wrote before.
//   u64 load_acquire(const u64* p)
//   void pause()                             For the body of a loop that waits for another block.
//   Waiting wait_begin(), bool waited_long(Waiting&)   For the same loop: true when it has gone on for
//                                            kMostWaitNs since wait_begin(). Of the time between two calls
//                                            at most kMostGapNs counts, so time in which the kernel was off
//                                            the device hardly counts. The Machine counts pauses instead.
//   void trap()                              Ends the launch with an error. The Machine throws Trap.
//   void fence()                             Another thread of the device that sees a store after the fence
//                                            also sees the stores before it.
//   void fence_system()                      The same for the host, too, which reads memory that it shares
//                                            with the device.
//   void wait_for_previous()                 Returns when all earlier launches of the stream are done and all
//                                            that they wrote is visible.
//   void launch_next()                       Lets the next launch of the stream start when all blocks have
//                                            called it or ended.
//   u64 globaltimer()                        A clock of the device in ns.
//   void set_conditional(u64 handle, u32 value)   Sets the condition of a graph's loop. The loop runs again
//                                                 unless the last value was 0.
//
//   Shared<T> shared<T>(int offset_bytes, int count)   A part of the block's dynamic shared memory.
//     T operator[](int i); void set(int i, T); Bytes16 get16(int i), void set16(int i, Bytes16)
//                                            i: counted in elements of T
//     const Object& view<Object>(int i)      The plain data that begin at element i. No thread may write
//                                            them while the reference is in use.
//   void async_copy16(Shared<T> to, int i, const void* from)   Copies 16 bytes from global to shared memory.
//                                            Bypasses L1.
//   void async_copy16_streamed(Shared<T> to, int i, const void* from)   For read-only memory that is read
//                                            once, such as weights.
//   void async_commit(); void async_wait<N>()    async_commit() makes a group of this thread's copies since
//                                            its last call. async_wait() waits until at most the N youngest
//                                            groups of this thread are in flight.
//
//   T shuffle(T v, int source_lane), shuffle_xor(T v, int mask)   T has 4 or 8 bytes.
//   u32 ballot(bool); bool any(bool), all(bool)
//   float warp_sum(float), warp_max(float)   Combine lane l with lane l^16, then l^8, l^4, l^2 and l^1.
//                                            Every lane gets the result.
//   void warp_sync(), block_sync()
//
//   Accumulator c; c.clear(); float c[i]     A 16 x 8 matrix of floats over a warp. Lane 4 g + t (t < 4)
//                                            has c[0], c[1] in row g, columns 2t, 2t+1, and c[2], c[3] in
//                                            the same columns of row g + 8.
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
