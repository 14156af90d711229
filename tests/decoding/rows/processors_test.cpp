#include "core/decoding/rows/processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace speclab::processors_test {
namespace {

using ::testing::ElementsAre;
constexpr float kBanned = -std::numeric_limits<float>::infinity();

std::vector<float> apply(const LogitsProcessors& processors, const std::vector<float>& logits,
                         const std::vector<Token>& context, const std::vector<Token>& path,
                         const std::vector<Token>& ids = {}) {
  std::vector<float> out(logits.size());
  processors.apply(logits, ids, context, path, out);
  return out;
}

TEST(Processors, PenaltyDividesPositiveAndMultipliesNegativeLogitsOnce) {
  const LogitsProcessors processors({.repetition_penalty = 2, .min_length = 0, .banned = {}, .eos = {}}, 1);
  EXPECT_TRUE(processors.active());
  EXPECT_THAT(apply(processors, {4, -4, 3, 1}, {0, 1, 0, 0}, {}), ElementsAre(2, -8, 3, 1));
}

TEST(Processors, TheDraftedPrefixIsPartOfTheContext) {
  const LogitsProcessors processors({.repetition_penalty = 2, .min_length = 0, .banned = {}, .eos = {}}, 1);
  EXPECT_THAT(apply(processors, {4, -4, 3, 1}, {0}, {2}), ElementsAre(2, -4, 1.5, 1));
}

TEST(Processors, MinimumLengthCountsEmittedAndDraftedTokens) {
  const LogitsProcessors processors({.repetition_penalty = 1, .min_length = 3, .banned = {}, .eos = {1, 3}},
                                    2);
  EXPECT_TRUE(processors.active());
  EXPECT_THAT(apply(processors, {1, 2, 3, 4}, {0, 0}, {}), ElementsAre(1, kBanned, 3, kBanned));
  EXPECT_THAT(apply(processors, {1, 2, 3, 4}, {0, 0, 0}, {0}), ElementsAre(1, kBanned, 3, kBanned));
  EXPECT_THAT(apply(processors, {1, 2, 3, 4}, {0, 0, 0}, {0, 0}), ElementsAre(1, 2, 3, 4));
}

TEST(Processors, BannedTokensAndReducedVocabularies) {
  const LogitsProcessors processors({.repetition_penalty = 2, .min_length = 0, .banned = {5, 6}, .eos = {}},
                                    1);
  EXPECT_THAT(apply(processors, {1, 2, 4}, {7, 3}, {}, {2, 5, 7}), ElementsAre(1, kBanned, 2));
}

TEST(Processors, NothingToDo) {
  EXPECT_FALSE(LogitsProcessors({}, 1).active());
  EXPECT_FALSE(
      LogitsProcessors({.repetition_penalty = 1, .min_length = 5, .banned = {}, .eos = {}}, 1).active());
}

}  // namespace
}  // namespace speclab::processors_test
