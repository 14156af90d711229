#include "core/model/text/chat_template.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/model/text/chat_form.h"
#include "core/model/text/unicode/unicode.h"

namespace speclab {
namespace {

constexpr std::string_view kThoughtEnd = "</think>";

/// Resolves the escapes that occur in string literals of chat templates. A literal may also contain real line
/// ends.
std::string unescape(std::string_view literal) {
  std::string text;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      text += literal[i];
      continue;
    }
    const char next = literal[++i];
    text += next == 'n' ? '\n' : next == 't' ? '\t' : next;
  }
  return text;
}

/// Whether `body` is one literal: no quote and no brace ends it early. Otherwise a part
/// of the text comes from a variable.
bool is_literal(std::string_view body) {
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] == '\\') {
      ++i;
    } else if (body[i] == '"' || body[i] == '\'' || body[i] == '{') {
      return false;
    }
  }
  return true;
}

/// The text inside the first "<|im_start|>system\n...<|im_end|>" that is a literal in the source.
std::optional<std::string> literal_chatml_system(std::string_view source) {
  constexpr std::string_view kHead = "<|im_start|>system", kEnd = "<|im_end|>";
  for (std::size_t at = source.find(kHead); at != source.npos; at = source.find(kHead, at + 1)) {
    std::string_view rest = source.substr(at + kHead.size());
    if (rest.starts_with("\\n")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with("\n")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    const std::size_t end = rest.find(kEnd);
    if (end == rest.npos) continue;
    if (is_literal(rest.substr(0, end))) return unescape(rest.substr(0, end));
  }
  return std::nullopt;
}

/// The first literal in the source that begins with `head`. The search starts at the text `after`.
std::optional<std::string> literal_from(std::string_view source, std::string_view head,
                                        std::string_view after = {}) {
  const std::size_t from = after.empty() ? 0 : source.find(after);
  if (from == source.npos) return std::nullopt;
  for (std::size_t at = source.find(head, from); at != source.npos; at = source.find(head, at + 1)) {
    if (at == 0 || (source[at - 1] != '\'' && source[at - 1] != '"')) continue;
    const char quote = source[at - 1];
    std::size_t end = at;
    while (end < source.size() && source[end] != quote) end += source[end] == '\\' ? 2 : 1;
    if (end < source.size()) return unescape(source.substr(at, end - at));
  }
  return std::nullopt;
}

/// The default system prompt in the source of a template of this form.
std::optional<std::string> default_system_of(const ChatForm& form, std::string_view source) {
  if (form.name == "chatml") return literal_chatml_system(source);
  if (form.name == "smollm3") return literal_from(source, "You are a helpful AI assistant named SmolLM");
  if (form.name == "deepseek-coder") return literal_from(source, "You are an AI programming assistant");
  if (form.name == "granite") {
    constexpr std::string_view kRole = " You are a helpful AI assistant.";
    const auto before = literal_from(source, "Knowledge Cutoff Date: ");
    const auto after = literal_from(source, ".", "strftime_now");
    const bool role =
        canonical_template(source).find(fmt::format("system_message+'{}'", kRole)) != source.npos;
    if (before && after && role) return *before + "July 26, 2024" + *after + std::string(kRole);
  }
  return std::nullopt;
}

bool is_python_space(char32_t c) {
  return (c >= 0x1C && c <= 0x1F) || (unicode::classes_of(c) & unicode::kSpace) != 0;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
    if (!is_python_space(unicode::decode_one(text.substr(last)).code_point)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string_view strip_lines(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view stripped(std::string_view text, ChatForm::Strip strip) {
  if (strip == ChatForm::Strip::kNo) return text;
  if (strip == ChatForm::Strip::kLeadingLines) return strip_lines(text);
  text = strip_right(text);
  while (strip == ChatForm::Strip::kBoth && !text.empty()) {
    const unicode::Decoded first = unicode::decode_one(text);
    if (!is_python_space(first.code_point)) break;
    text.remove_prefix(static_cast<std::size_t>(first.length));
  }
  return text;
}

std::string_view after_thoughts(std::string_view text) {
  const std::size_t end = text.rfind(kThoughtEnd);
  return end == text.npos ? text : text.substr(end + kThoughtEnd.size());
}

/// Writes an answer after the last question in Qwen3's form. It keeps its thoughts; the last message gets
/// empty thoughts if it has none.
std::string qwen3_answer(std::string_view text, bool last) {
  std::string_view content = text, thoughts;
  if (const std::size_t end = text.find(kThoughtEnd); end != text.npos) {
    content = strip_lines(after_thoughts(text));
    thoughts = text.substr(0, end);
    while (thoughts.ends_with('\n')) thoughts.remove_suffix(1);
    if (const std::size_t begin = thoughts.rfind("<think>"); begin != thoughts.npos)
      thoughts.remove_prefix(begin + 7);
    thoughts = strip_lines(thoughts);
  }
  if (!last && thoughts.empty()) return std::string(content);
  while (thoughts.ends_with('\n')) thoughts.remove_suffix(1);
  return fmt::format("<think>\n{}\n</think>\n\n{}", thoughts, strip_lines(content));
}

bool is_question(const Message& message) {
  return message.role == "user" &&
         !(message.content.starts_with("<tool_response>") && message.content.ends_with("</tool_response>"));
}

std::string known_families() {
  return fmt::format("one of the known families ({}), or no template at all",
                     fmt::join(ChatTemplate::names(), ", "));
}

constexpr const char* kTemplateAdvice =
    "Name the family that the model was trained with (\"chat_template\" of the prompts, --chat-template). Or "
    "write the prompts out in the form that the model expects and choose \"plain\".";

}  // namespace

ChatTemplate ChatTemplate::from_source(std::string_view jinja, std::string_view file_name_for_errors,
                                       const Special& special) {
  if (jinja.empty()) return plain();
  const ChatForm* form = find_chat_form(canonical_template(jinja));
  const std::string what = std::string(file_name_for_errors) + ": chat template";
  if (form == nullptr) {
    // For ChatML the error names the unsupported expression, for other templates their first 80 bytes.
    std::string got = fmt::format("\"{}{}\"", jinja.substr(0, 80), jinja.size() > 80 ? "..." : "");
    const ChatForm& chatml = *std::ranges::find(chat_forms(), "chatml", &ChatForm::name);
    const auto holds = [&](std::string_view marker) { return jinja.find(marker) != jinja.npos; };
    const auto rule = std::ranges::find_if(chatml.none_of, holds);
    if (std::ranges::all_of(chatml.all_of, holds) && rule != chatml.none_of.end())
      got = fmt::format("a ChatML template that uses \"{}\"", *rule);
    throw Error({what, got, known_families(), kTemplateAdvice});
  }
  if (const std::string outside = text_outside(jinja); !form->text_outside && !outside.empty()) {
    const std::string text =
        nlohmann::json(outside.substr(0, 40)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    throw Error({what,
                 fmt::format("a template like those of {}, but with the text {} outside its tags",
                             form->models, text),
                 known_families(), kTemplateAdvice});
  }
  ChatTemplate chat(form, special);
  chat.bos_ = jinja.find("bos_token") != jinja.npos && form->user_head.find("{bos}") == form->user_head.npos;
  const std::optional<std::string> system = default_system_of(*form, jinja);
  chat.has_default_system_ = system.has_value() || form->always_system;
  chat.default_system_ = system.value_or("");
  const bool needs_one = form->name == "smollm3" || form->name == "deepseek-coder" ||
                         (form->name == "granite" && jinja.find("strftime_now") != jinja.npos);
  if (needs_one && !system)
    throw Error({what, fmt::format("a template of {} without its default system prompt", form->models),
                 known_families(), kTemplateAdvice});
  return chat;
}

ChatTemplate ChatTemplate::by_name(std::string_view name, const Special& special) {
  if (name == "plain") return plain();
  for (const ChatForm& form : chat_forms()) {
    if (form.name != name || !form.by_name) continue;
    ChatTemplate chat(&form, special);
    chat.bos_ = form.bos;
    chat.has_default_system_ = form.always_system;
    return chat;
  }
  throw Error(
      {"chat template", fmt::format("\"{}\"", name), fmt::format("{}", fmt::join(names(), ", ")), ""});
}

std::vector<std::string_view> ChatTemplate::names() {
  std::vector<std::string_view> out{"plain"};
  for (const ChatForm& form : chat_forms()) {
    if (form.by_name && std::ranges::find(out, form.name) == out.end()) out.push_back(form.name);
  }
  return out;
}

std::string_view ChatTemplate::family_name() const { return form_ == nullptr ? "plain" : form_->name; }

std::string ChatTemplate::filled(std::string_view text) const {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("{bos}")) {
      out += special_.bos, i += 4;
    } else if (text.substr(i).starts_with("{eos}")) {
      out += special_.eos, i += 4;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string ChatTemplate::render(std::span<const Message> messages, bool add_generation_prompt) const {
  std::string text;
  if (is_plain()) {
    for (std::size_t i = 0; i < messages.size(); ++i) text += (i == 0 ? "" : "\n") + messages[i].content;
    return text;
  }
  const ChatForm& form = *form_;
  if (bos_) text += special_.bos;

  // The system prompt becomes a turn, or a text that waits for its user message.
  const bool given = !messages.empty() && messages[0].role == "system";
  std::string waiting;
  if (given || form.always_system || (has_default_system_ && !messages.empty())) {
    if (given && form.system == ChatForm::System::kNone) {
      throw Error({fmt::format("chat template {}", form.name), "a system message",
                   "only user and assistant messages: this family has no place for a system message",
                   "Write it into the first user message."});
    }
    std::string_view content =
        given ? std::string_view(messages[0].content) : std::string_view(default_system_);
    if (form.name == "smollm3" && given) {
      for (const std::string_view word : {"/think", "/no_think", "/system_override"}) {
        if (content.find(word) == content.npos) continue;
        throw Error({"chat template smollm3", fmt::format("\"{}\" in the system message", word),
                     "a system message without this template's switches", ""});
      }
      if (stripped(content, form.strip_system).empty()) content = default_system_;
    }
    const std::string system = filled(form.system_head) + std::string(stripped(content, form.strip_system)) +
                               filled(form.system_tail);
    (form.system == ChatForm::System::kTurn ? text : waiting) += system;
  }
  if (given) messages = messages.subspan(1);

  std::size_t last_question = messages.size();
  while (last_question > 0 && !is_question(messages[last_question - 1])) --last_question;
  // Until here `last_question` counts from 1. Without any question it becomes the index of the last message.
  last_question = last_question == 0 ? (messages.empty() ? 0 : messages.size() - 1) : last_question - 1;

  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    const bool last = i + 1 == messages.size();
    if (message.role == "user") {
      std::string content = message.content;
      const bool takes = form.system == ChatForm::System::kFirstUser ? i == 0 : last;
      // Llama 2 strips the system prompt and the message as one text. Gemma 3 strips only the message.
      if (!waiting.empty() && takes) {
        content = form.system_head.empty() ? waiting + std::string(stripped(content, form.strip_user))
                                           : std::string(stripped(waiting + content, form.strip_user));
        waiting.clear();
      } else {
        content = stripped(content, form.strip_user);
      }
      text += filled(form.user_head) + content + filled(form.user_tail);
    } else if (message.role == "assistant") {
      std::string content(message.content);
      if (form.thoughts == ChatForm::Thoughts::kDrop) content = after_thoughts(message.content);
      if (form.thoughts == ChatForm::Thoughts::kDropLine && !last)
        content = strip_lines(after_thoughts(message.content));
      if (form.thoughts == ChatForm::Thoughts::kQwen3) {
        const bool thought = message.content.find(kThoughtEnd) != std::string::npos;
        content = i > last_question ? qwen3_answer(message.content, last)
                  : thought         ? std::string(strip_lines(after_thoughts(message.content)))
                                    : message.content;
      }
      text += filled(form.assistant_head);
      text += stripped(content, form.strip_assistant);
      text += filled(form.assistant_tail);
    } else if (message.role == "system" && form.system == ChatForm::System::kTurn && !form.always_system) {
      text += filled(form.system_head);
      text += stripped(message.content, form.strip_system);
      text += filled(form.system_tail);
    } else {
      throw Error({fmt::format("chat template {}", form.name),
                   fmt::format("a message of \"{}\" at place {}", message.role, i + 1 + given),
                   "one system message at the beginning, then user and assistant", ""});
    }
  }
  if (add_generation_prompt) text += filled(form.generation);
  return text;
}

}  // namespace speclab
