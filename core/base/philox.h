#pragma once

#include <cstddef>
#include <cstdint>

// The random number generator behind all coins. The host and the GPU compile the same code, so coins have the
// same bits on both.
#if defined(__CUDACC__)
#define SPECLAB_HOST_DEVICE __host__ __device__
#else
#define SPECLAB_HOST_DEVICE
#endif

namespace speclab {

/// The words of a counter (and of the output), or of a key.
template <int kCount>
struct PhiloxWords {
  std::uint32_t word[kCount];

  SPECLAB_HOST_DEVICE constexpr std::uint32_t& operator[](std::size_t i) { return word[i]; }
  SPECLAB_HOST_DEVICE constexpr const std::uint32_t& operator[](std::size_t i) const { return word[i]; }
  bool operator==(const PhiloxWords&) const = default;
};
using PhiloxCounter = PhiloxWords<4>;
using PhiloxKey = PhiloxWords<2>;

inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u;  // added to the key after each round of Philox
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

/// Philox4x32-10, a counter-based random number generator: a bijection of a 128-bit counter
/// under a 64-bit key. A random number is a pure function of its address, the counter. Salmon,
/// Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, §4.3. The constants and
/// the bits of the output are those of philox4x32 in Random123, the library of these authors.
SPECLAB_HOST_DEVICE constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter.word[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter.word[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key.word[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key.word[1],
               static_cast<std::uint32_t>(product0)};
    key = {key.word[0] + kPhiloxWeyl0, key.word[1] + kPhiloxWeyl1};
  }
  return counter;
}

/// The upper 53 bits of two words as a number in [0, 1).
SPECLAB_HOST_DEVICE constexpr double uniform_of(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

}  // namespace speclab
