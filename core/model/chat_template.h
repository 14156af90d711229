#pragma once

#include <span>
#include <string>
#include <string_view>

namespace speclab {

/// One turn of a conversation. `role` is "system", "user" or "assistant".
struct Message {
  std::string role, content;
};

/// How a conversation becomes one text. Files hold the rule as a Jinja program; the families below are
/// recognised by the text of that program and rendered here. The result is to be encoded with parse_special;
/// as with the Jinja original, special tokens written out in a message become special tokens.
class ChatTemplate {
 public:
  enum class Family {
    kPlain,   ///< no template: the contents, joined by line ends; roles and the generation prompt leave no
              ///< trace
    kChatMl,  ///< "<|im_start|>ROLE\nCONTENT<|im_end|>\n" for every message, then "<|im_start|>assistant\n"
  };

  /// Recognises a template; empty source: kPlain. If the source has a default system prompt (SmolLM2: "You
  /// are a helpful AI assistant named SmolLM, ..."), conversations that do not begin with a system message
  /// get it. Throws Error, naming the known families, for a template that is none of them or does more than
  /// this.
  static ChatTemplate from_source(std::string_view jinja, std::string_view file_name_for_errors);
  static ChatTemplate plain() { return ChatTemplate(Family::kPlain, {}, false); }

  /// The prompt text; with `add_generation_prompt` the head of the answer that the model is to write.
  std::string render(std::span<const Message> messages, bool add_generation_prompt) const;

  Family family() const { return family_; }
  /// "plain", "chatml"
  std::string_view family_name() const { return family_ == Family::kPlain ? "plain" : "chatml"; }
  bool has_default_system() const { return has_default_system_; }
  const std::string& default_system() const { return default_system_; }

 private:
  ChatTemplate(Family family, std::string default_system, bool has_default_system)
      : family_(family),
        default_system_(std::move(default_system)),
        has_default_system_(has_default_system) {}

  Family family_;
  std::string default_system_;
  bool has_default_system_;
};

}  // namespace speclab
