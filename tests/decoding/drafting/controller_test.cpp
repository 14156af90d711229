// Controllers: their files, their predictions and the drafts that they stop, with numbers computed by hand.
#include "core/decoding/drafting/schedules/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/draft.h"
#include "core/decoding/drafting/schedule.h"
#include "core/measure/run_result.h"
#include "tests/decoding/drafting/small_controller.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::controller_test {
namespace {

using namespace speclab::fixtures;
using ::testing::HasSubstr;

Controller controller_of(const json& file) { return Controller::of_json(file, "c.json"); }

/// The message of the Error that this throws; "nothing" if it throws none.
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Controller, PredictsByTheLogisticFunction) {
  const Controller controller = controller_of(small_controller("disco", .3));
  EXPECT_EQ(controller.schedule(), ScheduleRule::disco);
  EXPECT_EQ(controller.threshold(), .3);
  EXPECT_EQ(controller.top(), 0);
  EXPECT_DOUBLE_EQ(controller.acceptance({.confidence = .5}), .5);
  EXPECT_NEAR(controller.acceptance({.confidence = .75}), .7310585786300049, 1e-15);  // logistic(1)
  EXPECT_NEAR(controller.acceptance({.confidence = .25}), .2689414213699951, 1e-15);
  EXPECT_NEAR(controller.acceptance({.confidence = 1}), .8807970779778823, 1e-15);  // logistic(2)
}

TEST(Controller, EveryFeatureAndAHiddenLayer) {
  json file = small_controller("specdec_pp", .3);
  file["features"] = {"top_1", "top_3", "margin", "entropy", "position", "product"};
  file["mean"] = {0, 0, 0, 0, 0, 0};
  file["scale"] = {1, 1, 1, 1, 1, 1};
  file["layers"] = json::parse(R"([
    {"weights": [[1, 2, 3, -1, 0.5, -2], [-1, -1, -1, -1, -1, -1]], "bias": [0.1, 0]},
    {"weights": [[2, 5]], "bias": [-3]}])");
  const Controller controller = controller_of(file);
  EXPECT_EQ(controller.top(), 3);
  const std::array<float, 3> top = {.6f, .1f, .05f};
  // First unit: .6 + 2 * .05 + 3 * .5 - 1 + .5 * 2 - 2 * .3 + .1 = 1.7; the second one is negative, so 0.
  // Output: 2 * 1.7 - 3 = .4.
  EXPECT_NEAR(
      controller.acceptance({.confidence = .9, .entropy = 1, .product = .3, .position = 2, .top = top}),
      .598687660112452, 1e-7);
  // Without the row: -1 + 1 - .6 + .1 = -.5, so 0; and -1 - 2 - .3 is negative too. logistic(-3).
  EXPECT_NEAR(controller.acceptance({.confidence = .9, .entropy = 1, .product = .3, .position = 2}),
              .04742587317756678, 1e-15);
}

TEST(Controller, TheScaleDividesWhatTheMeanLeaves) {
  json file = small_controller("disco", .5, 2, 4);
  file["features"] = json::array({"entropy"});
  EXPECT_NEAR(controller_of(file).acceptance({.entropy = 6}), .7310585786300049, 1e-15);
}

TEST(Controller, DamagedFilesAreRefused) {
  struct Damage {
    const char* place;
    json value;  // null: removed
    std::vector<std::string> says;
  };
  const json ten = json::parse("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]");
  const std::vector<Damage> all = {
      {"/format", "speclab tree 1", {"/format", "speclab tree 1", "speclab controller"}},
      {"/version", 2, {"/version", "2", "expected 1"}},
      {"/version", nullptr, {"/version", "nothing"}},
      {"/schedule", "bandit", {"/schedule", "bandit", "\"disco\" or \"specdec_pp\""}},
      {"/schedule", nullptr, {"/schedule", "nothing"}},
      {"/draft", 3, {"/draft", "null for any draft"}},
      {"/draft", json::object(), {"/draft/name", "nothing"}},
      {"/draft", {{"name", "d"}}, {"/draft/sha256", "nothing"}},
      {"/features", json::array(), {"/features", "1 to 32"}},
      {"/features/0", "confidences", {"/features/0", "confidences", "top_16"}},
      {"/features/0", "top_0", {"/features/0", "top_0"}},
      {"/features/0", "top_17", {"/features/0", "top_17"}},
      {"/features/0", "top_2x", {"/features/0", "top_2x"}},
      {"/features/0", 7, {"/features/0", "7"}},
      {"/mean", ten, {"/mean", "a list of 1 finite numbers"}},
      {"/mean/0", "x", {"/mean", "finite"}},
      {"/scale/0", 0, {"/scale", "above 0"}},
      {"/scale/0", -1, {"/scale", "above 0"}},
      {"/layers", json::array(), {"/layers", "1 to 4"}},
      {"/layers/0", 3, {"/layers/0/weights", "nothing"}},
      {"/layers/0/weights/0", ten, {"/layers/0/weights/0", "a list of 1 finite numbers"}},
      {"/layers/0/weights/0/0", nullptr, {"/layers/0/weights/0", "finite"}},
      {"/layers/0/weights", json::parse("[[1], [1]]"), {"/layers/0/weights", "one output"}},
      {"/layers/0/bias", json::parse("[0, 0]"), {"/layers/0/bias", "a list of 1"}},
      {"/threshold", 1.5, {"/threshold", "1.5", "from 0 to 1"}},
      {"/threshold", "low", {"/threshold", "low"}},
  };
  for (const Damage& damage : all) {
    json file = small_controller("disco", .5);
    file[json::json_pointer(damage.place)] = damage.value;
    const std::string error = error_of([&] { controller_of(file); });
    for (const std::string& part : damage.says) EXPECT_THAT(error, HasSubstr(part)) << damage.place;
    EXPECT_THAT(error, HasSubstr("c.json")) << damage.place;
    EXPECT_THAT(error, HasSubstr("fit_controller.py")) << damage.place;
  }
  json file = small_controller("disco", .5);
  file.erase("draft");
  EXPECT_THAT(error_of([&] { controller_of(file); }), HasSubstr("/draft"))
      << "only null stands for any draft";
  EXPECT_THROW(controller_of(json::array()), Error);
}

TEST(Controller, FilesThatAreNoJsonAreRefused) {
  const TempDir dir;
  EXPECT_THROW(Controller::read(dir.path() / "nothing.json"), Error);
  const auto path = dir.path() / "c.json";
  std::string text = small_controller("disco", .5).dump();
  const auto number = text.find("0.25");
  ASSERT_NE(number, std::string::npos);
  for (const char* bad : {"NaN", "Infinity", "1e999"}) {
    write_file(path, std::string(text).replace(number, 4, bad));
    EXPECT_THROW(Controller::read(path), Error) << bad;
  }
  write_file(path, text);
  EXPECT_EQ(Controller::read(path).threshold(), .5);
}

TEST(Controller, IsForTheDraftThatItWasTrainedFor) {
  json file = small_controller("disco", .5);
  EXPECT_NO_THROW(controller_of(file).require_draft("any", "1234"));
  file["draft"] = {{"name", "small"}, {"sha256", "abcdef0123456789"}};
  const Controller controller = controller_of(file);
  EXPECT_NO_THROW(controller.require_draft("small"));
  EXPECT_NO_THROW(controller.require_draft("small", "abcdef0123456789"));
  EXPECT_THAT(error_of([&] { controller.require_draft("large"); }),
              AllOf(HasSubstr("of the draft small"), HasSubstr("of the draft large")));
  EXPECT_THAT(error_of([&] { controller.require_draft("small", "fedcba"); }),
              AllOf(HasSubstr("abcdef012345"), HasSubstr("fedcba")));
}

class ControllerSchedule : public ::testing::Test {
 protected:
  /// The options of a schedule with the file of small_controller().
  ScheduleOptions options(const std::string& schedule, double threshold) {
    const auto path = dir_.path() / (schedule + ".json");
    write_json_file(path, small_controller(schedule, threshold));
    ScheduleOptions out;
    out.schedule = recorded_schedule(schedule)->rule;
    out.controller = path.string();
    return out;
  }
  TempDir dir_;
};

TEST_F(ControllerSchedule, DiscoStopsBelowTheThreshold) {
  Schedule schedule(options("disco", .5), 8);
  schedule.begin(0);
  EXPECT_TRUE(schedule.needs_confidence() && schedule.needs_entropy());
  EXPECT_EQ(schedule.needs_top(), 0);
  EXPECT_EQ(schedule.largest(), 8);
  schedule.start_draft();
  EXPECT_EQ(schedule.predicted(), -1);
  EXPECT_FALSE(schedule.stop_after(.75, 1));
  EXPECT_NEAR(schedule.predicted(), .7310585786300049, 1e-15);
  EXPECT_FALSE(schedule.stop_after(.5, 1)) << "not below .5";
  EXPECT_TRUE(schedule.stop_after(.49, 1));
  schedule.observe(3, 2);
  EXPECT_EQ(schedule.limit(), 8);
  schedule.start_draft();
  EXPECT_EQ(schedule.predicted(), -1);
  EXPECT_FALSE(schedule.stop_after(.6, 1)) << "the draft before does not matter";
}

// Huang et al. 2024, SpecDec++: stop at 1 - product > h. The prediction is .7310586 for each token.
TEST_F(ControllerSchedule, SpecDecStopsWhenARejectionIsLikely) {
  Schedule schedule(options("specdec_pp", .5), 8);
  for (int draft = 0; draft < 2; ++draft) {
    schedule.start_draft();
    EXPECT_FALSE(schedule.stop_after(.75, 1));  // 1 - .731 = .269
    EXPECT_FALSE(schedule.stop_after(.75, 1));  // 1 - .534 = .466
    EXPECT_TRUE(schedule.stop_after(.75, 1));   // 1 - .391 = .609
  }
  EXPECT_EQ(schedule.threshold(), .5);
}

TEST_F(ControllerSchedule, TheOptionReplacesTheThresholdOfTheFile) {
  ScheduleOptions own = options("specdec_pp", .5);
  own.controller_threshold = .4;
  Schedule schedule(own, 8);
  schedule.start_draft();
  EXPECT_FALSE(schedule.stop_after(.75, 1));
  EXPECT_TRUE(schedule.stop_after(.75, 1));
  EXPECT_EQ(schedule.threshold(), .4);
  own.controller_threshold = 0;  // a threshold, not the sign for the file's
  Schedule at_once(own, 8);
  at_once.start_draft();
  EXPECT_TRUE(at_once.stop_after(1, 0));
}

// The product and the place count the tokens of one draft.
TEST_F(ControllerSchedule, TheNetworkSeesTheDraftSoFar) {
  json file = small_controller("disco", .5);
  file["features"] = {"product", "position"};
  file["mean"] = {.5, 2.5};
  file["scale"] = {.25, 1};
  file["layers"] = json::parse(R"([{"weights": [[1, 0]], "bias": [0]}])");
  ScheduleOptions own = options("disco", .5);
  write_json_file(own.controller, file);
  Schedule by_product(own, 8);
  file["layers"] = json::parse(R"([{"weights": [[0, -1]], "bias": [0]}])");
  write_json_file(own.controller, file);
  Schedule by_place(own, 8);
  for (int draft = 0; draft < 2; ++draft) {
    by_product.start_draft();
    EXPECT_FALSE(by_product.stop_after(.9, 1));
    EXPECT_FALSE(by_product.stop_after(.6, 1));  // .54
    EXPECT_TRUE(by_product.stop_after(.9, 1));   // .486
    by_place.start_draft();
    EXPECT_FALSE(by_place.stop_after(.1, 1));
    EXPECT_FALSE(by_place.stop_after(.1, 1));
    EXPECT_TRUE(by_place.stop_after(.9, 1)) << "the third token";
  }
}

TEST_F(ControllerSchedule, NeedsAControllerThatWasMadeForIt) {
  ScheduleOptions none;
  none.schedule = ScheduleRule::disco;
  EXPECT_THAT(error_of([&] { Schedule(none, 4); }),
              AllOf(HasSubstr("schedule disco"), HasSubstr("fit_controller.py")));
  ScheduleOptions other = options("specdec_pp", .5);
  other.schedule = ScheduleRule::disco;
  EXPECT_THAT(error_of([&] { Schedule(other, 4); }),
              AllOf(HasSubstr("/schedule"), HasSubstr("specdec_pp"), HasSubstr("\"disco\"")));
  other.controller = (dir_.path() / "nothing.json").string();
  EXPECT_THROW(Schedule(other, 4), Error);
  ScheduleOptions unused;
  unused.controller = other.controller;
  EXPECT_NO_THROW(Schedule(unused, 4)) << "other schedules do not read it";
}

TEST(Draft, WhatIsKnownOfANodeStaysWithIt) {
  Draft draft;
  draft.reset(1);
  const int first = draft.add(5, 0), below = draft.add(6, first), second = draft.add(7, 0);
  draft.set_top(first, std::array<float, 2>{.5f, .25f});
  draft.set_top(second, std::array<float, 2>{.75f, .125f});
  draft.set_predicted(first, .5f);
  draft.set_predicted(second, .875f);
  EXPECT_EQ(draft.top, (std::vector<float>{0, 0, .5f, .25f, 0, 0, .75f, .125f}));
  EXPECT_EQ(draft.predicted, (std::vector<float>{-1, .5f, -1, .875f}));
  std::vector<char> kept(4, 1);
  kept[static_cast<std::size_t>(below)] = 0;
  draft.keep(kept);
  EXPECT_EQ(draft.top, (std::vector<float>{0, 0, .5f, .25f, .75f, .125f}));
  EXPECT_EQ(draft.predicted, (std::vector<float>{-1, .5f, .875f}));
  draft.reset(1);
  EXPECT_TRUE(draft.top.empty() && draft.predicted.empty());
  draft.add(5, 0);
  EXPECT_NO_THROW(draft.set_top(1, std::array<float, 1>{1.0f})) << "the next draft may have another width";
}

/// The record of a chain of the target's own first layer, with this schedule.
GenerationRecord drafted_by(const ModelPtr& target, const json& schedule) {
  json options = schedule;
  options["gamma"] = 6;
  return Decode{.target = target,
                .draft = Model::with_layers(target, {0}),
                .strategy = choose("speculative_sampling", options),
                .options = {{"max_tokens", 100}}}
      .run();
}

TEST(ControlledChain, TheRecordHasTheLargestProbabilities) {
  const GenerationRecord record = drafted_by(
      tiny_target(), {{"schedule", "entropy"}, {"entropy_threshold", 10}, {"top_probabilities", 3}});
  std::size_t tokens = 0;
  for (const StepRecord& step : record.steps) {
    ASSERT_EQ(step.top.size(), 3 * step.drafted.size());
    for (std::size_t i = 0; i < step.drafted.size(); ++i, ++tokens) {
      EXPECT_EQ(step.top[3 * i], step.drafted[i].confidence) << "the draft is greedy";
      EXPECT_GE(step.top[3 * i], step.top[3 * i + 1]);
      EXPECT_GE(step.top[3 * i + 1], step.top[3 * i + 2]);
      EXPECT_GT(step.top[3 * i + 2], 0);
      EXPECT_EQ(step.drafted[i].predicted, -1);
    }
  }
  EXPECT_GT(tokens, 50u);
}

TEST(ControlledChain, StopsWhereTheControllerSaysSo) {
  const ModelPtr target = tiny_target();
  std::vector<double> confidences;
  const GenerationRecord whole =
      drafted_by(target, {{"schedule", "confidence"}, {"confidence_threshold", 0}});
  for (const StepRecord& step : whole.steps) {
    for (const DraftedToken& token : step.drafted) confidences.push_back(token.confidence);
  }
  std::ranges::sort(confidences);
  const double middle = confidences[confidences.size() / 2];
  const TempDir dir;
  const std::string path = (dir.path() / "c.json").string();
  json file = small_controller("disco", .5, middle);
  file["draft"] = {{"name", Model::with_layers(target, {0})->name()}, {"sha256", ""}};
  write_json_file(path, file);
  const GenerationRecord record = drafted_by(target, {{"schedule", "disco"}, {"controller", path}});
  EXPECT_EQ(record.tokens, whole.tokens);
  int stopped = 0, longer = 0;
  for (const StepRecord& step : record.steps) {
    EXPECT_TRUE(step.top.empty()) << "only top_probabilities records them";
    for (std::size_t i = 0; i < step.drafted.size(); ++i) {
      const DraftedToken& token = step.drafted[i];
      EXPECT_NEAR(token.predicted, 1 / (1 + std::exp(-(token.confidence - middle) / .25)), 1e-6);
      const bool last = i + 1 == step.drafted.size();
      if (!last) {
        EXPECT_GE(token.predicted, .5f);
      }
      stopped += last && i + 1 < 6 && token.predicted < .5f ? 1 : 0;
      longer += i > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(stopped, 5);
  EXPECT_GT(longer, 5);
  file["draft"]["name"] = "another";
  write_json_file(path, file);
  EXPECT_THAT(error_of([&] { drafted_by(target, {{"schedule", "disco"}, {"controller", path}}); }),
              HasSubstr("of the draft another"));
}

TEST(ControlledChain, NgramsHaveNoController) {
  const TempDir dir;
  const std::string path = (dir.path() / "c.json").string();
  write_json_file(path, small_controller("disco", .5));
  const Decode decode{.target = tiny_target(),
                      .strategy = choose("ngram_model", {{"schedule", "disco"}, {"controller", path}}),
                      .options = {{"max_tokens", 8}}};
  EXPECT_THAT(error_of([&] { decode.run(); }), HasSubstr("a schedule without a controller"));
}

}  // namespace
}  // namespace speclab::controller_test
