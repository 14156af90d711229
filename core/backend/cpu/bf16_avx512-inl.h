// The matrix product of numerics class avx512-bf16. This file is included once for real vectors and once for
// emulated ones, because functions for one instruction set cannot be inlined into functions for another. The
// enclosing namespace must have a type Vector of sixteen floats and zero(), dot(sum, weights, pair),
// load(floats), store(vector, floats); the last two take addresses that are multiples of 64 bytes.

// Returns two inputs as one word. One instruction multiplies both of them.
inline std::int32_t word(const Bf16* pair) {
  std::int32_t both;
  std::memcpy(&both, pair, sizeof(both));
  return both;
}

/// The weights that dot_block() prefetches while it works: `step` bytes per pair of inputs. The
/// address starts at `from` and continues at `then` after `pairs` pairs. If `alone` is true, no other group
/// of rows helps with the prefetching, and the block prefetches one stream per panel. Without prefetching, a
/// block of many rows waits for memory: the processor starts loads ahead of time only within a window of
/// instructions, and the instructions between two loads of weights fill this window. (Zen 5, all matrices of
/// SmolLM2-135M: with prefetching, 16 rows take 1.15 times as long as one row, without it 1.3 times.)
struct Ahead {
  const char* from;
  int step;
  bool alone;
  int pairs;
  const char* then;
};
// How many bytes ahead a block prefetches if Ahead::alone is true. A block of up to 6 rows prefetches 4 KiB
// ahead. A block of more rows takes longer for the same bytes, so it prefetches the weights of the next block
// if those are at most 128 KiB. More would be too much for a cache; then it prefetches only 16 KiB ahead.
constexpr std::size_t near_bytes(int rows, std::size_t block_bytes) {
  if (rows <= 6) return 4096;
  return block_bytes <= 128 << 10 ? block_bytes : 16384;
}

// sums[row][panel][16] = W[panel] x[row]; rows of sums are `stride` floats apart. x: the inputs,
// [pairs][kRows][2].
template <int kRows, int kPanels>
void dot_block(const Bf16* panel, std::size_t panel_elements, int pairs, const Bf16* x, float* sums,
               int stride, Ahead ahead) {
  Vector sum[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) sum[r][p] = zero();
  }
  for (int pair = 0; pair < pairs; ++pair) {
    if (pair == ahead.pairs) ahead.from = ahead.then;
    __builtin_prefetch(ahead.from);
    if (kPanels > 1 && ahead.alone) __builtin_prefetch(ahead.from + panel_elements * sizeof(Bf16));
    ahead.from += ahead.step;
    const Bf16* weights[kPanels];
    for (int p = 0; p < kPanels; ++p)
      weights[p] =
          panel + static_cast<std::size_t>(p) * panel_elements + static_cast<std::size_t>(pair) * 2 * kPanel;
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) sum[r][p] = dot(sum[r][p], weights[p], word(x + 2 * r));
    }
    x += 2 * kRows;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) store(sum[r][p], sums + r * stride + p * kPanel);
  }
}

template <int kRows>
void dot_rows(int panels, const Bf16* panel, std::size_t panel_elements, int pairs, const Bf16* x,
              float* sums, int stride, Ahead ahead) {
  if constexpr (kRows <= 12) {
    if (panels == 2) return dot_block<kRows, 2>(panel, panel_elements, pairs, x, sums, stride, ahead);
  }
  dot_block<kRows, 1>(panel, panel_elements, pairs, x, sums, stride, ahead);
}

// Computes the row groups [first, end) of a slice. The groups work on a block of panels one after the other,
// and together they prefetch the next block. Sums are written to their rows at the end of the slice (as in
// kernels.cpp).
constexpr int kDotGroups = 10;
void dot_groups(const Bf16Slice& s, const RowGroups& groups, int first, int end) {
  alignas(64) float sums[kDotGroups * 16 * Bf16Slice::kOutputs];
  const std::size_t elements = packed_panel_elements(s.in),
                    length = static_cast<std::size_t>(bf16_row_length(s.in));
  const int pairs = (s.in + 1) / 2, count = padded(s.outputs, kPanel) / kPanel, begin = groups.begin(first),
            turns = end - first;
  const int at_once = groups.least + (groups.larger > 0) <= 12 ? 2 : 1;
  for (int p = 0; p < count; p += at_once) {
    const Bf16* panel = s.panels + elements * static_cast<std::size_t>(p);
    const int panels = std::min(at_once, count - p);
    const auto* next =
        p + at_once < count
            ? reinterpret_cast<const char*>(panel + elements * static_cast<std::size_t>(at_once))
            : static_cast<const char*>(s.next);
    const std::size_t share =
        elements * sizeof(Bf16) * static_cast<std::size_t>(at_once) / static_cast<std::size_t>(turns);
    for (int g = first; g < end; ++g) {
      const int near = std::min(
          static_cast<int>(
              near_bytes(groups.least, elements * sizeof(Bf16) * static_cast<std::size_t>(at_once)) / 64),
          pairs);
      const Ahead ahead =
          turns == 1 ? Ahead{reinterpret_cast<const char*>(panel) + 64 * near, 64, true, pairs - near, next}
                     : Ahead{next + share * static_cast<std::size_t>(g - first), 64 * at_once / turns, false,
                             -1, nullptr};
      const Bf16* x = s.x + static_cast<std::size_t>(groups.begin(g)) * length;
      float* out = sums + (groups.begin(g) - begin) * Bf16Slice::kOutputs + p * kPanel;
      const auto run = [&](auto* rows) {
        rows(panels, panel, elements, pairs, x, out, Bf16Slice::kOutputs, ahead);
      };
      switch (groups.size(g)) {
        case 1: run(dot_rows<1>); break;
        case 2: run(dot_rows<2>); break;
        case 3: run(dot_rows<3>); break;
        case 4: run(dot_rows<4>); break;
        case 5: run(dot_rows<5>); break;
        case 6: run(dot_rows<6>); break;
        case 7: run(dot_rows<7>); break;
        case 8: run(dot_rows<8>); break;
        case 9: run(dot_rows<9>); break;
        case 10: run(dot_rows<10>); break;
        case 11: run(dot_rows<11>); break;
        case 12: run(dot_rows<12>); break;
        case 13: run(dot_rows<13>); break;
        case 14: run(dot_rows<14>); break;
        case 15: run(dot_rows<15>); break;
        default: run(dot_rows<16>); break;
      }
    }
  }
  for (int row = begin; row < groups.begin(end); ++row)
    put_sums(sums + (row - begin) * Bf16Slice::kOutputs, s.outputs,
             s.y + static_cast<std::size_t>(row) * s.y_stride, s.accumulate);
}

void dot_slice(const Bf16Slice& s) {
  const RowGroups groups = bf16_row_groups(Bf16Unit::kAvx512, s.n);
  const int parts = (groups.count + kDotGroups - 1) / kDotGroups;
  for (int part = 0; part < parts; ++part)
    dot_groups(s, groups, part * groups.count / parts, (part + 1) * groups.count / parts);
}
