#pragma once

#include <type_traits>

#include "core/backend/cuda/kernels/simt.h"

// Implements the functions of simt.h on a GPU (sm_80 and later). Kernels include simt.h, not this header.

namespace speclab::simt {
inline namespace SPECLAB_SIDE {

#if defined(SPECLAB_INNER_BLOCKS)
// Returns the inner block of this warp. Each warp has its own copy, so no thread has to wait for another
// warp.
SPECLAB_DEVICE InnerBlock& own_block() {
  __shared__ InnerBlock of_warp[1024 / kWarp];
  return of_warp[threadIdx.x / kWarp];
}
// Returns the thread number. The assembly pretends to depend on the inner block. Otherwise, before the loop
// over the tasks, the compiler would compute all values that depend only on the thread number. It would keep
// them in registers that the kernels of other tasks need.
SPECLAB_DEVICE int bound_thread() {
  int thread;
  asm("{ .reg .s32 block; mov.s32 block, %1; mov.u32 %0, %%tid.x; }"
      : "=r"(thread)
      : "r"(own_block().threads));
  return thread;
}
SPECLAB_DEVICE int lane() { return bound_thread() & (kWarp - 1); }
SPECLAB_DEVICE int thread_index() { return bound_thread() - own_block().first_thread; }
SPECLAB_DEVICE int warp_index() { return thread_index() / kWarp; }
SPECLAB_DEVICE int block_threads() { return own_block().threads; }
SPECLAB_DEVICE int block_x() { return own_block().x; }
SPECLAB_DEVICE int block_y() { return own_block().y; }
SPECLAB_DEVICE int block_z() { return own_block().z; }
SPECLAB_DEVICE int grid_x() { return own_block().grid_x; }
SPECLAB_DEVICE int grid_y() { return own_block().grid_y; }
SPECLAB_DEVICE int grid_z() { return own_block().grid_z; }
SPECLAB_DEVICE int shared_begin() { return own_block().shared_begin; }
// Barrier 0 belongs to the whole block. Barrier 1 + w belongs to the inner block whose first
// warp is w.
SPECLAB_DEVICE void block_sync() {
  const InnerBlock& block = own_block();
  const bool whole = block.threads == static_cast<int>(blockDim.x);
  asm volatile("barrier.sync %0, %1;" ::"r"(whole ? 0 : 1 + block.first_thread / kWarp), "r"(block.threads)
               : "memory");
}
SPECLAB_DEVICE void take_block(const InnerBlock& block) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) own_block() = block;
  __syncwarp();
}
SPECLAB_DEVICE void enter_block(const InnerBlock& inner) {
  const bool whole = inner.threads == static_cast<int>(blockDim.x);
  asm volatile("barrier.sync %0, %1;" ::"r"(whole ? 0 : 1 + inner.first_thread / kWarp), "r"(inner.threads)
               : "memory");
  take_block(inner);
}
SPECLAB_DEVICE void leave_block() {
  take_block({static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z),
              static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z), 0,
              static_cast<int>(blockDim.x), 0, 0});
}
#else
SPECLAB_DEVICE int lane() { return static_cast<int>(threadIdx.x) & (kWarp - 1); }
SPECLAB_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
SPECLAB_DEVICE int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }
SPECLAB_DEVICE int block_threads() { return static_cast<int>(blockDim.x); }
SPECLAB_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
SPECLAB_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
SPECLAB_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
SPECLAB_DEVICE int grid_x() { return static_cast<int>(gridDim.x); }
SPECLAB_DEVICE int grid_y() { return static_cast<int>(gridDim.y); }
SPECLAB_DEVICE int grid_z() { return static_cast<int>(gridDim.z); }
SPECLAB_DEVICE int shared_begin() { return 0; }
SPECLAB_DEVICE void block_sync() { __syncthreads(); }
#endif

// Global memory. No load here is marked read-only (.nc, __ldg), because ptxas moves read-only loads across
// griddepcontrol.wait as it likes. ptxas keeps the order of all other loads, and `volatile` makes the
// compiler keep it, too.

template <typename T>
SPECLAB_DEVICE std::remove_const_t<T> load(T* p) {
  return *p;
}
template <typename T>
SPECLAB_DEVICE std::remove_const_t<T> load_constant(T* p) {
  return *p;
}
template <typename T>
SPECLAB_DEVICE void store(T* p, T value) {
  *p = value;
}
SPECLAB_DEVICE Bytes16 load16(const void* p) {
  Bytes16 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p)
               : "memory");
  return v;
}
// This load stays after wait_for_previous() and, in a persistent kernel, after the barrier: another launch or
// block may have written this memory before.
SPECLAB_DEVICE Bytes16 load16_constant(const void* p) {
  Bytes16 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p));
  return v;
}
// The loads of the first weights stay before wait_for_previous().
SPECLAB_DEVICE Bytes16 load16_streamed(const void* p) {
  Bytes16 v;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(p));
  return v;
}
SPECLAB_DEVICE void store16(void* p, Bytes16 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.word[0]), "r"(v.word[1]),
               "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}
SPECLAB_DEVICE u32 atomic_add(u32* p, u32 value) { return atomicAdd(p, value); }
SPECLAB_DEVICE u64 atomic_add(u64* p, u64 value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(value));
}
SPECLAB_DEVICE u64 atomic_max(u64* p, u64 value) {
  return atomicMax(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(value));
}
SPECLAB_DEVICE void add_in_any_order(float* p, float value) { atomicAdd(p, value); }
SPECLAB_DEVICE void prefetch(const void* p, u32 bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
#else
  for (u32 at = 0; at < bytes; at += 64)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(p) + at));
#endif
}
SPECLAB_DEVICE void add_release(u64* p, u64 value) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}
SPECLAB_DEVICE u64 load_acquire(const u64* p) {
  u64 value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
}
SPECLAB_DEVICE void pause() {}
SPECLAB_DEVICE void fence() { __threadfence(); }
SPECLAB_DEVICE void fence_system() { __threadfence_system(); }
#if __CUDA_ARCH__ >= 900 && !defined(SPECLAB_INNER_BLOCKS)
SPECLAB_DEVICE void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
SPECLAB_DEVICE void launch_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
SPECLAB_DEVICE void wait_for_previous() {}
SPECLAB_DEVICE void launch_next() {}
#endif
SPECLAB_DEVICE void set_conditional(u64 handle, u32 value) { cudaGraphSetConditional(handle, value); }
SPECLAB_DEVICE u64 globaltimer() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
SPECLAB_DEVICE Waiting wait_begin() { return {globaltimer(), 0}; }
SPECLAB_DEVICE bool waited_long(Waiting& waiting) {
  const u64 now = globaltimer(), gap = now - waiting.last;
  waiting.last = now;
  waiting.waited += gap < kMostGapNs ? gap : kMostGapNs;
  return waiting.waited > kMostWaitNs;
}
SPECLAB_DEVICE void trap() { asm volatile("trap;" ::: "memory"); }

// Shared memory.

extern __shared__ unsigned char shared_memory[];

template <typename T>
class Shared {
 public:
  __device__ __forceinline__ explicit Shared(T* data) : data_(data) {}
  __device__ __forceinline__ T operator[](int i) const { return data_[i]; }
  __device__ __forceinline__ void set(int i, T value) const { data_[i] = value; }
  __device__ __forceinline__ Bytes16 get16(int i) const {
    return *reinterpret_cast<const Bytes16*>(data_ + i);
  }
  __device__ __forceinline__ void set16(int i, Bytes16 value) const {
    *reinterpret_cast<Bytes16*>(data_ + i) = value;
  }
  template <typename Object>
  __device__ __forceinline__ const Object& view(int i) const {
    return *reinterpret_cast<const Object*>(data_ + i);
  }
  __device__ __forceinline__ u32 address(int i) const {
    return static_cast<u32>(__cvta_generic_to_shared(data_ + i));
  }

 private:
  T* data_;
};

template <typename T>
SPECLAB_DEVICE Shared<T> shared(int offset_bytes, int /*count*/) {
  return Shared<T>(reinterpret_cast<T*>(shared_memory + shared_begin() + offset_bytes));
}

template <typename T>
SPECLAB_DEVICE void async_copy16(Shared<T> to, int i, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to.address(i)), "l"(from)
               : "memory");
}
template <typename T>
SPECLAB_DEVICE void async_copy16_streamed(Shared<T> to, int i, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to.address(i)), "l"(from)
               : "memory");
}
SPECLAB_DEVICE void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
SPECLAB_DEVICE void async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Warps and blocks.

template <typename T>
SPECLAB_DEVICE T shuffle(T v, int source_lane) {
  return __shfl_sync(0xffffffffu, v, source_lane);
}
template <typename T>
SPECLAB_DEVICE T shuffle_xor(T v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}
SPECLAB_DEVICE u32 ballot(bool predicate) { return __ballot_sync(0xffffffffu, predicate); }
SPECLAB_DEVICE bool any(bool predicate) { return __any_sync(0xffffffffu, predicate) != 0; }
SPECLAB_DEVICE bool all(bool predicate) { return __all_sync(0xffffffffu, predicate) != 0; }
SPECLAB_DEVICE float warp_sum(float v) {
  SPECLAB_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) v += shuffle_xor(v, mask);
  return v;
}
SPECLAB_DEVICE float warp_max(float v) {
  SPECLAB_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) v = fmaxf(v, shuffle_xor(v, mask));
  return v;
}
SPECLAB_DEVICE void warp_sync() { __syncwarp(); }

// Matrix fragments.

class Accumulator {
 public:
  __device__ __forceinline__ Accumulator() {}
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;
  __device__ __forceinline__ void clear() { c_[0] = c_[1] = c_[2] = c_[3] = 0; }
  __device__ __forceinline__ float operator[](int i) const { return c_[i]; }
  __device__ __forceinline__ void multiply_add(const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c_[0]), "+f"(c_[1]), "+f"(c_[2]), "+f"(c_[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

 private:
  float c_[4];
};
SPECLAB_DEVICE void mma(Accumulator& c, const u32 (&a)[4], const u32 (&b)[2]) { c.multiply_add(a, b); }
SPECLAB_DEVICE void mma_wait() {}

// Numbers.

SPECLAB_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
SPECLAB_DEVICE float exp(float x) { return expf(x); }
SPECLAB_DEVICE float log(float x) { return logf(x); }
SPECLAB_DEVICE float tanh(float x) { return tanhf(x); }
SPECLAB_DEVICE float erf(float x) { return erff(x); }
SPECLAB_DEVICE float sqrt(float x) { return __fsqrt_rn(x); }
SPECLAB_DEVICE float sin(float x) { return sinf(x); }
SPECLAB_DEVICE float cos(float x) { return cosf(x); }
SPECLAB_DEVICE float abs(float x) { return fabsf(x); }
SPECLAB_DEVICE float max(float a, float b) { return fmaxf(a, b); }
SPECLAB_DEVICE float min(float a, float b) { return fminf(a, b); }
SPECLAB_DEVICE int max(int a, int b) { return a > b ? a : b; }
SPECLAB_DEVICE int min(int a, int b) { return a < b ? a : b; }
SPECLAB_DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
SPECLAB_DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
SPECLAB_DEVICE float from_bf16(u16 value) { return __uint_as_float(static_cast<u32>(value) << 16); }
SPECLAB_DEVICE u16 to_bf16(float x) {
  u16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
  return out;
}
SPECLAB_DEVICE u32 pack_bf16(float low, float high) {
  u32 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
SPECLAB_DEVICE int popcount(u32 x) { return __popc(x); }
SPECLAB_DEVICE int lowest_bit(u32 x) { return __ffs(static_cast<int>(x)) - 1; }

}  // namespace SPECLAB_SIDE
}  // namespace speclab::simt
