#include "core/decoding/budget/own_draft_costs.h"

#include <gtest/gtest.h>

namespace speclab::own_draft_costs_test {
namespace {

/// A target of ten layers: a forward over one row takes 100 ns, 80 of them in the layers.
std::shared_ptr<const StepCosts> ten_layers(double position_ns = 0) {
  return std::make_shared<const StepCosts>(StepCosts{
      .target_ns = {100, 110, 120, 130}, .layer_ns = 8, .position_ns = position_ns, .context = 256});
}

TEST(OwnDraftCosts, ADraftWithoutSomeLayersSavesTheirTime) {
  OwnDraftCosts costs(ten_layers(), {.layers = 4, .all_layers = 10}, 6);
  EXPECT_DOUBLE_EQ(costs.table()->draft(1), 100 - 6 * 8);
  EXPECT_DOUBLE_EQ(costs.table()->target(1), 100);
  EXPECT_DOUBLE_EQ(costs.table()->target(4), 130);
  EXPECT_DOUBLE_EQ(costs.table()->target(7), 160) << "beyond the table";
  EXPECT_EQ(costs.table()->target_ns.size(), 7u) << "a chain of six tokens and the pending one";
}

TEST(OwnDraftCosts, AnEarlyExitRunsItsLayersForOneRowOnly) {
  OwnDraftCosts costs(ten_layers(), {.layers = 5, .all_layers = 10, .exits = true}, 3);
  EXPECT_DOUBLE_EQ(costs.table()->draft(1), 60);
  EXPECT_DOUBLE_EQ(costs.table()->target(1), 100) << "a step without a draft";
  // Half of the layers are 40 % of a forward. They take 40 for one row, and the others 60 % of t(4).
  EXPECT_DOUBLE_EQ(costs.table()->target(4), 40 + .6 * 130);
}

TEST(OwnDraftCosts, ASparseCacheSavesWhatItsPositionsCost) {
  OwnDraftCosts costs(ten_layers(.05), {.layers = 10, .all_layers = 10, .most_seen = 32}, 3);
  EXPECT_DOUBLE_EQ(costs.table()->target(2), 110);
  EXPECT_DOUBLE_EQ(costs.table()->draft(1), 100 - .05 * (256 - 32));
  costs.at(4256);
  EXPECT_DOUBLE_EQ(costs.table()->target(2), 110 + 4000 * .05);
  EXPECT_DOUBLE_EQ(costs.table()->draft(1), 100 - .05 * (256 - 32)) << "it sees no more than before";
  OwnDraftCosts all(ten_layers(.05), {.layers = 5, .all_layers = 10}, 3);
  all.at(4256);
  EXPECT_DOUBLE_EQ(all.table()->draft(1), 60 + 4000 * .05 / 2) << "half of the layers read the positions";
}

// A forward over several rows reads the positions once.
TEST(OwnDraftCosts, ADraftForwardMayHaveSeveralRows) {
  OwnDraftCosts costs(ten_layers(.05), {.layers = 10, .all_layers = 10, .most_seen = 32, .most_rows = 6}, 3);
  costs.at(4256);
  ASSERT_EQ(costs.table()->draft_ns.size(), 6u);
  for (const int rows : {1, 2, 4, 6})
    EXPECT_DOUBLE_EQ(costs.table()->draft(rows), 90 + 10 * rows - .05 * (256 - 32)) << rows;
}

TEST(OwnDraftCosts, ATargetWithoutLayersRunsAllOfThem) {
  OwnDraftCosts costs(ten_layers(1), {.layers = 0, .all_layers = 0, .most_seen = 0}, 2);
  costs.at(266);
  EXPECT_DOUBLE_EQ(costs.table()->draft(1), 1e-6 * 100) << "a time stays positive";
  EXPECT_DOUBLE_EQ(costs.table()->target(2), 120);
}

}  // namespace
}  // namespace speclab::own_draft_costs_test
