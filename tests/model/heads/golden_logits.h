#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace speclab::fixtures {

/// Expects finite logits that differ from the golden rows by at most `tolerance` times the largest one of
/// them.
inline void expect_golden_logits(const nlohmann::json& rows, std::span<const float> got, double tolerance) {
  std::vector<double> wanted;
  for (const nlohmann::json& row : rows) {
    const auto numbers = row.get<std::vector<double>>();
    wanted.insert(wanted.end(), numbers.begin(), numbers.end());
  }
  ASSERT_EQ(got.size(), wanted.size());
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << i;
    largest = std::max(largest, std::abs(wanted[i]));
    worst = std::max(worst, std::abs(wanted[i] - static_cast<double>(got[i])));
  }
  EXPECT_GT(largest, .1);
  EXPECT_LE(worst, tolerance * largest);
}

}  // namespace speclab::fixtures
