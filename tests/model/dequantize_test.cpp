#include "core/model/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace speclab {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i < text.size(); i += 2)
    out.push_back(std::byte(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

std::uint32_t bits_of(float value) {
  return std::isnan(value) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(value);
}

struct Golden {
  TensorType type;
  std::vector<std::byte> input;
  std::vector<std::uint32_t> output;
};

/// Written by scripts/oracle/dequantize.py with the `gguf` package.
std::vector<Golden> golden() {
  std::ifstream file(SPECLAB_SOURCE_DIR "/tests/golden/dequantize/blocks.json");
  const auto types = nlohmann::json::parse(file).at("types");
  std::vector<Golden> out;
  for (const TensorType type : {TensorType::kF16, TensorType::kBf16, TensorType::kQ4_0, TensorType::kQ4_1,
                                TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ8_0}) {
    const auto& entry = types.at(std::string(tensor_type_info(type).name));
    const std::string text = entry.at("output");
    Golden one{type, from_hex(entry.at("input")), {}};
    for (std::size_t i = 0; i < text.size(); i += 8) {
      one.output.push_back(static_cast<std::uint32_t>(std::stoul(text.substr(i, 8), nullptr, 16)));
    }
    out.push_back(one);
  }
  return out;
}

TEST(Dequantize, EqualsTheGgufPackageBitForBit) {
  for (const Golden& one : golden()) {
    const auto& info = tensor_type_info(one.type);
    ASSERT_EQ(
        one.input.size() / static_cast<std::size_t>(info.block_bytes) * static_cast<std::size_t>(info.block),
        one.output.size());
    ASSERT_GE(one.output.size(), 256u);
    std::vector<float> values(one.output.size());
    dequantize(one.type, one.input.data(), static_cast<std::int64_t>(values.size()), values.data());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(bits_of(values[i]), one.output[i]) << info.name << " weight " << i;
  }
}

TEST(Dequantize, ToBf16RoundsTheFloats) {
  for (const Golden& one : golden()) {
    // Several pieces, and a start that is not aligned.
    const std::size_t copies = 3;
    std::vector<std::byte> input(1);
    for (std::size_t i = 0; i < copies; ++i) input.insert(input.end(), one.input.begin(), one.input.end());
    std::vector<Bf16> values(copies * one.output.size());
    dequantize_to_bf16(one.type, input.data() + 1, static_cast<std::int64_t>(values.size()), values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float exact = std::bit_cast<float>(one.output[i % one.output.size()]);
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(bf16_to_float(values[i])));
      } else {
        ASSERT_EQ(values[i], float_to_bf16(exact)) << tensor_type_info(one.type).name << " weight " << i;
      }
    }
  }
}

TEST(Dequantize, FloatsAreCopied) {
  const std::vector<float> values{1.f, -0.f, 3e38f, 1e-40f};
  std::vector<float> out(4);
  dequantize(TensorType::kF32, reinterpret_cast<const std::byte*>(values.data()), 4, out.data());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(bits_of(out[i]), bits_of(values[i]));
}

TEST(Dequantize, HalfIsExactForEveryPattern) {
  for (std::uint32_t bits = 0; bits < 1u << 16; ++bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) {
      value =
          mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    }
    if (bits >> 15) value = -value;
    ASSERT_EQ(bits_of(half_to_float(static_cast<std::uint16_t>(bits))), bits_of(static_cast<float>(value)))
        << bits;
  }
}

TEST(Dequantize, CountsAreWholeBlocks) {
  std::byte block[34]{};
  float out[64];
  EXPECT_THROW(dequantize(TensorType::kQ8_0, block, 31, out), Bug);
  EXPECT_THROW(dequantize(TensorType::kF32, block, -1, out), Bug);
  EXPECT_THROW(dequantize(TensorType::kI32, block, 1, out), Bug);
}

}  // namespace
}  // namespace speclab
