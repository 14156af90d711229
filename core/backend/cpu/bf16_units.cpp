#include "core/backend/cpu/bf16_units.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/backend/cpu/bf16_slices.h"

namespace speclab::cpu {
namespace {

// Bits of CPUID leaf 7. What the system saves and restores is in XCR0: bits 5-7 for AVX-512, 17-18 for AMX.
bool cpuid_bit(int subleaf, int reg, int bit) {
  unsigned registers[4];
  if (!__get_cpuid_count(7, static_cast<unsigned>(subleaf), &registers[0], &registers[1], &registers[2], &registers[3])) return false;
  return (registers[reg] >> bit & 1) != 0;
}

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

void round_rows(const float* x, int n, int in, Bf16* out) {
  const int length = bf16_row_length(in);
  for (int row = 0; row < n; ++row, x += in, out += length) {
    std::transform(x, x + in, out, float_to_bf16);
    std::fill(out + in, out + length, Bf16{0});
  }
}

void bf16_linear_slice(Bf16Unit unit, bool emulated, const Bf16* panels, int in, int outputs, const Bf16* x, int n, float* y,
                       int y_stride, bool accumulate) {
  const Bf16Slice slice{panels, in, outputs, x, n, y, y_stride, accumulate};
  if (unit == Bf16Unit::kAvx512) (emulated ? avx512_slice_emulated : avx512_slice)(slice);
  else (emulated ? amx_slice_emulated : amx_slice)(slice);
}

}  // namespace speclab::cpu
