#include "core/model/chat_template.h"

#include <optional>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

/// The escapes of a Jinja string literal that occur in templates; the source has real line ends as well.
std::string unescape(std::string_view literal) {
  std::string text;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      text += literal[i];
      continue;
    }
    const char next = literal[++i];
    switch (next) {
      case 'n':
        text += '\n';
        break;
      case 't':
        text += '\t';
        break;
      default:
        text += next;
    }
  }
  return text;
}

/// The text of the first "<|im_start|>system\n...<|im_end|>" that stands in the source as a literal.
std::optional<std::string> literal_system_prompt(std::string_view source) {
  const std::string head = std::string(kStart) + "system";
  for (std::size_t at = source.find(head); at != source.npos; at = source.find(head, at + 1)) {
    std::string_view rest = source.substr(at + head.size());
    if (rest.starts_with("\\n")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with("\n")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    const std::size_t end = rest.find(kEnd);
    if (end == rest.npos) continue;
    const std::string_view body = rest.substr(0, end);
    // A quote or a brace ends the literal: the text comes from a variable.
    bool literal = true;
    for (std::size_t i = 0; i < body.size() && literal; ++i) {
      if (body[i] == '\\') {
        ++i;
      } else {
        literal = body[i] != '"' && body[i] != '\'' && body[i] != '{';
      }
    }
    if (literal) return unescape(body);
  }
  return std::nullopt;
}

}  // namespace

ChatTemplate ChatTemplate::from_source(std::string_view jinja, std::string_view file_name_for_errors) {
  if (jinja.empty()) return plain();
  const std::string what = std::string(file_name_for_errors) + ": chat template";
  const std::string known = "ChatML (<|im_start|>role ... <|im_end|>) or no template at all";
  if (jinja.find(kStart) == jinja.npos || jinja.find(kEnd) == jinja.npos) {
    throw Error({what, fmt::format("\"{}...\"", jinja.substr(0, 80)), known,
                 "Write the prompts out as the model wants them and switch the chat template off."});
  }
  // These change the text of ordinary messages, so ChatML alone would not be this template.
  for (const std::string_view rule :
       {"trim", "strip(", "<think>", "strftime", "bos_token", "replace(", "split("}) {
    if (jinja.find(rule) == jinja.npos) continue;
    throw Error({what, fmt::format("a ChatML template that uses \"{}\"", rule), known,
                 "Write the prompts out as the model wants them and switch the chat template off."});
  }
  const std::optional<std::string> system = literal_system_prompt(jinja);
  return ChatTemplate(Family::kChatMl, system.value_or(""), system.has_value());
}

std::string ChatTemplate::render(std::span<const Message> messages, bool add_generation_prompt) const {
  std::string text;
  if (family_ == Family::kPlain) {
    for (std::size_t i = 0; i < messages.size(); ++i) text += (i == 0 ? "" : "\n") + messages[i].content;
    return text;
  }
  const auto turn = [&](std::string_view role, std::string_view content) {
    text.append(kStart).append(role).append("\n").append(content).append(kEnd).append("\n");
  };
  if (has_default_system_ && !messages.empty() && messages[0].role != "system")
    turn("system", default_system_);
  for (const Message& message : messages) turn(message.role, message.content);
  if (add_generation_prompt) text.append(kStart).append("assistant\n");
  return text;
}

}  // namespace speclab
