#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/backend/cpu/bf16_units.h"

// Chooses the bf16 unit for numerics class "auto": the first one that the processor has and that passes a
// self-test. Without such a unit, "auto" is class f32-kv16.
//
// AMX comes first, then AVX-512. One TDPBF16PS does 8192 multiply-adds and occupies the unit for 16 cycles,
// so AMX does 512 multiply-adds per cycle. One VDPBF16PS does 32, and a processor starts one or two per
// cycle, so AVX-512 does at most 64. In theory, AMX is therefore faster where arithmetic limits the speed, as
// in prompts and wide trees. Both should be equally fast where reads of the weights limit the speed, as in
// forwards of one row. This project has not measured a processor with both units. No AMD processor has AMX so
// far, so those with VDPBF16PS get class avx512-bf16.
//
// The self-test computes random tiles with the unit and with its emulation. All bits must be equal. Some
// numbers are zero, and the others have magnitudes from 2^-7 to 2^5. There are no NaNs and no infinities, and
// no product is subnormal. The test covers only the matrix products. The attention of class avx512-bf16 uses
// the same instruction, but the test does not run it.

namespace speclab::cpu {

/// Computes what bf16_linear_slice() computes.
using SliceFunction = std::function<void(const Bf16Slice&)>;
/// A steady clock in nanoseconds, such as wall_now_ns().
using NanosecondClock = std::function<std::int64_t()>;

/// A unit that "auto" may take.
struct UnitCandidate {
  Bf16Unit unit;
  bool present;         ///< the processor has the unit, and the system permits it
  SliceFunction slice;  ///< not called unless `present`
};

struct UnitChoice {
  std::optional<Bf16Unit> unit;  ///< no value: no present candidate passed its self-test
  /// A text for people. It says what was found about each candidate up to the one that was taken, such as
  /// "amx-bf16: not on this processor; avx512-bf16: passed its self-test (32 tiles)".
  std::string reason;
};

/// Number of tiles of a complete self-test.
inline constexpr int kSelfTestTiles = 32;
/// After this time, the self-test of a unit stops. The unit has passed if all tiles so far were equal. At
/// least one tile is tested. There are two units, so both tests together take at most 20 ms plus the time of
/// two tiles.
inline constexpr std::int64_t kSelfTestNs = 10'000'000;

/// Takes the first candidate that is present and passes its self-test.
UnitChoice choose_unit(std::span<const UnitCandidate> candidates, const NanosecondClock& now);

/// choose_unit() among the units of this processor. The first call runs the self-tests; later calls return
/// the same choice.
const UnitChoice& chosen_unit();

}  // namespace speclab::cpu
