// Strategies with trained heads, here with random weights, whose drafts a (simulated) device verifies.
// Tokens, rows, verdicts, counts and work are those of the same decoding with verdicts of the host, bit for
// bit. The hidden states that a head reads come to the host after the verdict, and no others.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/decoding/loop/planned_loop.h"
#include "tests/model/heads/random_heads.h"

namespace speclab::heads_on_device_test {
namespace {

using namespace speclab::fixtures;

struct HeadForm {
  const char* name;
  const char* strategy;
  RandomHead head;
  json options;  // besides the head and the shape of the drafts
  int taps;      // states that the strategy reads of each committed position
};

std::vector<HeadForm> head_forms() {
  return {{"blockwise", "blockwise", {}, json::object(), 1},
          {"blockwise_two_phase", "blockwise", {}, {{"phases", "two_phase"}}, 1},
          {"medusa", "medusa", {}, json::object(), 1},
          {"hydra", "hydra", {}, json::object(), 1},
          {"hydra_prefix", "hydra", {.prefix = true}, json::object(), 1},
          {"mlp_speculator", "mlp_speculator", {}, json::object(), 1},
          {"eagle", "eagle", {}, {{"shape", "fixed"}}, 1},
          {"eagle3", "eagle", {.version = 3}, {{"shape", "fixed"}}, 3},
          {"block_draft", "block_draft", {}, json::object(), 2},
          {"pass", "pass", {}, json::object(), 0}};
}

struct JudgedShape {
  const char* rule;
  std::vector<int> widths;
};

std::vector<JudgedShape> judged_shapes() {
  return {{"rejection", {3, 2}}, {"block", {1, 1, 1}}, {"traversal", {2, 2, 1}}};
}

/// So few tokens that random heads are often right.
ModelPtr small_target_on_device() {
  Shape shape = tiny_shape();
  shape.vocab = 6;
  return planned_loop_test::on_device(random_llama(shape, 20));
}

class HeadsOnADevice : public testing::TestWithParam<std::tuple<std::size_t, std::size_t>> {
 protected:
  Decode decode(double temperature, int tokens) const {
    json options = form_.options;
    options.update({{"head", head_},
                    {"widths", shape_.widths},
                    {"children", temperature > 0 ? "without_replacement" : "best"}});
    return {.target = target_,
            .strategy = choose(form_.strategy, options),
            .options = {{"rule", shape_.rule}, {"temperature", temperature}, {"max_tokens", tokens}},
            .prompt = {5, 1, 2, 3, 4, 0, 2}};
  }
  /// Decodes twice: the host judges the drafts, and the device judges them. Expects equal records. Returns
  /// the device's.
  GenerationRecord compare(Decode decode) const {
    decode.options["device_loop"] = "off";
    const GenerationRecord host = decode.run();
    decode.options["device_loop"] = "on";
    const GenerationRecord device = decode.run();
    planned_loop_test::expect_equal(device, host);
    const auto steps = static_cast<std::int64_t>(device.steps.size());
    EXPECT_EQ(host.verified_steps, 0);
    EXPECT_EQ(device.verified_steps, steps);
    EXPECT_EQ(device.planned_steps, 0);
    // A step waits for the head's rows, for the verdict, and for the states if the head reads any.
    EXPECT_EQ(device.round_trips, device.draft.calls + (form_.taps > 0 ? 2 : 1) * steps);
    EXPECT_EQ(device.round_trips, host.round_trips);
    // The states of the pending token and of the accepted tokens of each step, and no others. The last token
    // is never fed, and the states of the prompt came with the prefill.
    const double state = target_->config().hidden * 4.,
                 committed = static_cast<double>(device.tokens.size()) - 1;
    EXPECT_EQ(device.target.hidden_bytes, form_.taps * committed * state);
    EXPECT_EQ(host.target.hidden_bytes, form_.taps * committed * state);
    EXPECT_EQ(device.target_prefill.hidden_bytes, host.target_prefill.hidden_bytes);
    EXPECT_EQ(device.draft.hidden_bytes, host.draft.hidden_bytes);
    return device;
  }

  HeadForm form_ = head_forms()[std::get<0>(GetParam())];
  JudgedShape shape_ = judged_shapes()[std::get<1>(GetParam())];
  TempDir dir_;
  ModelPtr target_ = small_target_on_device();
  std::string head_ = write_random_head(dir_.path() / "head", form_.strategy, target_->config(), form_.head);
};

TEST_P(HeadsOnADevice, AreVerifiedAsOnTheHost) {
  const GenerationRecord greedy = compare(decode(0, 12)), sampled = compare(decode(1, 16));
  EXPECT_EQ(greedy.tokens.size(), 12u);
  EXPECT_EQ(sampled.tokens.size(), 16u);
  EXPECT_GT(drafted(greedy) + drafted(sampled), 10);
  EXPECT_GT(total(greedy, &StepRecord::accepted) + total(sampled, &StepRecord::accepted), 0);
}

// How a text ends does not depend on the rule, so one rule is enough.
class EndsOfHeadsOnADevice : public HeadsOnADevice {};

// The states that come are those of the positions that the text keeps, also if the text ends at a drafted
// token.
TEST_P(EndsOfHeadsOnADevice, ReadTheStatesUpToTheEndOfTheText) {
  Decode whole = decode(1, 10);
  const std::vector<Token> text = whole.run().tokens;
  for (const std::size_t at : {3u, 6u}) {
    Decode ends = whole;
    ends.eos = {text[at]};
    const GenerationRecord record = compare(ends);
    EXPECT_EQ(record.finish, Finish::eos);
    EXPECT_LE(record.tokens.size(), at + 1);
  }
}

std::string name_of(const testing::TestParamInfo<std::tuple<std::size_t, std::size_t>>& info) {
  return std::string(head_forms()[std::get<0>(info.param)].name) + "_" +
         judged_shapes()[std::get<1>(info.param)].rule;
}
INSTANTIATE_TEST_SUITE_P(Forms, HeadsOnADevice,
                         testing::Combine(testing::Range<std::size_t>(0, head_forms().size()),
                                          testing::Range<std::size_t>(0, judged_shapes().size())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Forms, EndsOfHeadsOnADevice,
                         testing::Combine(testing::Range<std::size_t>(0, head_forms().size()),
                                          testing::Values<std::size_t>(0)),
                         name_of);

}  // namespace
}  // namespace speclab::heads_on_device_test
