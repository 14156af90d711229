#include "core/spec/coins.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/spec/row_kernels.h"

namespace speclab {
namespace {

constexpr std::size_t kChunk = 1024;  // of the search in categorical(): chunk sums first, then entries

PhiloxCounter counter_of(const Coins::Address& address) {
  const auto position = static_cast<std::uint64_t>(address.position);
  return {address.draw, static_cast<std::uint32_t>(address.purpose), static_cast<std::uint32_t>(position),
          static_cast<std::uint32_t>(position >> 32)};
}

/// Index where the running sum of the weights passes u * sum, never one of weight 0. Chunks are found by
/// their sums, so that rounding matters only inside one chunk: a running sum that ends short there means its
/// last positive weight.
template <class T>
std::size_t search(std::span<const T> weights, double u) {
  const auto chunk_at = [&](std::size_t i) {
    return weights.subspan(i, std::min(kChunk, weights.size() - i));
  };
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); i += kChunk) total += row_kernels::sum(chunk_at(i));
  SPECLAB_CHECK(total > 0 && std::isfinite(total), "weights sum to {}", total);
  const double wanted = u * total;
  double before = 0, before_chosen = 0;
  std::size_t chosen = 0;  // the chunk that passes, else the last one with any weight
  for (std::size_t i = 0; i < weights.size(); i += kChunk) {
    const double mass = row_kernels::sum(chunk_at(i));
    if (mass <= 0) continue;
    chosen = i;
    before_chosen = before;
    before += mass;
    if (before > wanted) break;
  }
  const std::span<const T> chunk = chunk_at(chosen);
  double running = before_chosen;
  std::size_t last_positive = 0;
  for (std::size_t j = 0; j < chunk.size(); ++j) {
    if (!(chunk[j] > 0)) continue;
    last_positive = j;
    running += static_cast<double>(chunk[j]);
    if (running > wanted) break;
  }
  return chosen + last_positive;
}

}  // namespace

Coins::Coins(std::uint64_t seed, std::uint64_t prompt) {
  const PhiloxCounter words =
      philox4x32({static_cast<std::uint32_t>(prompt), static_cast<std::uint32_t>(prompt >> 32), 0, 0},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  key_ = {words[0], words[1]};
}

Coins Coins::scripted(Script* script) {
  Coins coins;
  coins.script_ = script;
  return coins;
}

double Coins::uniform(const Address& address) const {
  SPECLAB_CHECK(script_ == nullptr, "a script decides between branches, it has no uniform numbers");
  const PhiloxCounter words = philox4x32(counter_of(address), key_);
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

bool Coins::bernoulli(double probability, const Address& address) const {
  SPECLAB_CHECK(!std::isnan(probability), "probability of a coin");
  if (probability <= 0) return false;
  if (probability >= 1) return true;
  if (script_ != nullptr) {
    const double branches[2] = {probability, 1 - probability};
    return (*script_)(branches) == 0;
  }
  return uniform(address) < probability;
}

std::size_t Coins::categorical(std::span<const double> weights, const Address& address) const {
  if (script_ != nullptr) return (*script_)(weights);
  return search(weights, uniform(address));
}

std::size_t Coins::categorical(std::span<const float> weights, const Address& address) const {
  if (script_ != nullptr) return (*script_)(std::vector<double>(weights.begin(), weights.end()));
  return search(weights, uniform(address));
}

void Coins::gumbel(std::int64_t position, Token first, std::span<float> out) const {
  SPECLAB_CHECK(script_ == nullptr, "a script decides between branches, it has no noise");
  row_kernels::gumbel(static_cast<std::size_t>(first), out, counter_of({position, Purpose::gumbel, 0}), key_);
}

std::size_t Coins::race(std::int64_t position, std::span<const float> weights) const {
  SPECLAB_CHECK(script_ == nullptr, "a script decides between branches, it has no noise");
  return row_kernels::race(weights, counter_of({position, Purpose::gumbel, 0}), key_);
}

}  // namespace speclab
