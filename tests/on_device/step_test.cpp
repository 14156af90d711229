#include "tests/decoding/rules/device_cases.h"

#include "tests/on_device/on_device.h"

// Compares sampling and verification by kernels with the host: the same rows and seed give bitwise the same
// coins, laws, tokens and decisions.

namespace speclab::on_device::step_test {
namespace {

using namespace device_step;

/// The place that runs kernels that are no operation of Backend.
inline const cuda::Place& place() {
  static const auto* const made =
      on_gpu() ? new cuda::Place(*new cuda::Gpu(ordinal())) : new cuda::Place(*new simt::Machine(1));
  return *made;
}

class OnDeviceSampling : public OnDevice {
 protected:
  const std::vector<int> vocabularies =
      on_gpu() ? std::vector<int>{1, 2, 65, 1024, 1025, 5003, 32000, 49152, 128256, 151936}
               : std::vector<int>{2, 65, 1025};
};
class OnDeviceAcceptance : public OnDevice {};

TEST_F(OnDeviceSampling, LogitsBecomeTheLawsOfTheHost) {
  unsigned seed = 300;
  for (const int vocab : vocabularies) {
    const SamplingParams all[] = {{.temperature = 0},
                                  {.temperature = .7},
                                  {.temperature = 1e-40},
                                  {.temperature = 1, .top_k = 40},
                                  {.temperature = 1.5, .top_p = .9},
                                  {.temperature = 1, .top_k = 20, .top_p = .8}};
    for (const SamplingParams& params : all) {
      SCOPED_TRACE(fmt::format("vocabulary {}, temperature {}, top-k {}, top-p {}", vocab, params.temperature,
                               params.top_k, params.top_p));
      const int rows = size(2, 32);
      std::vector<float> logits = random_logits(rows * vocab, ++seed);
      for (int row = 0; row < rows; ++row)
        logits[static_cast<std::size_t>(row * vocab)] = 2.5f;  // no row is banned completely
      const Laws device = standardise(place(), logits, rows, vocab, params);
      for (int row = 0; row < rows; row += 13) {
        Distribution host;
        host.assign_logits(
            std::span(logits).subspan(static_cast<std::size_t>(row * vocab), static_cast<std::size_t>(vocab)),
            params, {}, vocab);
        ASSERT_NO_FATAL_FAILURE(expect_same(host, device, row));
      }
    }
  }
}

TEST_F(OnDeviceSampling, TheSameSeedGivesTheSameTokens) {
  unsigned seed = 400;
  const std::size_t count = size(6, 200);
  for (const int vocab : vocabularies) {
    const Coins coins(seed, 6);
    Distribution row;
    row.assign_logits(random_logits(vocab, ++seed), {.temperature = 2}, {}, vocab);
    std::vector<std::int64_t> positions;
    for (std::size_t i = 0; i < count; ++i) positions.push_back(static_cast<std::int64_t>(i) * 1000003);
    const std::vector<Token> drawn = sample(place(), row, coins, positions, 1, 3, false),
                             raced = sample(place(), row, coins, positions, 0, 0, true);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      ASSERT_EQ(drawn[i], row.sample(coins, {positions[i], Purpose::draft, 3})) << vocab;
      ASSERT_EQ(raced[i], row.sample_coupled(coins, positions[i])) << vocab;
    }
  }
}

TEST_F(OnDeviceAcceptance, ChainsAndTreesAreDecidedAsOnTheHost) {
  std::mt19937 random(50);
  const std::vector<int> vocabularies =
      on_gpu() ? std::vector<int>{1, 2, 7, 64, 1023, 5003} : std::vector<int>{2, 65};
  for (int kind = 0; kind < static_cast<int>(Kind::last); ++kind) {
    for (const int vocab : vocabularies) {
      for (int repeat = 0; repeat < size(1, 8); ++repeat) {
        SCOPED_TRACE(fmt::format("rows {}, vocabulary {}, repeat {}", kind, vocab, repeat));
        const std::uint64_t seed = random();
        const int nodes = 1 + static_cast<int>(random() % (vocab > 1000 ? 12 : 40));
        const Step step =
            random_step(static_cast<Kind>(kind), vocab, nodes, random() % 2 == 0, Coins(seed + 1, 3), random);
        ASSERT_NO_FATAL_FAILURE(compare(place(), step, seed, static_cast<std::int64_t>(random()) << 8));
      }
    }
  }
}

TEST_F(OnDeviceAcceptance, ALargeVocabulary) {
  std::mt19937 random(51);
  const int vocab = size(3000, 128256);
  for (const bool chain : {true, false})
    compare(place(), random_step(Kind::generic, vocab, size(3, 9), chain, Coins(1, 3), random), 2, 40);
}

}  // namespace
}  // namespace speclab::on_device::step_test
