#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cuda/kv_kernel.h"
#include "core/backend/cuda/simt.h"

// Attention of rows in flight over a cache (Vaswani et al. 2017, eq. 1), split over the keys (Dao et al. 2023, "Flash-Decoding
// for long-context inference"). Splits are kSplit positions at multiples of kSplit, whatever the length of the sequence, and a
// key takes its place in every sum by its position: that of a committed key is its slot, those of keys in flight are looked
// up in the path of the row. So the bits of a row depend on its query and on the keys that it sees, and not on the other
// rows, on what is committed already, on the slots, or on how the rows are cut into blocks: a tree has the bits of its
// chains, and these the bits of tokens that come one by one.
//
// All sums are floats by fused multiply-adds. Two kernels: splits, each with its own maximum; then their sum.

namespace speclab::cuda {

inline constexpr int kSplit = 128;         ///< positions of a split, and threads of its block
inline constexpr int kMostQueries = 8;     ///< of a block
inline constexpr int kCombineThreads = 64;

/// What both kernels know. Query h of row i is head h of the row; the `heads / kv_heads` queries of a row that share a
/// key/value head read it together.
struct Attention {
  const float* qkv = nullptr;  ///< [n, (heads + 2 kv_heads) * head_dim], queries first
  int n = 0, heads = 0, kv_heads = 0, head_dim = 0;
  KvLayer kv;
  int committed = 0;           ///< keys with slots 0 .. committed - 1, or ...
  const std::int32_t* committed_at = nullptr;  ///< ... when not null the most that may be, and here is how many there are
  const std::int32_t* positions = nullptr;   ///< [n]
  const std::int32_t* path_begin = nullptr;  ///< [n + 1]
  const std::int32_t* paths = nullptr;       ///< slots of the positions from `committed` on
  float scale = 1;
  float soft_cap = 0;          ///< 0: none
  int window = 0;              ///< 0: none
  float* sums = nullptr;       ///< [splits, n, heads, 2]: maximum of the scores, sum of their exponentials
  float* mixed = nullptr;      ///< [splits, n, heads, head_dim]: values by exponentials
  float* out = nullptr;        ///< [n, heads, head_dim]

  SPECLAB_BOTH int first_seen(int position) const { return window > 0 && position >= window ? position - window + 1 : 0; }
  /// Of those that any row may see when so many keys are committed.
  SPECLAB_BOTH int first_split(int keys) const { return first_seen(keys) / kSplit; }
  /// Room for the splits that rows may see, whatever is committed.
  int splits() const {
    const int end = (committed + n - 1) / kSplit + 1;
    if (committed_at == nullptr) return end - first_split(committed);
    const int most = (n + window - 2) / kSplit + 2;  // from the window of the first row to the last row
    return window > 0 && most < end ? most : end;
  }
  std::size_t sums_size() const { return static_cast<std::size_t>(splits()) * n * heads * 2; }
  std::size_t mixed_size() const { return static_cast<std::size_t>(splits()) * n * heads * head_dim; }
};
struct AttentionSplits {
  Attention of;
};
struct AttentionSum {
  Attention of;
};

inline namespace SPECLAB_SIDE {

SPECLAB_DEVICE void unpack(const simt::Bytes16& piece, float (&out)[8]) {
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = simt::float_of(piece.word[i] << 16);
    out[2 * i + 1] = simt::float_of(piece.word[i] & 0xffff0000u);
  }
}

template <int kQueries>
struct AttentionSplitsKernel {
  static constexpr const char* kName = "attention_splits";
  static constexpr int kThreads = kSplit;
  Attention a;

  // Shared memory: queries [kQueries][stride], weights [kQueries][kSplit], shares [kQueries][groups][stride] (a group of
  // threads has every groups-th key), and of each query its row's position (-1: no such query) and path.
  static int shared_bytes(int stride) { return 4 * (kQueries * stride + kQueries * kSplit + kQueries * kSplit * kKvPiece + 2 * kQueries); }

  SPECLAB_DEVICE void operator()() const {
    const int thread = simt::thread_index(), kv_head = simt::block_y(), group = a.heads / a.kv_heads, stride = a.kv.stride;
    const int committed = a.committed_at != nullptr ? simt::load(a.committed_at) : a.committed;
    const int split = a.first_split(committed) + simt::block_x(), begin = split * kSplit;
    const int first = simt::block_z() * kQueries, count = simt::min(kQueries, a.n * group - first);
    int last = -1;  // position that one of the rows sees here
    for (int row = first / group; row <= (first + count - 1) / group; ++row) {
      const int position = simt::load(a.positions + row);
      if (position >= begin && a.first_seen(position) < begin + kSplit) last = simt::max(last, position);
    }
    if (last < 0) return;
    const int keys = simt::min(kSplit, last + 1 - begin), shared_keys = simt::min(keys, committed - begin);

    const auto queries = simt::shared<float>(0, kQueries * stride);
    const auto weights = simt::shared<float>(4 * kQueries * stride, kQueries * kSplit);
    const int shares_at = 4 * kQueries * (stride + kSplit);
    const auto row_position = simt::shared<int>(shares_at + 4 * kQueries * kSplit * kKvPiece, kQueries);
    const auto row_path = simt::shared<int>(shares_at + 4 * kQueries * kSplit * kKvPiece + 4 * kQueries, kQueries);
    const int width = (a.heads + 2 * a.kv_heads) * a.head_dim;
    for (int i = thread; i < kQueries * stride; i += kSplit) {
      const int q = i / stride, d = i % stride, row = (first + q) / group, head = kv_head * group + (first + q) % group;
      queries.set(i, q < count && d < a.head_dim ? simt::load(a.qkv + static_cast<std::size_t>(row) * width + head * a.head_dim + d) : 0.0f);
    }
    if (thread < kQueries) {
      const int row = (first + thread) / group;
      row_position.set(thread, thread < count ? simt::load(a.positions + row) : -1);
      // Biased, so that the slot of position p is paths[row_path + p].
      row_path.set(thread, thread < count ? simt::load(a.path_begin + row) - committed : 0);
    }
    simt::block_sync();

    // Scores: a thread has one key.
    const int position = begin + thread;
    float score[kQueries];
    for (int q = 0; q < kQueries; ++q) score[q] = 0;
    if (thread < shared_keys) {
      const simt::u16* key = a.kv.keys(kv_head) + static_cast<std::size_t>(position) * stride;
      for (int d = 0; d < stride; d += kKvPiece) {
        float k[8];
        unpack(simt::load16(key + d), k);
        for (int q = 0; q < kQueries; ++q) score[q] = dot(queries, q * stride + d, k, score[q]);
      }
    } else if (thread < keys) {
      for (int q = 0; q < kQueries; ++q) {
        if (position > row_position[q]) continue;
        const simt::u16* key = a.kv.keys(kv_head) + static_cast<std::size_t>(simt::load(a.paths + row_path[q] + position)) * stride;
        for (int d = 0; d < stride; d += kKvPiece) {
          float k[8];
          unpack(simt::load16(key + d), k);
          score[q] = dot(queries, q * stride + d, k, score[q]);
        }
      }
    }
    for (int q = 0; q < kQueries; ++q) {
      const int at = row_position[q];
      float s = score[q] * a.scale;
      if (a.soft_cap > 0) s = a.soft_cap * simt::tanh(s / a.soft_cap);
      weights.set(q * kSplit + thread, position <= at && position >= a.first_seen(at) ? s : kUnseen);
    }
    simt::block_sync();

    // Weights of a query: a warp.
    for (int q = simt::warp_index(); q < count; q += kSplit / simt::kWarp) {
      float s[kSplit / simt::kWarp], most = kUnseen, sum = 0;
      for (int i = 0; i < kSplit / simt::kWarp; ++i) {
        s[i] = weights[q * kSplit + i * simt::kWarp + simt::lane()];
        most = simt::max(most, s[i]);
      }
      most = simt::warp_max(most);
      for (int i = 0; i < kSplit / simt::kWarp; ++i) {
        const float weight = s[i] == kUnseen ? 0.0f : simt::exp(s[i] - most);
        weights.set(q * kSplit + i * simt::kWarp + simt::lane(), weight);
        sum += weight;
      }
      sum = simt::warp_sum(sum);
      if (simt::lane() == 0) {
        float* to = a.sums + 2 * query(first + q, kv_head);
        simt::store(to, most);
        simt::store(to + 1, sum);
      }
    }
    simt::block_sync();

    // Values: a thread has eight dimensions and the keys of its group.
    const int pieces = stride / kKvPiece, groups = kSplit / pieces, member = thread / pieces, d = thread % pieces * kKvPiece;
    const auto shares = simt::shared<float>(shares_at, kQueries * groups * stride);
    if (member < groups) {
      float sum[kQueries][8];
      for (int q = 0; q < kQueries; ++q) {
        for (int i = 0; i < 8; ++i) sum[q][i] = 0;
      }
      const simt::u16* values = a.kv.values(kv_head) + d;
      int j = member;
      for (; j < shared_keys; j += groups) {
        float v[8];
        unpack(simt::load16(values + static_cast<std::size_t>(begin + j) * stride), v);
        for (int q = 0; q < kQueries; ++q) {
          if (q < count) add(weights[q * kSplit + j], v, sum[q]);
        }
      }
      for (; j < keys; j += groups) {
        for (int q = 0; q < kQueries; ++q) {
          if (begin + j > row_position[q]) continue;
          float v[8];
          unpack(simt::load16(values + static_cast<std::size_t>(simt::load(a.paths + row_path[q] + begin + j)) * stride), v);
          add(weights[q * kSplit + j], v, sum[q]);
        }
      }
      for (int q = 0; q < kQueries; ++q) {
        const int at = (q * groups + member) * stride + d;
        shares.set16(at, {{simt::bits_of(sum[q][0]), simt::bits_of(sum[q][1]), simt::bits_of(sum[q][2]), simt::bits_of(sum[q][3])}});
        shares.set16(at + 4, {{simt::bits_of(sum[q][4]), simt::bits_of(sum[q][5]), simt::bits_of(sum[q][6]), simt::bits_of(sum[q][7])}});
      }
    }
    simt::block_sync();
    for (int i = thread; i < count * a.head_dim; i += kSplit) {
      const int q = i / a.head_dim, e = i % a.head_dim;
      float sum = 0;
      for (int g = 0; g < groups; ++g) sum += shares[(q * groups + g) * stride + e];
      simt::store(a.mixed + query(first + q, kv_head) * a.head_dim + e, sum);
    }
  }

 private:
  static constexpr float kUnseen = -3.402823466e+38f;  // no score is as small; not infinite: infinity - infinity is no number

  SPECLAB_DEVICE static float dot(const simt::Shared<float>& queries, int at, const float (&k)[8], float sum) {
    const simt::Bytes16 low = queries.get16(at), high = queries.get16(at + 4);
    for (int i = 0; i < 4; ++i) sum = simt::fma(simt::float_of(low.word[i]), k[i], sum);
    for (int i = 0; i < 4; ++i) sum = simt::fma(simt::float_of(high.word[i]), k[i + 4], sum);
    return sum;
  }
  SPECLAB_DEVICE static void add(float weight, const float (&v)[8], float (&sum)[8]) {
    for (int i = 0; i < 8; ++i) sum[i] = simt::fma(weight, v[i], sum[i]);
  }
  // Place of a query of this split in sums and mixed.
  SPECLAB_DEVICE std::size_t query(int i, int kv_head) const {
    const int group = a.heads / a.kv_heads, row = i / group, head = kv_head * group + i % group;
    return (static_cast<std::size_t>(simt::block_x()) * a.n + row) * a.heads + head;
  }
};

// A block is one query: of the splits that its row sees, those with their maximum nearest to the largest count most.
struct AttentionSumKernel {
  static constexpr const char* kName = "attention_sum";
  static constexpr int kThreads = kCombineThreads;
  Attention a;

  SPECLAB_DEVICE void operator()() const {
    const int row = simt::block_x(), head = simt::block_y(), position = simt::load(a.positions + row);
    const int committed = a.committed_at != nullptr ? simt::load(a.committed_at) : a.committed, first = a.first_split(committed);
    const int begin = a.first_seen(position) / kSplit - first, end = position / kSplit + 1 - first;
    const std::size_t queries = static_cast<std::size_t>(a.n) * a.heads, query = static_cast<std::size_t>(row) * a.heads + head;
    float most = simt::load(a.sums + 2 * (begin * queries + query));
    for (int split = begin + 1; split < end; ++split) most = simt::max(most, simt::load(a.sums + 2 * (split * queries + query)));
    for (int d = simt::thread_index(); d < a.head_dim; d += kCombineThreads) {
      float total = 0, sum = 0;
      for (int split = begin; split < end; ++split) {
        const std::size_t at = split * queries + query;
        const float weight = simt::exp(simt::load(a.sums + 2 * at) - most);
        total = simt::fma(weight, simt::load(a.sums + 2 * at + 1), total);
        sum = simt::fma(weight, simt::load(a.mixed + at * a.head_dim + d), sum);
      }
      simt::store(a.out + query * a.head_dim + d, sum / total);
    }
  }
};

}  // namespace SPECLAB_SIDE

template <typename Visit>
void with_kernel(const AttentionSplits& arguments, const Visit& visit) {
  const Attention& a = arguments.of;
  const int queries = a.n * (a.heads / a.kv_heads);
  const auto start = [&]<int kQueries>(const AttentionSplitsKernel<kQueries>& kernel) {
    visit(kernel, LaunchShape{.grid_x = a.splits(), .grid_y = a.kv_heads, .grid_z = (queries + kQueries - 1) / kQueries, .threads = kSplit,
                              .shared_bytes = kernel.shared_bytes(a.kv.stride)});
  };
  if (queries <= 1) start(AttentionSplitsKernel<1>{a});
  else if (queries <= 4) start(AttentionSplitsKernel<4>{a});
  else start(AttentionSplitsKernel<kMostQueries>{a});
}

template <typename Visit>
void with_kernel(const AttentionSum& arguments, const Visit& visit) {
  const Attention& a = arguments.of;
  visit(AttentionSumKernel{a}, LaunchShape{.grid_x = a.n, .grid_y = a.heads, .threads = kCombineThreads});
}

}  // namespace speclab::cuda
