// A draft that is the target itself has p = q at every position, so nothing is ever rejected. This test runs
// on the real model; a longer one with the real runner has the label slow.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/model/net/target_model.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::draft_is_target_test {
namespace {

using namespace speclab::fixtures;

TEST(DraftIsTarget, EveryTokenIsAcceptedOnTheRealModel) {
  SPECLAB_NEEDS_TARGET();
  const ModelPtr target = target_model();
  std::vector<int> all(static_cast<std::size_t>(target->config().layers));
  std::iota(all.begin(), all.end(), 0);
  for (const int temperature : {0, 1}) {
    const Decode decode{.target = target,
                        .draft = Model::with_layers(target, all),
                        .strategy = choose("speculative_sampling", {{"gamma", 4}}),
                        .options = {{"temperature", temperature}, {"max_tokens", 16}},
                        .prompt = {1, 504, 4, 216, 2, 198, 1, 9690, 198}};
    const GenerationRecord record = decode.run();
    // One token from prefill, then five per step.
    ASSERT_EQ(record.steps.size(), 3u) << temperature;
    for (const StepRecord& step : record.steps) {
      EXPECT_EQ(step.accepted, 4) << temperature;
      EXPECT_EQ(step.ended_by, EndedBy::bonus) << temperature;
      ASSERT_EQ(step.drafted.size(), 4u);
      for (const DraftedToken& token : step.drafted) {
        EXPECT_TRUE(token.accepted);
        EXPECT_EQ(token.p, token.q);
      }
    }
  }
}

}  // namespace
}  // namespace speclab::draft_is_target_test
