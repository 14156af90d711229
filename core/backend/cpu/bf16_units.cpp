#include "core/backend/cpu/bf16_units.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/backend/cpu/bf16_slices.h"
#include "core/backend/cpu/row_operations.h"

namespace speclab::cpu {
namespace {

// Reads a bit of CPUID leaf 7.
bool cpuid_bit(int subleaf, int reg, int bit) {
  unsigned registers[4];
  if (!__get_cpuid_count(7, static_cast<unsigned>(subleaf), &registers[0], &registers[1], &registers[2],
                         &registers[3]))
    return false;
  return (registers[reg] >> bit & 1) != 0;
}

// Returns true if the operating system saves and restores all registers of `mask`, bits of XCR0: 1-2 stand
// for SSE and AVX, 5-7 for AVX-512, 17-18 for AMX.
bool system_saves(unsigned mask) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c >> 27 & 1) == 0) return false;  // OSXSAVE
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & mask) == mask;
}

bool has_avx512_bf16() {
  constexpr int kEax = 0, kEbx = 1;
  return system_saves(0xe6) && cpuid_bit(0, kEbx, 16) && cpuid_bit(1, kEax, 5);
}

bool has_amx_bf16() {
  constexpr int kEdx = 3;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(ARCH_REQ_XCOMP_PERM)
  return system_saves(0x60000) && cpuid_bit(0, kEdx, 24) && cpuid_bit(0, kEdx, 22) &&
         ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool supported(Bf16Unit unit) {
  static const bool avx512 = has_avx512_bf16(), amx = has_amx_bf16();
  return unit == Bf16Unit::kAvx512 ? avx512 : amx;
}

void round_group(const float* x, int rows, int in, Bf16* out) {
  const int length = bf16_row_length(in);
  if (rows == 1) {
    round_row(x, in, out);
    std::fill(out + in, out + length, Bf16{0});
    return;
  }
  constexpr int kPart = 512;
  alignas(64) Bf16 part[kPart];
  for (int r = 0; r < rows; ++r, x += in) {
    for (int begin = 0; begin < length; begin += kPart) {
      const int inputs = std::clamp(in - begin, 0, kPart), end = std::min(kPart, length - begin);
      round_row(x + begin, inputs, part);
      std::fill(part + inputs, part + end, Bf16{0});
      Bf16* to = out + static_cast<std::size_t>(begin) * static_cast<std::size_t>(rows) + 2 * r;
      for (int k = 0; k < end; k += 2, to += 2 * rows) std::memcpy(to, part + k, 2 * sizeof(Bf16));
    }
  }
}

void bf16_linear_slice(Bf16Unit unit, bool emulated, const Bf16Slice& slice) {
  if (unit == Bf16Unit::kAvx512) (emulated ? avx512_slice_emulated : avx512_slice)(slice);
  else (emulated ? amx_slice_emulated : amx_slice)(slice);
}

double bf16_unit_rounds(Bf16Unit unit, std::int64_t rounds) {
  return unit == Bf16Unit::kAvx512 ? avx512_rounds(rounds) : amx_rounds(rounds);
}

}  // namespace speclab::cpu
