#include "core/model/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"

namespace speclab::chat_template_test {
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
  EXPECT_THAT(error_of("{{ bos_token }}[INST] {{ x }} [/INST]"),
              HasSubstr("expected one of the known families (plain, qwen3"));
  EXPECT_THAT(error_of("{{ '<|im_start|>' + (m.content | trim) + '<|im_end|>' }}"),
              HasSubstr("uses \"trim\""));
  try {
    ChatTemplate::by_name("llama-4");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("chat template: got \"llama-4\", expected plain, "));
  }
}

std::vector<std::vector<Message>> conversations(const Json& golden) {
  std::vector<std::vector<Message>> out;
  for (const Json& conversation : golden["conversations"]) {
    out.emplace_back();
    for (const Json& message : conversation) out.back().push_back({message["role"], message["content"]});
  }
  return out;
}

/// Each rendering by jinja2 in the golden file must equal ours.
void expect_renderings(const ChatTemplate& chat, const Json& golden, const Json& one) {
  const auto all = conversations(golden);
  ASSERT_EQ(one["texts"].size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Json& text = one["texts"][i];
    try {
      const std::string ours = chat.render(all[i], true);
      EXPECT_EQ(ours, text.is_null() ? "an error" : text.get<std::string>())
          << chat.family_name() << ", " << i;
    } catch (const Error& error) {
      // The first templates of Phi-3 silently drop a system message.
      if (!text.is_null() && chat.family_name() != "phi-3-mini") ADD_FAILURE() << error.what();
      EXPECT_EQ(all[i][0].role, "system");
    }
  }
}

Json read_golden(const std::string& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

// tests/golden/chat_templates.json: jinja2's renderings (scripts/oracle/chat_templates.py).
TEST(ChatTemplate, RendersEveryFamilyAsJinjaDoes) {
  const Json golden = read_golden(SPECLAB_SOURCE_DIR "/tests/golden/chat_templates.json");
  const ChatTemplate::Special special{.bos = golden["bos"], .eos = golden["eos"]};
  ASSERT_GE(golden["templates"].size(), 31u);
  std::set<std::string> seen{"plain"};
  for (const Json& one : golden["templates"]) {
    const ChatTemplate chat = ChatTemplate::from_source(one["source"].get<std::string>(), "x", special);
    EXPECT_EQ(chat.family_name(), one["family"]);
    expect_renderings(chat, golden, one);
    // The family chosen by name must render the same, if the template has no default
    // system prompt and the usual BOS.
    const bool again = !seen.insert(one["family"]).second;
    if (!again && one["family"] != "smollm3" && one["family"] != "deepseek-coder")
      expect_renderings(ChatTemplate::by_name(one["family"].get<std::string>(), special), golden, one);
  }
  for (const std::string_view name : ChatTemplate::names())
    EXPECT_TRUE(seen.contains(std::string(name))) << name;
}

// Templates from model files (scripts/oracle/chat_templates.py --templates) are refused or rendered exactly.
TEST(ChatTemplate, IsNeverWrongAboutTheTemplatesOfOthers) {
  const char* path = std::getenv("SPECLAB_CHAT_TEMPLATES");
  if (path == nullptr) return;  // we may not ship these templates; the script writes the file
  const Json golden = read_golden(path);
  const ChatTemplate::Special special{.bos = golden["bos"], .eos = golden["eos"]};
  int known = 0;
  for (const Json& one : golden["templates"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    try {
      const ChatTemplate chat = ChatTemplate::from_source(one["source"].get<std::string>(), "x", special);
      expect_renderings(chat, golden, one);
      std::printf("%-20s %s\n", std::string(chat.family_name()).c_str(),
                  one["name"].get<std::string>().c_str());
      ++known;
    } catch (const Error& error) {
      std::printf("%-20s %s\n", "-", one["name"].get<std::string>().c_str());
    }
  }
  std::printf("%d of %zu known\n", known, golden["templates"].size());
}

}  // namespace
}  // namespace speclab::chat_template_test
