#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <boost/align/aligned_allocator.hpp>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/backend/attention_reader.h"
#include "core/backend/cpu/attention.h"
#include "core/backend/cpu/attention_mass.h"
#include "core/backend/cpu/bf16_units.h"
#include "core/base/cpu_topology.h"
#include "core/backend/cpu/kernels.h"
#include "core/backend/cpu/listed_keys.h"
#include "core/backend/cpu/row_operations.h"
#include "core/backend/cpu/unit_choice.h"
#include "core/base/thread_pool.h"
#include "core/base/error.h"
#include "core/measure/environment.h"

namespace speclab {
namespace cpu {
namespace {

// Allocates memory. A block of 2 MiB or more begins at a multiple of 2 MiB, so that the operating system can
// back it with large pages. The memory is not touched, so none of it is resident yet.
std::shared_ptr<void> reserve(std::size_t bytes) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const std::size_t size =
      std::max<std::size_t>((std::min<std::size_t>(bytes, PTRDIFF_MAX) + 63) / 64 * 64, 64);
  const std::size_t alignment = size >= kHuge ? kHuge : 64;
  void* data = size > PTRDIFF_MAX - kHuge
                   ? nullptr
                   : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (data == nullptr) {
    throw Error({fmt::format("memory for {:.1f} MiB of model data", static_cast<double>(size) / (1 << 20)),
                 "none left", "", "Use a smaller model or context, or free memory."});
  }
  if (size >= kHuge) madvise(data, size, MADV_HUGEPAGE);
  return {data, [](void* p) { std::free(p); }};
}

std::shared_ptr<void> zeroed(std::size_t bytes) {
  std::shared_ptr<void> data = reserve(bytes);
  std::memset(data.get(), 0, bytes);
  return data;
}

// Places weights one after the other in slabs of large pages. Without the slabs, the matrices of a layer were
// in small pages, and were read at half the speed of the output head, which is large enough to get large
// pages. The reason is that the processor does not prefetch beyond the end of a page.
class WeightArena {
 public:
  std::shared_ptr<void> take(std::size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > left_) {
      if (bytes >= kSlab) return zeroed(bytes);
      slab_ = reserve(kSlab);
      left_ = kSlab;
    }
    std::shared_ptr<void> piece(slab_, static_cast<std::byte*>(slab_.get()) + (kSlab - left_));
    std::memset(piece.get(), 0, bytes);
    left_ -= bytes;
    return piece;
  }

 private:
  static constexpr std::size_t kSlab = std::size_t{32} << 20;
  std::shared_ptr<void> slab_;  // lives as long as any matrix in it
  std::size_t left_ = 0;
};

template <typename Kv>
Kv narrow(float value) {
  if constexpr (sizeof(Kv) == 2) return float_to_bf16(value);
  else return value;
}

using Scratch = std::vector<float, boost::alignment::aligned_allocator<float, 64>>;

/// The bf16 unit that computes matrix products. Without one, they are computed in float arithmetic.
struct MatrixUnit {
  Bf16Unit unit;
  bool emulated;
};

/// The CPU backend for the numerics classes `f32` (Kv = float), `f32-kv16` (Kv = Bf16), and those of the bf16
/// units.
template <typename Kv>
class CpuBackend final : public Backend, public AttentionReader {
 public:
  CpuBackend(int threads, std::string_view name, std::optional<MatrixUnit> unit = {})
      : pool_(threads), class_(name), unit_(unit), device_(cpu_model_name()) {
    scratch_.resize(static_cast<std::size_t>(threads));
    listed_.resize(static_cast<std::size_t>(threads));
    mass_scores_.resize(static_cast<std::size_t>(threads));
  }

  std::string_view name() const override { return "cpu"; }
  std::string_view numerics_class() const override { return class_; }
  std::string_view device_name() const override { return device_; }
  int threads() const override { return pool_.threads(); }
  std::shared_ptr<Backend> beside(int threads) const override {
    return std::make_shared<CpuBackend>(threads, class_, unit_);
  }
  DeviceSpeed measure_speed() override {
    const bool of_unit = unit_ && !unit_->emulated;
    return {measure_read_bandwidth(pool_.threads()),
            of_unit ? measure_peak_flops(pool_.threads(),
                                         [unit = unit_->unit](std::int64_t rounds) {
                                           return bf16_unit_rounds(unit, rounds);
                                         })
                    : measure_peak_flops(pool_.threads())};
  }
  int kv_number_bytes() const override { return sizeof(Kv); }

  bool host_memory() const override { return true; }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return reserve(bytes); }
  void upload(const void* host, std::size_t bytes, void* to) override { std::memcpy(to, host, bytes); }
  void download(const void* from, std::size_t bytes, void* host) override { std::memcpy(host, from, bytes); }

  PackedMatrix pack(int out, int in, const std::function<void(int, int, Bf16*)>& read) override {
    PackedMatrix matrix;
    matrix.out = out;
    matrix.in = in;
    const std::size_t panel = packed_panel_elements(in);
    const int panels = padded(out, kPanel) / kPanel;
    matrix.bytes = panel * static_cast<std::size_t>(panels) * sizeof(Bf16);
    matrix.data = weights_.take(matrix.bytes);
    auto* data = static_cast<Bf16*>(matrix.data.get());
    std::vector<std::exception_ptr> failed(static_cast<std::size_t>(pool_.threads()));
    pool_.parallel(panels, [&](int p, int thread) {
      try {
        std::vector<Bf16> rows(static_cast<std::size_t>(kPanel) * static_cast<std::size_t>(in));
        const int begin = p * kPanel, end = std::min(out, begin + kPanel);
        read(begin, end, rows.data());
        Bf16* to = data + panel * static_cast<std::size_t>(p);
        for (int j = 0; j < end - begin; ++j) {
          const Bf16* row = rows.data() + static_cast<std::size_t>(j) * static_cast<std::size_t>(in);
          for (int k = 0; k < in; ++k)
            to[(static_cast<std::size_t>(k / 2) * kPanel + static_cast<std::size_t>(j)) * 2 +
               static_cast<std::size_t>(k % 2)] = row[k];
        }
      } catch (...) {
        failed[static_cast<std::size_t>(thread)] = std::current_exception();
      }
    });
    for (const auto& error : failed) {
      if (error) std::rethrow_exception(error);
    }
    return matrix;
  }

  KvStore allocate_kv(int layers, int kv_heads, int head_dim, int slots) override {
    KvStore kv{layers, kv_heads, head_dim, padded(slots, kKeyBlock), 0, nullptr, 0};
    kv.bytes_per_position = 2 * sizeof(Kv) * static_cast<std::uint64_t>(layers) * kv_heads * head_dim;
    if (__builtin_mul_overflow(kv.bytes_per_position, static_cast<std::uint64_t>(kv.slots), &kv.bytes))
      kv.bytes = UINT64_MAX;
    kv.data = zeroed(kv.bytes);
    // Reserves room for the scores of the longest text, so that nothing is allocated while a text grows. The
    // memory is not touched yet.
    for (auto& scratch : scratch_) scratch.reserve(attention_scratch(query_rows(), kv.slots - 1, head_dim));
    return kv;
  }

  void copy_kv(const KvStore& from, int slots, KvStore& to) override {
    SPECLAB_CHECK(slots <= std::min(from.slots, to.slots) && from.layers == to.layers &&
                      from.kv_heads == to.kv_heads && from.head_dim == to.head_dim,
                  "{} slots of {} into {}", slots, from.slots, to.slots);
    const std::size_t used =
        static_cast<std::size_t>(padded(slots, kKeyBlock)) * static_cast<std::size_t>(from.head_dim);
    for (int layer = 0; layer < from.layers; ++layer) {
      for (int head = 0; head < from.kv_heads; ++head) {
        std::copy_n(keys(from, layer, head), used, keys(to, layer, head));
        std::copy_n(values(from, layer, head), used, values(to, layer, head));
      }
    }
  }

  void linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate) override {
    product(w, x, n, y, accumulate, nullptr);
  }
  bool linear_noting(const PackedMatrix& w, const float* x, int n, float* y, float* maxima) override {
    product(w, x, n, y, false, maxima);
    return true;
  }
  /// Does the work of linear() and linear_noting(). linear() passes no `maxima` (null).
  void product(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate, float* maxima) {
    if (n == 0) return;
    const auto* data = static_cast<const Bf16*>(w.data.get());
    const int in = w.in + w.in % 2;
    const Bf16* rounded = unit_ ? round(x, n, w.in) : nullptr;
    if (!unit_ && (n > 1 || in != w.in)) x = interleave(x, n, w.in);
    // The work is divided into chunks of whole panels. The last chunks, which do not divide evenly among the
    // threads, are halved, so that the threads finish together. With maxima no chunk is halved: a maximum is
    // over the outputs of one whole chunk, which one thread computes.
    const std::size_t panel = packed_panel_elements(w.in);
    const int chunks = padded(w.out, kChunk) / kChunk,
              whole = maxima ? chunks : chunks - chunks % pool_.threads();
    // Allocates the memory of all threads now. Otherwise a thread that has had no chunk so far would allocate
    // in a later step.
    for (auto& place : scratch_) {
      if (const std::size_t need = static_cast<std::size_t>(n) * kChunk; maxima && place.size() < need)
        place.resize(need);
    }
    pool_.parallel(whole + 2 * (chunks - whole), [&](int chunk, int thread) {
      const bool half = chunk >= whole;
      const int begin = half ? whole * kChunk + (chunk - whole) * (kChunk / 2) : chunk * kChunk;
      const int end = std::min(w.out, begin + (half ? kChunk / 2 : kChunk));
      if (begin >= end) return;
      const Bf16* panels = data + panel * static_cast<std::size_t>(begin / kPanel);
      // The search for the maxima reads the sums again. Rows of y may be a power of two apart, and a cache
      // can hold only few such rows. So with maxima, the sums go to a small buffer first, and copy_noting()
      // copies them to y.
      auto& place = scratch_[static_cast<std::size_t>(thread)];
      float* const to = maxima ? place.data() : y + begin;
      const int stride = maxima ? kChunk : w.out;
      // The threads take chunks in turn, so this is probably the thread's next chunk.
      const Bf16* next = panels + panel * static_cast<std::size_t>(pool_.threads() * kChunk / kPanel);
      if (unit_) {
        bf16_linear_slice(unit_->unit, unit_->emulated,
                          {panels, w.in, end - begin, rounded, n, to, stride, accumulate, next});
      } else {
        linear_slice(panels, in, end - begin, x, n, to, stride, accumulate, next);
      }
      if (maxima) copy_noting(to, kChunk, n, end - begin, y + begin, w.out, maxima + chunk, chunks);
    });
  }

  void gather(const PackedMatrix& table, const Token* tokens, int n, float* out) override {
    const auto* data = static_cast<const Bf16*>(table.data.get());
    const std::size_t panel = packed_panel_elements(table.in);
    for (int i = 0; i < n; ++i) {
      SPECLAB_CHECK(tokens[i] >= 0 && tokens[i] < table.out, "token {} of a table with {} rows", tokens[i],
                    table.out);
      const Bf16* from =
          data + panel * static_cast<std::size_t>(tokens[i] / kPanel) + 2 * (tokens[i] % kPanel);
      float* to = out + static_cast<std::size_t>(i) * static_cast<std::size_t>(table.in);
      for (int k = 0; k < table.in; ++k)
        to[k] = bf16_to_float(
            from[static_cast<std::size_t>(k / 2) * 2 * kPanel + static_cast<std::size_t>(k % 2)]);
    }
  }

  void rms_norm(const float* x, const float* weight, float eps, int n, int d, float* out) override {
    each_row(n, d, [&](int i) {
      rms_norm_row(x + static_cast<std::size_t>(i) * d, weight, eps, d,
                   out + static_cast<std::size_t>(i) * d);
    });
  }

  void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n, int d,
                  float* out) override {
    each_row(n, 2 * d, [&](int i) {
      layer_norm_row(x + static_cast<std::size_t>(i) * d, weight, bias, eps, d,
                     out + static_cast<std::size_t>(i) * d);
    });
  }

  void rms_norm_heads(float* x, int stride, int heads, const float* weight, float eps, int n,
                      int d) override {
    each_row(n, heads * d, [&](int i) {
      float* row = x + static_cast<std::size_t>(i) * stride;
      for (int head = 0; head < heads; ++head) rms_norm_row(row + head * d, weight, eps, d, row + head * d);
    });
  }

  void rope_and_store(float* qkv, int heads, const Rotation& rotation, const RowsInFlight& rows, KvStore& kv,
                      int layer) override {
    const int hd = kv.head_dim, half = rotation.dims / 2, width = (heads + 2 * kv.kv_heads) * hd;
    each_row(rows.n, width, [&](int i) {
      float* row = qkv + static_cast<std::size_t>(i) * width;
      const float* c = rotation.cos + static_cast<std::size_t>(rows.positions[i]) * half;
      const float* s = rotation.sin + static_cast<std::size_t>(rows.positions[i]) * half;
      for (int head = 0; head < heads + kv.kv_heads; ++head) {
        float* v = row + head * hd;
        for (int j = 0; j < half; ++j) {
          const float a = v[j], b = v[j + half];
          v[j] = a * c[j] - b * s[j];
          v[j + half] = b * c[j] + a * s[j];
        }
      }
      const int slot = rows.slots[i];
      for (int head = 0; head < kv.kv_heads; ++head) {
        const float* k = row + (heads + head) * hd;
        const float* v = k + kv.kv_heads * hd;
        Kv* key = keys(kv, layer, head);
        Kv* value = values(kv, layer, head);
        for (int j = 0; j < hd; ++j) key[key_index<Kv>(slot, j, hd)] = narrow<Kv>(k[j]);
        for (int j = 0; j < hd; ++j) value[value_index<Kv>(slot, j, hd)] = narrow<Kv>(v[j]);
      }
    });
  }

  void attention(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
                 float* out, const AttentionForm& form) override {
    const int hd = kv.head_dim, group = heads / kv.kv_heads, width = (heads + 2 * kv.kv_heads) * hd;
    const int queries = rows.n * group;  // queries of one key/value head
    const int blocks = query_blocks(queries, kv.kv_heads);
    const float scale = form.scale > 0 ? form.scale : 1.0f / std::sqrt(static_cast<float>(hd));
    pool_.parallel(blocks * kv.kv_heads, [&](int item, int thread) {
      const int kv_head = item / blocks, part = item % blocks;
      const int first = part * queries / blocks;
      QueryBlock block{};
      block.rows = (part + 1) * queries / blocks - first;
      block.committed = rows.committed_at != nullptr ? *rows.committed_at : rows.committed;
      block.last_slot = block.committed - 1;
      block.scale = scale;
      block.soft_cap = form.soft_cap;
      int begin = form.window > 0 ? INT_MAX : 0;
      for (int r = 0; r < block.rows; ++r) {
        const auto i = static_cast<std::size_t>((first + r) / group);
        const int head = kv_head * group + (first + r) % group;
        const std::int32_t path_end = rows.path_begin[i + 1];
        block.q[r] = qkv + i * static_cast<std::size_t>(width) + head * hd;
        block.path[r] = rows.paths + rows.path_begin[i];
        block.path_length[r] = path_end - rows.path_begin[i];
        block.last_slot = std::max(block.last_slot, rows.paths[path_end - 1]);
        block.out[r] = out + (i * static_cast<std::size_t>(heads) + head) * hd;
        if (form.window > 0) {
          block.first[r] = std::max(0, block.committed + block.path_length[r] - form.window);
          begin = std::min(begin, block.first[r]);
        }
      }
      block.begin = begin / kKeyBlock * kKeyBlock;
      if (rows.view != nullptr)
        list_keys(rows, first, group, listed_[static_cast<std::size_t>(thread)], block);
      auto& scratch = scratch_[static_cast<std::size_t>(thread)];
      if (const std::size_t need = attention_scratch(query_rows(), block.last_slot, hd);
          scratch.size() < need)
        scratch.resize(need);
      const HeadCache<Kv> cache{keys(kv, layer, kv_head), values(kv, layer, kv_head), hd};
      if constexpr (sizeof(Kv) == 2) {
        if (bf16_attention()) return attend_bf16(unit_->emulated, cache, block, scratch.data());
      }
      attend(cache, block, scratch.data());
    });
  }

  void read_attention(const float* qkv, int heads, const KvStore& kv, int layer, const RowsInFlight& rows,
                      const AttentionForm& form, float* mass) override {
    const int hd = kv.head_dim, group = heads / kv.kv_heads, width = (heads + 2 * kv.kv_heads) * hd;
    const auto committed = static_cast<std::size_t>(rows.committed);
    const float share = 1.0f / static_cast<float>(heads);
    masses_.assign(static_cast<std::size_t>(kv.kv_heads) * committed, 0);  // masses of each key/value head
    pool_.parallel(kv.kv_heads, [&](int kv_head, int thread) {
      const HeadCache<Kv> cache{keys(kv, layer, kv_head), values(kv, layer, kv_head), hd};
      for (int query = 0; query < rows.n * group; ++query) {
        const auto i = static_cast<std::size_t>(query / group);
        const int head = kv_head * group + query % group;
        const std::span path(rows.paths + rows.path_begin[i], rows.paths + rows.path_begin[i + 1]);
        add_attention_mass(cache,
                           {qkv + i * static_cast<std::size_t>(width) + head * hd, rows.committed, path},
                           form, share, mass_scores_[static_cast<std::size_t>(thread)],
                           masses_.data() + static_cast<std::size_t>(kv_head) * committed);
      }
    });
    std::fill_n(mass, committed, 0.0f);
    for (std::size_t at = 0; at < masses_.size(); ++at) mass[at % committed] += masses_[at];
  }

  void silu_multiply(const float* gate_up, int n, int ffn, float* out) override {
    each_row(n, 4 * ffn, [&](int i) {
      const float* row = gate_up + static_cast<std::size_t>(i) * 2 * ffn;
      silu_multiply_row(row, row + ffn, ffn, out + static_cast<std::size_t>(i) * ffn);
    });
  }

  void activate(Activation f, bool gated, const float* x, int n, int ffn, float* out) override {
    each_row(n, 8 * ffn, [&](int i) {
      const float* row = x + static_cast<std::size_t>(i) * (gated ? 2 * ffn : ffn);
      activate_row(f, row, gated ? row + ffn : nullptr, ffn, out + static_cast<std::size_t>(i) * ffn);
    });
  }

  void add_bias(const float* x, int n, int d, float* y) override {
    each_row(n, d, [&](int i) { add_row(x, d, y + static_cast<std::size_t>(i) * d); });
  }

  void add(const float* x, int n, int d, float* y) override {
    each_row(n, d, [&](int i) {
      add_row(x + static_cast<std::size_t>(i) * d, d, y + static_cast<std::size_t>(i) * d);
    });
  }

  void scale(float factor, int n, int d, float* x) override {
    each_row(n, d, [&](int i) {
      float* row = x + static_cast<std::size_t>(i) * d;
      for (int k = 0; k < d; ++k) row[k] *= factor;
    });
  }

  void soft_cap(float cap, int n, int d, float* x) override {
    each_row(n, 8 * d, [&](int i) { soft_cap_row(cap, d, x + static_cast<std::size_t>(i) * d); });
  }

  void copy_rows(const float* x, const std::int32_t* rows, int n, int d, float* out) override {
    for (int i = 0; i < n; ++i)
      std::copy_n(x + static_cast<std::size_t>(rows[i]) * d, d, out + static_cast<std::size_t>(i) * d);
  }

  void fill_columns(float value, int begin, int n, int d, float* x) override {
    for (int i = 0; i < n; ++i) std::fill_n(x + static_cast<std::size_t>(i) * d + begin, d - begin, value);
  }

  void move_slots(KvStore& kv, std::span<const std::int32_t> from,
                  std::span<const std::int32_t> to) override {
    for (int layer = 0; layer < kv.layers; ++layer) {
      for (int head = 0; head < kv.kv_heads; ++head) {
        Kv* k = keys(kv, layer, head);
        Kv* v = values(kv, layer, head);
        for (std::size_t j = 0; j < from.size(); ++j) {
          if (from[j] == to[j]) continue;
          for (int d = 0; d < kv.head_dim; ++d)
            k[key_index<Kv>(to[j], d, kv.head_dim)] = k[key_index<Kv>(from[j], d, kv.head_dim)];
          for (int d = 0; d < kv.head_dim; ++d)
            v[value_index<Kv>(to[j], d, kv.head_dim)] = v[value_index<Kv>(from[j], d, kv.head_dim)];
        }
      }
    }
  }

 private:
  static constexpr int kChunk = 4 * kPanel;  // outputs that a thread takes at once
  static_assert(kChunk == kMaximumOf);

  // Layout per layer and head: all keys, then all values.
  static Kv* keys(const KvStore& kv, int layer, int head) {
    const std::size_t one = static_cast<std::size_t>(kv.slots) * static_cast<std::size_t>(kv.head_dim);
    return static_cast<Kv*>(kv.data.get()) + 2 * one * (static_cast<std::size_t>(layer) * kv.kv_heads + head);
  }
  static Kv* values(const KvStore& kv, int layer, int head) {
    return keys(kv, layer, head) + static_cast<std::size_t>(kv.slots) * static_cast<std::size_t>(kv.head_dim);
  }

  // With AVX-512, attention uses bf16 products, too. With AMX, attention uses float products: AMX multiplies
  // only tiles, and no attention kernel arranges its data in tiles.
  bool bf16_attention() const { return unit_ && unit_->unit == Bf16Unit::kAvx512; }
  int query_rows() const { return bf16_attention() ? QueryBlock::kRows : query_block_rows(); }

  // Returns the number of blocks into which the queries of one key/value head are divided. A block has at
  // most query_rows() queries. The number minimises the estimated time of the busiest thread; on a tie, the
  // fewest blocks win. The estimate assumes that reading the keys of a block costs about as much as one
  // query.
  int query_blocks(int queries, int kv_heads) const {
    const auto time = [&](int blocks) {
      const int in_turn = (blocks * kv_heads + pool_.threads() - 1) / pool_.threads();
      return in_turn * ((queries + blocks - 1) / blocks + 1);
    };
    const int fewest = (queries + query_rows() - 1) / query_rows();
    int best = fewest;
    for (int blocks = fewest + 1; blocks <= std::min(queries, fewest + pool_.threads()); ++blocks) {
      if (time(blocks) < time(best)) best = blocks;
    }
    return best;
  }

  // Runs `body` for n rows. `cost` is the work of one row in simple operations. The rows are divided among
  // the threads only if they have 16,384 operations or more in total.
  template <typename Body>
  void each_row(int n, int cost, const Body& body) {
    if (n * cost < 16384) {
      for (int i = 0; i < n; ++i) body(i);
    } else {
      pool_.parallel(n, [&](int i, int) { body(i); });
    }
  }

  // Returns x [n, in] in the order that linear_slice() reads. A row of odd length is extended with a zero.
  const float* interleave(const float* x, int n, int in) {
    const int even = in + in % 2;
    const std::size_t need = static_cast<std::size_t>(n) * static_cast<std::size_t>(even);
    if (interleaved_.size() < need) interleaved_.resize(need);
    const RowGroups groups(n);
    each_row(groups.count, kGroupRows * in, [&](int group) {
      const int first = groups.begin(group), rows = groups.size(group);
      for (int r = 0; r < rows; ++r) {
        const float* from = x + static_cast<std::size_t>(first + r) * in;
        float* to = interleaved_.data() + static_cast<std::size_t>(first) * even + 2 * r;
        for (int k = 0; k + 1 < in; k += 2, to += 2 * rows) std::memcpy(to, from + k, 2 * sizeof(float));
        if (even != in) {
          to[0] = from[in - 1];
          to[1] = 0;
        }
      }
    });
    return interleaved_.data();
  }

  // Returns x [n, in] rounded to bf16, in the order that bf16_linear_slice() reads.
  const Bf16* round(const float* x, int n, int in) {
    const auto length = static_cast<std::size_t>(bf16_row_length(in));
    if (rounded_.size() < static_cast<std::size_t>(n) * length)
      rounded_.resize(static_cast<std::size_t>(n) * length);
    const RowGroups groups = bf16_row_groups(unit_->unit, n);
    each_row(groups.count, groups.least * in, [&](int group) {
      const auto first = static_cast<std::size_t>(groups.begin(group));
      round_group(x + first * static_cast<std::size_t>(in), groups.size(group), in,
                  rounded_.data() + first * length);
    });
    return rounded_.data();
  }

  ThreadPool pool_;
  WeightArena weights_;
  std::string class_;
  std::optional<MatrixUnit> unit_;
  std::string device_;
  std::vector<Scratch> scratch_;                 // per thread: attention, outputs of a chunk
  std::vector<ListedKeys> listed_;               // per thread: attention with a view
  std::vector<float> masses_;                    // read_attention(), [kv_heads, committed]
  std::vector<std::vector<float>> mass_scores_;  // per thread
  std::vector<float> interleaved_;               // activations of a linear layer
  std::vector<Bf16> rounded_;                    // activations of a linear layer, for a bf16 unit
};

}  // namespace
}  // namespace cpu

namespace {

constexpr cpu::Bf16Unit kUnits[] = {cpu::Bf16Unit::kAvx512, cpu::Bf16Unit::kAmx};
constexpr std::string_view kEmulated = "-emulated";

}  // namespace

std::vector<std::string> cpu_numerics_classes() {
  std::vector<std::string> classes = {"f32", "f32-kv16"};
  for (const cpu::Bf16Unit unit : kUnits) {
    if (cpu::supported(unit)) classes.emplace_back(cpu::name_of(unit));
  }
  return classes;
}

const AutoNumerics& auto_cpu_numerics() {
  // Without a bf16 unit, "auto" still uses a 16-bit KV cache. Such a cache needs half the bytes per cached
  // key, and other engines use one by default, too.
  static const AutoNumerics taken = [] {
    const cpu::UnitChoice& choice = cpu::chosen_unit();
    return AutoNumerics{choice.unit ? std::string(cpu::name_of(*choice.unit)) : "f32-kv16", choice.reason};
  }();
  return taken;
}

std::shared_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  if (!cpu::kernels_supported()) {
    throw Error({"this CPU", "no AVX2 with fused multiply-add", "an x86-64 CPU with AVX2 and FMA",
                 "Run on a newer machine."});
  }
  const int most = static_cast<int>(allowed_processors().size());
  if (options.threads < 0 || options.threads > 4 * most) {
    throw Error({"number of threads", std::to_string(options.threads),
                 fmt::format("0 (all usable) to {}", 4 * most), ""});
  }
  const int threads = options.threads == 0 ? usable_threads() : options.threads;
  if (options.numerics == "f32") return std::make_shared<cpu::CpuBackend<float>>(threads, "f32");
  const std::string numerics = options.numerics == "auto" ? auto_cpu_numerics().numerics : options.numerics;
  if (numerics == "f32-kv16") return std::make_shared<cpu::CpuBackend<Bf16>>(threads, "f32-kv16");
  for (const cpu::Bf16Unit unit : kUnits) {
    const std::string name(cpu::name_of(unit));
    const bool emulated = numerics == name + std::string(kEmulated);
    if (emulated || (numerics == name && cpu::supported(unit)))
      return std::make_shared<cpu::CpuBackend<Bf16>>(threads, numerics, cpu::MatrixUnit{unit, emulated});
    if (numerics == name) {
      throw Error({"numerics class", name,
                   fmt::format("one of {} on this CPU", fmt::join(cpu_numerics_classes(), ", ")),
                   fmt::format("{}{} carries out the instructions in plain C++, slowly.", name, kEmulated)});
    }
  }
  throw Error({"numerics class", options.numerics,
               fmt::format("auto or one of {} on this CPU", fmt::join(cpu_numerics_classes(), ", ")), ""});
}

}  // namespace speclab
