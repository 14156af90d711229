#include "core/decoding/rows/coins.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/rows/row_kernels.h"

namespace speclab {
namespace {

constexpr std::size_t kGroup = kSearchGroup;  // entries per group in the search of categorical()

PhiloxCounter counter_of(const Coins::Address& address) {
  return coin_counter(address.position, static_cast<std::uint32_t>(address.purpose), address.draw);
}

/// Returns the index of the first of `count` masses at which the running sum exceeds `wanted`. If it never
/// does, returns the index of the last positive mass. `running` is the sum before the first mass, and becomes
/// the sum before the returned mass.
template <class Mass>
std::size_t pass(std::size_t count, double wanted, double& running, const Mass& mass_of) {
  std::size_t chosen = 0;
  double before_chosen = running;
  for (std::size_t i = 0; i < count; ++i) {
    const double mass = mass_of(i);
    if (!(mass > 0)) continue;
    chosen = i;
    before_chosen = running;
    running += mass;
    if (running > wanted) break;
  }
  running = before_chosen;
  return chosen;
}

/// Returns the first index at which the running sum of the weights exceeds u * sum, never an index of weight
/// 0. The search has three levels: it finds the chunk by the sums of chunks, then the group of entries in the
/// chunk, then the entry in the group. Rounding can make the running sum of a level stay below the wanted
/// value. The search then takes the last chunk, group or entry of that level that has a positive weight. A
/// GPU finds the same index (core/backend/cuda/kernels/law.h).
template <class T>
std::size_t search(std::span<const T> weights, double u) {
  using row_kernels::kSumChunk;
  const double total = row_kernels::sum(weights);
  SPECLAB_CHECK(total > 0 && std::isfinite(total), "weights sum to {}", total);
  const double wanted = u * total;
  double running = 0;
  const auto cut = [](std::span<const T> row, std::size_t size, std::size_t i) {
    return row.subspan(i * size, std::min(size, row.size() - i * size));
  };
  const std::size_t chunks = (weights.size() + kSumChunk - 1) / kSumChunk;
  const std::size_t c = pass(chunks, wanted, running,
                             [&](std::size_t i) { return row_kernels::sum(cut(weights, kSumChunk, i)); });
  const std::span<const T> chunk = cut(weights, kSumChunk, c);
  const std::size_t g = pass((chunk.size() + kGroup - 1) / kGroup, wanted, running, [&](std::size_t i) {
    double sum = 0;
    for (const T w : cut(chunk, kGroup, i)) sum += static_cast<double>(w);
    return sum;
  });
  const std::span<const T> group = cut(chunk, kGroup, g);
  const std::size_t e =
      pass(group.size(), wanted, running, [&](std::size_t i) { return static_cast<double>(group[i]); });
  return c * kSumChunk + g * kGroup + e;
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

Coins Coins::watched(std::uint64_t seed, std::uint64_t prompt, Watch* watch) {
  Coins coins(seed, prompt);
  coins.watch_ = watch;
  return coins;
}

double Coins::uniform(const Address& address) const {
  SPECLAB_CHECK(script_ == nullptr, "a script chooses between branches; it has no uniform numbers");
  const PhiloxCounter words = philox4x32(counter_of(address), key_);
  const double number = uniform_of(words[0], words[1]);
  return watch_ == nullptr ? number : (*watch_)(address, number);
}

bool Coins::bernoulli(double probability, const Address& address) const {
  SPECLAB_CHECK(!std::isnan(probability), "a coin with the probability NaN");
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

void Coins::gumbel(std::int64_t position, Token first, std::span<float> out, int stream) const {
  SPECLAB_CHECK(script_ == nullptr, "a script decides between branches, it has no noise");
  SPECLAB_CHECK(stream >= 0 && stream < kMostStreams, "stream {} of {}", stream, kMostStreams);
  const Address address{position, Purpose::gumbel, noise_draw(stream)};
  if (watch_ != nullptr) (*watch_)(address, 0);
  row_kernels::gumbel(static_cast<std::size_t>(first), out, counter_of(address), key_);
}

std::size_t Coins::race(std::int64_t position, std::span<const float> weights, int stream,
                        float* arrival) const {
  SPECLAB_CHECK(script_ == nullptr, "a script decides between branches, it has no noise");
  SPECLAB_CHECK(stream >= 0 && stream < kMostStreams, "stream {} of {}", stream, kMostStreams);
  const Address address{position, Purpose::gumbel, noise_draw(stream)};
  if (watch_ != nullptr) (*watch_)(address, 0);
  return row_kernels::race(weights, counter_of(address), key_, arrival);
}

}  // namespace speclab
