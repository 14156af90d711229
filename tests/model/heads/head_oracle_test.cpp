#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "core/model/heads/eagle/eagle_head.h"
#include "core/model/heads/hydra_heads.h"
#include "core/model/heads/medusa_heads.h"
#include "core/model/heads/mlp_speculator_heads.h"
#include "core/model/net/session.h"
#include "tests/model/files/model_files.h"
#include "tests/model/heads/golden_logits.h"
#include "tests/model/net/family_logits.h"

// Logits of tiny random heads in the published layouts against PyTorch in float32 (scripts/oracle/heads.py
// wrote the folders): within 1e-4 of the largest logit of a head.

namespace speclab::head_oracle_test {
namespace {

using namespace speclab::fixtures;
using Json = nlohmann::json;

class HeadOracle : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/heads" / GetParam();
    ASSERT_TRUE(std::filesystem::exists(folder_ / "golden.json"))
        << folder_ << " is missing: scripts/oracle/heads.py writes it";
    std::ifstream file(folder_ / "golden.json");
    golden_ = Json::parse(file);
    target_ = Model::load(Checkpoint::open(family_folder() / "llama"), make_cpu_backend({2, "f32"}), {});
    run_ = std::make_unique<HeadRunner>(target_);
    hidden_ = target_->config().hidden;
    count_ = static_cast<int>(golden_["states"].size());
    for (const Json& state : golden_["states"]) {
      const auto row = state.get<std::vector<float>>();
      states_.insert(states_.end(), row.begin(), row.end());
    }
  }
  // The token at a depth for each state from `first` on: 0 is the pending token.
  std::vector<Token> tokens(std::size_t depth, int first = 0) const {
    std::vector<Token> out;
    for (int row = first; row < count_; ++row)
      out.push_back(golden_["tokens"][static_cast<std::size_t>(row)][depth].get<Token>());
    return out;
  }
  void expect_golden(int head, const HeadRows& logits) {
    SCOPED_TRACE(head);
    std::vector<float> got(static_cast<std::size_t>(logits.rows()) *
                           static_cast<std::size_t>(logits.width()));
    run_->get(logits, got.data());
    expect_golden_logits(golden_["logits"][static_cast<std::size_t>(head)], got, 1e-4);
  }
  int expected_heads() const { return static_cast<int>(golden_["logits"].size()); }

  std::filesystem::path folder_;
  Json golden_;
  std::shared_ptr<const Model> target_;
  std::unique_ptr<HeadRunner> run_;
  std::vector<float> states_;  // [count_, hidden_]
  int hidden_ = 0, count_ = 0;
};

class MedusaOracle : public HeadOracle {};
TEST_P(MedusaOracle, LogitsEqualPyTorch) {
  MedusaHeads heads(read_head_card(folder_, HeadKind::kMedusa, *target_), *target_);
  ASSERT_EQ(heads.count(), expected_heads());
  HeadRows states, logits;
  run_->put(states_.data(), count_, hidden_, states);
  for (int head = 0; head < heads.count(); ++head) {
    heads.logits(*run_, head, states, logits);
    expect_golden(head, logits);
  }
}
INSTANTIATE_TEST_SUITE_P(Published, MedusaOracle, testing::Values("medusa"));

class HydraOracle : public HeadOracle {};
TEST_P(HydraOracle, LogitsEqualPyTorch) {
  HydraHeads heads(read_head_card(folder_, HeadKind::kHydra, *target_), target_);
  ASSERT_EQ(heads.count(), expected_heads());
  HeadRows states, logits;
  int first = 0;
  if (const Model* prefix = heads.prefix_layer(); prefix != nullptr) {  // it reads all states as one text
    const int layers[] = {kFinalNorm};
    std::vector<float> last;
    const PromptTaps taps{layers, [&](const PromptStates& chunk) {
                            const float* row = chunk.layers[0] + (chunk.count - 1) * hidden_;
                            last.assign(row, row + hidden_);
                          }};
    prefix->open(64)->prefill_embeddings(states_.data(), count_, Memory::kHost, nullptr, &taps);
    run_->put(last.data(), 1, hidden_, states);
    heads.finish_prefix(*run_, states);
    first = count_ - 1;
  } else {
    run_->put(states_.data(), count_, hidden_, states);
  }
  std::vector<HeadRows> embedded(static_cast<std::size_t>(heads.count()));
  std::vector<const HeadRows*> inputs{&states};
  for (int head = 0; head < heads.count(); ++head) {
    const auto depth = static_cast<std::size_t>(head);
    run_->embed(tokens(depth, first), embedded[depth]);
    inputs.push_back(&embedded[depth]);
    heads.logits(*run_, head, inputs, logits);
    expect_golden(head, logits);
  }
}
INSTANTIATE_TEST_SUITE_P(Published, HydraOracle, testing::Values("hydra", "hydra_prefix"));

class MlpSpeculatorOracle : public HeadOracle {};
TEST_P(MlpSpeculatorOracle, LogitsEqualPyTorch) {
  MlpSpeculatorHeads heads(read_head_card(folder_, HeadKind::kMlpSpeculator, *target_), *target_);
  ASSERT_EQ(heads.count(), expected_heads());
  HeadRows states[2], logits;
  run_->put(states_.data(), count_, hidden_, states[0]);
  heads.prepare(*run_, states[0]);
  for (int layer = 0; layer < heads.count(); ++layer) {
    HeadRows &from = states[layer % 2], &to = states[(layer + 1) % 2];
    heads.advance(*run_, layer, from, tokens(static_cast<std::size_t>(layer)), to);
    heads.logits(*run_, layer, to, logits);
    expect_golden(layer, logits);
  }
}
INSTANTIATE_TEST_SUITE_P(Published, MlpSpeculatorOracle,
                         testing::Values("mlp_speculator", "mlp_speculator_tied"));

class EagleOracle : public HeadOracle {};
TEST_P(EagleOracle, LogitsEqualPyTorch) {
  // The card of a published head of EAGLE-3 names states of a deeper target than the tiny one.
  const TempDir dir;
  Shape deep = target_->config();
  deep.layers = 7;
  deep.embedding_dim = deep.hidden;
  write_huggingface(dir.path(), random_llama(deep, 1));
  const auto card_target = Model::load(Checkpoint::open(dir.path()), make_cpu_backend({1, "f32"}), {});
  const HeadCard card = read_head_card(folder_, HeadKind::kEagle, *card_target);
  EagleHead head(card, target_);
  HeadRows states, features, text, drafted, logits;
  run_->put(states_.data(), count_, head.state_width(), states);
  head.features(*run_, states, features);
  const auto session = head.layer().open(64);
  std::vector<std::int32_t> chain(static_cast<std::size_t>(count_));
  std::iota(chain.begin(), chain.end(), -1);
  std::vector<int> path(chain.size());
  std::iota(path.begin(), path.end(), 0);
  head.forward(*run_, {*session, tokens(0), features, chain}, text);
  session->commit(path);
  head.logits(*run_, text, logits);
  expect_golden(0, logits);

  // Two chains of drafted tokens, as a tree that is fed level by level.
  const HeadRows* from = &text;
  std::vector<std::int32_t> rows{count_ - 1, count_ - 1}, parents{-1, -1};
  for (int depth = 0; depth < 2; ++depth) {
    const auto guesses = golden_["drafted"][static_cast<std::size_t>(depth)].get<std::vector<Token>>();
    run_->select(*from, rows, features);
    head.forward(*run_, {*session, guesses, features, parents, depth > 0}, drafted);
    head.logits(*run_, drafted, logits);
    expect_golden(depth + 1, logits);
    from = &drafted;
    rows = {0, 1};
    parents = {0, 1};
  }
  EXPECT_EQ(head.ids().size(), card.eagle.version == 3 ? 40u : 0u);
}
INSTANTIATE_TEST_SUITE_P(Published, EagleOracle, testing::Values("eagle", "eagle3"));

}  // namespace
}  // namespace speclab::head_oracle_test
