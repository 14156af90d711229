#include "core/backend/cpu/unit_choice.h"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "core/backend/cpu/kernels.h"
#include "core/measure/clock.h"

namespace speclab::cpu {
namespace {

int random_from(std::mt19937& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
}

/// Zero, or a number between 2^-7 and 2^5 or its negative.
float random_number(std::mt19937& random) {
  if (random_from(random, 0, 15) == 0) return 0;
  const auto exponent = static_cast<std::uint32_t>(random_from(random, 127 - 7, 127 + 4));
  return std::bit_cast<float>((static_cast<std::uint32_t>(random()) & 0x807fffffu) | exponent << 23);
}

/// A random matrix product in the layouts that a unit reads.
class Tile {
 public:
  Tile(Bf16Unit unit, std::mt19937& random)
      : in_(random_from(random, 1, 160)),
        outputs_(random_from(random, 1, Bf16Slice::kOutputs)),
        rows_(random_from(random, 1, 33)),
        accumulate_(random_from(random, 0, 1) == 1) {
    const std::size_t panel = packed_panel_elements(in_),
                      length = static_cast<std::size_t>(bf16_row_length(in_));
    panels_.resize(panel * static_cast<std::size_t>(padded(outputs_, kPanel) / kPanel));
    for (int j = 0; j < outputs_; ++j) {
      Bf16* to = panels_.data() + panel * static_cast<std::size_t>(j / kPanel);
      for (int k = 0; k < in_; ++k)
        to[(k / 2 * kPanel + j % kPanel) * 2 + k % 2] = float_to_bf16(random_number(random));
    }
    const RowGroups groups = bf16_row_groups(unit, rows_);
    x_.resize(static_cast<std::size_t>(rows_) * length);
    for (int g = 0; g < groups.count; ++g) {
      std::vector<float> x(static_cast<std::size_t>(groups.size(g)) * static_cast<std::size_t>(in_));
      for (float& value : x) value = random_number(random);
      round_group(x.data(), groups.size(g), in_,
                  x_.data() + static_cast<std::size_t>(groups.begin(g)) * length);
    }
    y_.resize(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(outputs_));
    for (float& value : y_) value = random_number(random);
  }

  /// The outputs [rows][outputs] as `slice` computes them.
  std::vector<float> computed(const SliceFunction& slice) const {
    std::vector<float> y = y_;
    slice({panels_.data(), in_, outputs_, x_.data(), rows_, y.data(), outputs_, accumulate_, panels_.data()});
    return y;
  }

 private:
  int in_, outputs_, rows_;
  bool accumulate_;
  std::vector<Bf16> panels_, x_;
  std::vector<float> y_;  ///< what the product is added to if `accumulate_`
};

struct SelfTest {
  int tiles = 0;      ///< how many tiles were tested
  bool equal = true;  ///< true: all tiles have the bits of the emulation; false: the last tile has other bits
};

SelfTest tested(const UnitCandidate& candidate, const NanosecondClock& now) {
  const SliceFunction emulated = [&](const Bf16Slice& slice) {
    bf16_linear_slice(candidate.unit, true, slice);
  };
  std::mt19937 random(1);
  SelfTest test;
  const std::int64_t begin = now();
  do {
    const Tile tile(candidate.unit, random);
    const std::vector<float> expected = tile.computed(emulated), found = tile.computed(candidate.slice);
    test.equal = std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0;
    ++test.tiles;
  } while (test.equal && test.tiles < kSelfTestTiles && now() - begin < kSelfTestNs);
  return test;
}

std::string text_of(const SelfTest& test) {
  if (!test.equal)
    return fmt::format("failed its self-test (tile {} differs from the emulation)", test.tiles);
  if (test.tiles == kSelfTestTiles) return fmt::format("passed its self-test ({} tiles)", test.tiles);
  return fmt::format("passed its self-test so far ({} of {} tiles; the time was up)", test.tiles,
                     kSelfTestTiles);
}

}  // namespace

UnitChoice choose_unit(std::span<const UnitCandidate> candidates, const NanosecondClock& now) {
  UnitChoice choice;
  for (const UnitCandidate& candidate : candidates) {
    if (!choice.reason.empty()) choice.reason += "; ";
    choice.reason += fmt::format("{}: ", name_of(candidate.unit));
    if (!candidate.present) {
      choice.reason += "not on this processor";
      continue;
    }
    const SelfTest test = tested(candidate, now);
    choice.reason += text_of(test);
    if (test.equal) {
      choice.unit = candidate.unit;
      break;
    }
  }
  return choice;
}

const UnitChoice& chosen_unit() {
  static const UnitChoice choice = [] {
    const auto candidate = [](Bf16Unit unit) {
      return UnitCandidate{unit, supported(unit),
                           [unit](const Bf16Slice& slice) { bf16_linear_slice(unit, false, slice); }};
    };
    const UnitCandidate candidates[] = {candidate(Bf16Unit::kAmx), candidate(Bf16Unit::kAvx512)};
    return choose_unit(candidates, wall_now_ns);
  }();
  return choice;
}

}  // namespace speclab::cpu
