#include "core/model/files/inflate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "core/base/error.h"
#include "core/base/philox.h"

namespace speclab {
namespace {

constexpr std::uint32_t kSeed = 0x7731ab5e;

// FNV-1a (Fowler, Noll and Vo). The hash of a tensor's name is part of the address of its random numbers.
std::uint32_t hash_of(std::string_view name) {
  std::uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

/// Random weights of one row: uniform with standard deviation 1 / sqrt(3 columns), so that their products
/// with a normalised residual stream are as large as ordinary activations. Every 8 columns share one output
/// of Philox. Several outputs are computed together, which the compiler turns into vector code.
class RandomRow {
 public:
  RandomRow(std::uint32_t tensor, std::int64_t row, std::size_t columns)
      : tensor_(tensor),
        row_(static_cast<std::uint32_t>(row)),
        scale_(1 / (32768.0f * std::sqrt(static_cast<float>(columns)))) {}
  /// Writes columns [begin, end) to out[begin] .. out[end - 1].
  template <typename T>
  void fill(std::size_t begin, std::size_t end, T* out) const {
    std::uint32_t words[4 * kTogether];
    for (std::size_t first = begin / kColumns * kColumns; first < end; first += kColumns) {
      make(static_cast<std::uint32_t>(first / 8), words);
      if (first >= begin && first + kColumns <= end) {
        put(words, 0, kColumns, out + first);
      } else {
        const std::size_t from = std::max(first, begin), to = std::min(first + kColumns, end);
        put(words, from - first, to - first, out + first);
      }
    }
  }

 private:
  static constexpr std::size_t kTogether = 16, kColumns = 8 * kTogether;

  // Writes kTogether outputs of Philox one after the other: those with the numbers first, first + 1, ...
  void make(std::uint32_t first, std::uint32_t (&words)[4 * kTogether]) const {
    std::uint32_t a[kTogether], b[kTogether], c[kTogether], d[kTogether];
    for (std::size_t i = 0; i < kTogether; ++i) {
      a[i] = first + static_cast<std::uint32_t>(i);
      b[i] = row_;
      c[i] = d[i] = 0;
    }
    std::uint32_t key0 = kSeed, key1 = tensor_;
    for (int round = 0; round < kPhiloxRounds; ++round, key0 += kPhiloxWeyl0, key1 += kPhiloxWeyl1) {
      for (std::size_t i = 0; i < kTogether; ++i) {
        const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * a[i];
        const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c[i];
        a[i] = static_cast<std::uint32_t>(product1 >> 32) ^ b[i] ^ key0;
        c[i] = static_cast<std::uint32_t>(product0 >> 32) ^ d[i] ^ key1;
        b[i] = static_cast<std::uint32_t>(product1);
        d[i] = static_cast<std::uint32_t>(product0);
      }
    }
    for (std::size_t i = 0; i < kTogether; ++i) {
      words[4 * i] = a[i];
      words[4 * i + 1] = b[i];
      words[4 * i + 2] = c[i];
      words[4 * i + 3] = d[i];
    }
  }
  // Column i has the lower half of word i / 2 if i is even, otherwise the upper half.
  template <typename T>
  void put(const std::uint32_t (&words)[4 * kTogether], std::size_t begin, std::size_t end, T* out) const {
    std::int16_t halves[kColumns];
    for (std::size_t i = 0; i < 4 * kTogether; ++i) {
      halves[2 * i] = static_cast<std::int16_t>(words[i] & 0xffff);
      halves[2 * i + 1] = static_cast<std::int16_t>(words[i] >> 16);
    }
    for (std::size_t i = begin; i < end; ++i) {
      const Bf16 rounded = float_to_bf16((static_cast<float>(halves[i]) + 0.5f) * scale_);  // never zero
      if constexpr (std::is_same_v<T, Bf16>) out[i] = rounded;
      else out[i] = bf16_to_float(rounded);
    }
  }

  std::uint32_t tensor_, row_;
  float scale_;
};

// The original indices, followed by added ones.
std::vector<int> extended(int from, int to) {
  std::vector<int> map(static_cast<std::size_t>(to), -1);
  std::iota(map.begin(), map.begin() + from, 0);
  return map;
}

// Original layer i goes to i * to / from.
std::vector<int> spread(int from, int to) {
  std::vector<int> map(static_cast<std::size_t>(to), -1);
  for (int i = 0; i < from; ++i) map[static_cast<std::size_t>(static_cast<std::int64_t>(i) * to / from)] = i;
  return map;
}

// Maps the dimensions of an extended head. A pair (i, from/2 + i) of the original becomes the pair (i, to/2 +
// i), so that RoPE rotates the same numbers together. With `append`, all original dimensions come first
// instead.
std::vector<int> head_dimensions(int from, int to, bool append) {
  if (append) return extended(from, to);
  std::vector<int> map(static_cast<std::size_t>(to), -1);
  for (int i = 0; i < from / 2; ++i) {
    map[static_cast<std::size_t>(i)] = i;
    map[static_cast<std::size_t>(i + to / 2)] = i + from / 2;
  }
  return map;
}

// Expands a map of heads to a map of the dimensions of all heads.
std::vector<int> times_dimensions(const std::vector<int>& heads, const std::vector<int>& dims, int from) {
  std::vector<int> map;
  for (const int head : heads) {
    for (const int dim : dims) map.push_back(head < 0 || dim < 0 ? -1 : head * from + dim);
  }
  return map;
}

double parameters(const ModelConfig& c) {
  const double d = c.hidden;
  const double layer = d * (2.0 * c.query_width() + 2.0 * c.kv_width()) + (c.gated ? 3.0 : 2.0) * d * c.ffn;
  const double tables = (c.embedding_of_target ? d : static_cast<double>(c.vocab)) * c.embedding_dim +
                        (c.tied_head ? 0.0 : c.head_rows() * d);
  return c.layers * layer + tables;
}

std::string size_text(double count) {
  if (count >= 1e9) return fmt::format("{:.2f}B", count * 1e-9);
  return count >= 1e6 ? fmt::format("{:.0f}M", count * 1e-6) : fmt::format("{:.0f}k", count * 1e-3);
}

}  // namespace

void InflateShape::fields(OptionVisitor& visit) {
  const auto size = [&](const char* name, int& value, const char* help) {
    visit(name, value, Range<int>{0, 1 << 22}, help);
  };
  size("hidden", hidden,
       "width of the residual stream; 0 keeps the model's own size, here and in the other sizes");
  size("layers", layers, "layers");
  size("heads", heads, "query heads");
  size("kv_heads", kv_heads, "key/value heads");
  size("head_dim", head_dim, "dimensions of a head");
  size("ffn", ffn, "width of the feed-forward");
  size("vocab", vocab, "rows of embedding and output head");
}

Inflation::Inflation(const ModelConfig& original, const InflateShape& shape, const std::string& where)
    : config_(original), qk_norm_(original.qk_norm) {
  const ModelConfig& o = original;
  const auto refuse = [&](const char* key, std::string got, std::string expected, std::string advice) {
    throw Error({fmt::format("{}: inflate{}{}", where, *key == '\0' ? "" : ".", key), std::move(got),
                 std::move(expected), std::move(advice)});
  };
  if (!shape.any())
    refuse("", "no sizes", "at least one of hidden, layers, heads, kv_heads, head_dim, ffn, vocab",
           "Leave out inflate to load the model itself.");
  if (o.inflated)
    refuse("", fmt::format("{}, which is already inflated", o.name), "a model that is not inflated", "");
  if (o.layers == 0) refuse("", "a table without layers", "a model with layers", "");
  const auto size = [&](const char* key, int wanted, int have) {
    if (wanted > 0 && wanted < have) {
      refuse(key, std::to_string(wanted), fmt::format("at least {}, as {} has", have, o.name),
             "An inflated model contains the whole original; leave the key out to keep the size.");
    }
    return wanted > 0 ? wanted : have;
  };
  ModelConfig& c = config_;
  c.hidden = size("hidden", shape.hidden, o.hidden);
  c.layers = size("layers", shape.layers, o.layers);
  c.heads = size("heads", shape.heads, o.heads);
  c.kv_heads = size("kv_heads", shape.kv_heads, o.kv_heads);
  c.head_dim = size("head_dim", shape.head_dim, o.head_dim);
  c.ffn = size("ffn", shape.ffn, o.ffn);
  c.vocab = size("vocab", shape.vocab, o.vocab);
  if (c.layers > 10'000) refuse("layers", std::to_string(c.layers), "at most 10000", "");
  if (c.head_dim % 2 != 0)
    refuse("head_dim", std::to_string(c.head_dim), "an even number, because RoPE rotates pairs of dimensions",
           "");
  if (c.heads % c.kv_heads != 0) {
    refuse("heads", fmt::format("{} heads on {} key/value heads", c.heads, c.kv_heads),
           "a multiple of the key/value heads", "");
  }
  if (constexpr std::int64_t kMost = 1 << 24; std::int64_t{c.heads} * c.head_dim > kMost) {
    refuse("heads", fmt::format("{} heads of {} dimensions", c.heads, c.head_dim),
           fmt::format("at most {} dimensions in all heads together", kMost), "");
  }
  const int group = o.heads / o.kv_heads, new_group = c.heads / c.kv_heads;
  // Number of key/value heads of the twin that the query heads of one original key/value head need.
  const int copies = (group + new_group - 1) / new_group;
  if (c.kv_heads < o.kv_heads * copies) {
    refuse("kv_heads", fmt::format("{} with {} query heads each", c.kv_heads, new_group),
           fmt::format("at least {}, because each of the {} key/value heads of {} serves {} query heads",
                       o.kv_heads * copies, o.kv_heads, o.name, group),
           "Use more key/value heads, or more query heads per key/value head.");
  }
  if (c.hidden > o.hidden && o.norm == NormKind::kLayer) {
    refuse("hidden", std::to_string(c.hidden),
           fmt::format("{}: a layer norm subtracts a mean, which added channels would change", o.hidden),
           "Inflate the other sizes.");
  }
  if (c.vocab > o.vocab && (!o.head_ids.empty() || o.embedding_of_target)) {
    refuse("vocab", std::to_string(c.vocab),
           fmt::format("{}: this draft uses its target's embedding or has a reduced output head", o.vocab),
           "Inflate the other sizes.");
  }

  c.inflated = InflatedFrom{o.name, o.hidden, o.layers, o.heads, o.kv_heads, o.head_dim, o.ffn, o.vocab};
  if (!o.embedding_of_target) c.embedding_dim = c.hidden;
  const auto shrink = [](float eps, int from, int to) {
    return static_cast<float>(static_cast<double>(eps) * from / to);
  };
  c.norm_eps = shrink(o.norm_eps, o.hidden, c.hidden);
  c.qk_norm_eps = shrink(o.qk_norm_eps > 0 ? o.qk_norm_eps : o.norm_eps, o.head_dim, c.head_dim);
  if (o.attention_scale == 0) c.attention_scale = 1.0f / std::sqrt(static_cast<float>(o.head_dim));

  // True if RoPE rotates whole heads of the original. It then rotates whole heads of the twin too.
  bool whole = true;
  for (const Rope& rope : o.ropes) whole = whole && rope.dims == o.head_dim;
  if (whole && c.head_dim > o.head_dim) {
    for (Rope& rope : c.ropes) rope.inflated_dims = c.head_dim;
  }
  layers_ = spread(o.layers, c.layers);
  c.rope_of.clear();
  c.windows.clear();
  for (int layer = 0, last = 0; layer < c.layers;
       ++layer) {  // an added layer has the kind of the original layer before it
    if (original_layer(layer) >= 0) last = original_layer(layer);
    c.rope_of.push_back(o.rope_of[static_cast<std::size_t>(last)]);
    if (!o.windows.empty()) c.windows.push_back(o.windows[static_cast<std::size_t>(last)]);
  }
  hidden_ = extended(o.hidden, c.hidden);
  embedding_ = extended(o.embedding_dim, c.embedding_dim);
  ffn_ = extended(o.ffn, c.ffn);
  vocab_ = extended(o.vocab, c.vocab);
  head_rows_ = extended(o.head_rows(), c.head_rows());
  positions_ = extended(o.position_rows, c.position_rows);
  head_dim_ = head_dimensions(o.head_dim, c.head_dim, !whole);
  Map heads, kv_heads;
  for (int head = 0; head < c.kv_heads; ++head)
    kv_heads.push_back(head < o.kv_heads * copies ? head / copies : -1);
  for (int head = 0; head < c.heads; ++head) {
    const int on = head / new_group,
              place = on % copies * new_group + head % new_group;  // index among the query heads of `kv`
    const int kv = kv_heads[static_cast<std::size_t>(on)];
    heads.push_back(kv >= 0 && place < group ? kv * group + place : -1);
  }
  query_ = times_dimensions(heads, head_dim_, o.head_dim);
  kv_ = times_dimensions(kv_heads, head_dim_, o.head_dim);
  c.name = fmt::format("{} inflated from {}", size_text(parameters(c)), o.name);
}

std::string Inflation::original_tensor(std::string_view name, bool* added) const {
  if (added != nullptr) *added = false;
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return std::string(name);
  int layer = -1;
  const auto [end, code] = std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  if (code != std::errc{} || layer < 0 || layer >= config_.layers) return std::string(name);
  if (added != nullptr) *added = original_layer(layer) < 0;
  while (original_layer(layer) < 0) --layer;  // layer 0 is always an original one
  return fmt::format("layers.{}{}", original_layer(layer), std::string_view(end, name.data() + name.size()));
}

Inflation::Tensor Inflation::tensor(std::string_view base) const {
  const bool bias = base.ends_with(".bias");
  if (bias) base.remove_suffix(5);
  struct Named {
    std::string_view name;
    Tensor tensor;
  };
  const Named all[] = {
      {"token_embedding", {&vocab_, &embedding_, true, false}},
      {"embed_projection", {&hidden_, &embedding_, false, true}},
      {"position_embedding", {&positions_, &hidden_, false, false}},
      {"head", {config_.head_ids.empty() ? &vocab_ : &head_rows_, &hidden_, true, true}},
      {"attn_q", {&query_, &hidden_, true, true, qk_norm_}},
      {"attn_k", {&kv_, &hidden_, true, true, true}},
      {"attn_v", {&kv_, &hidden_, true, true}},
      {"attn_out", {&hidden_, &query_, false, false}},
      {"ffn_gate", {&ffn_, &hidden_, true, true}},
      {"ffn_up", {&ffn_, &hidden_, true, true}},
      {"ffn_down", {&hidden_, &ffn_, false, false}},
      {"attn_q_norm", {nullptr, &head_dim_}},
      {"attn_k_norm", {nullptr, &head_dim_}},
  };
  for (const Named& known : all) {
    if (known.name != base) continue;
    if (bias) return {nullptr, known.tensor.rows};
    Tensor found = known.tensor;
    if (found.rows == nullptr) found.fill = 1;
    return found;
  }
  SPECLAB_CHECK(base.ends_with("norm"), "no tensor {}", base);
  Tensor norm{nullptr, &hidden_};
  norm.fill = bias ? 0 : 1;
  return norm;
}

namespace {

std::string_view base_of(std::string_view name) {
  if (!name.starts_with("layers.")) return name;
  return name.substr(name.find('.', 7) + 1);
}

}  // namespace

std::vector<std::int64_t> Inflation::shape(std::string_view name) const {
  const Tensor t = tensor(base_of(name));
  const auto columns = static_cast<std::int64_t>(t.columns->size());
  return t.rows == nullptr ? std::vector<std::int64_t>{columns}
                           : std::vector<std::int64_t>{static_cast<std::int64_t>(t.rows->size()), columns};
}

template <typename T>
void Inflation::read(std::string_view name, std::int64_t begin, std::int64_t end, const Read<T>& original,
                     T* out) const {
  const Tensor t = tensor(base_of(name));
  bool added_layer = false;
  const std::string from = original_tensor(name, &added_layer);
  const std::size_t width = t.columns->size();
  const auto kept = static_cast<std::size_t>(
      std::count_if(t.columns->begin(), t.columns->end(), [](int c) { return c >= 0; }));
  const auto to_type = [](float value) {
    if constexpr (std::is_same_v<T, Bf16>) return float_to_bf16(value);
    else return value;
  };
  std::vector<T> rows;
  if (t.rows == nullptr) {
    if (!added_layer) {
      rows.resize(static_cast<std::size_t>(*std::max_element(t.columns->begin(), t.columns->end())) + 1);
      original(from, 0, 1, rows.data());
    }
    for (std::size_t i = 0; i < width; ++i) {
      const int c = added_layer ? -1 : (*t.columns)[i];
      out[i] = c < 0 ? to_type(t.fill) : rows[static_cast<std::size_t>(c)];
    }
    return;
  }
  const Map& row_of = *t.rows;
  const auto source = [&](std::int64_t row) {
    return added_layer ? -1 : row_of[static_cast<std::size_t>(row)];
  };
  const std::uint32_t hash = hash_of(name);
  // A run of neighbouring columns [begin, end): they are neighbours in the original too, or the original has
  // none of them.
  struct Run {
    std::size_t begin, end;
    int original;
  };
  std::vector<Run> runs;
  for (std::size_t i = 0; i < width; ++i) {
    const int c = (*t.columns)[i];
    const bool next =
        !runs.empty() && (c < 0 ? runs.back().original < 0
                                : runs.back().original >= 0 &&
                                      c == runs.back().original + static_cast<int>(i - runs.back().begin));
    if (next) runs.back().end = i + 1;
    else runs.push_back({i, i + 1, c});
  }
  const std::size_t original_width =
      kept == width ? width
                    : static_cast<std::size_t>(*std::max_element(t.columns->begin(), t.columns->end())) + 1;
  for (std::int64_t row = begin; row < end;) {
    const int first = source(row);
    std::int64_t stop = row + 1;
    while (first >= 0 && stop < end && source(stop) == first + (stop - row))
      ++stop;  // these rows are consecutive in the original too
    if (first >= 0) {
      rows.resize(static_cast<std::size_t>(stop - row) * original_width);
      original(from, first, first + (stop - row), rows.data());
    }
    for (std::int64_t r = row; r < stop; ++r, out += width) {
      // Writes columns that the original does not have.
      const auto add = [&](std::size_t from_column, std::size_t to_column, bool zero) {
        if (zero) std::fill(out + from_column, out + to_column, to_type(0));
        else RandomRow(hash, r, width).fill(from_column, to_column, out);
      };
      if (first >= 0) {
        const T* old = rows.data() + static_cast<std::size_t>(r - row) * original_width;
        for (const Run& run : runs) {
          if (run.original < 0) add(run.begin, run.end, !t.random_columns);
          else std::copy_n(old + run.original, run.end - run.begin, out + run.begin);
        }
        continue;
      }
      bool zero = !t.random_rows;
      if (t.whole_heads && !added_layer) {  // rows added to an original head are zero
        const auto dims = static_cast<std::int64_t>(head_dim_.size());
        const auto head = row_of.begin() + r / dims * dims;
        zero = zero || std::any_of(head, head + dims, [](int c) { return c >= 0; });
      }
      if (zero || t.random_columns) {
        add(0, width, zero);
      } else {
        for (const Run& run : runs) add(run.begin, run.end, run.original < 0);
      }
    }
    row = stop;
  }
}

template void Inflation::read<Bf16>(std::string_view, std::int64_t, std::int64_t, const Read<Bf16>&,
                                    Bf16*) const;
template void Inflation::read<float>(std::string_view, std::int64_t, std::int64_t, const Read<float>&,
                                     float*) const;

}  // namespace speclab
