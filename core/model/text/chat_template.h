#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

struct ChatForm;

/// One turn of a conversation. `role` is "system", "user" or "assistant".
struct Message {
  std::string role, content;
};

/// Spellings of the tokens that templates call bos_token and eos_token; "" for a model without.
struct ChatTokens {
  std::string bos = {}, eos = {};
};

/// How a conversation becomes one text. Files hold the rule as a Jinja program. It is not run: the families
/// below are recognised by the text of that program, or named, and rendered here, with the text that the
/// program gives. The result is to be encoded with parse_special; as with the Jinja original, special tokens
/// written out in a message become special tokens. It holds the BOS of the model where the template does: add
/// none.
class ChatTemplate {
 public:
  using Special = ChatTokens;

  /// Recognises a template; empty source: plain. If the source has a default system prompt (SmolLM2: "You are
  /// a helpful AI assistant named SmolLM, ..."), conversations that do not begin with a system message get
  /// it. Throws Error, naming the known families, for a template that is none of them or does more than they
  /// do.
  static ChatTemplate from_source(std::string_view jinja, std::string_view file_name_for_errors,
                                  const Special& special = {});
  /// A family by its name, "plain" included, without a default system prompt. Throws Error naming those that
  /// there are.
  static ChatTemplate by_name(std::string_view name, const Special& special = {});
  /// No template: the contents, joined by line ends; roles and the generation prompt leave no trace.
  static ChatTemplate plain() { return ChatTemplate(nullptr, {}); }
  /// What by_name takes.
  static std::vector<std::string_view> names();

  /// The prompt text; with `add_generation_prompt` the head of the answer that the model is to write. Throws
  /// Error for a system message where the family has no place for one, and for other roles.
  std::string render(std::span<const Message> messages, bool add_generation_prompt) const;

  bool is_plain() const { return form_ == nullptr; }
  /// "plain", "chatml", "llama-3", ...
  std::string_view family_name() const;
  bool has_default_system() const { return has_default_system_; }
  const std::string& default_system() const { return default_system_; }

 private:
  ChatTemplate(const ChatForm* form, const Special& special) : form_(form), special_(special) {}
  std::string filled(std::string_view text) const;

  const ChatForm* form_;  // null: plain
  Special special_;
  bool bos_ = false;
  bool has_default_system_ = false;
  std::string default_system_;
};

}  // namespace speclab
