// Lines of a finished record are compared with their references, whichever was measured first.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "experiments/run/reference_check.h"

namespace speclab::reference_check_test {
namespace {

LineRecord line_of(const std::string& id, int repeat, std::vector<Token> tokens,
                   std::vector<std::uint32_t> rows) {
  LineRecord line;
  line.case_id = id;
  line.prompt = "1";
  line.seed = 3;
  line.repeat = repeat;
  line.promise = Promise::rows;
  line.turns.resize(1);
  line.turns[0].tokens = std::move(tokens);
  line.turns[0].row_hashes = std::move(rows);
  return line;
}

class CheckRecord : public ::testing::Test {
 protected:
  std::map<std::string, std::vector<LineRecord>> lines{
      {"auto", {line_of("auto", 0, {1, 2, 3}, {7, 8, 9}), line_of("auto", 1, {1, 2, 3}, {7, 8, 9})}},
      {"fast", {line_of("fast", 0, {1, 2, 3}, {7, 8, 9}), line_of("fast", 1, {1, 2, 3}, {7, 8, 9})}}};
  void check() { check_record(lines, {{"auto", "auto"}, {"fast", "auto"}}); }
};

TEST_F(CheckRecord, ComparesEveryRepeatWithTheFirstOfTheReference) {
  check();
  EXPECT_FALSE(lines["auto"][0].matches_reference.has_value()) << "it is the first repeat of the reference";
  EXPECT_EQ(lines["auto"][1].matches_reference, true);
  EXPECT_EQ(lines["fast"][0].matches_reference, true);
  EXPECT_EQ(lines["fast"][1].matches_reference, true);
}

TEST_F(CheckRecord, FindsTheFirstDifferenceInTheScopeOfThePromise) {
  lines["fast"][0].turns[0].row_hashes[1] = 5;
  lines["fast"][1].turns[0].tokens[2] = 4;
  lines["auto"][1].turns[0].tokens.pop_back();
  check();
  EXPECT_EQ(lines["fast"][0].matches_reference, false);
  EXPECT_EQ(lines["fast"][0].first_divergence, 1);
  EXPECT_EQ(lines["fast"][1].first_divergence, 2);
  EXPECT_EQ(lines["auto"][1].matches_reference, false);
  lines["fast"][0].promise = Promise::ids;
  check();
  EXPECT_EQ(lines["fast"][0].matches_reference, true);
  EXPECT_FALSE(lines["fast"][0].first_divergence.has_value());
}

TEST_F(CheckRecord, ALineWithoutItsReferenceHasNoNumbers) {
  lines["auto"].clear();  // not measured yet
  lines["fast"][1].promise = Promise::nothing;
  check();
  ASSERT_EQ(lines["fast"].size(), 1u) << "nothing is promised of the other one";
  EXPECT_EQ(lines["fast"][0].repeat, 1);
}

TEST_F(CheckRecord, ALineOfAFailedReferenceHasFailed) {
  lines["auto"][0].error = "out of memory";
  check();
  EXPECT_EQ(lines["fast"][0].error, "nothing to compare with: the line of auto failed");
  EXPECT_EQ(lines["auto"][1].error, "nothing to compare with: the line of auto failed");
}

TEST_F(CheckRecord, OlderRecordsKeepTheirStoredAnswer) {
  lines["auto"].clear();
  lines["fast"][0].promise.reset();
  lines["fast"][0].matches_reference = false;
  lines["fast"][1].promise.reset();
  check();
  ASSERT_EQ(lines["fast"].size(), 2u);
  EXPECT_EQ(lines["fast"][0].matches_reference, false);
  EXPECT_FALSE(lines["fast"][1].matches_reference.has_value());
}

TEST(Promise, DependsOnTheRule) {
  GenerationOptions generation;
  generation.sampling.temperature = 0;
  EXPECT_EQ(promise_of(generation), Promise::rows);
  generation.sampling.temperature = 1;
  EXPECT_EQ(promise_of(generation), Promise::nothing);
  generation.coins = CoinUse::gumbel;
  EXPECT_EQ(promise_of(generation), Promise::ids);
}

}  // namespace
}  // namespace speclab::reference_check_test
