// The entropies of a line come back as they were, turn by turn, and a damaged list is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/measure/run_result.h"

namespace speclab::row_entropies_test {
namespace {

LineRecord line_with_entropies() {
  LineRecord line;
  line.case_id = "autoregressive";
  line.prompt = "p";
  line.promise = Promise::rows;
  for (const float first : {.25f, 1.5f}) {
    GenerationRecord turn;
    turn.tokens = {4, 5};
    turn.row_hashes = {7, 8};
    turn.row_entropies = {first, .1234567891f};
    StepRecord step;
    step.emitted = 1;
    turn.steps.push_back(step);
    line.turns.push_back(turn);
  }
  return line;
}

TEST(RowEntropies, ComeBackTurnByTurn) {
  const nlohmann::json json = to_json(line_with_entropies());
  EXPECT_EQ(json["target_entropy"], (nlohmann::json{.25, .1234568, 1.5, .1234568})) << "seven digits";
  const LineRecord back = line_from_json(json, "x");
  EXPECT_EQ(back.turns[0].row_entropies, (std::vector<float>{.25f, .1234568f}));
  EXPECT_EQ(back.turns[1].row_entropies, (std::vector<float>{1.5f, .1234568f}));
  EXPECT_EQ(to_json(back), json);
}

TEST(RowEntropies, AnOrdinaryLineHasNone) {
  LineRecord line = line_with_entropies();
  for (GenerationRecord& turn : line.turns) turn.row_entropies.clear();
  const nlohmann::json json = to_json(line);
  EXPECT_FALSE(json.contains("target_entropy"));
  EXPECT_TRUE(line_from_json(json, "x").row_entropies().empty());
}

TEST(RowEntropies, AListOfAnotherLengthIsRefused) {
  nlohmann::json json = to_json(line_with_entropies());
  json["target_entropy"].push_back(1);
  EXPECT_THROW(line_from_json(json, "x"), Error);
  json["target_entropy"] = {"a", "b", "c", "d"};
  EXPECT_THROW(line_from_json(json, "x"), Error);
}

// Tokens that were not tested have a p in a record with row details.
TEST(RowEntropies, AnUntestedTokenKeepsItsProbabilities) {
  LineRecord line = line_with_entropies();
  line.turns[0].steps[0].drafted.push_back({.id = 9, .p = .5, .q = .25, .rank = 3});
  const LineRecord back = line_from_json(to_json(line), "x");
  const DraftedToken& token = back.turns[0].steps[0].drafted.at(0);
  EXPECT_FALSE(token.tested);
  EXPECT_EQ(token.p, .5);
  EXPECT_EQ(token.q, .25);
  EXPECT_EQ(token.rank, 3);
  EXPECT_EQ(token.expected, -1);
}

}  // namespace
}  // namespace speclab::row_entropies_test
