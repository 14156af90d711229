#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

struct ChatForm;

/// One message of a conversation. `role` is "system", "user" or "assistant".
struct Message {
  std::string role, content;
};

/// Spellings of the tokens that templates call bos_token and eos_token; "" when the model has none.
struct ChatTokens {
  std::string bos = {}, eos = {};
};

/// Turns a conversation into one prompt text. Model files contain the template as a Jinja program. The
/// program is not run. Instead, the template's family is recognised by the source or chosen by name, and this
/// class writes the text that the program would write. Encode the text with parse_special. Then a special
/// token that is written out in a message becomes that token, as with the original template. The text
/// contains the BOS token if the template writes one, so do not add another.
class ChatTemplate {
 public:
  using Special = ChatTokens;

  /// Recognises a template by its source; an empty source gives plain(). If the source has a default system
  /// prompt (SmolLM2: "You are a helpful AI assistant named SmolLM, ..."), conversations without a system
  /// message get it. Throws Error, naming the known families, if the template is of no known family, has text
  /// outside its tags that its family does not have, or lacks a default system prompt that its family needs.
  static ChatTemplate from_source(std::string_view jinja, std::string_view file_name_for_errors,
                                  const Special& special = {});
  /// Chooses a family by name, "plain" included, without a default system prompt. Throws Error naming all
  /// families when the name is unknown.
  static ChatTemplate by_name(std::string_view name, const Special& special = {});
  /// No template: the contents of the messages, joined by line ends, without roles and generation prompt.
  static ChatTemplate plain() { return ChatTemplate(nullptr, {}); }
  /// The names that by_name() accepts.
  static std::vector<std::string_view> names();

  /// Renders the prompt text. `add_generation_prompt` appends the head of the answer that the model is to
  /// write. Throws Error for a system message that the family has no place for, and for unknown roles.
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
