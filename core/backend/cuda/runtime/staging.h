#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

// Downloads large arrays from a device through a small buffer of pinned memory. If the driver copied to
// pageable memory itself, it would finish one piece before it starts the next.

namespace speclab::cuda {

/// Fetches `bytes` in pieces through the two halves of `staged` (2 * piece bytes): while the device fills one
/// half, the host empties the other. `fetch(to, from, size, half)` starts a copy; `wait(half)` waits for the
/// last copy into that half.
template <typename Fetch, typename Wait>
void in_pieces(const char* from, std::size_t bytes, std::size_t piece, char* to, char* staged,
               const Fetch& fetch, const Wait& wait) {
  const std::size_t count = (bytes + piece - 1) / piece;
  const auto size_of = [&](std::size_t i) { return std::min(piece, bytes - i * piece); };
  for (std::size_t i = 0; i <= count; ++i) {
    if (i < count) fetch(staged + i % 2 * piece, from + i * piece, size_of(i), static_cast<int>(i % 2));
    if (i == 0) continue;
    wait(static_cast<int>((i - 1) % 2));
    std::memcpy(to + (i - 1) * piece, staged + (i - 1) % 2 * piece, size_of(i - 1));
  }
}

}  // namespace speclab::cuda
