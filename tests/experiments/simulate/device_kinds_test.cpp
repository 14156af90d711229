// Device files of every kind: what they mean, and where a wrong one is refused.
#include "experiments/simulate/device_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/experiments/simulate/priced_run.h"

namespace speclab::device_kinds_test {
namespace {

using namespace speclab::fixtures;
using ::testing::AllOf;
using ::testing::HasSubstr;

theory::DecoderShape small() {
  return {.layers = 2, .hidden = 4, .heads = 1, .kv_heads = 1, .head_dim = 4, .ffn = 8, .vocab = 16};
}

json roofline() { return {{"bytes_per_second", 1e9}, {"flops_per_second", 1e12}}; }

class DeviceKinds : public PricedRun {};

TEST_F(DeviceKinds, AnOffloadedTargetIsAsFastAsItsLink) {
  const SimulatedDevice found = device({{"kind", "offload"},
                                        {"roofline", roofline()},
                                        {"offload", {{"bytes_per_second", 1e8}, {"resident_share", .5}}}});
  EXPECT_EQ(found.kind, DeviceKind::offload);
  const theory::ForwardCost cost =
      theory::forward_cost(small(), {.tokens = 1, .logit_rows = 1, .context = 0, .keys = 1});
  EXPECT_DOUBLE_EQ(found.device->forward_ns({.model = "", .shape = small()}), 10 * .5 * cost.weight_bytes);
  EXPECT_DOUBLE_EQ(found.device->forward_ns({.model = "d", .shape = small()}), cost.bytes());
  ASSERT_TRUE(found.rates.has_value());
}

TEST_F(DeviceKinds, AMixtureReadsTheExpertsOfAllItsTokens) {
  const json file = {
      {"kind", "moe"}, {"roofline", roofline()}, {"moe", {{"experts", 8}, {"active", 2}, {"width", 16}}}};
  const SimulatedDevice found = device(file);
  const theory::ForwardSize size{.tokens = 3, .logit_rows = 3, .context = 0, .keys = 6};
  EXPECT_DOUBLE_EQ(found.device->forward_ns({.model = "", .shape = small(), .rows = 3}),
                   simulate::experts_cost(small(), {8, 2, 16}, size, 1).bytes());
  // Its weights may be in the memory of the host.
  const SimulatedDevice offloaded = device(changed(file, {{"offload", {{"bytes_per_second", 1e6}}}}));
  EXPECT_DOUBLE_EQ(offloaded.device->forward_ns({.model = "", .shape = small(), .rows = 3}),
                   1e3 * simulate::experts_cost(small(), {8, 2, 16}, size, 1).weight_bytes);
}

TEST_F(DeviceKinds, ATableOfContextsIsInterpolated) {
  const SimulatedDevice found =
      device({{"kind", "table"},
              {"contexts",
               {{{"context", 100}, {"target_us", {{"1", 10}}}, {"drafts_us", {{"d", {{"1", 2}}}}}},
                {{"context", 300}, {"target_us", {{"1", 20}}}}}}});
  EXPECT_EQ(found.contexts, 2u);
  EXPECT_DOUBLE_EQ(found.device->forward_ns({.model = "", .rows = 1, .context = 150}), 12.5e3);
  EXPECT_DOUBLE_EQ(found.device->forward_ns({.model = "d", .rows = 1, .context = 300}), 2e3);
}

TEST_F(DeviceKinds, BadFilesAreRefusedWithFileAndPlace) {
  const auto refused = [&](const json& change) { return refusal(changed(table_device(), change)); };
  EXPECT_THAT(refused({{"kind", "magic"}}),
              AllOf(HasSubstr("device.json: /kind"),
                    HasSubstr("one of \"roofline\", \"offload\", \"moe\", \"linear\", \"table\"")));
  EXPECT_THAT(refused({{"kind", "run"}}), HasSubstr("device.json: /kind")) << "no file describes a run";
  EXPECT_THAT(refused({{"stepp_us", 1}}), HasSubstr("step_us"));
  EXPECT_THAT(refused({{"step_us", -1}}), HasSubstr("device.json: /step_us"));
  EXPECT_THAT(refused({{"target_us", nullptr}}),
              AllOf(HasSubstr("device.json: /target_us"), HasSubstr("no \"target_us\"")));
  EXPECT_THAT(refused({{"target_us", {{"1", nullptr}}}}),  // a table with a hole at 1
              AllOf(HasSubstr("device.json: /target_us"), HasSubstr("smallest n")));
  EXPECT_THAT(refused({{"target_us", {{"many", 3}}}}), HasSubstr("a number of rows"));
  EXPECT_THAT(refused({{"target_us", {{"1", "fast"}}}}), HasSubstr("/target_us/1"));
  EXPECT_THAT(refused({{"drafts_us", {{"d", {{"1", 0}}}}}}), HasSubstr("/drafts_us/d/1"));
  EXPECT_THAT(refused({{"context", -1}}), HasSubstr("/context"));
  EXPECT_THAT(refused({{"bytes_per_second", 0}}), HasSubstr("/bytes_per_second"));
  EXPECT_THAT(refused({{"roofline", json::object()}}),
              AllOf(HasSubstr("/roofline"), HasSubstr("only fields of this kind")));
  EXPECT_THAT(refused({{"contexts", json::array({1})}}), HasSubstr("device.json: /target_us"));
  EXPECT_THAT(refused({{"cases_us", {{"a/b", {{"other", 1}}}}}}), HasSubstr("/cases_us/a~1b/draft"));
  EXPECT_THROW(open_device("no-such-device"), Error);
}

TEST_F(DeviceKinds, ContextsOfATableAreCheckedOneByOne) {
  const json good = {{"context", 0}, {"target_us", {{"1", 10}}}};
  const auto refused = [&](const json& contexts) {
    return refusal({{"kind", "table"}, {"contexts", contexts}});
  };
  EXPECT_EQ(refused(json::array({good})), "accepted");
  EXPECT_THAT(refused(json::array()), HasSubstr("device.json: /contexts"));
  EXPECT_THAT(refused(json::array({good, good})), HasSubstr("/contexts/1/context"));
  EXPECT_THAT(refused(json::array({good, changed(good, {{"context", nullptr}})})),
              HasSubstr("/contexts/1/context"));
  EXPECT_THAT(refused(json::array({changed(good, {{"target_us", {{"1", nullptr}, {"2", 5}}}})})),
              HasSubstr("/contexts/0/target_us"));
  EXPECT_THAT(refused(json::array({changed(good, {{"more", 1}})})), HasSubstr("/contexts/0/more"));
}

TEST_F(DeviceKinds, NewKindsAreCheckedToo) {
  const json offload = {
      {"kind", "offload"}, {"roofline", roofline()}, {"offload", {{"bytes_per_second", 1e8}}}};
  EXPECT_EQ(refusal(offload), "accepted");
  EXPECT_THAT(refusal(changed(offload, {{"offload", nullptr}})), HasSubstr("device.json: /offload"));
  EXPECT_THAT(refusal(changed(offload, {{"offload", {{"bytes_per_second", nullptr}}}})),
              HasSubstr("/offload/bytes_per_second"));
  EXPECT_THAT(refusal(changed(offload, {{"offload", {{"resident_share", 2}}}})),
              HasSubstr("/offload/resident_share"));
  EXPECT_THAT(refusal(changed(offload, {{"group", {{"devices", 2}}}})), HasSubstr("/group"));
  EXPECT_THAT(refusal(changed(offload, {{"kind", "roofline"}})), HasSubstr("/offload"));
  EXPECT_THAT(refusal(changed(offload, {{"roofline", {{"flops_per_second", nullptr}}}})),
              HasSubstr("/roofline/flops_per_second"));
  const json moe = {{"kind", "moe"}, {"roofline", roofline()}, {"moe", {{"experts", 8}, {"active", 2}}}};
  EXPECT_EQ(refusal(moe), "accepted");
  EXPECT_THAT(refusal(changed(moe, {{"moe", {{"active", 9}}}})), HasSubstr("device.json: /moe/active"));
  EXPECT_THAT(refusal(changed(moe, {{"moe", {{"experts", nullptr}}}})), HasSubstr("/moe/experts"));
  EXPECT_THAT(refusal(changed(moe, {{"moe", {{"experts", 0}}}})), HasSubstr("/moe/experts"));
  EXPECT_THAT(refusal(changed(moe, {{"target_us", {{"1", 1}}}})), HasSubstr("/target_us"));
}

}  // namespace
}  // namespace speclab::device_kinds_test
