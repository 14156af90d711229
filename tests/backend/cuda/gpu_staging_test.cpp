#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "core/backend/cuda/runtime/staging.h"

namespace speclab::cuda::gpu_staging_test {
namespace {

// A device that carries out a copy only when the host waits for it, or when the second copy after it begins.
TEST(GpuStaging, EveryByteArrivesAndOnePieceIsAlwaysUnderWay) {
  constexpr std::size_t kPiece = 64;
  for (const std::size_t bytes : {0u, 1u, 63u, 64u, 65u, 128u, 129u, 640u, 1000u}) {
    std::vector<char> from(bytes), to(bytes, 1), staged(2 * kPiece, 2);
    std::iota(from.begin(), from.end(), char{3});
    struct Copy {
      char* to;
      const char* from;
      std::size_t size;
      bool done;
    };
    Copy copies[2] = {};
    std::size_t fetched = 0, most_under_way = 0;
    in_pieces(
        from.data(), bytes, kPiece, to.data(), staged.data(),
        [&](char* there, const char* piece, std::size_t size, int half) {
          EXPECT_TRUE(copies[half].size == 0 || copies[half].done)
              << "the half is overwritten while it is in use";
          copies[half] = {there, piece, size, false};
          fetched += size;
          most_under_way =
              std::max(most_under_way, static_cast<std::size_t>(!copies[0].done && copies[0].size > 0) +
                                           (!copies[1].done && copies[1].size > 0));
        },
        [&](int half) {
          std::copy_n(copies[half].from, copies[half].size, copies[half].to);
          copies[half].done = true;
        });
    EXPECT_EQ(to, from) << bytes;
    EXPECT_EQ(fetched, bytes);
    EXPECT_EQ(most_under_way, std::min<std::size_t>(2, (bytes + kPiece - 1) / kPiece));
  }
}

}  // namespace
}  // namespace speclab::cuda::gpu_staging_test
