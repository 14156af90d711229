#pragma once

#include <cstddef>

#include "core/backend/cuda/kernels/simt.h"

// The kernels that write, move and copy slots of the KV cache of a sequence on a GPU. The cache has the
// layout bf16 [layer][kv_head][keys, values][slot][stride]. A slot holds one vector of head_dim numbers. It
// is padded with zeros to a multiple of 16 bytes, so that kernels can copy it in pieces of 16 bytes. The keys
// of neighbouring slots are adjacent in memory, and so are the values.

namespace speclab::cuda {

inline constexpr int kKvPiece = 8;         ///< bf16 numbers in 16 bytes
inline constexpr int kKvThreads = 64;      ///< threads per block of the kernels in this file
inline constexpr int kMovedAtOnce = 2048;  ///< pieces per block of CopyKv

/// bf16 numbers per slot of keys or of values.
SPECLAB_BOTH constexpr int kv_stride(int head_dim) { return (head_dim + kKvPiece - 1) / kKvPiece * kKvPiece; }

/// One layer of a cache.
struct KvLayer {
  simt::u16* data = nullptr;
  int slots = 0, stride = 0;

  SPECLAB_BOTH simt::u16* keys(int kv_head) const {
    return data + 2 * static_cast<std::size_t>(kv_head) * plane();
  }
  SPECLAB_BOTH simt::u16* values(int kv_head) const { return keys(kv_head) + plane(); }
  SPECLAB_BOTH std::size_t plane() const {
    return static_cast<std::size_t>(slots) * static_cast<std::size_t>(stride);
  }
};

/// Arguments of the kernel for Backend::rope_and_store().
struct RopeStore {
  float* qkv = nullptr;  ///< [n, (heads + 2 kv_heads) * head_dim]
  int n = 0, heads = 0, kv_heads = 0, head_dim = 0;
  const float* cos = nullptr;  ///< [positions, half]; null when half is 0
  const float* sin = nullptr;
  int half = 0;                             ///< dimensions j and j + half rotate together, j < half
  const std::int32_t* positions = nullptr;  ///< [n]
  const std::int32_t* slots = nullptr;      ///< [n]
  KvLayer kv;
};

/// Arguments of the kernel for Backend::move_slots(). It moves slots in all planes of a cache. A plane holds
/// the keys, or the values, of one head of one layer.
struct MoveSlots {
  simt::u16* data = nullptr;
  int planes = 0, slots = 0, stride = 0;
  const std::int32_t* from = nullptr;  ///< [count], from[j] >= to[j]
  const std::int32_t* to = nullptr;
  int count = 0;
};

/// Arguments of the kernel that copies the first `used` slots of every plane of one cache into another.
struct CopyKv {
  const simt::u16* from = nullptr;
  simt::u16* to = nullptr;
  int planes = 0, from_slots = 0, to_slots = 0, stride = 0, used = 0;
};

inline namespace SPECLAB_SIDE {

// The grid has one block per row and head. A head is a query head, a key head or a value head.
struct RopeStoreKernel {
  static constexpr const char* kName = "rope_and_store";
  static constexpr int kThreads = kKvThreads;
  RopeStore a;

  SPECLAB_DEVICE void operator()() const {
    const int row = simt::block_x(), vector = simt::block_y(), d = a.head_dim;
    const int width = (a.heads + 2 * a.kv_heads) * d;
    float* v = a.qkv + static_cast<std::size_t>(row) * static_cast<std::size_t>(width) +
               static_cast<std::size_t>(vector) * static_cast<std::size_t>(d);
    const bool is_value = vector >= a.heads + a.kv_heads;
    simt::u16* kept = nullptr;
    if (vector >= a.heads) {
      const int kv_head = (vector - a.heads) % a.kv_heads;
      kept = (is_value ? a.kv.values(kv_head) : a.kv.keys(kv_head)) +
             static_cast<std::size_t>(simt::load(a.slots + row)) * static_cast<std::size_t>(a.kv.stride);
    }
    const int half = is_value ? 0 : a.half;
    const std::size_t turn =
        half > 0 ? static_cast<std::size_t>(simt::load(a.positions + row)) * static_cast<std::size_t>(half)
                 : 0;
    for (int j = simt::thread_index(); j < a.kv.stride; j += kKvThreads) {
      if (j < half) {
        const float c = simt::load_constant(a.cos + turn + j), s = simt::load_constant(a.sin + turn + j);
        const float x = simt::load(v + j), y = simt::load(v + j + half);
        const float turned = x * c - y * s, beside = y * c + x * s;
        simt::store(v + j, turned);
        simt::store(v + j + half, beside);
        if (kept != nullptr) {
          simt::store(kept + j, simt::to_bf16(turned));
          simt::store(kept + j + half, simt::to_bf16(beside));
        }
      } else if (j >= 2 * half && kept != nullptr) {
        simt::store(kept + j, j < d ? simt::to_bf16(simt::load(v + j)) : simt::u16{0});
      }
    }
  }
};

// The grid has one block per plane. A thread moves the piece at the same offset of every slot. So no thread
// reads what another thread has written, and the moves run in order without a barrier.
struct MoveSlotsKernel {
  static constexpr const char* kName = "move_slots";
  static constexpr int kThreads = kKvThreads;
  MoveSlots a;

  SPECLAB_DEVICE void operator()() const {
    const auto stride = static_cast<std::size_t>(a.stride);
    simt::u16* plane =
        a.data + static_cast<std::size_t>(simt::block_x()) * static_cast<std::size_t>(a.slots) * stride;
    for (int begin = kKvPiece * simt::thread_index(); begin < a.stride; begin += kKvPiece * kKvThreads) {
      for (int j = 0; j < a.count; ++j) {
        const int from = simt::load(a.from + j), to = simt::load(a.to + j);
        if (from == to) continue;
        simt::store16(plane + static_cast<std::size_t>(to) * stride + begin,
                      simt::load16(plane + static_cast<std::size_t>(from) * stride + begin));
      }
    }
  }
};

struct CopyKvKernel {
  static constexpr const char* kName = "copy_kv";
  static constexpr int kThreads = kKvThreads;
  CopyKv a;

  SPECLAB_DEVICE void operator()() const {
    const auto plane = static_cast<std::size_t>(simt::block_x()), stride = static_cast<std::size_t>(a.stride);
    const simt::u16* from = a.from + plane * static_cast<std::size_t>(a.from_slots) * stride;
    simt::u16* to = a.to + plane * static_cast<std::size_t>(a.to_slots) * stride;
    const int pieces = a.used * (a.stride / kKvPiece), begin = simt::block_y() * kMovedAtOnce;
    const int end = simt::min(pieces, begin + kMovedAtOnce);
    for (int piece = begin + simt::thread_index(); piece < end; piece += kKvThreads) {
      const std::size_t at = static_cast<std::size_t>(piece) * kKvPiece;
      simt::store16(to + at, simt::load16(from + at));
    }
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const RopeStore& a, const Visit& visit) {
  visit(RopeStoreKernel{a},
        LaunchShape{.grid_x = a.n, .grid_y = a.heads + 2 * a.kv_heads, .threads = kKvThreads});
}

template <typename Visit>
void with_kernel(const MoveSlots& a, const Visit& visit) {
  visit(MoveSlotsKernel{a}, LaunchShape{.grid_x = a.planes, .threads = kKvThreads});
}

template <typename Visit>
void with_kernel(const CopyKv& a, const Visit& visit) {
  const int pieces = a.used * (a.stride / kKvPiece);
  visit(CopyKvKernel{a},
        LaunchShape{
            .grid_x = a.planes, .grid_y = (pieces + kMovedAtOnce - 1) / kMovedAtOnce, .threads = kKvThreads});
}

}  // namespace speclab::cuda
