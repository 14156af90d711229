#include "core/model/net/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace speclab {
namespace {

// Frequencies without scaling, each divided by its divisor, in float as transformers computes them.
// `divisors` is [dims/2]; null: all are 1.
std::vector<float> plain(float theta, int dims, const float* divisors = nullptr) {
  std::vector<float> out(static_cast<std::size_t>(dims / 2));
  for (int i = 0; i < dims / 2; ++i) {
    const auto pair = static_cast<std::size_t>(i);
    out[pair] = 1.0f / ((divisors == nullptr ? 1.0f : divisors[pair]) *
                        std::pow(theta, static_cast<float>(2 * i) / static_cast<float>(dims)));
  }
  return out;
}

// Frequencies whose wavelength fits into the trained context more than high_freq_factor times are kept. Those
// whose wavelength fits fewer than low_freq_factor times are divided by `factor`. In between is a smooth
// transition.
float llama3(const Rope& rope, float frequency) {
  const auto context = static_cast<float>(rope.original_context);
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  const float smooth =
      (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// Peng et al. 2023, section 3.2 ("NTK-by-parts"): frequencies with more than beta_fast rotations within the
// trained context are kept, frequencies with fewer than beta_slow rotations are divided by `factor`, and a
// ramp is in between.
void yarn(const Rope& rope, std::vector<float>& frequencies) {
  const auto dimension = [&](double turns) {
    return rope.dims * std::log(rope.original_context / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(static_cast<double>(rope.theta)));
  };
  double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, rope.dims - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const auto ramp = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

}  // namespace

std::vector<float> rope_frequencies(const Rope& rope, int length) {
  float theta = rope.theta;
  if (rope.scaling == Rope::Scaling::kDynamic && length > rope.original_context) {
    const float grown = rope.factor * static_cast<float>(length) / static_cast<float>(rope.original_context) -
                        (rope.factor - 1);
    theta *= std::pow(grown, static_cast<float>(rope.dims) / static_cast<float>(rope.dims - 2));
  }
  std::vector<float> out =
      plain(theta, rope.dims, rope.scaling == Rope::Scaling::kListed ? rope.divisors.data() : nullptr);
  switch (rope.scaling) {
    case Rope::Scaling::kNone:
    case Rope::Scaling::kDynamic:
    case Rope::Scaling::kListed: break;
    case Rope::Scaling::kLinear:
      for (float& frequency : out) frequency /= rope.factor;
      break;
    case Rope::Scaling::kLlama3:
      for (float& frequency : out) frequency = llama3(rope, frequency);
      break;
    case Rope::Scaling::kYarn: yarn(rope, out); break;
  }
  return out;
}

RopeTable make_rope_table(const Rope& rope, int positions, const RopeTable& known) {
  const int dims = std::max(rope.dims, rope.inflated_dims);
  const auto half = static_cast<std::size_t>(dims / 2), size = static_cast<std::size_t>(positions) * half;
  const std::size_t copied = std::min(known.cos.size(), size);
  RopeTable table{dims, {}, {}};
  for (const auto& [to, from] : {std::pair(&table.cos, &known.cos), std::pair(&table.sin, &known.sin)}) {
    to->reserve(size);
    to->assign(from->begin(), from->begin() + static_cast<std::ptrdiff_t>(copied));
  }
  std::vector<float>
      frequencies = rope_frequencies(rope, 1),
      added;  // frequencies of the pairs that inflation adds after the original ones, as in a larger head
  if (dims > rope.dims) {
    added = plain(rope.theta, dims);
    added.erase(added.begin(), added.begin() + rope.dims / 2);
  }
  for (auto position = half > 0 ? static_cast<int>(copied / half) : 0; position < positions; ++position) {
    if (rope.scaling == Rope::Scaling::kDynamic && position >= rope.original_context)
      frequencies = rope_frequencies(rope, position + 1);
    for (const std::vector<float>* some : {&frequencies, &added}) {
      for (const float frequency : *some) {
        const float angle = static_cast<float>(position) * frequency;
        table.cos.push_back(static_cast<float>(std::cos(static_cast<double>(angle))));
        table.sin.push_back(static_cast<float>(std::sin(static_cast<double>(angle))));
        table.cos.back() *= rope.attention_factor;
        table.sin.back() *= rope.attention_factor;
      }
    }
  }
  return table;
}

}  // namespace speclab
