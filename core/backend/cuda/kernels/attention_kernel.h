#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend/cuda/kernels/linear/fragments.h"
#include "core/backend/cuda/kernels/kv_kernel.h"
#include "core/backend/cuda/kernels/simt.h"

// Attention of the rows of a forward over a KV cache (Vaswani et al. 2017, eq. 1), split over the keys (Dao
// et al. 2023, "Flash-Decoding for long-context inference").
//
// Row invariance. Every split has kSplit consecutive positions and begins at a multiple of kSplit. This does
// not depend on the length of the sequence. The position of a key decides its place in every sum. A committed
// key's position is its slot; the path of a row lists the slots of its other keys (in flight). So the bits of
// a row depend on its query and on the keys that it sees. They do not depend on the other rows, on how many
// keys are committed, on the slots, or on how rows are cut into tiles. A row of a tree has the same bits as
// in a chain of its path alone. A row of a chain has the same bits as in a forward over its token alone.
//
// Both products, queries times keys and weights times values, run on the matrix unit. A tile is 16 queries of
// one key/value head. Each of the four warps of a split has 32 positions. If all keys of a split are
// committed, a tile takes queries of any rows, and a block computes up to kMostTiles tiles one after the
// other, so that L1 can serve the keys and values of all tiles but the first. If some keys are in flight, a
// tile takes queries of one row only, because other rows have other keys at the same positions. So the matrix
// unit processes keys in flight, too, for trees of any depth. A tile that is not full costs as much as a full
// one of 16 queries. This matters little, because only two or three splits hold keys in flight.
//
// Queries and weights are floats. The matrix unit gets each of them as a sum of two bf16 numbers: the float
// rounded to bf16, and the error of this rounding. The sum has a relative error of at most 2^-17. Keys and
// values are bf16 already. There are two kernels: one computes the splits, each with its own maximum; the
// other adds them up.
//
// As in linear.h, the code relies on a property of the matrix unit: an element of a product depends neither
// on the other rows and columns nor on its own row number.

namespace speclab::cuda {

inline constexpr int kSplit = 128;             ///< positions of a split
inline constexpr int kAttentionThreads = 128;  ///< each of the four warps takes a quarter of a split
inline constexpr int kTileQueries = 16;
inline constexpr int kMostTiles = 4;  ///< largest number of tiles per block
inline constexpr int kCombineThreads = 64;

/// Arguments of both kernels. Query h of row i is head h of that row. Each key/value head serves heads /
/// kv_heads queries of a row; these queries read the keys and values together.
struct Attention {
  const float* qkv = nullptr;  ///< [n, (heads + 2 kv_heads) * head_dim], queries first
  int n = 0, heads = 0, kv_heads = 0, head_dim = 0;
  KvLayer kv;
  int committed =
      0;            ///< number of committed keys, in slots 0 .. committed - 1; with committed_at: upper bound
  int earlier = 0;  ///< upper bound of the number of rows in flight from earlier forwards (RowsInFlight);
                    ///< positions are below committed + earlier + n
  const std::int32_t* committed_at = nullptr;  ///< not null: the number of committed keys is read from here
  const std::int32_t* positions = nullptr;     ///< [n]
  const std::int32_t* path_begin = nullptr;    ///< [n + 1]
  const std::int32_t* paths = nullptr;         ///< slots of the positions from `committed` on
  float scale = 1;
  float soft_cap = 0;      ///< 0: none
  int window = 0;          ///< 0: none
  float* sums = nullptr;   ///< [splits, n, heads, 2]: maximum of the scores, sum of their exponentials
  float* mixed = nullptr;  ///< [splits, n, heads, head_dim]: values weighted with the exponentials
  float* out = nullptr;    ///< [n, heads, head_dim]; null: not written
  simt::u16* activations =
      nullptr;  ///< the output rounded as input of a linear layer (fragments.h), n <= 128; null: not written

  SPECLAB_BOTH int first_seen(int position) const {
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  /// The first split that a row may see when `keys` keys are committed.
  SPECLAB_BOTH int first_split(int keys) const { return first_seen(keys) / kSplit; }
  /// Number of visible splits whose keys are all committed. In the other splits each row has keys of its own.
  SPECLAB_BOTH int shared_splits(int keys) const { return keys / kSplit - first_split(keys); }
  /// Upper bound of the number of splits that rows may see. With committed_at it holds for any number of
  /// committed keys up to `committed`.
  int splits() const {
    const int end = (committed + earlier + n - 1) / kSplit + 1;
    if (committed_at == nullptr) return end - first_split(committed);
    const int most =
        (earlier + n + window - 2) / kSplit + 2;  // from the window of the first row to the last row
    return window > 0 && most < end ? most : end;
  }
  SPECLAB_BOTH int group() const { return heads / kv_heads; }
  SPECLAB_BOTH int shared_tiles() const { return (n * group() + kTileQueries - 1) / kTileQueries; }
  SPECLAB_BOTH int shared_blocks() const {
    return (shared_tiles() + kMostTiles - 1) / kMostTiles;
  }  ///< blocks for a split whose keys are all committed
  SPECLAB_BOTH int own_tiles() const {
    return (group() + kTileQueries - 1) / kTileQueries;
  }  ///< tiles of one row in a split with keys in flight
  int blocks() const {
    if (committed_at == nullptr)
      return shared_splits(committed) * shared_blocks() +
             (splits() - shared_splits(committed)) * n * own_tiles();
    const int shared = splits() < committed / kSplit ? splits() : committed / kSplit,
              own = (earlier + n + kSplit - 2) / kSplit + 1;
    return shared * shared_blocks() + own * n * own_tiles();
  }
  std::size_t sums_size() const { return static_cast<std::size_t>(splits()) * n * heads * 2; }
  std::size_t mixed_size() const { return static_cast<std::size_t>(splits()) * n * heads * head_dim; }
};
/// Attention over a list of some committed keys (core/backend/keys_in_view.h). The rank of a key is its place
/// in the list. Ranks replace the positions of `Attention`: `committed` is the number of listed keys, and
/// `positions` holds the ranks of the rows. `window` is 0, because `first` already excludes the keys outside
/// of the window. If the window hides a split from all rows, the blocks of this split do nothing.
struct AttentionView : Attention {
  const std::int32_t* listed = nullptr;  ///< [committed], slots
  const std::int32_t* first = nullptr;   ///< [n], first rank that a row sees
};
struct AttentionSplits {
  Attention of;
};
struct AttentionSum {
  Attention of;
};
struct AttentionViewSplits {
  AttentionView of;
};
struct AttentionViewSum {
  AttentionView of;
};

inline namespace SPECLAB_SIDE {

/// Returns the first position, or rank, that a row sees. `position` is the position, or rank, of the row
/// itself.
SPECLAB_DEVICE int first_of(const Attention& a, int /*row*/, int position) { return a.first_seen(position); }
SPECLAB_DEVICE int first_of(const AttentionView& a, int row, int /*position*/) {
  return simt::load(a.first + row);
}
/// Returns the slot of a committed key.
SPECLAB_DEVICE int slot_at(const Attention& /*a*/, int position) { return position; }
SPECLAB_DEVICE int slot_at(const AttentionView& a, int rank) { return simt::load(a.listed + rank); }

/// Keys: Attention or AttentionView.
template <typename Keys>
struct AttentionSplitsKernel {
  static constexpr const char* kName = "attention_splits";
  static constexpr int kThreads = kAttentionThreads;
  Keys a;

  // Shared memory holds, in this order: the queries of a tile in the order of the matrix unit, [2][blocks
  // of 32 dimensions][queries g, g + 8 of lane 4 g + t][lanes][8] bf16, where [2] is the rounded number and
  // its rounding error; the maximum and the sum of each query and warp; each warp's partial sums of the
  // weighted values, [warps][queries][kShare], kChunk dimensions at a time; and the positions of the
  // queries.
  static constexpr int kWarps = kThreads / simt::kWarp, kOfWarp = kSplit / kWarps, kChunk = 64,
                       kShare = kChunk + 4;
  SPECLAB_BOTH static constexpr int blocks_of(int stride) { return (stride + 31) / 32; }
  SPECLAB_BOTH static constexpr int query_bytes(int stride) {
    return 2 * blocks_of(stride) * 2 * simt::kWarp * 16;
  }
  static constexpr int kMaximaBytes = kWarps * kTileQueries * 4,
                       kShareBytes = kWarps * kTileQueries * kShare * 4;
  static constexpr int shared_bytes(int stride) {
    return query_bytes(stride) + 2 * kMaximaBytes + kShareBytes + kTileQueries * 4;
  }

  SPECLAB_DEVICE void operator()() const {
    const int committed = a.committed_at != nullptr ? simt::load(a.committed_at) : a.committed,
              first_split = a.first_split(committed);
    const int shared_blocks = a.shared_blocks(), shared = a.shared_splits(committed) * shared_blocks,
              block = simt::block_x(), group = a.group();
    int split, query, end;  // the block computes the queries from `query` to end - 1
    if (block < shared) {
      split = first_split + block / shared_blocks;
      query = block % shared_blocks * (kMostTiles * kTileQueries);
      end = simt::min(query + kMostTiles * kTileQueries, a.n * group);
    } else {
      const int tiles = a.own_tiles(), of_split = a.n * tiles, i = (block - shared) % of_split;
      split = committed / kSplit + (block - shared) / of_split;
      if (split * kSplit >= committed + a.earlier + a.n)
        return;  // the grid is sized for the maximum of committed keys
      query = i / tiles * group + i % tiles * kTileQueries;
      end = simt::min(query + kTileQueries, i / tiles * group + group);
    }
    SPECLAB_ROLLED
    for (; query < end; query += kTileQueries)
      run_tile(committed, split, query, simt::min(kTileQueries, end - query));
  }

 private:
  static constexpr float kUnseen =
      -3.402823466e+38f;  // below every score; finite, because infinity - infinity is NaN

  // Computes one tile: the queries from `first` to first + count - 1 of the block's key/value head. Each row
  // has `group` queries. The queries of a tile belong to one row unless all keys of the split are committed.
  SPECLAB_DEVICE void run_tile(int committed, int split, int first, int count) const {
    const int first_split = a.first_split(committed), group = a.group(), kv_head = simt::block_y(),
              stride = a.kv.stride, begin = split * kSplit;
    const int thread = simt::thread_index(), lane = simt::lane(), g = lane / 4, t = lane % 4;
    // The last position among the rows of the tile that see this split. It may lie behind the split.
    int last = -1;
    for (int row = first / group; row <= (first + count - 1) / group; ++row) {
      const int position = simt::load(a.positions + row);
      if (position >= begin && first_of(a, row, position) < begin + kSplit) last = simt::max(last, position);
    }
    if (last < 0) return;

    const auto queries = simt::shared<simt::u16>(0, query_bytes(stride) / 2);
    const int at_maxima = query_bytes(stride), at_sums = at_maxima + kMaximaBytes,
              at_shares = at_sums + kMaximaBytes;
    const auto maxima = simt::shared<float>(at_maxima, kWarps * kTileQueries),
               sums = simt::shared<float>(at_sums, kWarps * kTileQueries);
    const auto shares = simt::shared<float>(at_shares, kWarps * kTileQueries * kShare);
    const auto row_position = simt::shared<int>(at_shares + kShareBytes, kTileQueries);
    simt::block_sync();  // all threads have read the previous tile
    load_queries(queries, first, count);
    if (thread < kTileQueries)
      row_position.set(thread, thread < count ? simt::load(a.positions + (first + thread) / group) : -1);
    simt::block_sync();

    // Slots of the warp's positions: lane 4 g + t has the keys g + 8 j and the values 2 t + 8 j, 2 t + 1 + 8
    // j. -1: no row sees the position.
    const int warp = simt::warp_index(), warp_begin = begin + warp * kOfWarp;
    const bool busy = warp_begin <= last;  // the same for all lanes
    const std::int32_t* path =
        a.paths + simt::load(a.path_begin + first / group) - committed;  // the slot of position p is path[p]
    const auto slot_of = [&](int position) {
      return position > last ? -1 : position < committed ? slot_at(a, position) : simt::load(path + position);
    };

    simt::Accumulator scores[4];
    SPECLAB_UNROLL
    for (int j = 0; j < 4; ++j) scores[j].clear();
    if (busy) {
      int slots[4];
      SPECLAB_UNROLL
      for (int j = 0; j < 4; ++j) slots[j] = slot_of(warp_begin + 8 * j + g);
      const int blocks = blocks_of(stride);
      for (int b = 0; b < blocks; ++b) {
        simt::Bytes16 k[4], q[2][2];
        SPECLAB_UNROLL
        for (int j = 0; j < 4; ++j) k[j] = piece(a.kv.keys(kv_head), slots[j], 32 * b + 8 * t);
        SPECLAB_UNROLL
        for (int part = 0; part < 2; ++part) {
          SPECLAB_UNROLL
          for (int half = 0; half < 2; ++half)
            q[part][half] = queries.get16((((part * blocks + b) * 2 + half) * simt::kWarp + lane) * 8);
        }
        SPECLAB_UNROLL
        for (int step = 0; step < 2; ++step) {
          SPECLAB_UNROLL
          for (int part = 0; part < 2; ++part) {
            const simt::u32 left[4] = {q[part][0].word[2 * step], q[part][1].word[2 * step],
                                       q[part][0].word[2 * step + 1], q[part][1].word[2 * step + 1]};
            SPECLAB_UNROLL
            for (int j = 0; j < 4; ++j) {
              const simt::u32 right[2] = {k[j].word[2 * step], k[j].word[2 * step + 1]};
              simt::mma(scores[j], left, right);
            }
          }
        }
      }
    }
    simt::mma_wait();

    // Weights. Element i of scores[j] belongs to query g + i / 2 * 8 and position 8 j + 2 t + i % 2.
    float weight[4][4], most[2] = {kUnseen, kUnseen}, sum[2] = {0, 0};
    SPECLAB_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int q = simt::min(g + i / 2 * 8, count - 1), at = row_position[g + i / 2 * 8],
                from = first_of(a, (first + q) / group, at);
      SPECLAB_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int position = warp_begin + 8 * j + 2 * t + i % 2;
        float s = scores[j][i] * a.scale;
        if (a.soft_cap > 0) s = a.soft_cap * simt::tanh(s / a.soft_cap);
        weight[j][i] = position <= at && position >= from ? s : kUnseen;
        most[i / 2] = simt::max(most[i / 2], weight[j][i]);
      }
    }
    SPECLAB_UNROLL
    for (int half = 0; half < 2; ++half) {
      most[half] = simt::max(most[half], simt::shuffle_xor(most[half], 1));
      most[half] = simt::max(most[half], simt::shuffle_xor(most[half], 2));
      if (t == 0) maxima.set(warp * kTileQueries + g + half * 8, most[half]);
    }
    simt::block_sync();
    SPECLAB_UNROLL
    for (int half = 0; half < 2; ++half) {
      SPECLAB_UNROLL
      for (int w = 0; w < kWarps; ++w)
        most[half] = simt::max(most[half], maxima[w * kTileQueries + g + half * 8]);
    }
    SPECLAB_UNROLL
    for (int j = 0; j < 4; ++j) {
      SPECLAB_UNROLL
      for (int i = 0; i < 4; ++i) {
        weight[j][i] = weight[j][i] == kUnseen ? 0.0f : simt::exp(weight[j][i] - most[i / 2]);
        sum[i / 2] += weight[j][i];
      }
    }
    SPECLAB_UNROLL
    for (int half = 0; half < 2; ++half) {
      sum[half] += simt::shuffle_xor(sum[half], 1);
      sum[half] += simt::shuffle_xor(sum[half], 2);
      if (t == 0) sums.set(warp * kTileQueries + g + half * 8, sum[half]);
    }
    // The weights of 16 positions are the left operand of one product.
    simt::u32 left[2][2][4];  // [steps of 16 positions][rounded weight, rounding error]
    SPECLAB_UNROLL
    for (int step = 0; step < 2; ++step) {
      SPECLAB_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float low = weight[2 * step + i / 2][i % 2 * 2], high = weight[2 * step + i / 2][i % 2 * 2 + 1];
        left[step][0][i] = simt::pack_bf16(low, high);
        left[step][1][i] = simt::pack_bf16(low - simt::float_of(left[step][0][i] << 16),
                                           high - simt::float_of(left[step][0][i] & 0xffff0000u));
      }
    }
    int slots[2][4];
    SPECLAB_UNROLL
    for (int step = 0; step < 2; ++step) {
      SPECLAB_UNROLL
      for (int i = 0; i < 4; ++i)
        slots[step][i] = busy ? slot_of(warp_begin + 16 * step + 2 * t + i % 2 + i / 2 * 8) : -1;
    }

    for (int chunk = 0; chunk < stride; chunk += kChunk) {
      simt::Accumulator mixed[8];  // column n of mixed[j] is dimension chunk + 8 n + j
      SPECLAB_UNROLL
      for (int j = 0; j < 8; ++j) mixed[j].clear();
      if (busy) {
        SPECLAB_UNROLL
        for (int step = 0; step < 2; ++step) {
          simt::Bytes16 v[4];
          SPECLAB_UNROLL
          for (int i = 0; i < 4; ++i) v[i] = piece(a.kv.values(kv_head), slots[step][i], chunk + 8 * g);
          SPECLAB_UNROLL
          for (int j = 0; j < 8; ++j) {
            const simt::u32 right[2] = {pair_of(v[0].word[j / 2], v[1].word[j / 2], j % 2),
                                        pair_of(v[2].word[j / 2], v[3].word[j / 2], j % 2)};
            simt::mma(mixed[j], left[step][0], right);
            simt::mma(mixed[j], left[step][1], right);
          }
        }
      }
      simt::mma_wait();
      if (chunk > 0) simt::block_sync();  // all threads have read the previous shares
      SPECLAB_UNROLL
      for (int j = 0; j < 8; ++j) {
        SPECLAB_UNROLL
        for (int i = 0; i < 4; ++i)
          shares.set((warp * kTileQueries + g + i / 2 * 8) * kShare + 8 * (2 * t + i % 2) + j, mixed[j][i]);
      }
      simt::block_sync();
      const int width = simt::min(kChunk, a.head_dim - chunk);
      for (int i = thread; i < count * kChunk; i += kThreads) {
        const int q = i / kChunk, d = i % kChunk;
        if (d >= width) continue;
        float total = shares[q * kShare + d];
        SPECLAB_UNROLL
        for (int w = 1; w < kWarps; ++w) total += shares[(w * kTileQueries + q) * kShare + d];
        simt::store(a.mixed + place(split - first_split, first + q) * a.head_dim + chunk + d, total);
      }
    }
    if (thread < count) {
      float total = sums[thread], highest = maxima[thread];
      SPECLAB_UNROLL
      for (int w = 1; w < kWarps; ++w) {
        total += sums[w * kTileQueries + thread];
        highest = simt::max(highest, maxima[w * kTileQueries + thread]);
      }
      float* to = a.sums + 2 * place(split - first_split, first + thread);
      simt::store(to, highest);
      simt::store(to + 1, total);
    }
  }

  SPECLAB_DEVICE void load_queries(const simt::Shared<simt::u16>& queries, int first, int count) const {
    const int blocks = blocks_of(a.kv.stride), width = (a.heads + 2 * a.kv_heads) * a.head_dim;
    for (int i = simt::thread_index(); i < blocks * 2 * simt::kWarp; i += kThreads) {
      const int lane = i % simt::kWarp, q = lane / 4 + i / simt::kWarp % 2 * 8,
                d = i / simt::kWarp / 2 * 32 + lane % 4 * 8;
      const int row = (first + q) / a.group(), head = simt::block_y() * a.group() + (first + q) % a.group();
      const float* from =
          a.qkv + static_cast<std::size_t>(row) * static_cast<std::size_t>(width) + head * a.head_dim;
      simt::Bytes16 rounded, rest;
      SPECLAB_UNROLL
      for (int w = 0; w < 4; ++w) {
        float x[2];
        SPECLAB_UNROLL
        for (int e = 0; e < 2; ++e)
          x[e] = q < count && d + 2 * w + e < a.head_dim ? simt::load(from + d + 2 * w + e) : 0.0f;
        rounded.word[w] = simt::pack_bf16(x[0], x[1]);
        rest.word[w] = simt::pack_bf16(x[0] - simt::float_of(rounded.word[w] << 16),
                                       x[1] - simt::float_of(rounded.word[w] & 0xffff0000u));
      }
      queries.set16(i * 8, rounded);
      queries.set16((blocks * 2 * simt::kWarp + i) * 8, rest);
    }
  }
  /// Returns dimensions d to d + 7 of a slot: zeros if `slot` is -1 or if d is at or past the slot's end.
  SPECLAB_DEVICE simt::Bytes16 piece(const simt::u16* plane, int slot, int d) const {
    simt::Bytes16 none = {};
    if (slot < 0 || d >= a.kv.stride) return none;
    return simt::load16_constant(plane +
                                 static_cast<std::size_t>(slot) * static_cast<std::size_t>(a.kv.stride) + d);
  }
  /// Returns the lower or the upper halves of two words.
  SPECLAB_DEVICE static simt::u32 pair_of(simt::u32 first, simt::u32 second, int upper) {
    return upper ? first >> 16 | (second & 0xffff0000u) : (first & 0xffffu) | second << 16;
  }
  // Returns the index of a query of this key/value head in the arrays `sums` and `mixed`.
  SPECLAB_DEVICE std::size_t place(int split, int i) const {
    const int row = i / a.group(), head = simt::block_y() * a.group() + i % a.group();
    return (static_cast<std::size_t>(split) * static_cast<std::size_t>(a.n) + static_cast<std::size_t>(row)) *
               static_cast<std::size_t>(a.heads) +
           static_cast<std::size_t>(head);
  }
};

/// Adds up the splits that a query sees.
template <typename Keys>
struct AttendedQuery {
  const Keys& a;
  int begin, end;
  std::size_t queries, query;
  float most;

  SPECLAB_DEVICE AttendedQuery(const Keys& attention, int row, int head) : a(attention) {
    const int position = simt::load(a.positions + row),
              committed = a.committed_at != nullptr ? simt::load(a.committed_at) : a.committed,
              first = a.first_split(committed);
    begin = first_of(a, row, position) / kSplit - first;
    end = position / kSplit + 1 - first;
    queries = static_cast<std::size_t>(a.n) * a.heads;
    query = static_cast<std::size_t>(row) * a.heads + head;
    most = simt::load(a.sums + 2 * (begin * queries + query));
    SPECLAB_ROLLED
    for (int split = begin + 1; split < end; ++split)
      most = simt::max(most, simt::load(a.sums + 2 * (split * queries + query)));
  }
  /// Returns dimension d of the result. Each split is scaled by exp(maximum of the split - largest maximum).
  SPECLAB_DEVICE float operator[](int d) const {
    float total = 0, sum = 0;
    SPECLAB_ROLLED
    for (int split = begin; split < end; ++split) {
      const std::size_t at = split * queries + query;
      const float weight = simt::exp(simt::load(a.sums + 2 * at) - most);
      total = simt::fma(weight, simt::load(a.sums + 2 * at + 1), total);
      sum = simt::fma(weight, simt::load(a.mixed + at * a.head_dim + d), sum);
    }
    return sum / total;
  }
};

// One block per query.
template <typename Keys>
struct AttentionSumKernel {
  static constexpr const char* kName = "attention_sum";
  static constexpr int kThreads = kCombineThreads;
  Keys a;

  SPECLAB_DEVICE void operator()() const {
    const int row = simt::block_x(), head = simt::block_y();
    const AttendedQuery attended(a, row, head);
    for (int d = simt::thread_index(); d < a.head_dim; d += kCombineThreads) {
      const float mixed = attended[d];
      if (a.out != nullptr) simt::store(a.out + attended.query * a.head_dim + d, mixed);
      if (a.activations != nullptr)
        simt::store(a.activations + activation_at(a.n, row, head * a.head_dim + d), simt::to_bf16(mixed));
    }
    if (a.activations == nullptr || head < a.heads - 1) return;
    const int width = a.heads * a.head_dim;  // the rest is padded with zeros
    for (int k = width + simt::thread_index(); k < tiles_of(width, kTileIn) * kTileIn; k += kCombineThreads) {
      simt::store(a.activations + activation_at(a.n, row, k), simt::u16{0});
    }
  }
};

}  // namespace SPECLAB_SIDE

template <typename Keys, typename Visit>
void with_splits(const Keys& a, const Visit& visit) {
  visit(AttentionSplitsKernel<Keys>{a},
        LaunchShape{.grid_x = a.blocks(),
                    .grid_y = a.kv_heads,
                    .threads = kAttentionThreads,
                    .shared_bytes = AttentionSplitsKernel<Keys>::shared_bytes(a.kv.stride)});
}
template <typename Keys, typename Visit>
void with_sum(const Keys& a, const Visit& visit) {
  visit(AttentionSumKernel<Keys>{a},
        LaunchShape{.grid_x = a.n, .grid_y = a.heads, .threads = kCombineThreads});
}

template <typename Visit>
void with_kernel(const AttentionSplits& arguments, const Visit& visit) {
  with_splits(arguments.of, visit);
}
template <typename Visit>
void with_kernel(const AttentionSum& arguments, const Visit& visit) {
  with_sum(arguments.of, visit);
}
template <typename Visit>
void with_kernel(const AttentionViewSplits& arguments, const Visit& visit) {
  with_splits(arguments.of, visit);
}
template <typename Visit>
void with_kernel(const AttentionViewSum& arguments, const Visit& visit) {
  with_sum(arguments.of, visit);
}

}  // namespace speclab::cuda
