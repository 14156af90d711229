#include "core/model/files/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/sha256.h"

namespace speclab::dequantize_test {
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

std::vector<std::uint32_t> words(const std::string& hex) {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < hex.size(); i += 8)
    out.push_back(static_cast<std::uint32_t>(std::stoul(hex.substr(i, 8), nullptr, 16)));
  return out;
}

struct Golden {
  TensorType type;
  std::vector<std::byte> input;
  std::vector<std::uint32_t> output;  ///< K types: of the last weights; other types: of all weights
  std::vector<std::string> sha256;    ///< K types: of the little-endian bits of every block

  std::size_t weights() const {
    const auto& info = tensor_type_info(type);
    return input.size() / static_cast<std::size_t>(info.block_bytes) * static_cast<std::size_t>(info.block);
  }
};

constexpr TensorType kGoldenTypes[] = {
    TensorType::kF16,  TensorType::kBf16, TensorType::kQ4_0,  TensorType::kQ4_1, TensorType::kQ5_0,
    TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kIq4Nl, TensorType::kQ2K,  TensorType::kQ3K,
    TensorType::kQ4K,  TensorType::kQ5K,  TensorType::kQ6K,
};

/// Written by scripts/oracle/dequantize.py with the `gguf` package.
std::vector<Golden> golden() {
  const char* other = std::getenv("SPECLAB_DEQUANTIZE_GOLDEN");
  std::ifstream file(other != nullptr ? other : SPECLAB_SOURCE_DIR "/tests/golden/dequantize/blocks.json");
  const auto types = nlohmann::json::parse(file).at("types");
  std::vector<Golden> out;
  for (const TensorType type : kGoldenTypes) {
    const auto& entry = types.at(std::string(tensor_type_info(type).name));
    const bool hashed = entry.contains("sha256");
    Golden one{type, from_hex(entry.at("input")), words(entry.at(hashed ? "last_output" : "output")), {}};
    if (hashed) one.sha256 = entry.at("sha256");
    out.push_back(one);
  }
  return out;
}

TEST(Dequantize, EqualsTheGgufPackageBitForBit) {
  for (const Golden& one : golden()) {
    const auto& info = tensor_type_info(one.type);
    const std::size_t block = static_cast<std::size_t>(info.block);
    std::vector<float> values(one.weights());
    ASSERT_GE(values.size(), 256u);
    ASSERT_LE(one.output.size(), values.size());
    dequantize(one.type, one.input.data(), static_cast<std::int64_t>(values.size()), values.data());
    std::vector<std::uint32_t> bits;
    for (const float value : values) bits.push_back(bits_of(value));
    const std::size_t skip = bits.size() - one.output.size();
    for (std::size_t i = 0; i < one.output.size(); ++i)
      ASSERT_EQ(bits[skip + i], one.output[i]) << info.name << " weight " << skip + i;
    if (one.sha256.empty()) {
      ASSERT_EQ(skip, 0u) << info.name;
      continue;
    }
    ASSERT_EQ(one.sha256.size() * block, bits.size());
    for (std::size_t i = 0; i < one.sha256.size(); ++i) {
      const auto bytes = std::as_bytes(std::span(bits).subspan(i * block, block));
      ASSERT_EQ(sha256_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}), one.sha256[i])
          << info.name << " block " << i;
    }
  }
}

TEST(Dequantize, ToBf16RoundsTheFloats) {
  for (const Golden& one : golden()) {
    // Reads in several pieces, and from a start that is not aligned.
    const std::size_t copies = 3;
    std::vector<std::byte> input(1);
    for (std::size_t i = 0; i < copies; ++i) input.insert(input.end(), one.input.begin(), one.input.end());
    const std::size_t size = one.weights();
    std::vector<float> exact(size);
    dequantize(one.type, one.input.data(), static_cast<std::int64_t>(size), exact.data());
    std::vector<Bf16> values(copies * size);
    dequantize_to_bf16(one.type, input.data() + 1, static_cast<std::int64_t>(values.size()), values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(exact[i % size])) {
        ASSERT_TRUE(std::isnan(bf16_to_float(values[i])));
      } else {
        ASSERT_EQ(values[i], float_to_bf16(exact[i % size]))
            << tensor_type_info(one.type).name << " weight " << i;
      }
    }
  }
}

TEST(Dequantize, NamesEveryTypeThatHoldsWeights) {
  EXPECT_EQ(weight_type_names(),
            "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, Q2_K, Q3_K, Q4_K, Q5_K or Q6_K");
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
  EXPECT_THROW(dequantize(TensorType::kQ4K, block, 32, out), Bug);
  EXPECT_THROW(dequantize(TensorType::kF32, block, -1, out), Bug);
  EXPECT_THROW(dequantize(TensorType::kI32, block, 1, out), Bug);
}

}  // namespace
}  // namespace speclab::dequantize_test
