// Standardising and sampling by kernels on a simulated GPU have the bits of Distribution and Coins.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/backend/cuda/program/planned.h"
#include "core/backend/cuda_kernels.h"
#include "tests/decoding/rules/device_cases.h"

namespace speclab::device_sampling_test {
namespace {

using namespace device_step;

TEST(DeviceSampling, RowsOfLogitsBecomeTheSameLaws) {
  simt::Machine machine(1);
  unsigned seed = 0;
  for (const int vocab : {1, 2, 31, 64, 65, 1000, 1024, 1025, 4096, 4097, 5003, 9217, 49152}) {
    for (const double temperature : {0.0, .7, 1.0, 1e-40}) {
      if (vocab > 10000 && temperature != .7) continue;
      SCOPED_TRACE(fmt::format("vocabulary {}, temperature {}", vocab, temperature));
      const int rows = vocab > 1025 ? 1 : 3;
      std::vector<float> logits = random_logits(rows * vocab, ++seed);
      for (int row = 0; row < rows; ++row)
        logits[static_cast<std::size_t>(row * vocab)] = 2.5f;  // no row is banned completely
      const Laws device = standardise(machine, logits, rows, vocab, {.temperature = temperature});
      for (int row = 0; row < rows; ++row) {
        Distribution host;
        host.assign_logits(
            std::span(logits).subspan(static_cast<std::size_t>(row * vocab), static_cast<std::size_t>(vocab)),
            {.temperature = temperature}, {}, vocab);
        ASSERT_NO_FATAL_FAILURE(expect_same(host, device, row));
      }
    }
  }
}

TEST(DeviceSampling, AReducedVocabularyIsSpread) {
  simt::Machine machine(2);
  std::vector<Token> ids;
  for (const int vocab : {3001, 12000}) {  // the second one has two blocks
    for (Token token = ids.empty() ? 3 : ids.back() + 1; token + 1 < vocab; token += 1 + token % 3)
      ids.push_back(token);
    const std::vector<float> logits = random_logits(static_cast<int>(ids.size()), 9);
    for (const double temperature : {0.0, 1.3}) {
      Distribution host;
      host.assign_logits(logits, {.temperature = temperature}, ids, vocab);
      expect_same(host, standardise(machine, logits, 1, vocab, {.temperature = temperature}, ids), 0);
    }
  }
}

// Several rows with several blocks each, in random order. One of the rows is broken.
TEST(DeviceSampling, BlocksOfARowMeet) {
  constexpr int kRows = 4, kVocab = 2 * cuda::kRowPiece + 100;
  for (unsigned seed = 0; seed < 3; ++seed) {
    simt::Machine machine(seed);
    std::vector<float> logits = random_logits(kRows * kVocab, 40 + seed);
    logits[kVocab + 6000] = std::numeric_limits<float>::quiet_NaN();
    for (const double temperature : {0.0, 1.0}) {
      const Laws laws = standardise(machine, logits, kRows, kVocab, {.temperature = temperature});
      EXPECT_EQ(laws.laws[1].invalid, 6000);
      for (const int row : {0, 2, 3}) {
        Distribution host;
        host.assign_logits(std::span(logits).subspan(static_cast<std::size_t>(row * kVocab), kVocab),
                           {.temperature = temperature}, {}, kVocab);
        ASSERT_NO_FATAL_FAILURE(expect_same(host, laws, row));
      }
    }
  }
}

// Weights so small that no arrival time is finite: the race has no winner, and the best token is drawn.
TEST(DeviceSampling, ARaceThatNobodyFinishes) {
  constexpr int kVocab = cuda::kRowPiece + 70;
  simt::Machine machine(8);
  const DeviceArray<float> weights(machine, std::vector<float>(kVocab, 0.0f));
  const DeviceArray<cuda::Law> laws(machine, std::vector<cuda::Law>(1));
  const DeviceArray<std::int64_t> position(machine, std::vector<std::int64_t>{5});
  for (const bool several : {false, true}) {
    const Meeting meeting(machine, 1, kVocab);
    const DeviceArray<std::int32_t> token(machine, 1);
    cuda::Sample a{.weights = weights.data(), .laws = laws.data(), .rows = 1, .vocab = kVocab};
    a.positions = position.data();
    a.coupled = true;
    a.tokens = token.data();
    if (several) a.meeting = meeting.memory();
    cuda::launch(a, cuda::Place(machine).stream());
    EXPECT_EQ(token[0], 0);
  }
}

TEST(DeviceSampling, TopKAndTopPKeepTheSameTokens) {
  simt::Machine machine(5);
  unsigned seed = 200;
  for (const int vocab : {1, 2, 50, 1025, 49152}) {
    for (const auto& [top_k, top_p] : {std::pair{1, 1.0},
                                       {7, 1.0},
                                       {vocab - 1, 1.0},
                                       {0, .9},
                                       {0, .5},
                                       {0, 1e-9},
                                       {0, 1 - 1e-12},
                                       {20, .8},
                                       {vocab, .99}}) {
      if (top_k < 0 || (vocab > 10000 && top_k != 20 && top_p != .9)) continue;
      SCOPED_TRACE(fmt::format("vocabulary {}, top-k {}, top-p {}", vocab, top_k, top_p));
      const std::vector<float> logits = random_logits(vocab, ++seed);
      const SamplingParams params{.temperature = 1.5, .top_k = top_k, .top_p = top_p};
      Distribution host;
      host.assign_logits(logits, params, {}, vocab);
      ASSERT_NO_FATAL_FAILURE(expect_same(host, standardise(machine, logits, 1, vocab, params), 0));
    }
  }
  // All equal: ties go to the lowest tokens.
  const std::vector<float> equal(70, 1.0f);
  const Laws kept = standardise(machine, equal, 1, 70, {.temperature = 1, .top_p = .5});
  for (std::size_t i = 0; i < 70; ++i) EXPECT_EQ(kept.weights[i], i < 35 ? 1.0f : 0.0f);
}

// Rows of three pieces. standardise() compares one block a row with several.
TEST(DeviceSampling, SeveralBlocksCutARowAtTheSameEntry) {
  constexpr int kVocab = 2 * cuda::kRowPiece + 70, kRows = 3;
  simt::Machine machine(12);
  const auto same = [&](const std::vector<float>& logits, const SamplingParams& params) {
    SCOPED_TRACE(
        fmt::format("temperature {}, top-k {}, top-p {}", params.temperature, params.top_k, params.top_p));
    const int rows = static_cast<int>(logits.size()) / kVocab;
    const Laws laws = standardise(machine, logits, rows, kVocab, params);
    for (int row = 0; row < rows; ++row) {
      if (laws.laws[static_cast<std::size_t>(row)].invalid >= 0) continue;
      Distribution host;
      host.assign_logits(std::span(logits).subspan(static_cast<std::size_t>(row * kVocab), kVocab), params,
                         {}, kVocab);
      ASSERT_NO_FATAL_FAILURE(expect_same(host, laws, row));
    }
  };
  std::vector<float> logits;
  for (int row = 0; row < kRows; ++row) {
    const std::vector<float> more = random_logits(kVocab, 300 + static_cast<unsigned>(row));
    logits.insert(logits.end(), more.begin(), more.end());
  }
  logits[kVocab + 5000] = std::numeric_limits<float>::quiet_NaN();  // row 1 is not valid, the others are cut
  for (const double temperature : {1.0, .01, 300.0}) {              // 300: almost all entries have one code
    same(logits, {.temperature = temperature, .top_k = 50});
    same(logits, {.temperature = temperature, .top_p = .9});
    same(logits, {.temperature = temperature, .top_k = 200, .top_p = .95});
  }
  same(logits, {.temperature = 1, .top_k = 1});
  same(logits, {.temperature = 1, .top_k = kVocab - 1});
  same(logits, {.temperature = 1, .top_k = kVocab, .top_p = .5});
  same(logits, {.temperature = 1, .top_k = kVocab / 2, .top_p = .999});
  same(logits, {.temperature = 1, .top_p = 1 - 1e-12});
  same(logits, {.temperature = 1, .top_p = 1e-9});
  // Equal logits, more than RowCut::kWords: the last block searches the whole row. Ties go to the lowest
  // tokens.
  const std::vector<float> equal(kVocab, 1.0f);
  same(equal, {.temperature = 1, .top_k = 5000});
  same(equal, {.temperature = 1, .top_p = .3});
}

TEST(DeviceSampling, RowsThatAreCutHaveSeveralBlocks) {
  simt::u64 best = 0;
  cuda::RowCut cut;
  cuda::Standardise a{.columns = 128256, .vocab = 128256, .top_p = .9, .meeting = {&best}, .cuts = &cut};
  std::vector<std::string> started;
  cuda::start_laws(a, [&](const char* name, const auto&) { started.push_back(name); });
  EXPECT_EQ(started, (std::vector<std::string>{"largest_of_rows", "cut_rows", "cut_rows", "cut_rows",
                                               "cut_rows", "standardise"}));
  a.cuts = nullptr;
  EXPECT_FALSE(has_pieces(a));
  a.top_p = 1;
  EXPECT_TRUE(has_pieces(a));
}

TEST(DeviceSampling, APlanGivesItsRowsSeveralBlocks) {
  const auto backend = make_cuda_backend({.device = 0, .threads = 1, .simulated = true});
  PlanShape shape;
  shape.widths = {1, 1};
  shape.vocab = shape.draft_columns = 3 * cuda::kRowPiece;
  shape.target = {.greedy = false, .top_p = .9};
  shape.draft = {.greedy = false, .top_k = 40};
  const std::shared_ptr<Plan> plan = backend->device_program()->make_plan(shape);
  const auto blocks = [](const auto& arguments) {
    int found = 0;
    with_kernel(arguments, [&](const auto&, const cuda::LaunchShape& grid) { found = grid.grid_x; });
    return found;
  };
  EXPECT_TRUE(cuda::is_cut(cuda::target_laws_of(*plan)));
  EXPECT_EQ(blocks(cuda::target_laws_of(*plan)), 3);
  EXPECT_EQ(blocks(cuda::draft_laws_of(*plan, 1)), 3);
  EXPECT_EQ(blocks(cuda::accept_of(*plan)), 3);
}

// A draft's head with a reduced vocabulary: ids are those of tokens, keys those of columns.
TEST(DeviceSampling, SeveralBlocksCutARowOfAReducedVocabulary) {
  constexpr int kColumns = cuda::kRowPiece + 300, kVocab = 2 * kColumns;
  simt::Machine machine(13);
  std::vector<Token> ids;
  for (int i = 0; i < kColumns; ++i) ids.push_back(2 * i + (i % 3 == 0 ? 1 : 0));
  standardise(machine, random_logits(kColumns, 77), 1, kVocab, {.temperature = 1, .top_k = 40, .top_p = .9},
              ids);
}

TEST(DeviceSampling, BrokenLogitsAreReported) {
  simt::Machine machine(3);
  std::vector<float> logits = random_logits(300, 4);
  logits[117] = std::numeric_limits<float>::quiet_NaN();
  logits[250] = kInfinity;
  EXPECT_EQ(standardise(machine, logits, 1, 300, {.temperature = 1}).laws[0].invalid, 117);
  logits[117] = 1;
  EXPECT_EQ(standardise(machine, logits, 1, 300, {}).laws[0].invalid, 250);
  EXPECT_EQ(
      standardise(machine, std::vector<float>(300, -kInfinity), 1, 300, {.temperature = 1}).laws[0].invalid,
      300);
}

TEST(DeviceSampling, CoinsHaveTheSameBits) {
  const Coins coins(77, 5);
  const cuda::PhiloxCoins device{coins.key()};
  for (const std::int64_t position :
       {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 40, std::int64_t{-7}}) {
    for (const Purpose purpose : {Purpose::target, Purpose::draft, Purpose::accept, Purpose::residual}) {
      for (std::uint32_t draw = 0; draw < 3; ++draw) {
        EXPECT_EQ(device.uniform(position, static_cast<simt::u32>(purpose), draw),
                  coins.uniform({position, purpose, draw}));
      }
    }
  }
  std::vector<float> noise(1 << 16);
  coins.gumbel(9, 0, noise);
  const PhiloxKey key = coins.key();
  for (std::size_t token = 0; token < noise.size(); token += 7) {
    const auto t = static_cast<std::uint32_t>(token);
    const float e = exponential(philox4x32({t / 64 * 16 + t % 16, 4, 9, 0}, key)[t % 64 / 16]);
    EXPECT_NEAR(-std::log(e), noise[token], 1e-6 * (1 + std::abs(noise[token])));
  }
}

TEST(DeviceSampling, TokensAreThoseOfTheHost) {
  simt::Machine machine(4);
  unsigned seed = 100;
  const Coins coins(5, 6);
  for (const int vocab : {1, 2, 40, 64, 999, 1024, 1057, 3000, 4160, 49152}) {
    Distribution row;
    row.assign_logits(random_logits(vocab, ++seed), {.temperature = 2}, {}, vocab);
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < (vocab > 10000 ? 2 : 12); ++i) positions.push_back(i * 1000003);
    const std::vector<Token> drawn = sample(machine, row, coins, positions, 1, 3, false),
                             raced = sample(machine, row, coins, positions, 0, 0, true);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      EXPECT_EQ(drawn[i], row.sample(coins, {positions[i], Purpose::draft, 3})) << vocab;
      EXPECT_EQ(raced[i], row.sample_coupled(coins, positions[i])) << vocab;
    }
  }
}

}  // namespace
}  // namespace speclab::device_sampling_test
