#include <numeric>

#include "core/model/net/session.h"
#include "tests/model/net/family_logits.h"
#include "tests/on_device/on_device.h"

// Hidden states on the device: they change no logits, have the same bits in a tree and in a prompt, and the
// output head on them gives the logits. What comes to the host is counted.

namespace speclab::on_device::hidden_test {
namespace {

using namespace speclab::fixtures;

class OnDeviceHidden : public OnDevice, public testing::WithParamInterface<const char*> {};

TEST_P(OnDeviceHidden, StatesFitTheLogits) {
  const auto model = Model::load(Checkpoint::open(family_folder() / GetParam()), backend(), {});
  const auto hidden = static_cast<std::size_t>(model->config().hidden),
             vocab = static_cast<std::size_t>(model->config().vocab);
  const int middle = model->config().layers / 2;
  const std::vector<Token> tokens = family_tokens(GetParam());
  const auto prompt = TokenSpan(tokens).first(9);
  const std::vector<Token> tree{tokens[9], 4, 7, tokens[10]};
  const std::vector<std::int32_t> parents{-1, 0, 0, 0}, rows{0, 1, 2, 3}, last{3};

  const auto plain = model->open(64), tapped = model->open(64);
  std::vector<float> expected(rows.size() * vocab), logits(rows.size() * vocab);
  plain->prefill(prompt);
  plain->forward(tree, parents, rows, expected.data());
  tapped->prefill(prompt);
  std::vector<float> of_middle(tree.size() * hidden), of_end(tree.size() * hidden);
  Buffer<float> there = backend()->allocate_buffer<float>(tree.size() * hidden);
  const std::vector<Tap> taps{{middle, of_middle.data(), {}},
                              {kFinalNorm, of_end.data(), {}},
                              {middle, there.data(), {}, Memory::kBackend}};
  tapped->forward(tree, parents, rows, logits.data(), taps);
  EXPECT_EQ(logits, expected);
  EXPECT_EQ(tapped->work().hidden_bytes, static_cast<double>(2 * of_end.size() * sizeof(float)));
  model->head(of_end.data(), static_cast<int>(tree.size()), FinalNorm::kDone, logits.data());
  EXPECT_EQ(logits, expected);
  std::vector<float> fetched(hidden);
  tapped->fetch_states(there.data(), last, fetched.data());
  const auto state_of_last =
      std::vector<float>(of_middle.end() - static_cast<std::ptrdiff_t>(hidden), of_middle.end());
  EXPECT_EQ(fetched, state_of_last);
  EXPECT_EQ(tapped->work().hidden_bytes, static_cast<double>((2 * of_end.size() + hidden) * sizeof(float)));

  // The same path as a prompt, in chunks of 4 tokens, and from embeddings in place of tokens.
  std::vector<Token> text(prompt.begin(), prompt.end());
  text.insert(text.end(), {tree[0], tree[3]});
  std::vector<float> embeddings(text.size() * hidden), prompt_states;
  model->embed(text, embeddings.data());
  const int layers[] = {middle};
  const PromptTaps prompt_taps{layers, [&](const PromptStates& chunk) {
                                 const float* from = chunk.layers[0];
                                 const auto size = static_cast<std::size_t>(chunk.count) * hidden;
                                 prompt_states.insert(prompt_states.end(), from, from + size);
                               }};
  for (const bool from_embeddings : {false, true}) {
    prompt_states.clear();
    const auto session = model->open(64, 4);
    if (from_embeddings)
      session->prefill_embeddings(embeddings.data(), static_cast<int>(text.size()), Memory::kHost, nullptr,
                                  &prompt_taps);
    else session->prefill(text, nullptr, &prompt_taps);
    ASSERT_EQ(prompt_states.size(), text.size() * hidden);
    EXPECT_EQ(
        std::vector<float>(prompt_states.end() - static_cast<std::ptrdiff_t>(hidden), prompt_states.end()),
        state_of_last)
        << from_embeddings;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, OnDeviceHidden, testing::Values("llama", "gpt2", "gemma2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace speclab::on_device::hidden_test
