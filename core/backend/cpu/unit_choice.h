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
// The order is AMX, then AVX-512. One TDPBF16PS does 8192 multiply-adds and occupies the unit for 16 cycles:
// 512 per cycle. VDPBF16PS does 32, and a processor starts one or two per cycle: at most 64. So in theory,
// AMX is faster where arithmetic is the limit, as in prompts and wide trees. Where reads of the weights are
// the limit, as in forwards of one row, both should be equally fast. This project has not measured a
// processor with both units. No AMD processor has AMX so far, so those with VDPBF16PS get class avx512-bf16.
//
// The self-test computes random tiles with the unit and with its emulation. All bits must be equal. The
// numbers have usual sizes, and some are zero; there are no NaNs, no infinities and no products below the
// normal numbers. The test covers the matrix products. The attention of class avx512-bf16 uses the same
// instruction, and it is not tested.

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
  std::optional<Bf16Unit> unit;  ///< no value: no candidate is present and passed its self-test
  /// For people: what was found about each candidate up to the one that was taken, such as
  /// "amx-bf16: not on this processor; avx512-bf16: passed its self-test (32 tiles)".
  std::string reason;
};

/// Number of tiles of a whole self-test.
inline constexpr int kSelfTestTiles = 32;
/// After this time, the self-test of one unit stops. It has passed if all tiles so far were equal; at least
/// one tile is tested. There are two units, so both tests take 20 ms and at most two tiles more.
inline constexpr std::int64_t kSelfTestNs = 10'000'000;

/// Takes the first candidate that is present and passes its self-test.
UnitChoice choose_unit(std::span<const UnitCandidate> candidates, const NanosecondClock& now);

/// choose_unit() among the units of this processor. The first call runs the self-tests; later calls return
/// the same choice.
const UnitChoice& chosen_unit();

}  // namespace speclab::cpu
