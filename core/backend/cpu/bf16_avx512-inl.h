// The kernel of class avx512-bf16, included once for the real vectors and once for emulated ones, because functions for one
// instruction set cannot be inlined into functions for another. Expects in the enclosing namespace: a type Vector of
// sixteen floats, and zero(), dot(sum, weights, pair), store(vector, floats).

constexpr int kDotRows = 8, kDotPanels = 2;

// sums[row][panel][16] = W[panel] x[row]
template <int kRows, int kPanels>
void dot_block(const Bf16* panel, std::size_t panel_elements, int pairs, const Bf16* x, int x_stride, float* sums) {
  constexpr int kAhead = 4096;  // bytes, as class f32 does
  Vector sum[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) sum[r][p] = zero();
  }
  for (int pair = 0; pair < pairs; ++pair) {
    const Bf16* weights[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      weights[p] = panel + static_cast<std::size_t>(p) * panel_elements + static_cast<std::size_t>(pair) * 2 * kPanel;
      __builtin_prefetch(reinterpret_cast<const char*>(weights[p]) + kAhead);
    }
    for (int r = 0; r < kRows; ++r) {
      std::int32_t inputs;
      std::memcpy(&inputs, x + static_cast<std::size_t>(r) * x_stride + 2 * pair, sizeof(inputs));
      for (int p = 0; p < kPanels; ++p) sum[r][p] = dot(sum[r][p], weights[p], inputs);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) store(sum[r][p], sums + (r * kPanels + p) * kPanel);
  }
}

template <int kRows, int kPanels>
void dot_group(const Bf16Slice& s, int row, int j) {
  alignas(64) float sums[kRows * kPanels * kPanel];
  const std::size_t elements = packed_panel_elements(s.in);
  const int stride = bf16_row_length(s.in);
  dot_block<kRows, kPanels>(s.panels + elements * static_cast<std::size_t>(j / kPanel), elements, (s.in + 1) / 2,
                            s.x + static_cast<std::size_t>(row) * stride, stride, sums);
  const int width = std::min(kPanels * kPanel, s.outputs - j);
  for (int r = 0; r < kRows; ++r)
    put_sums(sums + r * kPanels * kPanel, width, s.y + static_cast<std::size_t>(row + r) * s.y_stride + j, s.accumulate);
}

template <int kRows>
void dot_rows(const Bf16Slice& s, int row, int j) {
  if (s.outputs - j > kPanel) dot_group<kRows, kDotPanels>(s, row, j);
  else dot_group<kRows, 1>(s, row, j);
}

void dot_slice(const Bf16Slice& s) {
  const int groups = (s.n + kDotRows - 1) / kDotRows;
  for (int j = 0; j < s.outputs; j += kDotPanels * kPanel) {
    for (int g = 0; g < groups; ++g) {
      const int row = g * s.n / groups;
      switch ((g + 1) * s.n / groups - row) {
        case 1: dot_rows<1>(s, row, j); break;
        case 2: dot_rows<2>(s, row, j); break;
        case 3: dot_rows<3>(s, row, j); break;
        case 4: dot_rows<4>(s, row, j); break;
        case 5: dot_rows<5>(s, row, j); break;
        case 6: dot_rows<6>(s, row, j); break;
        case 7: dot_rows<7>(s, row, j); break;
        default: dot_rows<8>(s, row, j); break;
      }
    }
  }
}
