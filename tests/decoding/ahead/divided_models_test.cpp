// Models on divided threads compute the bits of models on undivided threads, also while both work.
#include "core/decoding/ahead/divided_models.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/decoding/ahead/side_thread.h"
#include "core/model/net/session.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::divided_models_test {
namespace {

using namespace speclab::fixtures;

const std::vector<Token> kDividedText = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};

/// The logits after the text and one more token.
std::vector<float> logits_after_text(const Model& model) {
  std::vector<float> logits(static_cast<std::size_t>(model.config().vocab));
  const auto session = model.open(64);
  session->prefill(kDividedText);
  const Token token[] = {7};
  const std::int32_t parent[] = {-1}, row[] = {0};
  session->forward(token, parent, row, logits.data());
  return logits;
}

TEST(DividedModels, HaveTheBitsOfTheWholeOnes) {
  for (const char* numerics : {"f32", "f32-kv16", "avx512-bf16-emulated"}) {
    const ModelPtr target = load_tiny_on(make_cpu_backend({3, numerics}), random_llama(tiny_shape(), 1));
    const ModelPtr draft = Model::with_layers(target, {1});
    const DividedModels divided = divide_threads(target, draft, "test");
    EXPECT_EQ(divided.target->backend().threads(), 2);
    EXPECT_EQ(divided.draft->backend().threads(), 1);
    EXPECT_EQ(divided.draft->backend().numerics_class(), numerics);
    EXPECT_TRUE(divided.draft->same_function_as(*draft));
    EXPECT_FALSE(divided.draft->same_function_as(*target));
    EXPECT_EQ(logits_after_text(*divided.target), logits_after_text(*target)) << numerics;
    EXPECT_EQ(logits_after_text(*divided.draft), logits_after_text(*draft)) << numerics;
  }
}

TEST(DividedModels, WorkAtTheSameTime) {
  const ModelPtr target = load_tiny_on(make_cpu_backend({2, "f32"}), random_llama(tiny_shape(), 1));
  const ModelPtr draft = Model::with_layers(target, {1});
  const std::vector<float> of_target = logits_after_text(*target), of_draft = logits_after_text(*draft);
  const DividedModels divided = divide_threads(target, draft, "test");
  std::vector<float> beside;
  SideThread side([&] { beside = logits_after_text(*divided.draft); });
  for (int i = 0; i < 20; ++i) {
    beside.clear();
    side.start();
    EXPECT_EQ(logits_after_text(*divided.target), of_target);
    side.wait();
    EXPECT_EQ(beside, of_draft);
  }
}

TEST(DividedModels, ASessionTakesOverACacheOfTheWholeModel) {
  const ModelPtr target = load_tiny_on(make_cpu_backend({2, "f32"}), random_llama(tiny_shape(), 1));
  const DividedModels divided = divide_threads(target, Model::with_layers(target, {0}), "test");
  const auto whole = target->open(64), part = divided.target->open(64);
  whole->prefill(kDividedText);
  part->copy(*whole);
  const Token token[] = {7};
  const std::int32_t parent[] = {-1}, row[] = {0};
  std::vector<float> a(static_cast<std::size_t>(target->config().vocab)), b = a;
  whole->forward(token, parent, row, a.data());
  part->forward(token, parent, row, b.data());
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace speclab::divided_models_test
