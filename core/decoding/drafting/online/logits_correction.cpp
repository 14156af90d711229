#include "core/decoding/drafting/online/logits_correction.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace speclab {

LogitsCorrection::LogitsCorrection(int width, int entries, int most_rows)
    : width_(static_cast<std::size_t>(width)),
      most_(static_cast<std::size_t>(std::min(entries, most_rows))),
      rows_(most_ * (width_ + 1)),
      entry_(most_),
      place_(static_cast<std::size_t>(entries), -1) {
  SPECLAB_CHECK(width > 0 && entries > 0 && most_rows > 0,
                "a correction of {} logits by states of {} with {} rows", entries, width, most_rows);
}

void LogitsCorrection::clear() {
  for (std::size_t i = 0; i < used_; ++i) place_[static_cast<std::size_t>(entry_[i])] = -1;
  used_ = oldest_ = 0;
}

// Sixteen partial sums, which the compiler keeps in vector registers. Their order does not depend on the
// width of these registers.
float LogitsCorrection::product(const float* a, const float* b, std::size_t n) {
  constexpr std::size_t kLanes = 16;
  float lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += a[i] * b[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

void LogitsCorrection::apply(std::span<const float> state, std::span<float> logits) const {
  SPECLAB_CHECK(state.size() == width_ && logits.size() == place_.size(),
                "a state of {} and {} logits for a correction of {} and {}", state.size(), logits.size(),
                width_, place_.size());
  for (std::size_t i = 0; i < used_; ++i)
    logits[static_cast<std::size_t>(entry_[i])] += product(row(i), state.data(), width_) + row(i)[width_];
}

std::size_t LogitsCorrection::row_of(std::size_t entry) {
  if (place_[entry] >= 0) return static_cast<std::size_t>(place_[entry]);
  std::size_t index = used_;
  if (used_ < most_) {
    ++used_;
  } else {
    index = oldest_;
    oldest_ = (oldest_ + 1) % most_;
    place_[static_cast<std::size_t>(entry_[index])] = -1;
  }
  std::fill_n(row(index), width_ + 1, 0.0f);
  entry_[index] = static_cast<std::int32_t>(entry);
  place_[entry] = static_cast<std::int32_t>(index);
  return index;
}

void LogitsCorrection::descend(std::span<const float> state, std::span<const float> gradient,
                               const Step& step) {
  SPECLAB_CHECK(state.size() == width_ && gradient.size() == place_.size(),
                "a state of {} and a gradient of {} for a correction of {} and {}", state.size(),
                gradient.size(), width_, place_.size());
  double squares = 0;
  for (const float slope : gradient) squares += static_cast<double>(slope) * static_cast<double>(slope);
  const double length = std::sqrt(squares);
  const double shrink = length > step.clip ? step.clip / length : 1;
  const double scale = 1 + static_cast<double>(product(state.data(), state.data(), width_));
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double slope = shrink * static_cast<double>(gradient[i]);
    if (slope == 0 || std::abs(slope) < step.least) continue;
    float* const to = row(row_of(i));
    const auto factor = static_cast<float>(step.rate * slope / scale);
    for (std::size_t k = 0; k < width_; ++k) to[k] -= factor * state[k];
    to[width_] -= factor;
  }
}

}  // namespace speclab
