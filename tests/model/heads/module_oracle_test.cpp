#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "core/model/heads/falcon/falcon_head.h"
#include "core/model/heads/mtp/mtp_head.h"
#include "core/model/heads/eagle/parallel_eagle_head.h"
#include "core/model/net/session.h"
#include "tests/model/files/model_files.h"
#include "tests/model/heads/golden_logits.h"
#include "tests/model/net/family_logits.h"

// Modules for multi-token prediction, a head of P-EAGLE in the layout that vLLM reads, and one of Falcon,
// against PyTorch in float32 (scripts/oracle/heads.py wrote the folders): within 1e-4 of the largest logit on
// the CPU. The simulated GPU rounds inputs of linear layers to bf16, so it is within 6e-2.

namespace speclab::module_oracle_test {
namespace {

using namespace speclab::fixtures;

class ModuleOracle : public testing::TestWithParam<const char*> {
 protected:
  static bool simulated() { return std::string(GetParam()) == "host-simt"; }
  void load(const std::string& name) {
    folder_ = std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/heads" / name;
    std::ifstream file(folder_ / "golden.json");
    ASSERT_TRUE(file.good()) << folder_ << " is missing: scripts/oracle/heads.py writes it";
    golden_ = nlohmann::json::parse(file);
    backend_ = simulated() ? make_cuda_backend({.simulated = true}) : make_cpu_backend({2, GetParam()});
    target_ = Model::load(Checkpoint::open(family_folder() / "llama"), backend_, {});
    run_ = std::make_unique<HeadRunner>(target_);
    for (const auto& state : golden_["states"]) {
      const auto row = state.get<std::vector<float>>();
      states_.insert(states_.end(), row.begin(), row.end());
    }
    tokens_ = golden_["tokens"].get<std::vector<Token>>();
    count_ = static_cast<int>(golden_["states"].size());
    chain_.resize(static_cast<std::size_t>(count_));
    std::iota(chain_.begin(), chain_.end(), -1);
  }
  TokenSpan tokens_from(int first) const {
    return TokenSpan(tokens_).subspan(static_cast<std::size_t>(first), chain_.size());
  }
  void expect_golden(std::size_t place, const HeadRows& logits) {
    SCOPED_TRACE(place);
    std::vector<float> got(static_cast<std::size_t>(logits.rows()) *
                           static_cast<std::size_t>(logits.width()));
    run_->get(logits, got.data());
    expect_golden_logits(golden_["logits"][place], got, simulated() ? 6e-2 : 1e-4);
  }

  std::filesystem::path folder_;
  nlohmann::json golden_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<const Model> target_;
  std::unique_ptr<HeadRunner> run_;
  std::vector<float> states_;  // [count_, width of a position's states]
  std::vector<Token> tokens_;  // the token after each position, and perhaps one more
  int count_ = 0;
  std::vector<std::int32_t> chain_;  // parents of count_ rows
};

TEST_P(ModuleOracle, ModulesInOrderEqualPyTorch) {
  load("mtp");
  MtpHead head(read_head_card(folder_, HeadKind::kMtp, *target_), target_);
  ASSERT_EQ(head.modules(), 2);
  HeadRows states, first, second, logits;
  run_->put(states_.data(), count_, target_->config().hidden, states);
  const auto below = head.layer(0).open(32), above = head.layer(1).open(32);
  head.forward(*run_, 0, {*below, tokens_from(0), states, chain_}, first);
  head.logits(*run_, 0, first, logits);
  expect_golden(0, logits);
  head.forward(*run_, 1, {*above, tokens_from(1), first, chain_}, second);
  head.logits(*run_, 1, second, logits);
  expect_golden(1, logits);
}

TEST_P(ModuleOracle, AModuleThatPassesOnNormedStatesEqualsPyTorch) {
  load("mtp_normed");
  const HeadCard card = read_head_card(folder_, HeadKind::kMtp, *target_);
  EXPECT_TRUE(card.mtp.state_first && card.mtp.passes_normed && card.mtp.layer.qk_norm);
  MtpHead head(card, target_);
  ASSERT_EQ(head.modules(), 1);
  HeadRows states, outputs, newest, next, logits;
  run_->put(states_.data(), count_, target_->config().hidden, states);
  const auto session = head.layer(0).open(32);
  head.forward(*run_, 0, {*session, tokens_from(0), states, chain_}, outputs);
  head.logits(*run_, 0, outputs, logits);
  expect_golden(0, logits);
  const std::vector<std::int32_t> last{count_ - 1};
  run_->select(outputs, last, newest);  // takes the place of the next state
  const TokenSpan after = TokenSpan(tokens_).last(1);
  head.forward(*run_, 0, {*session, after, newest, last, true}, next);
  head.logits(*run_, 0, next, logits);
  expect_golden(1, logits);
}

TEST_P(ModuleOracle, MasksEqualPyTorch) {
  load("parallel_eagle");
  // The card of a published head names states of a deeper target than the tiny one.
  const TempDir dir;
  Shape deep = target_->config();
  deep.layers = 7;
  deep.embedding_dim = deep.hidden;
  write_huggingface(dir.path(), random_llama(deep, 1));
  const auto card_target = Model::load(Checkpoint::open(dir.path()), make_cpu_backend({1, "f32"}), {});
  const HeadCard card = read_head_card(folder_, HeadKind::kParallelEagle, *card_target);
  EXPECT_EQ(card.eagle.taps, (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(card.eagle.mask, 111);
  ParallelEagleHead head(card, target_);
  ASSERT_EQ(head.count(), 4);
  EXPECT_EQ(head.ids().size(), 40u);
  const auto session = head.layers().open(32);
  HeadRows logits;
  head.draft(*run_, *session, states_.data(), tokens_, 4, logits);
  expect_golden(0, logits);
  EXPECT_EQ(session->length(), count_);
}

TEST_P(ModuleOracle, BlocksOfFalconEqualPyTorch) {
  load("falcon");
  FalconHead head(read_head_card(folder_, HeadKind::kFalcon, *target_), target_, 16, 3);
  ASSERT_EQ(head.block(), 2);
  FalconHead::Context context;
  head.clear(*run_, context);
  head.extend(*run_, context, states_.data(), tokens_);
  ASSERT_EQ(context.length(), count_);
  FalconHead::Level first, below;
  HeadRows logits, of_block;
  head.first(*run_, context, first);
  head.logits(*run_, first.outputs, logits);
  expect_golden(0, logits);
  std::vector<Token> drafted;
  for (const auto& block : golden_["drafted"]) {
    const auto tokens = block.get<std::vector<Token>>();
    drafted.insert(drafted.end(), tokens.begin(), tokens.end());
  }
  const std::vector<std::int32_t> parents{0, 0};
  head.next(*run_, context, first, parents, drafted, below);
  head.logits(*run_, below.outputs, logits);
  for (std::int32_t block = 0; block < 2; ++block) {
    const std::vector<std::int32_t> rows{2 * block, 2 * block + 1};
    run_->select(logits, rows, of_block);
    expect_golden(static_cast<std::size_t>(block) + 1, of_block);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ModuleOracle, testing::Values("f32", "host-simt"), [](const auto& info) {
  return std::string(info.param) == "f32" ? "cpu" : "host_simt";
});

}  // namespace
}  // namespace speclab::module_oracle_test
