#include "core/model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace speclab {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

std::string error_of(std::string_view source) {
  try {
    ChatTemplate::from_source(source, "model.gguf");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// tests/golden/tokenizer/chat.json: the template of the target as jinja2 renders it
// (scripts/oracle/tokenizer.py).
TEST(ChatTemplate, RendersTheTargetsTemplateAsJinjaDoes) {
  std::ifstream in(SPECLAB_SOURCE_DIR "/tests/golden/tokenizer/chat.json");
  const Json golden = Json::parse(in);
  const ChatTemplate chat = ChatTemplate::from_source(golden["source"].get<std::string>(), "model.gguf");
  EXPECT_EQ(chat.family_name(), "chatml");
  EXPECT_EQ(chat.default_system(), "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  ASSERT_GE(golden["cases"].size(), 20u);
  for (const Json& example : golden["cases"]) {
    std::vector<Message> messages;
    for (const Json& message : example["messages"]) messages.push_back({message["role"], message["content"]});
    EXPECT_EQ(chat.render(messages, example["add_generation_prompt"]), example["text"].get<std::string>());
  }
}

TEST(ChatTemplate, FindsTheDefaultSystemPromptBetweenQuotedHeads) {
  const ChatTemplate with = ChatTemplate::from_source(
      "{% if messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + "
      "'<|im_end|>\\n' }}"
      "{% else %}{{ '<|im_start|>system\\nIt\\'s me.\\nBe brief.<|im_end|>\\n' }}{% endif %}",
      "x");
  EXPECT_TRUE(with.has_default_system());
  EXPECT_EQ(with.default_system(), "It's me.\nBe brief.");
  const ChatTemplate without = ChatTemplate::from_source(
      "{% for m in messages %}{{'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n'}}{% endfor %}",
      "x");
  EXPECT_FALSE(without.has_default_system());
  EXPECT_EQ(without.render(std::vector<Message>{{"user", "a"}}, true),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, PlainJoinsTheContents) {
  const ChatTemplate plain = ChatTemplate::from_source("", "x");
  EXPECT_EQ(plain.family_name(), "plain");
  EXPECT_EQ(plain.render(std::vector<Message>{{"user", ""}, {"user", "b"}}, true), "\nb");
  EXPECT_EQ(plain.render({}, true), "");
}

TEST(ChatTemplate, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(error_of("{{ bos_token }}[INST] {{ x }} [/INST]"),
              HasSubstr("model.gguf: chat template: got \"{{ bos_token }}[INST]"));
  EXPECT_THAT(error_of("{{ bos_token }}[INST] {{ x }} [/INST]"), HasSubstr("expected ChatML"));
  EXPECT_THAT(error_of("{{ '<|im_start|>' + (m.content | trim) + '<|im_end|>' }}"),
              HasSubstr("uses \"trim\""));
}

}  // namespace
}  // namespace speclab
