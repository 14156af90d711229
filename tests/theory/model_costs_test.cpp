#include "core/theory/model_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/base/error.h"

namespace speclab::theory::model_costs_test {
namespace {

/// 2 layers with 1 * 8 * 8 * 4 + 2 * 8 * 16 = 512 weights each, and a head of 800.
DecoderShape plain_shape() {
  return {.layers = 2,
          .hidden = 8,
          .heads = 2,
          .kv_heads = 2,
          .head_dim = 4,
          .ffn = 16,
          .gated = false,
          .vocab = 100};
}

std::map<std::string, double> costs(const ModelCostInputs& inputs) {
  std::map<std::string, double> out;
  for (const Prediction& one : model_costs(inputs)) out[one.name] = one.value;
  return out;
}

std::vector<std::string> cost_names(const ModelCostInputs& inputs) {
  std::vector<std::string> out;
  for (const Prediction& one : model_costs(inputs)) out.push_back(one.name);
  return out;
}

constexpr double kWeights = 2 * 512 + 800, kKvBytes = 2 * 2 * 8 * 2;  // K and V, layers, heads * d_h, bytes

TEST(ModelCosts, AppearWhenTheirInputsAreKnown) {
  using testing::ElementsAre;
  ModelCostInputs inputs{.target = plain_shape()};
  EXPECT_THAT(cost_names(inputs),
              ElementsAre("model_weights", "model_ops_per_token", "model_kv_bytes_per_token", "model_rows",
                          "model_ops", "model_bytes"));
  inputs.draft = plain_shape();
  inputs.context = 10;
  inputs.tree = {2, 1};
  inputs.machine = Machine{1e12, 1e10};
  EXPECT_THAT(cost_names(inputs),
              ElementsAre("model_weights", "model_ops_per_token", "model_kv_bytes_per_token", "model_rows",
                          "model_ops", "model_bytes", "model_kv_to_weights", "model_dense_keys",
                          "model_commit_bytes", "model_draft_weights", "model_draft_ops_per_token",
                          "model_c_hat", "model_ridge_rows", "model_seconds", "model_t", "model_c"));
}

TEST(ModelCosts, OfAChainByHand) {
  const auto one = costs({.target = plain_shape(), .context = 10});
  EXPECT_EQ(one.at("model_weights"), kWeights);
  EXPECT_EQ(one.at("model_ops_per_token"), 2 * kWeights + 4 * 2 * 2 * 4 * 11);
  EXPECT_EQ(one.at("model_kv_bytes_per_token"), kKvBytes);
  EXPECT_EQ(one.at("model_ops"), one.at("model_ops_per_token"));
  EXPECT_EQ(one.at("model_kv_to_weights"), 10 * kKvBytes / (2 * kWeights));

  // Three rows of two sequences: the weights are read once, everything else for each sequence.
  const auto batch = costs({.target = plain_shape(), .context = 10, .batch = 2, .rows = 3});
  EXPECT_EQ(batch.at("model_rows"), 6);
  EXPECT_EQ(batch.at("model_kv_bytes_per_token"), kKvBytes);
  EXPECT_EQ(batch.at("model_ops"), 6 * 2 * kWeights + 2 * 4 * 2 * 2 * 4 * (11 + 12 + 13));
  EXPECT_EQ(batch.at("model_bytes"),
            2 * kWeights + 2 * (3 * 8 * 2 + kKvBytes * 13 + kKvBytes * 3 + 3 * 100 * 4));
  EXPECT_EQ(batch.at("model_kv_to_weights"), 2 * 10 * kKvBytes / (2 * kWeights));
  EXPECT_DOUBLE_EQ(batch.at("model_dense_keys"), 3 * 13 / 36.);
}

TEST(ModelCosts, OfATreeByHand) {
  // The pending token, 3 nodes at depth 1 and 2 at depth 2: 1 + 3 * 2 + 2 * 3 keys beyond the context.
  const auto tree = costs({.target = plain_shape(), .context = 10, .batch = 2, .tree = {3, 2}});
  EXPECT_EQ(tree.at("model_rows"), 12);
  EXPECT_EQ(tree.at("model_ops"), 12 * 2 * kWeights + 2 * 4 * 2 * 2 * 4 * (6 * 10 + 13));
  EXPECT_DOUBLE_EQ(tree.at("model_dense_keys"), 6 * 16 / 73.);
  EXPECT_EQ(tree.at("model_commit_bytes"), 2 * 2 * 2 * kKvBytes) << "read and written, 2 rows, 2 sequences";
  EXPECT_EQ(costs({.target = plain_shape(), .rows = 3}).at("model_ops"),
            costs({.target = plain_shape(), .tree = {1, 1}}).at("model_ops"))
      << "a tree of one node at each depth is a chain";
}

TEST(ModelCosts, OfADraftOnADevice) {
  DecoderShape draft = plain_shape();
  draft.layers = 1;
  ModelCostInputs inputs{.target = plain_shape(), .draft = draft, .rows = 4};
  inputs.machine = Machine{.peak_flops = 4e6, .bandwidth = 1e6};
  auto found = costs(inputs);
  EXPECT_EQ(found.at("model_draft_weights"), 512 + 800);
  EXPECT_EQ(found.at("model_c_hat"), (512 + 800) / kWeights);
  EXPECT_EQ(found.at("model_ridge_rows"), 4);
  const double one = (2 * kWeights + 16 + kKvBytes * 2 + 400) / 1e6;
  EXPECT_NEAR(found.at("model_seconds"), one * found.at("model_t"), 1e-15);
  EXPECT_NEAR(found.at("model_seconds"),
              std::max((2 * kWeights + 64 + kKvBytes * 8 + 1600) / 1e6,
                       (4 * 2 * kWeights + 4 * 2 * 2 * 4 * 10) / 4e6),
              1e-15);
  EXPECT_NEAR(found.at("model_c"), (2 * 1312. + 16 + kKvBytes / 2 * 2 + 400) / 1e6 / one, 1e-12);
  inputs.machine->overhead_seconds = 1;
  EXPECT_NEAR(costs(inputs).at("model_c"), 1, .01) << "launches take most of the time";
}

TEST(ModelCosts, BadInputThrows) {
  for (const ModelCostInputs& bad :
       {ModelCostInputs{.target = plain_shape(), .rows = 0},
        ModelCostInputs{.target = plain_shape(), .batch = 0},
        ModelCostInputs{.target = plain_shape(), .context = -1},
        ModelCostInputs{.target = plain_shape(), .tree = {2, 0}},
        ModelCostInputs{.target = plain_shape(), .machine = Machine{1e12, 0}},
        ModelCostInputs{.target = plain_shape(), .machine = Machine{1e12, 1e10, -1}}}) {
    EXPECT_THROW(model_costs(bad), Error);
  }
}

}  // namespace
}  // namespace speclab::theory::model_costs_test
