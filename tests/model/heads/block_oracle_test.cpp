#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "core/model/heads/block_head.h"
#include "core/model/heads/pass_embeddings.h"
#include "core/model/net/session.h"
#include "tests/model/heads/golden_logits.h"
#include "tests/model/net/family_logits.h"

// A block draft in the published layout of DFlash, and look-ahead embeddings of PaSS, against PyTorch in
// float32 (scripts/oracle/heads.py wrote the folders): within 1e-4 of the largest logit on the CPU. The
// simulated GPU rounds inputs of linear layers to bf16, so it is within 6e-2.

namespace speclab::block_oracle_test {
namespace {

using namespace speclab::fixtures;

class BlockOracle : public testing::TestWithParam<const char*> {
 protected:
  static bool simulated() { return std::string(GetParam()) == "host-simt"; }
  void load(const std::string& name) {
    folder_ = std::filesystem::path(SPECLAB_SOURCE_DIR) / "tests/golden/heads" / name;
    std::ifstream file(folder_ / "golden.json");
    ASSERT_TRUE(file.good()) << folder_;
    golden_ = nlohmann::json::parse(file);
    target_ = Model::load(
        Checkpoint::open(family_folder() / "llama"),
        simulated() ? make_cuda_backend({.simulated = true}) : make_cpu_backend({2, GetParam()}), {});
    run_ = std::make_unique<HeadRunner>(target_);
  }
  void expect_golden(const std::vector<float>& got) const {
    expect_golden_logits(golden_["logits"][0], got, simulated() ? 6e-2 : 1e-4);
  }

  std::filesystem::path folder_;
  nlohmann::json golden_;
  std::shared_ptr<const Model> target_;
  std::unique_ptr<HeadRunner> run_;
};

TEST_P(BlockOracle, ABlockEqualsPyTorch) {
  load("block_draft");
  BlockHead head(read_head_card(folder_, HeadKind::kBlockDraft, *target_), target_, 16);
  ASSERT_EQ(head.count(), 3);
  ASSERT_EQ(std::vector<int>(head.taps().begin(), head.taps().end()), (std::vector<int>{1, kFinalNorm}));
  const auto hidden = static_cast<std::size_t>(target_->config().hidden);
  std::vector<std::vector<float>> of_tap(2);
  for (const auto& state : golden_["states"]) {  // the state of one tap after the other
    const auto row = state.get<std::vector<float>>();
    for (std::size_t tap = 0; tap < 2; ++tap)
      of_tap[tap].insert(of_tap[tap].end(), row.begin() + static_cast<std::ptrdiff_t>(tap * hidden),
                         row.begin() + static_cast<std::ptrdiff_t>((tap + 1) * hidden));
  }
  const std::vector<const float*> states{of_tap[0].data(), of_tap[1].data()};
  BlockHead::Context context = head.open();
  head.extend(*run_, context, states, static_cast<int>(golden_["states"].size()));
  HeadRows logits;
  head.logits(*run_, context, golden_["tokens"][0].get<Token>(), 3, logits);
  std::vector<float> got(3 * static_cast<std::size_t>(head.rows()));
  run_->get(logits, got.data());
  expect_golden(got);
}

TEST_P(BlockOracle, LookAheadEmbeddingsEqualPyTorch) {
  load("pass");
  PassEmbeddings embeddings(read_head_card(folder_, HeadKind::kPass, *target_), *target_);
  ASSERT_EQ(embeddings.count(), 3);
  auto text = golden_["tokens"].get<std::vector<Token>>();
  const Token pending = text.back();
  text.pop_back();
  const auto session = target_->open(32, 8);
  session->prefill(text);
  HeadRows inputs;
  embeddings.inputs(*run_, pending, 3, inputs);
  const std::vector<std::int32_t> parents{-1, 0, 1, 2}, rows{0, 1, 2, 3};
  std::vector<float> got(rows.size() * static_cast<std::size_t>(target_->config().vocab));
  Feed feed;
  feed.session = session.get();
  feed.parents = parents;
  feed.rows = rows;
  feed.logits = got.data();
  feed.embeddings = inputs.data();
  feed.embeddings_in = Memory::kBackend;
  target_->forward({&feed, 1});
  expect_golden(got);
}

INSTANTIATE_TEST_SUITE_P(Backends, BlockOracle, testing::Values("f32", "host-simt"), [](const auto& info) {
  return std::string(info.param) == "f32" ? "cpu" : "host_simt";
});

}  // namespace
}  // namespace speclab::block_oracle_test
