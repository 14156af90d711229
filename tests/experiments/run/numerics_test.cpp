// Agreement of numerics classes: a class equals itself, another model is far away, a bf16 KV cache is in
// between.
#include "experiments/run/numerics_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/backend/backend.h"
#include "core/model/files/checkpoint.h"
#include "core/model/net/session.h"
#include "tests/model/files/model_files.h"

namespace speclab::numerics_test {
namespace {

class Numerics : public ::testing::Test {
 protected:
  std::shared_ptr<const Model> model(int seed, const std::string& numerics) {
    const auto path = dir_.path() / std::to_string(seed);
    fixtures::write_tiny_llama(path, fixtures::tiny_shape(), static_cast<unsigned>(seed));
    return Model::load(Checkpoint::open(path), make_cpu_backend({.threads = 1, .numerics = numerics}), {});
  }
  const std::vector<PromptTokens> prompts_ = {{1, 2, 3, 4}, {7}};
  fixtures::TempDir dir_;
};

TEST_F(Numerics, SameClassAgreesExactly) {
  const NumericsAgreement same = compare_numerics(*model(1, "f32"), *model(1, "f32"), "f32", prompts_, 12);
  EXPECT_EQ(same.prompts, 2);
  EXPECT_EQ(same.positions, 24);
  EXPECT_EQ(same.top1, 1);
  EXPECT_EQ(same.logit_difference, 0);
  EXPECT_LT(same.kl_max, 1e-12);
}

TEST_F(Numerics, Bf16CacheIsNearAndAnotherModelIsFar) {
  const NumericsAgreement near =
      compare_numerics(*model(1, "f32"), *model(1, "f32-kv16"), "f32-kv16", prompts_, 12);
  EXPECT_GT(near.kl_mean, 0);
  EXPECT_GE(near.kl_max, near.kl_mean);
  EXPECT_LT(near.kl_max, 1e-3);
  EXPECT_GT(near.logit_difference, 0);
  EXPECT_LT(near.logit_difference, .02);
  const NumericsAgreement far = compare_numerics(*model(1, "f32"), *model(2, "f32"), "f32", prompts_, 12);
  EXPECT_GT(far.kl_mean, 100 * near.kl_mean);
  EXPECT_LT(far.top1, .5);
}

/// Compares the KL divergence of the first position with its definition.
TEST_F(Numerics, DivergenceByDefinition) {
  const auto p = model(1, "f32"), q = model(2, "f32");
  const NumericsAgreement found = compare_numerics(*p, *q, "f32", {{5, 6}}, 1);
  const auto row = [](const Model& model) {
    std::vector<float> logits(static_cast<std::size_t>(model.config().vocab));
    const std::vector<Token> prompt = {5, 6};
    model.open(8, 8)->prefill(prompt, logits.data());
    std::vector<double> law(logits.begin(), logits.end());
    double sum = 0;
    for (double& x : law) sum += x = std::exp(x);
    for (double& x : law) x /= sum;
    return law;
  };
  const std::vector<double> right = row(*p), other = row(*q);
  double kl = 0;
  for (std::size_t v = 0; v < right.size(); ++v) kl += right[v] * std::log(right[v] / other[v]);
  EXPECT_EQ(found.positions, 1);
  EXPECT_NEAR(found.kl_mean, kl, 1e-9);
}

TEST_F(Numerics, TextsEndWithTheContext) {
  const auto exact = model(1, "f32");
  const std::vector<Token> long_prompt(static_cast<std::size_t>(exact->config().context) - 3, 1);
  EXPECT_EQ(compare_numerics(*exact, *exact, "f32", {long_prompt}, 100).positions, 3);
}

}  // namespace
}  // namespace speclab::numerics_test
