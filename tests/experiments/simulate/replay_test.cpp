// Replays of traces made by hand, counted by hand.
#include "experiments/simulate/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "core/decoding/budget/step_costs.h"
#include "core/measure/run_result.h"
#include "tests/decoding/drafting/small_controller.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::replay_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Drafts of three tokens with confidences .9, .5, .2. The first `matching` tokens are right.
TracedDraft draft(int matching) { return {.confidence = {.9, .5, .2}, .matching = matching}; }

TracedText text() {
  // Positions:             0         1         2         3         4         5
  return {.prompt = "p", .turn = 0, .drafts = {draft(2), draft(0), draft(3), draft(1), draft(0), draft(0)}};
}

TEST(ReplayOne, AChainGoesOnWhereTheLastStepEnded) {
  // gamma 3: from 0, 2 accepted, to 3; 1 accepted, to 5; 0 accepted, to the end.
  const Replayed three = replay_one(text(), {.gamma = 3, .schedule = {}});
  EXPECT_EQ(three.steps, 3);
  EXPECT_EQ(three.tokens, 6);
  EXPECT_EQ(three.drafted, 9);
  EXPECT_EQ(three.accepted, 3);
  EXPECT_DOUBLE_EQ(three.tau(), 2);
  // gamma 1: from 0 to 2, 4, 5, 6.
  const Replayed one = replay_one(text(), {.gamma = 1, .schedule = {}});
  EXPECT_EQ(one.steps, 4);
  EXPECT_EQ(one.lengths, (theory::DraftLengths{0, 4}));
}

TEST(ReplayOne, AScheduleStopsTheDraftWhereItStopsTheRealOne) {
  ReplaySetting setting{.gamma = 3, .schedule = {}};
  setting.schedule.schedule = ScheduleRule::confidence;
  setting.schedule.confidence_threshold = .6;  // the token with .5 is drafted, and it is the last one
  const Replayed counts = replay_one(text(), setting);
  EXPECT_EQ(counts.lengths, (theory::DraftLengths{0, 0, 3}));
  EXPECT_EQ(counts.tokens, 6);
}

TEST(ReplayOne, TheEndOfTheTextCutsTheLastStep) {
  TracedText end{.prompt = "p", .turn = 0, .drafts = {draft(0), draft(3)}};
  end.drafts[1].matching = 1;  // the text has one more token
  const Replayed counts = replay_one(end, {.gamma = 3, .schedule = {}});
  EXPECT_EQ(counts.steps, 2);
  EXPECT_EQ(counts.tokens, 2);
  EXPECT_EQ(counts.accepted, 1);
}

TEST(ReplayOne, ADrafterThatFindsNothingTakesAPlainStep) {
  const TracedText none{.prompt = "p", .turn = 0, .drafts = {TracedDraft{}, TracedDraft{}}};
  const Replayed counts = replay_one(none, {.gamma = 3, .schedule = {}});
  EXPECT_EQ(counts.lengths, (theory::DraftLengths{2}));
  EXPECT_DOUBLE_EQ(counts.tau(), 1);
}

/// The drafts of a generation that drafted at every position.
TracedText traced(const GenerationRecord& record) {
  TracedText out{.prompt = "p", .turn = 0, .drafts = {}};
  for (std::size_t position = 0; position < record.steps.size(); ++position) {
    TracedDraft& one = out.drafts.emplace_back();
    for (const DraftedToken& token : record.steps[position].drafted) {
      const auto at = position + 1 + static_cast<std::size_t>(one.drafted());
      if (one.matching == one.drafted() && at < record.tokens.size() && token.id == record.tokens[at])
        ++one.matching;
      one.confidence.push_back(token.confidence);
      one.entropy.push_back(token.entropy);
    }
    one.top = record.steps[position].top;
  }
  return out;
}

// The replay of a trace takes the steps that real decoding takes, under every schedule.
TEST(ReplayOne, TakesTheStepsOfARealRun) {
  namespace tiny = speclab::fixtures;
  const auto target = tiny::tiny_target();
  const auto costs = std::make_shared<const StepCosts>(
      StepCosts{.target_ns = {10, 10.5, 11, 11.5, 12, 12.5}, .draft_ns = {1}});
  tiny::Decode decode{.target = target, .draft = Model::with_layers(target, {0})};
  decode.loop.costs = costs;
  decode.options = {{"max_tokens", 120}, {"emit_at_most", 1}};
  const json base = {{"gamma", 5},           {"gamma_max", 12},         {"first_threshold", .5},
                     {"threshold_step", .5}, {"product_threshold", .3}, {"entropy_threshold", 1},
                     {"least_samples", 3},   {"wanted_acceptance", .3}};
  decode.strategy = tiny::choose(
      "speculative_sampling",
      {{"gamma", 12}, {"schedule", "entropy"}, {"entropy_threshold", 10}, {"top_probabilities", 3}});
  const TracedText trace = traced(decode.run());
  decode.options["emit_at_most"] = 0;
  std::set<theory::DraftLengths> different;
  const tiny::TempDir dir;
  for (const ScheduleInfo& schedule : schedules()) {
    json options = base;
    options["schedule"] = schedule.name;
    if (schedule.needs_controller) {
      json file = tiny::small_controller(std::string(schedule.name), .5);
      file["features"] = {"margin", "top_3"};
      file["mean"] = {.05, .05};
      file["scale"] = {.05, .05};
      file["layers"] = json::parse(R"([{"weights": [[1, 0.5]], "bias": [0.25]}])");
      options["controller"] = (dir.path() / "controller.json").string();
      write_json_file(dir.path() / "controller.json", file);
    }
    decode.strategy = tiny::choose("speculative_sampling", options);
    const GenerationRecord real = decode.run();
    theory::DraftLengths lengths;
    for (const StepRecord& step : real.steps) {
      lengths.resize(std::max(lengths.size(), step.drafted.size() + 1));
      lengths[step.drafted.size()] += 1;
    }
    ReplaySetting setting{.gamma = 5, .schedule = {}, .costs = costs};
    options.erase("gamma");
    parse_options(option_fields(setting.schedule), options, "test");
    const Replayed replayed = replay_one(trace, setting);
    EXPECT_EQ(replayed.lengths, lengths) << schedule.name;
    EXPECT_EQ(replayed.accepted, tiny::total(real, &StepRecord::accepted)) << schedule.name;
    different.insert(lengths);
  }
  EXPECT_GE(different.size(), schedules().size() - 4) << "most schedules draft other lengths than the others";
}

class ReplayTrace : public ::testing::Test {
 protected:
  ReplayTrace() {
    auto data = std::make_shared<CaseData>(), reference = std::make_shared<CaseData>();
    reference->config = {{"id", "autoregressive"}};
    data->config = {{"id", "spec"}, {"draft", "d"}, {"options", json::object()}};
    data->reference = reference;
    trace_.data = data;
    trace_.texts = {text(), text()};
    trace_.texts[1].prompt = "q";
  }
  static json calibration() {
    const auto linear = [](double slope) { return json{{"constant", 0}, {"slope", slope}}; };
    const auto case_costs = [&](double draft) {
      return json{{"draft_ns", linear(draft)}, {"accept_ns", linear(0)}, {"other_ns", 0}};
    };
    return {{"t_n_ns", {{"1", 10}, {"4", 13}}},
            {"cases", {{"spec", case_costs(1)}, {"autoregressive", case_costs(0)}}}};
  }
  static std::string text_of(const json& trace) {
    return replay_text(json::object({{"traces", json::array({trace})}}));
  }
  static ScheduleOptions scheduled(ScheduleRule rule) {
    ScheduleOptions schedule;
    schedule.schedule = rule;
    return schedule;
  }
  static theory::Calibration costs() {
    theory::Calibration costs;
    costs.t_ar = 10;
    costs.target = theory::RowTimes({{1, 10.0}, {4, 13.0}});
    costs.draft_token = 1;
    return costs;
  }
  Trace trace_;
};

TEST_F(ReplayTrace, TimesComeFromTheCalibration) {
  const std::vector<std::size_t> all = {0, 1};
  const Replayed counts = replay(trace_, all, {.gamma = 3, .schedule = {}});
  EXPECT_EQ(counts.steps, 6);
  EXPECT_DOUBLE_EQ(replayed_step(counts, costs()).total(), 13 + 3);
}

TEST_F(ReplayTrace, LongerDraftsThanTheTraceHasAreRefused) {
  const std::vector<std::size_t> all = {0, 1};
  EXPECT_EQ(longest_draft(trace_), 3);
  EXPECT_THROW(replay(trace_, all, {.gamma = 4, .schedule = {}}), Error);
}

TEST_F(ReplayTrace, EachSettingStandsBesideTheBestLengthAndTheOracle) {
  ScheduleOptions unsure = scheduled(ScheduleRule::confidence);
  unsure.confidence_threshold = .6;  // stops after the second token
  const json out = replayed({&trace_, 1}, calibration(), {1, 2, 3, 4},
                            {ScheduleOptions{}, unsure, scheduled(ScheduleRule::bandit)})["traces"][0];
  ASSERT_EQ(out["settings"].size(), 9u) << "no draft of the trace has 4 tokens";
  EXPECT_EQ(out["best"], 1);
  // Steps of 1, 2 and 3 drafted tokens take 12, 14 and 16; tau is 1.5, 2 and 2. A plain step takes 10.
  EXPECT_DOUBLE_EQ(out["settings"][0]["speedup"], 15. / 12);
  EXPECT_DOUBLE_EQ(out["settings"][1]["speedup"], 20. / 14);
  EXPECT_DOUBLE_EQ(out["settings"][0]["over_best"], 15. / 12 * 14 / 20);
  EXPECT_DOUBLE_EQ(out["settings"][0]["over_best_ci95"][0], 15. / 12 * 14 / 20) << "both texts are the same";
  EXPECT_DOUBLE_EQ(out["settings"][1]["over_best"], 1);
  const json& stopped = out["settings"][5];
  EXPECT_EQ(stopped["schedule"], "confidence");
  EXPECT_EQ(stopped["gamma"], 3);
  EXPECT_DOUBLE_EQ(stopped["over_best"], 1) << "it drafts two tokens in each step";
  // The bandit drafts one token, which is accepted, then two, which are both accepted, then two.
  const json& bandit = out["settings"][7];
  EXPECT_EQ(bandit["schedule"], "bandit");
  EXPECT_EQ(bandit["gamma"], 2);
  EXPECT_DOUBLE_EQ(bandit["tau"], 2);
  EXPECT_DOUBLE_EQ(bandit["draft_utilization"], 3. / 5);
  // In hindsight: a draft of one token from 0, which is accepted, then a draft of three from 2.
  EXPECT_DOUBLE_EQ(out["oracles"]["step"]["speedup"], 60. / (12 + 16));
  EXPECT_DOUBLE_EQ(out["oracles"]["length"]["speedup"], 20. / 14);
  EXPECT_EQ(out["oracles"]["length"]["gamma"], 2);
  EXPECT_FALSE(out["oracles"].contains("drafter")) << "there is only one";
  // A token takes 8 units with drafts of one, 7 with the best length, and 28 / 6 with the best steps.
  EXPECT_DOUBLE_EQ(out["settings"][0]["ms_per_token"], 8e-6);
  EXPECT_DOUBLE_EQ(out["settings"][0]["regret"]["length"], 1e-6);
  EXPECT_NEAR(out["settings"][0]["regret"]["step"].get<double>(), (8 - 28. / 6) * 1e-6, 1e-18);
  EXPECT_NEAR(out["settings"][1]["regret"]["length"].get<double>(), 0, 1e-18);
  EXPECT_NEAR(out["settings"][0]["regret_ci95"]["length"][0].get<double>(), 1e-6, 1e-18)
      << "both texts are the same";
  EXPECT_NE(text_of(out).find("over best gamma"), std::string::npos);
  EXPECT_NE(text_of(out).find("length_by_prompt"), std::string::npos);
}

TEST_F(ReplayTrace, SchedulesThatLookAtMoreThanTheTraceHasAreNamed) {
  const std::vector<ScheduleOptions> wanted = {
      ScheduleOptions{}, scheduled(ScheduleRule::entropy), scheduled(ScheduleRule::adaptive_entropy),
      scheduled(ScheduleRule::product), scheduled(ScheduleRule::bandit)};
  const auto of = [&](const json& costs) { return replayed({&trace_, 1}, costs, {2}, wanted)["traces"][0]; };
  const auto names = [](const json& trace) {
    std::vector<std::string> out;
    for (const json& row : trace["settings"]) out.push_back(row["schedule"]);
    return out;
  };
  const json old = of(calibration());
  const auto left_out = [](const json& trace) {
    std::vector<std::string> out;
    for (const json& left : trace["left_out"]) out.push_back(left["schedule"]);
    return out;
  };
  EXPECT_THAT(left_out(old), ElementsAre("entropy", "adaptive_entropy"));
  EXPECT_THAT(names(old), ElementsAre("constant", "product", "bandit"));
  EXPECT_THAT(text_of(old), HasSubstr("not replayed: adaptive_entropy; the trace lacks what"));
  EXPECT_THAT(text_of(old), HasSubstr("favours schedules"));
  const json free = of(nullptr);
  EXPECT_THAT(names(free), ElementsAre("constant", "product")) << "no costs";
  EXPECT_THAT(left_out(free), ElementsAre("entropy", "adaptive_entropy", "bandit"));
  EXPECT_THAT(text_of(free), HasSubstr("not replayed: bandit; this schedule needs costs"));
  EXPECT_TRUE(free["settings"][0]["over_best"].is_null());
  EXPECT_TRUE(free["settings"][0]["regret"].is_null());
  EXPECT_TRUE(free["oracles"].is_null());
  for (TracedText& each : trace_.texts) {
    for (TracedDraft& one : each.drafts) one.entropy = {.1, .9, 2};
  }
  const json all = of(calibration());
  EXPECT_TRUE(all["left_out"].empty());
  EXPECT_THAT(names(all), ElementsAre("constant", "entropy", "adaptive_entropy", "product", "bandit"));
}

TEST_F(ReplayTrace, AControllerStopsTheDraftAndItsThresholdIsNamed) {
  const fixtures::TempDir dir;
  const std::string path = (dir.path() / "c.json").string();
  ScheduleOptions stop = scheduled(ScheduleRule::disco);
  stop.controller = path;
  const auto of = [&](const json& file) {
    write_json_file(path, file);
    return replayed({&trace_, 1}, calibration(), {3}, {ScheduleOptions{}, stop})["traces"][0];
  };
  json file = fixtures::small_controller("disco", .5, .6);
  EXPECT_EQ(of(file)["left_out"][0]["reason"], "the trace lacks what this schedule looks at")
      << "no entropies";
  for (TracedText& each : trace_.texts) {
    for (TracedDraft& one : each.drafts) one.entropy = {.1, .9, 2};
  }
  // The confidences are .9, .5 and .2, so the second token is the last one. Steps: from 0 to 3, 5 and 6.
  const json out = of(file);
  ASSERT_EQ(out["settings"].size(), 2u);
  EXPECT_EQ(out["settings"][1]["schedule"], "disco");
  EXPECT_EQ(out["settings"][1]["threshold"], "of " + path);
  EXPECT_DOUBLE_EQ(out["settings"][1]["tau"], 2);
  EXPECT_DOUBLE_EQ(out["settings"][1]["draft_utilization"], 3. / 6);
  EXPECT_FALSE(out["settings"][1]["regret"]["step"].is_null());
  stop.controller_threshold = .25;
  EXPECT_EQ(of(file)["settings"][1]["threshold"], "0.25 of " + path);
  const auto reason = [&](const json& bad) {
    const json left = of(bad)["left_out"];
    return left.empty() ? std::string("replayed") : left[0]["reason"].get<std::string>();
  };
  EXPECT_EQ(reason(file), "replayed");
  json wide = file;
  wide["features"] = json::array({"top_3"});
  EXPECT_THAT(reason(wide), HasSubstr("the 3 largest probabilities of a row, but the trace has 0"));
  for (TracedText& each : trace_.texts) {
    for (TracedDraft& one : each.drafts) one.top = {.9f, .1f, 0, .5f, .3f, .1f, .2f, .2f, .2f};
  }
  EXPECT_EQ(reason(wide), "replayed");
  json damaged = file;
  damaged["version"] = 7;
  EXPECT_THAT(reason(damaged), HasSubstr("/version"));
  json other = file;
  other["draft"] = {{"name", "large"}, {"sha256", "12"}};
  EXPECT_EQ(reason(other), "replayed") << "the record does not say which draft it was";
  auto data = std::make_shared<CaseData>(*trace_.data);
  data->environment = {{"models", {{"d", {{"name", "small"}, {"sha256", "12"}}}}}};
  trace_.data = data;
  EXPECT_THAT(reason(other), HasSubstr("of the draft large"));
  other["draft"]["name"] = "small";
  EXPECT_EQ(reason(other), "replayed");
  other["draft"]["sha256"] = "34";
  EXPECT_THAT(reason(other), HasSubstr("34"));
  stop.controller = "";
  EXPECT_THAT(reason(file), HasSubstr("--controller FILE"));
}

TEST_F(ReplayTrace, AHeuristicGoesOnFromTurnToTurn) {
  trace_.texts = {{.prompt = "p", .turn = 0, .drafts = {draft(3), draft(3)}},
                  {.prompt = "p", .turn = 1, .drafts = {draft(3), draft(3), draft(3), draft(3)}}};
  const auto counts = [&](ScheduleRule rule) {
    ReplaySetting setting{.gamma = 1, .schedule = scheduled(rule)};
    setting.schedule.gamma_max = 3;
    return replay(trace_, all_texts(trace_), setting);
  };
  // The first turn accepts its one drafted token, so the next draft may have three.
  const Replayed kept = counts(ScheduleRule::heuristic), fresh = counts(ScheduleRule::heuristic_transient);
  EXPECT_EQ(kept.steps, 2);
  EXPECT_EQ(kept.drafted, 1 + 3);
  EXPECT_EQ(fresh.steps, 3);
  EXPECT_EQ(fresh.drafted, 1 + 1 + 3);
}

TEST_F(ReplayTrace, AHeuristicDraftsAtMostWhatTheTraceHas) {
  const json out = replayed({&trace_, 1}, calibration(), {2}, {scheduled(ScheduleRule::heuristic)});
  ASSERT_EQ(out["traces"][0]["settings"].size(), 1u);
  EXPECT_TRUE(out["traces"][0]["best"].is_null());
  EXPECT_TRUE(out["traces"][0]["settings"][0]["over_best"].is_null()) << "no constant length to compare with";
}

}  // namespace
}  // namespace speclab::replay_test
