#include <gtest/gtest.h>

#include "tests/model/net/family_logits.h"
#include "tests/model/net/session_life.h"

// Whole forwards of the GPU backend on its simulated GPU (host-simt): every family is compared with the CPU
// in float32, and random lives of sessions, with trees, forks and rewinds, have the bits of a fresh prefill.

namespace speclab::host_simt_test {
namespace {

using namespace speclab::fixtures;

// Compares with float32, and with the class of the CPU that rounds as a GPU does: inputs of linear layers,
// keys and values to bf16. From that class only the order of sums differs, and roundings that depend on it.
TEST(HostSimt, EveryFamilyIsNearTheCpu) {
  const auto simulated = make_cuda_backend({.simulated = true}), exact = make_cpu_backend({1, "f32"}),
             rounding = make_cpu_backend({1, "amx-bf16-emulated"});
  for (const auto& entry : std::filesystem::directory_iterator(family_folder())) {
    const std::string family = entry.path().filename();
    const std::vector<Token> tokens = family_tokens(family);
    const auto logits = family_logits(family, simulated, tokens);
    EXPECT_LE(apart(logits, family_logits(family, exact, tokens)), .04f) << family;
    EXPECT_LE(apart(logits, family_logits(family, rounding, tokens)), .01f) << family;
  }
}

// A forward as one launch has the same bits as a launch for each operation, in every family.
TEST(HostSimt, PersistentKernelsHaveTheBitsOfLaunches) {
  const auto launches = make_cuda_backend({.simulated = true}),
             persistent = make_cuda_backend({.simulated = true}, CudaKernels::kPersistent);
  for (const auto& entry : std::filesystem::directory_iterator(family_folder())) {
    const std::string family = entry.path().filename();
    std::vector<Token> tokens = family_tokens(family);
    tokens.resize(std::min<std::size_t>(tokens.size(), 9));
    EXPECT_EQ(family_logits(family, persistent, tokens), family_logits(family, launches, tokens)) << family;
  }
}

// A prompt without logits downloads nothing, so its last layer may still wait when its session is destroyed.
TEST(HostSimt, PersistentKernelsOfAPromptHaveBegunWhenItReturns) {
  const auto backend = make_cuda_backend({.simulated = true}, CudaKernels::kPersistent);
  const auto model = Model::load(Checkpoint::open(family_folder() / "llama"), backend, {});
  const std::vector<Token> tokens = family_tokens("llama");
  model->open(20)->prefill(TokenSpan(tokens).first(8));
  EXPECT_TRUE(backend->idle());
}

// Hidden state and logits after a prompt. [hidden + head_rows]
std::vector<float> behind_prompt(const std::string& family, const std::shared_ptr<Backend>& backend,
                                 const std::vector<Token>& tokens, int scratch) {
  const auto model = Model::load(Checkpoint::open(family_folder() / family), backend, {});
  const auto session = model->open(model->config().context, scratch);
  const auto hidden = static_cast<std::size_t>(model->config().hidden);
  std::vector<float> out(hidden + static_cast<std::size_t>(model->config().head_rows()));
  const int layers[] = {kFinalNorm};
  const PromptTaps taps{layers, [&](const PromptStates& states) {
                          std::copy_n(
                              states.layers[0] + (static_cast<std::size_t>(states.count) - 1) * hidden,
                              hidden, out.data());
                        }};
  session->prefill(tokens, out.data() + hidden, &taps);
  EXPECT_EQ(session->length(), static_cast<int>(tokens.size())) << family;
  EXPECT_EQ(session->work().rows, static_cast<std::int64_t>(tokens.size())) << family;
  return out;
}

std::vector<Token> long_prompt(const std::string& family, std::size_t most) {
  const std::vector<Token> tokens = family_tokens(family);
  std::vector<Token> out;
  for (std::size_t i = 0; i < most; ++i) out.push_back(tokens[i * 5 % tokens.size()]);
  return out;
}

// A prompt that a library multiplies (here a plain product stands for it) equals that of our kernels up to
// rounding. It is fed in chunks of attention, whose sizes change no bit. It repeats bitwise, and other
// operations ran.
TEST(HostSimt, PromptsOfALibraryAreNearOurs) {
  const auto own = make_cuda_backend({.simulated = true}),
             library = make_cuda_backend({.simulated = true, .cublaslt = true});
  int other_bits = 0;
  for (const auto& entry : std::filesystem::directory_iterator(family_folder())) {
    const std::string family = entry.path().filename();
    const auto config = Model::load(Checkpoint::open(entry.path()), own, {})->config();
    // More rows than the library takes at once; if the context allows it, more than a short prompt has.
    const std::vector<Token> prompt =
        long_prompt(family, static_cast<std::size_t>(std::min(config.context, 50)));
    const auto by_library = behind_prompt(family, library, prompt, 24);
    EXPECT_LE(apart(by_library, behind_prompt(family, own, prompt, 24)), .02f) << family;
    EXPECT_EQ(by_library, behind_prompt(family, library, prompt, 24)) << family;
    EXPECT_EQ(by_library, behind_prompt(family, library, prompt, 7)) << family;
    EXPECT_EQ(by_library, behind_prompt(family, library, prompt, 128)) << family;
    other_bits += by_library != behind_prompt(family, own, prompt, 24);
  }
  EXPECT_GT(other_bits, 10)
      << "the library's are others in every family, but where a sum happens to be the same";
}

TEST(HostSimt, ShortPromptsStayOurs) {
  const auto own = make_cuda_backend({.simulated = true}),
             library = make_cuda_backend({.simulated = true, .cublaslt = true});
  const std::vector<Token> prompt =
      long_prompt("llama", static_cast<std::size_t>(library->prompt_rows().least - 1));
  EXPECT_EQ(behind_prompt("llama", library, prompt, 24), behind_prompt("llama", own, prompt, 24));
}

// All chunks that go together share one pass over the weights.
TEST(HostSimt, APromptOfALibraryIsCountedAsOnePass) {
  const auto model = Model::load(Checkpoint::open(family_folder() / "llama"),
                                 make_cuda_backend({.simulated = true, .cublaslt = true}), {});
  const auto session = model->open(60, 8);
  std::vector<float> logits(static_cast<std::size_t>(model->config().head_rows()));
  session->prefill(long_prompt("llama", 30), logits.data());
  const Work whole = model->work(30, 1, 0, 30 * 31 / 2), counted = session->work();
  EXPECT_EQ(counted.calls, 1);
  EXPECT_EQ(counted.weight_bytes, whole.weight_bytes);
  EXPECT_EQ(counted.flops, whole.flops);
  EXPECT_EQ(counted.keys, whole.keys);
}

// Rows that continue a forward are far after the committed ones, here in another split of attention.
TEST(HostSimt, LevelsOfATreeCrossSplits) {
  const auto model = life_model("host-simt", 0, 1);
  const std::vector<Token> text(124, 5), chain{3, 1, 4, 1, 5, 9, 2, 6};
  const auto levels = model->open(160), whole = model->open(160);
  levels->prefill(text);
  whole->prefill(text);
  const auto vocab = static_cast<std::size_t>(model->config().vocab);
  std::vector<float> one_by_one(chain.size() * vocab), together(one_by_one.size());
  std::vector<std::int32_t> parents, rows;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    parents.push_back(static_cast<std::int32_t>(i) - 1);
    rows.push_back(static_cast<std::int32_t>(i));
    const std::int32_t row = 0;
    Feed feed{levels.get(), {&chain[i], 1}, {&parents[i], 1}, {&row, 1}, one_by_one.data() + i * vocab};
    feed.continues = i > 0;
    model->forward({&feed, 1});
  }
  whole->forward(chain, parents, rows, together.data());
  EXPECT_EQ(one_by_one, together);
  EXPECT_EQ(levels->in_flight(), 8);
  levels->commit(std::vector<int>{0, 1, 2});
  EXPECT_EQ(levels->length(), 127);
  const Token next = 7;
  const std::int32_t root = -1, row = 0;
  std::vector<float> after(vocab), fresh(vocab);
  levels->forward({&next, 1}, {&root, 1}, {&row, 1}, after.data());
  whole->commit(std::vector<int>{0, 1, 2});
  whole->forward({&next, 1}, {&root, 1}, {&row, 1}, fresh.data());
  EXPECT_EQ(after, fresh);
}

class HostSimtLife : public ::testing::TestWithParam<std::size_t> {};

TEST_P(HostSimtLife, RowsHaveTheBitsOfAFreshPrefill) {
  speclab::fixtures::Life life("host-simt", GetParam(), 1, 7);
  for (int step = 0; step < 6; ++step)
    ASSERT_TRUE(life.step()) << speclab::fixtures::kLifeModels[GetParam()] << ", step " << step;
}

// Cases that differ in the kernels: partial tiles, groups, windows, caps, norms, rotations, activations.
class PersistentLife : public ::testing::TestWithParam<std::size_t> {};

TEST_P(PersistentLife, RowsHaveTheBitsOfAFreshPrefill) {
  speclab::fixtures::Life life("host-simt-persistent", GetParam(), 1, 7);
  for (int step = 0; step < 4; ++step)
    ASSERT_TRUE(life.step()) << speclab::fixtures::kLifeModels[GetParam()] << ", step " << step;
}
INSTANTIATE_TEST_SUITE_P(Models, PersistentLife, ::testing::Values(0, 2, 8, 12));

INSTANTIATE_TEST_SUITE_P(Models, HostSimtLife, ::testing::Values(0, 2, 3, 5, 7, 10, 12, 13));

}  // namespace
}  // namespace speclab::host_simt_test
