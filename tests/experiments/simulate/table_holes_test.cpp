// Where the times of a device are interpolated or extrapolated, the output says so.
#include "experiments/simulate/table_holes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/experiments/metrics/hand_made_run.h"

namespace speclab::table_holes_test {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(HoleNotes, AGapOfMoreThanAFactorOfTwoIsAHoleIfAForwardNeedsIt) {
  const std::map<std::string, std::vector<int>> measured = {{"", {1, 2, 4, 16, 40}}};
  const auto notes = [&](int most) { return hole_notes(measured, {{"", most}}); };
  EXPECT_TRUE(notes(4).empty()) << "from 2 to 4 is a factor of two";
  EXPECT_THAT(notes(5), ElementsAre("The device has no times of the target between 4 and 16 rows. They are "
                                    "interpolated."));
  EXPECT_EQ(notes(16).size(), 1u);
  EXPECT_THAT(notes(17), ElementsAre(HasSubstr("between 4 and 16"), HasSubstr("between 16 and 40")));
  EXPECT_THAT(notes(41), ElementsAre(HasSubstr("4 and 16"), HasSubstr("16 and 40"),
                                     HasSubstr("above 40 rows. Times of up to 41 rows are extrapolated")));
  EXPECT_TRUE(notes(40).size() == 2);
}

TEST(HoleNotes, EveryModelHasATableOfItsOwn) {
  const std::map<std::string, std::vector<int>> measured = {{"", {1, 3}}, {"d", {1, 2}}, {"unused", {1, 9}}};
  EXPECT_THAT(
      hole_notes(measured, {{"", 2}, {"d", 3}, {"not in the table", 5}}),
      ElementsAre(HasSubstr("of the target between 1 and 3 rows"), HasSubstr("of the draft d above 2 rows")));
}

TEST(MeasuredRows, OfTablesOfContextsAndOfCalibrations) {
  const json one = {
      {"kind", "table"}, {"target_us", {{"1", 5}, {"16", 7}, {"2", 6}}}, {"drafts_us", {{"d", {{"1", 1}}}}}};
  EXPECT_THAT(measured_rows_of(one), ElementsAre(Pair("", ElementsAre(1, 2, 16)), Pair("d", ElementsAre(1))));
  json second = one;
  second["target_us"].erase("2");
  second["drafts_us"] = json::object();
  EXPECT_THAT(measured_rows_of({{"kind", "table"}, {"contexts", {one, second}}}),
              ElementsAre(Pair("", ElementsAre(1, 16)), Pair("d", ElementsAre())))
      << "what all contexts have";
  EXPECT_THAT(measured_rows_of(
                  {{"calibration",
                    {{"t_n_ns", {{"1", 10}, {"12", 20}}}, {"drafts", {{"d", {{"n_ns", {{"1", 2}}}}}}}}}}),
              ElementsAre(Pair("", ElementsAre(1, 12)), Pair("d", ElementsAre(1))));
  EXPECT_TRUE(measured_rows_of({{"kind", "roofline"}, {"target_us", {{"1", 5}}}}).empty());
  EXPECT_TRUE(measured_rows_of({{"calibration", nullptr}}).empty());
}

class LargestForwards : public Record {};

TEST_F(LargestForwards, ComeFromTheStepsOfTheRun) {
  const RunData run = load_run(write_run("run", 1'600'000));  // steps of 3 rows, draft calls of one row
  EXPECT_THAT(largest_forwards(run, 1), UnorderedElementsAre(Pair("", 3), Pair("d", 1)));
  EXPECT_THAT(largest_forwards(run, 4), UnorderedElementsAre(Pair("", 12), Pair("d", 4)));
  const auto path = write_run("wide", 1'600'000);
  rewrite(path / "cases" / "spec.jsonl", [](LineRecord& line) {
    line.turns[0].draft.rows = 9;  // 6 calls
    if (line.prompt == "2") line.turns[0].steps[1].rows = 7;
  });
  EXPECT_THAT(largest_forwards(load_run(path), 1), UnorderedElementsAre(Pair("", 7), Pair("d", 2)));
}

}  // namespace
}  // namespace speclab::table_holes_test
