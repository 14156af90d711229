#pragma once

#include <array>
#include <cstdint>

namespace speclab {

/// Philox4x32-10, a counter-based generator: a bijection of a 128-bit counter under a 64-bit key, so that a
/// random number is a pure function of its address (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
/// easy as 1, 2, 3", SC 2011, §4.3 and table 2 for the constants). Bit-identical to Random123's philox4x32.
using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u;  // added to the key after each round
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key = {key[0] + kPhiloxWeyl0, key[1] + kPhiloxWeyl1};
  }
  return counter;
}

}  // namespace speclab
