// Computes the scores and the weighted values of attention with bf16 products. Include this file after
// bf16_avx512-inl.h. It uses word() of that file, and the type Vector and the functions that the first
// comment of that file lists.

// A word holds the two bf16 numbers that one instruction multiplies. A line is sixteen words (64 bytes): two
// head dimensions of sixteen keys, or sixteen head dimensions of the values in two slots.
constexpr int kWord = 2;

// Number of vectors of sums per row. There are enough to keep the arithmetic units busy and few enough to fit
// in the registers.
constexpr int sums_at_once(int rows) { return rows <= 6 ? 4 : 2; }

// Computes scores[row][slot] for kBlocks blocks of keys and prefetches the next kBlocks blocks. q:
// [head_dim/2][kRows] words.
template <int kRows, int kBlocks>
void score_blocks(const Bf16* keys, int head_dim, const Bf16* q, float* scores, int stride) {
  const std::size_t block = static_cast<std::size_t>(kKeyBlock) * static_cast<std::size_t>(head_dim);
  Vector sum[kRows][kBlocks];
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) sum[r][b] = zero();
  }
  for (int d = 0; d < head_dim; d += 2, q += kWord * kRows) {
    const Bf16* line[kBlocks];
    for (int b = 0; b < kBlocks; ++b)
      line[b] = keys + static_cast<std::size_t>(b) * block + static_cast<std::size_t>(d * kKeyBlock);
    for (int b = 0; b < kBlocks; ++b) __builtin_prefetch(line[b] + kBlocks * block);
    for (int r = 0; r < kRows; ++r) {
      for (int b = 0; b < kBlocks; ++b) sum[r][b] = dot(sum[r][b], line[b], word(q + kWord * r));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) store(sum[r][b], scores + r * stride + b * kKeyBlock);
  }
}

// Number of slots that are processed at once. Their values stay in the first-level cache while the head
// dimensions are processed, one group at a time. The values of the next slots are prefetched meanwhile.
constexpr int kSlots = 64;

// sums[row][0 .. 16 kVectors) += weight * value over positions [begin, end). Position i is in slot i; begin
// and end are even.
template <int kRows, int kVectors>
void mix_pairs(const Bf16* values, int head_dim, int begin, int end, float* sums, int width,
               const Bf16* weights, int stride) {
  const std::size_t ahead = static_cast<std::size_t>(kSlots) * static_cast<std::size_t>(head_dim);
  Vector sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = load(sums + r * width + 16 * v);
  }
  for (int slot = begin; slot < end; slot += 2) {
    const Bf16* line = values + static_cast<std::size_t>(slot) * static_cast<std::size_t>(head_dim);
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(line + kWord * 16 * v + ahead);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = dot(sum[r][v], line + kWord * 16 * v, word(weights + r * stride + slot));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(sum[r][v], sums + r * width + 16 * v);
  }
}

// Writes sixteen words to `line`. Each word pairs a number of one slot with a number of another slot. If
// second_slot is negative, the second numbers are zero.
inline void join_words(const Bf16* first, int slot, const Bf16* second, int second_slot, Bf16* line) {
  std::uint32_t a[16], b[16], both[16];
  std::memcpy(a, first, sizeof(a));
  std::memcpy(b, second, sizeof(b));
  const int down = slot % 2 * 16, second_down = std::max(second_slot, 0) % 2 * 16;
  const std::uint32_t keep = second_slot < 0 ? 0 : 0xffff0000u;
  for (int i = 0; i < 16; ++i) both[i] = (a[i] >> down & 0xffffu) | (b[i] >> second_down << 16 & keep);
  std::memcpy(line, both, sizeof(both));
}

// Like mix_pairs(), but the values may be in any slots: position i is in slot slots[i]. All rows use the same
// slots.
template <int kRows, int kVectors>
void mix_listed_pairs(const Bf16* values, int head_dim, int d, const std::int32_t* slots, int begin, int end,
                      float* sums, int width, const Bf16* weights, int stride) {
  Vector sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = load(sums + r * width + d + 16 * v);
  }
  for (int i = begin; i < end; i += 2) {
    const Bf16 *first = values + value_index<Bf16>(slots[i] / 2 * 2, d, head_dim),
               *second = values + value_index<Bf16>(slots[i + 1] / 2 * 2, d, head_dim);
    alignas(64) Bf16 lines[kVectors][32];
    for (int v = 0; v < kVectors; ++v)
      join_words(first + kWord * 16 * v, slots[i], second + kWord * 16 * v, slots[i + 1], lines[v]);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sum[r][v] = dot(sum[r][v], lines[v], word(weights + r * stride + i));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(sum[r][v], sums + r * width + d + 16 * v);
  }
}

template <int kRows>
void score_rows(const BlockOfScores& s) {
  constexpr int kBlocks = sums_at_once(kRows);
  const std::size_t block = static_cast<std::size_t>(kKeyBlock) * static_cast<std::size_t>(s.head_dim);
  int done = 0;
  for (; done + kBlocks <= s.blocks; done += kBlocks)
    score_blocks<kRows, kBlocks>(s.keys + static_cast<std::size_t>(done) * block, s.head_dim, s.q,
                                 s.scores + done * kKeyBlock, s.stride);
  for (; done < s.blocks; ++done)
    score_blocks<kRows, 1>(s.keys + static_cast<std::size_t>(done) * block, s.head_dim, s.q,
                           s.scores + done * kKeyBlock, s.stride);
}

template <int kRows>
void mix_rows(const BlockOfValues& m) {
  constexpr int kVectors = sums_at_once(kRows);
  const QueryBlock& block = *m.block;
  const int whole = m.head_dim / 16 * 16;
  for (int slot = block.begin; slot < m.in_place; slot += kSlots) {
    const int end = std::min(slot + kSlots, m.in_place);
    int d = 0;
    for (; d + 16 * kVectors <= whole; d += 16 * kVectors)
      mix_pairs<kRows, kVectors>(m.values + kWord * d, m.head_dim, slot, end, m.sums + d, m.width, m.weights,
                                 m.stride);
    for (; d < whole; d += 16)
      mix_pairs<kRows, 1>(m.values + kWord * d, m.head_dim, slot, end, m.sums + d, m.width, m.weights,
                          m.stride);
  }
  const int alike = std::max(block.alike / 2 * 2, m.in_place);
  for (int from = m.in_place; from < alike; from += kSlots) {
    const int end = std::min(from + kSlots, alike);
    int d = 0;
    for (; d + 16 * kVectors <= whole; d += 16 * kVectors)
      mix_listed_pairs<kRows, kVectors>(m.values, m.head_dim, d, block.path[0], from, end, m.sums, m.width,
                                        m.weights, m.stride);
    for (; d < whole; d += 16)
      mix_listed_pairs<kRows, 1>(m.values, m.head_dim, d, block.path[0], from, end, m.sums, m.width,
                                 m.weights, m.stride);
  }
  for (int r = 0; r < kRows; ++r) {
    const int count = block.count(r);
    for (int d = 0; d < m.width; d += 16) {
      float* const to = m.sums + r * m.width + d;
      Vector sum = load(to);
      for (int i = d < whole ? alike : block.begin; i < count; i += 2) {
        const int slot = block.slot(r, i), next = i + 1 < count ? block.slot(r, i + 1) : -1;
        alignas(64) Bf16 line[32] = {};
        if (d < whole) {
          const Bf16* first = m.values + value_index<Bf16>(slot / 2 * 2, d, m.head_dim);
          join_words(first, slot,
                     next < 0 ? first : m.values + value_index<Bf16>(next / 2 * 2, d, m.head_dim), next,
                     line);
        } else {
          for (int j = 0; d + j < m.head_dim; ++j) {
            line[2 * j] = m.values[value_index<Bf16>(slot, d + j, m.head_dim)];
            if (next >= 0) line[2 * j + 1] = m.values[value_index<Bf16>(next, d + j, m.head_dim)];
          }
        }
        sum = dot(sum, line, word(m.weights + r * m.stride + i));
      }
      store(sum, to);
    }
  }
}

template <class Work>
void for_rows(int rows, const Work& work) {
  switch (rows) {
    case 1: return work(std::integral_constant<int, 1>{});
    case 2: return work(std::integral_constant<int, 2>{});
    case 3: return work(std::integral_constant<int, 3>{});
    case 4: return work(std::integral_constant<int, 4>{});
    case 5: return work(std::integral_constant<int, 5>{});
    case 6: return work(std::integral_constant<int, 6>{});
    case 7: return work(std::integral_constant<int, 7>{});
    case 8: return work(std::integral_constant<int, 8>{});
    case 9: return work(std::integral_constant<int, 9>{});
    case 10: return work(std::integral_constant<int, 10>{});
    case 11: return work(std::integral_constant<int, 11>{});
    default: return work(std::integral_constant<int, 12>{});
  }
}
void scores(const BlockOfScores& s) {
  for_rows(s.rows, [&](auto rows) { score_rows<rows.value>(s); });
}
void values(const BlockOfValues& m) {
  for_rows(m.block->rows, [&](auto rows) { mix_rows<rows.value>(m); });
}
