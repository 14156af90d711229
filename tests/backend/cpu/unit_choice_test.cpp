// Tests which bf16 unit numerics class "auto" takes. The emulations stand in for the units, so the tests need
// no machine that has them.
#include "core/backend/cpu/unit_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace speclab::unit_choice_test {
namespace {

using cpu::Bf16Slice;
using cpu::Bf16Unit;
using cpu::choose_unit;
using cpu::SliceFunction;
using cpu::UnitCandidate;
using cpu::UnitChoice;
using ::testing::HasSubstr;

constexpr Bf16Unit kUnits[] = {Bf16Unit::kAmx, Bf16Unit::kAvx512};

std::int64_t stopped_clock() { return 0; }

SliceFunction right(Bf16Unit unit) {
  return [unit](const Bf16Slice& slice) { cpu::bf16_linear_slice(unit, true, slice); };
}

/// Flips the last bit of the last output of tile number `wrong`, counted from 1.
SliceFunction faulty(Bf16Unit unit, int wrong) {
  return [unit, wrong, tile = 0](const Bf16Slice& slice) mutable {
    cpu::bf16_linear_slice(unit, true, slice);
    if (++tile != wrong) return;
    float& last = slice.y[(slice.n - 1) * slice.y_stride + slice.outputs - 1];
    last = std::bit_cast<float>(std::bit_cast<std::uint32_t>(last) ^ 1);
  };
}

SliceFunction never_called() {
  return [](const Bf16Slice&) { ADD_FAILURE() << "the processor does not have this unit"; };
}

TEST(UnitChoice, TakesTheFirstUnitThatIsPresentAndRight) {
  const UnitCandidate amx{Bf16Unit::kAmx, true, right(Bf16Unit::kAmx)},
      avx512{Bf16Unit::kAvx512, true, right(Bf16Unit::kAvx512)},
      no_amx{Bf16Unit::kAmx, false, never_called()}, no_avx512{Bf16Unit::kAvx512, false, never_called()};

  const UnitChoice first = choose_unit(std::vector{amx, avx512}, stopped_clock);
  EXPECT_EQ(first.unit, Bf16Unit::kAmx);
  EXPECT_EQ(first.reason, "amx-bf16: passed its self-test (32 tiles)") << "the next unit is not tested";

  const UnitChoice second = choose_unit(std::vector{no_amx, avx512}, stopped_clock);
  EXPECT_EQ(second.unit, Bf16Unit::kAvx512);
  EXPECT_EQ(second.reason, "amx-bf16: not on this processor; avx512-bf16: passed its self-test (32 tiles)");

  const UnitChoice none = choose_unit(std::vector{no_amx, no_avx512}, stopped_clock);
  EXPECT_FALSE(none.unit);
  EXPECT_EQ(none.reason, "amx-bf16: not on this processor; avx512-bf16: not on this processor");
}

TEST(UnitChoice, OneWrongBitInOneTileIsFound) {
  for (const int tile : {1, 7, cpu::kSelfTestTiles}) {
    const UnitCandidate wrong{Bf16Unit::kAmx, true, faulty(Bf16Unit::kAmx, tile)},
        avx512{Bf16Unit::kAvx512, true, right(Bf16Unit::kAvx512)};
    const UnitChoice choice = choose_unit(std::vector{wrong, avx512}, stopped_clock);
    EXPECT_EQ(choice.unit, Bf16Unit::kAvx512);
    EXPECT_EQ(choice.reason,
              "amx-bf16: failed its self-test (tile " + std::to_string(tile) +
                  " differs from the emulation); avx512-bf16: passed its self-test (32 tiles)");
  }
  std::vector<UnitCandidate> both;
  for (const Bf16Unit unit : kUnits) both.push_back({unit, true, faulty(unit, 2)});
  const UnitChoice none = choose_unit(both, stopped_clock);
  EXPECT_FALSE(none.unit);
  EXPECT_THAT(none.reason,
              HasSubstr("avx512-bf16: failed its self-test (tile 2 differs from the emulation)"));
}

/// The two units add the products in different orders, so each fails the test of the other. This shows that
/// the tiles tell the orders apart.
TEST(UnitChoice, AnotherOrderOfTheSumsIsFound) {
  const SliceFunction in_order_of_amx = [](const Bf16Slice& slice) {
    for (int row = 0; row < slice.n; ++row) {  // a row by itself has the same layout in both units
      Bf16Slice one = slice;
      one.n = 1;
      one.x = slice.x + static_cast<std::size_t>(row) * cpu::bf16_row_length(slice.in);
      one.y = slice.y + row * slice.y_stride;
      cpu::bf16_linear_slice(Bf16Unit::kAvx512, true, one);
    }
  };
  const UnitChoice choice =
      choose_unit(std::vector<UnitCandidate>{{Bf16Unit::kAmx, true, in_order_of_amx}}, stopped_clock);
  EXPECT_FALSE(choice.unit);
  EXPECT_THAT(choice.reason, HasSubstr("amx-bf16: failed its self-test"));
}

/// Each reading of this clock is 3 ms after the one before, so the test of a unit ends after four tiles.
TEST(UnitChoice, TheTestStopsWhenTheTimeIsUp) {
  std::int64_t time = 0;
  const auto slow = [&] {
    const std::int64_t before = time;
    time += 3'000'000;
    return before;
  };
  const UnitCandidate amx{Bf16Unit::kAmx, true, right(Bf16Unit::kAmx)};
  const UnitChoice choice = choose_unit(std::vector{amx}, slow);
  EXPECT_EQ(choice.unit, Bf16Unit::kAmx);
  EXPECT_EQ(choice.reason, "amx-bf16: passed its self-test so far (4 of 32 tiles; the time was up)");

  // A fault before the time is up still counts, and one tile is always tested.
  const UnitCandidate wrong{Bf16Unit::kAmx, true, faulty(Bf16Unit::kAmx, 4)};
  EXPECT_FALSE(choose_unit(std::vector{wrong}, slow).unit);
  std::int64_t late = 0;
  const auto too_slow = [&] { return late += 1'000'000'000; };
  const UnitCandidate at_once{Bf16Unit::kAmx, true, faulty(Bf16Unit::kAmx, 1)};
  EXPECT_FALSE(choose_unit(std::vector{at_once}, too_slow).unit);
  EXPECT_EQ(choose_unit(std::vector{amx}, too_slow).reason,
            "amx-bf16: passed its self-test so far (1 of 32 tiles; the time was up)");
}

TEST(UnitChoice, AutoIsTheChosenUnit) {
  const UnitChoice& choice = cpu::chosen_unit();
  EXPECT_TRUE(!choice.unit || cpu::supported(*choice.unit));
  const AutoNumerics& taken = auto_cpu_numerics();
  EXPECT_EQ(taken.numerics, choice.unit ? cpu::name_of(*choice.unit) : "f32-kv16");
  EXPECT_EQ(taken.reason, choice.reason);
  EXPECT_EQ(make_cpu_backend({1, "auto"})->numerics_class(), taken.numerics);
}

}  // namespace
}  // namespace speclab::unit_choice_test
