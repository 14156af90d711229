// Drafting while the target verifies, with the real binary: the record has the overlap of each step, the
// calibration times both models at work, and the law of the timeline stands beside the measured time.
#include <string>
#include <vector>

#include "tests/experiments/cli/speclab_fixture.h"

namespace speclab::overlap_cli_test {
namespace {

using namespace fixtures;

class Overlapped : public Speclab {
 protected:
  static json overlap_config() {
    json all = config();
    all["calibration"] = {{"rows", 4}, {"rounds", 3}, {"texts", 3}};
    all["cases"] = json::parse(
        R"([{"strategy": "speculative_sampling", "draft": "skip", "gamma": 2},
            {"strategy": "overlapped_speculation", "draft": "skip", "gamma": 2}])");
    return all;
  }
};

TEST_F(Overlapped, TheLawStandsBesideTheMeasuredTime) {
  write(overlap_config());
  const Result result = run({"run", "a.json", "--out", "run", "-q", "--threads", "2"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json summary = read_json_file(dir() / "run/summary.json");
  EXPECT_TRUE(summary["errors"].empty()) << summary["errors"].dump();
  const std::string id = "overlapped_speculation/draft=skip/gamma=2";
  const json& ahead = summary["calibration"]["ahead"];
  ASSERT_EQ(ahead.size(), 1u);
  for (const char* rows : {"1", "2", "3"}) EXPECT_GT(ahead[id]["t_n_ns"][rows].get<double>(), 0) << rows;
  EXPECT_EQ(ahead[id]["t_n_ns"].size(), 3u);
  EXPECT_GT(ahead[id]["draft_ns"].get<double>(), 0);
  EXPECT_GT(ahead[id]["draft_alone_ns"].get<double>(), 0);
  const double token_ns = ahead[id]["draft_ns"].get<double>();
  const double draw_ns = ahead[id]["draft_draw_ns"].get<double>();
  EXPECT_GT(draw_ns, 0);
  EXPECT_LT(draw_ns, token_ns);

  json serial, overlapped;
  for (const json& entry : summary["cases"]) {
    if (entry["id"] == id) overlapped = entry;
    if (entry["strategy"] == "speculative_sampling") serial = entry;
  }
  ASSERT_TRUE(overlapped.is_object());
  ASSERT_TRUE(serial.is_object());
  const json& metrics = overlapped["metrics"];
  for (const char* name : {"tokens", "steps", "tau", "alpha", "draft_utilization", "target_rows"})
    EXPECT_EQ(metrics[name], serial["metrics"][name]) << name;
  EXPECT_EQ(metrics["matches_reference"], true);
  EXPECT_NEAR(metrics["c"].get<double>() * ahead[id]["t_n_ns"]["1"].get<double>(), token_ns - draw_ns,
              1e-9 * token_ns)
      << "c is that of the forward alone, as for the other cases";
  EXPECT_GE(metrics["ahead_right"].get<double>(), 0);
  EXPECT_LE(metrics["ahead_right"].get<double>(), 1);
  EXPECT_GE(metrics["time_waited"].get<double>(), 0);
  EXPECT_LE(metrics["time_waited"].get<double>(), metrics["time_draft"].get<double>());
  EXPECT_LE(metrics["ahead_overlapped"].get<double>(), 1);
  for (const char* name : {"ahead_right", "ahead_dropped", "time_waited", "ahead_overlapped"})
    EXPECT_TRUE(serial["metrics"][name].is_null()) << name;

  const json& predictions = overlapped["predictions"];
  EXPECT_FALSE(predictions.contains("leviathan_3_8")) << "its law adds the times of both models";
  EXPECT_TRUE(serial["predictions"].contains("leviathan_3_8"));
  ASSERT_TRUE(predictions.contains("post_verify"));
  EXPECT_GT(predictions["post_verify"]["value"].get<double>(), 0);
  EXPECT_EQ(predictions["post_verify"]["measured"], metrics["ms_per_token"]);
  EXPECT_EQ(predictions["post_verify_speedup"]["measured"], metrics["speedup"]);
  EXPECT_FALSE(serial["predictions"].contains("post_verify"));

  int right = 0, steps = 0;
  for (const json& line :
       read_json_lines(dir() / "run/cases/overlapped_speculation__draft=skip__gamma=2.jsonl")) {
    for (const json& step : line["steps"]) {
      ++steps;
      if (!step.contains("ahead")) continue;
      right += step["ahead"]["right"].get<bool>();
      EXPECT_LE(step["ahead"]["waited_ns"].get<long>(), step["ns"][0].get<long>());
    }
  }
  EXPECT_GT(steps, right);

  const Result explained = run({"explain", "run", id});
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("drafting ahead: "));
  EXPECT_THAT(explained.out, HasSubstr("law of the timeline: "));
  EXPECT_EQ(run({"report", "run"}).code, 0);
}

TEST_F(Overlapped, OneThreadAndDevicesAreRefusedBeforeAnythingIsMeasured) {
  write(overlap_config());
  expect_error(run({"run", "a.json", "--out", "one", "-q", "--threads", "1"}),
               {"/cases/1", "overlapped_speculation", "1 thread", "at least 2 threads", "--threads 2"});
  EXPECT_FALSE(fs::exists(dir() / "one/summary.json"));
  const Result text =
      run({"generate", "--model", "target", "--draft", "draft", "--strategy", "overlapped_speculation",
           "--set", "max_tokens=6", "--prompt", "1 2 3", "--threads", "1"});
  expect_error(text, {"overlapped_speculation", "at least 2 threads"});
  expect_error(run({"run", "a.json", "--out", "gpu", "-q", "--backend", "host-simt"}),
               {"overlapped_speculation", "host-simt", "the CPU backend"});
  json with_budget = overlap_config();
  with_budget["cases"][1]["budget"] = "auto";
  write(with_budget);
  expect_error(run({"run", "a.json", "--out", "budget", "-q", "--threads", "2"}), {"/cases/1/budget"});
}

}  // namespace
}  // namespace speclab::overlap_cli_test
