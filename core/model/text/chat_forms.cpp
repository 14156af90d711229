#include <algorithm>

#include "core/model/text/chat_form.h"

namespace speclab {
namespace {

using System = ChatForm::System;
using Thoughts = ChatForm::Thoughts;
using Strip = ChatForm::Strip;

/// The texts are those of the chat templates that come with the models' weights (tokenizer_config.json and
/// chat_template.jinja). A template that asks for today's date gets 26 July 2024, the date that Llama 3.1's
/// template uses without a clock. A run must not depend on the day.
const std::vector<ChatForm>& table() {
  static const std::vector<ChatForm> forms{
      // ---- <|im_start|> ----
      {.name = "smollm3",
       .models = "SmolLM3",
       .all_of = {"<|im_start|>", "## Custom Instructions", "Reasoning Mode: ", "/system_override"},
       .by_name = false,
       .system_head =
           "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 26 July 2024\n"
           "Reasoning Mode: /think\n\n## Custom Instructions\n\n",
       .system_tail = "\n\n",
       .user_head = "<|im_start|>user\n",
       .user_tail = "<|im_end|>\n",
       .assistant_head = "<|im_start|>assistant\n",
       .assistant_tail = "<|im_end|>\n",
       .generation = "<|im_start|>assistant\n",
       .strip_system = Strip::kRight,
       .strip_assistant = Strip::kLeadingLines,
       .always_system = true},
      {.name = "qwen3",
       .models = "Qwen3 with thoughts",
       .all_of = {"<|im_start|>", "<|im_end|>", "<think>", "last_query_index", "enable_thinking"},
       .none_of = {"'<think>\n'", "assistant\n<think>\n'", "trim"},
       .system_head = "<|im_start|>system\n",
       .system_tail = "<|im_end|>\n",
       .user_head = "<|im_start|>user\n",
       .user_tail = "<|im_end|>\n",
       .assistant_head = "<|im_start|>assistant\n",
       .assistant_tail = "<|im_end|>\n",
       .generation = "<|im_start|>assistant\n",
       .thoughts = Thoughts::kQwen3},
      {.name = "qwq",
       .models = "QwQ",
       .all_of = {"<|im_start|>", "<|im_end|>", "'<|im_start|>assistant\n<think>\n'",
                  "['content'].split('</think>')[-1].lstrip('\n')"},
       .none_of = {"last_query_index", "trim"},
       .system_head = "<|im_start|>system\n",
       .system_tail = "<|im_end|>\n",
       .user_head = "<|im_start|>user\n",
       .user_tail = "<|im_end|>\n",
       .assistant_head = "<|im_start|>assistant\n",
       .assistant_tail = "<|im_end|>\n",
       .generation = "<|im_start|>assistant\n<think>\n",
       .thoughts = Thoughts::kDropLine},
      {.name = "phi-4",
       .models = "Phi-4",
       .all_of = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
       .none_of = {"trim", "strip(", "<think>", "split(", "replace("},
       .system_head = "<|im_start|>system<|im_sep|>",
       .system_tail = "<|im_end|>",
       .user_head = "<|im_start|>user<|im_sep|>",
       .user_tail = "<|im_end|>",
       .assistant_head = "<|im_start|>assistant<|im_sep|>",
       .assistant_tail = "<|im_end|>",
       .generation = "<|im_start|>assistant<|im_sep|>"},
      {.name = "chatml",
       .models = "SmolLM2, Qwen 1.5 to 2.5, InternLM 2, Hermes",
       .all_of = {"<|im_start|>", "<|im_end|>"},
       .none_of = {"trim", "strip(", "<think>", "strftime", "replace(", "split(", "<|im_sep|>", "capitalize",
                   "set system_message = '"},
       .system_head = "<|im_start|>system\n",
       .system_tail = "<|im_end|>\n",
       .user_head = "<|im_start|>user\n",
       .user_tail = "<|im_end|>\n",
       .assistant_head = "<|im_start|>assistant\n",
       .assistant_tail = "<|im_end|>\n",
       .generation = "<|im_start|>assistant\n"},
      // ---- Llama ----
      {.name = "llama-3.1",
       .models = "Llama 3.1, 3.2 and 3.3",
       .all_of = {"<|start_header_id|>", "<|eot_id|>", "|trim", "Cutting Knowledge Date: December 2023\n'",
                  "'Today Date: '"},
       .none_of = {"functionary", "functions[", "<think>", "split(", "<|image|>"},
       .system_head =
           "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday "
           "Date: 26 Jul 2024\n\n",
       .system_tail = "<|eot_id|>",
       .user_head = "<|start_header_id|>user<|end_header_id|>\n\n",
       .user_tail = "<|eot_id|>",
       .assistant_head = "<|start_header_id|>assistant<|end_header_id|>\n\n",
       .assistant_tail = "<|eot_id|>",
       .generation = "<|start_header_id|>assistant<|end_header_id|>\n\n",
       .bos = true,
       .strip_system = Strip::kBoth,
       .strip_user = Strip::kBoth,
       .strip_assistant = Strip::kBoth,
       .always_system = true},
      {.name = "llama-3",
       .models = "Llama 3",
       .all_of = {"<|start_header_id|>", "<|eot_id|>", "['content']|trim"},
       .none_of = {"Cutting Knowledge", "tools", "functions", "strftime", "<think>", "split("},
       .system_head = "<|start_header_id|>system<|end_header_id|>\n\n",
       .system_tail = "<|eot_id|>",
       .user_head = "<|start_header_id|>user<|end_header_id|>\n\n",
       .user_tail = "<|eot_id|>",
       .assistant_head = "<|start_header_id|>assistant<|end_header_id|>\n\n",
       .assistant_tail = "<|eot_id|>",
       .generation = "<|start_header_id|>assistant<|end_header_id|>\n\n",
       .bos = true,
       .strip_system = Strip::kBoth,
       .strip_user = Strip::kBoth,
       .strip_assistant = Strip::kBoth},
      {.name = "llama-2",
       .models = "Llama 2 chat, Code Llama",
       .all_of = {"<<SYS>>\n", "\n<</SYS>>\n\n", "bos_token+'[INST] '+content.strip()+' [/INST]'",
                  "' '+content.strip()+' '+eos_token"},
       .none_of = {"elif true == true"},
       .system = System::kFirstUser,
       .system_head = "<<SYS>>\n",
       .system_tail = "\n<</SYS>>\n\n",
       .user_head = "{bos}[INST] ",
       .user_tail = " [/INST]",
       .assistant_head = " ",
       .assistant_tail = " {eos}",
       .strip_user = Strip::kBoth,
       .strip_assistant = Strip::kBoth},
      // ---- Mistral ----
      {.name = "mistral-v7-tekken",
       .models = "Mistral Small 2501 and later, without their system prompt",
       .all_of = {"[SYSTEM_PROMPT]'+", "'[/SYSTEM_PROMPT]'", "'[INST]'+message['content']+'[/INST]'",
                  "message['content']+eos_token"},
       .none_of = {"default_system_message", "trim", "strip("},
       .system_head = "[SYSTEM_PROMPT]",
       .system_tail = "[/SYSTEM_PROMPT]",
       .user_head = "[INST]",
       .user_tail = "[/INST]",
       .assistant_head = "",
       .assistant_tail = "{eos}",
       .bos = true},
      {.name = "mistral-v7",
       .models = "Mistral Large 2411",
       .all_of = {"'[SYSTEM_PROMPT] '+message['content']+'[/SYSTEM_PROMPT]'",
                  "'[INST] '+message['content']+'[/INST]'", "' '+message['content']+eos_token"},
       .none_of = {"trim", "strip("},
       .system_head = "[SYSTEM_PROMPT] ",
       .system_tail = "[/SYSTEM_PROMPT]",
       .user_head = "[INST] ",
       .user_tail = "[/INST]",
       .assistant_head = " ",
       .assistant_tail = "{eos}",
       .bos = true},
      {.name = "mistral-v3-tekken",
       .models = "Mistral Nemo",
       .all_of = {"'[INST]'+system_message+'\n\n'+message['content']+'[/INST]'",
                  "loop.last and system_message", "'[INST]'+message['content']+'[/INST]'",
                  "{{- message['content']+eos_token"},
       .none_of = {"strip(", "[SYSTEM_PROMPT]"},
       .system = System::kLastUser,
       .system_tail = "\n\n",
       .user_head = "[INST]",
       .user_tail = "[/INST]",
       .assistant_head = "",
       .assistant_tail = "{eos}",
       .bos = true},
      {.name = "mistral-v3",
       .models = "Mistral 7B v0.3, Mistral Large 2407",
       .all_of = {"'[INST] '+system_message+'\n\n'+message['content']+'[/INST]'",
                  "loop.last and system_message", "'[INST] '+message['content']+'[/INST]'",
                  "' '+message['content']|trim+eos_token"},
       .none_of = {"strip(", "[SYSTEM_PROMPT]"},
       .system = System::kLastUser,
       .system_tail = "\n\n",
       .user_head = "[INST] ",
       .user_tail = "[/INST]",
       .assistant_head = " ",
       .assistant_tail = "{eos}",
       .bos = true,
       .strip_assistant = Strip::kBoth},
      {.name = "mistral-v1-system",
       .models = "Mistral 7B v0.1 and v0.2, Mixtral; later templates, with a system prompt",
       .all_of = {"' [INST] '+system_message+'\n\n'+message['content']+' [/INST]'",
                  "loop.first and system_message", "' [INST] '+message['content']+' [/INST]'",
                  "' '+message['content']+eos_token"},
       .none_of = {"trim", "strip("},
       .system = System::kFirstUser,
       .system_tail = "\n\n",
       .user_head = " [INST] ",
       .user_tail = " [/INST]",
       .assistant_head = " ",
       .assistant_tail = "{eos}",
       .bos = true},
      {.name = "mistral-v1-spaced",
       .models = "Mistral 7B v0.1, first template",
       .all_of = {"{{ '[INST] '+message['content']+' [/INST]' }}", "{{ message['content']+eos_token+' ' }}"},
       .none_of = {"trim", "strip(", "system"},
       .system = System::kNone,
       .user_head = "[INST] ",
       .user_tail = " [/INST]",
       .assistant_head = "",
       .assistant_tail = "{eos} ",
       .bos = true},
      {.name = "mistral-v1",
       .models = "Mistral 7B v0.2, Mixtral, first templates",
       .all_of = {"{{ '[INST] '+message['content']+' [/INST]' }}", "{{ message['content']+eos_token}}"},
       .none_of = {"trim", "strip(", "system"},
       .system = System::kNone,
       .user_head = "[INST] ",
       .user_tail = " [/INST]",
       .assistant_head = "",
       .assistant_tail = "{eos}",
       .bos = true},
      // ---- Gemma ----
      {.name = "gemma-3",
       .models = "Gemma 3",
       .all_of = {"<start_of_turn>", "<end_of_turn>\n", "first_user_prefix", "|trim"},
       .none_of = {"strip("},
       .system = System::kFirstUser,
       .system_tail = "\n\n",
       .user_head = "<start_of_turn>user\n",
       .user_tail = "<end_of_turn>\n",
       .assistant_head = "<start_of_turn>model\n",
       .assistant_tail = "<end_of_turn>\n",
       .generation = "<start_of_turn>model\n",
       .bos = true,
       .strip_user = Strip::kBoth,
       .strip_assistant = Strip::kBoth},
      {.name = "gemma",
       .models = "Gemma 1 and 2",
       .all_of = {"'<start_of_turn>'+role+'\n'+message['content']|trim+'<end_of_turn>\n'",
                  "System role not supported"},
       .none_of = {"strip("},
       .system = System::kNone,
       .user_head = "<start_of_turn>user\n",
       .user_tail = "<end_of_turn>\n",
       .assistant_head = "<start_of_turn>model\n",
       .assistant_tail = "<end_of_turn>\n",
       .generation = "<start_of_turn>model\n",
       .bos = true,
       .strip_user = Strip::kBoth,
       .strip_assistant = Strip::kBoth},
      // ---- <|user|> ----
      {.name = "phi-4-mini",
       .models = "Phi-4-mini",
       .all_of = {"'<|'+message['role']+'|>'+message['content']+'<|end|>'", "'<|assistant|>'"},
       .none_of = {"trim", "strip(", "<think>"},
       .system_head = "<|system|>",
       .system_tail = "<|end|>",
       .user_head = "<|user|>",
       .user_tail = "<|end|>",
       .assistant_head = "<|assistant|>",
       .assistant_tail = "<|end|>",
       .generation = "<|assistant|>"},
      {.name = "phi-3",
       .models = "Phi-3 and 3.5 with a system prompt",
       .all_of = {"'<|system|>\n'+message['content']+'<|end|>\n'",
                  "'<|user|>\n'+message['content']+'<|end|>\n'",
                  "'<|assistant|>\n'+message['content']+'<|end|>\n'", "'<|assistant|>\n'"},
       .none_of = {"trim", "strip("},
       .system_head = "<|system|>\n",
       .system_tail = "<|end|>\n",
       .user_head = "<|user|>\n",
       .user_tail = "<|end|>\n",
       .assistant_head = "<|assistant|>\n",
       .assistant_tail = "<|end|>\n",
       .generation = "<|assistant|>\n"},
      {.name = "phi-3",
       .models = "Phi-3-small and -vision",
       .all_of = {"'<|'+message['role']+'|>'+'\n'+message['content']+'<|end|>\n'", "'<|assistant|>\n'"},
       .none_of = {"trim", "strip("},
       .system_head = "<|system|>\n",
       .system_tail = "<|end|>\n",
       .user_head = "<|user|>\n",
       .user_tail = "<|end|>\n",
       .assistant_head = "<|assistant|>\n",
       .assistant_tail = "<|end|>\n",
       .generation = "<|assistant|>\n"},
      {.name = "phi-3-mini",
       .models = "Phi-3-mini and -medium, first templates",
       .all_of = {"'<|user|>'+'\n'+message['content']+'<|end|>'+'\n'+'<|assistant|>'+'\n'",
                  "message['content']+'<|end|>'+'\n'"},
       .none_of = {"trim", "strip(", "system"},
       .system = System::kNone,
       .user_head = "<|user|>\n",
       .user_tail = "<|end|>\n",
       .assistant_head = "<|assistant|>\n",
       .assistant_tail = "<|end|>\n",
       .generation = "<|assistant|>\n"},
      {.name = "zephyr",
       .models = "Zephyr, TinyLlama chat",
       .all_of = {"'<|user|>\n'+message['content']+eos_token", "'<|system|>\n'+message['content']+eos_token",
                  "'<|assistant|>\n'+message['content']+eos_token", "'<|assistant|>'"},
       .none_of = {"trim", "strip("},
       .text_outside = true,
       .system_head = "<|system|>\n",
       .system_tail = "{eos}\n",
       .user_head = "<|user|>\n",
       .user_tail = "{eos}\n",
       .assistant_head = "<|assistant|>\n",
       .assistant_tail = "{eos}\n",
       .generation = "<|assistant|>\n"},
      {.name = "olmo",
       .models = "OLMo and OLMo 2 instruct, Tulu",
       .all_of = {"'<|user|>\n'+message['content']+'\n'",
                  "'<|assistant|>\n'+message['content']+eos_token+'\n'", "'<|assistant|>\n'"},
       .none_of = {"trim", "strip(", "tools", "functions"},
       .system_head = "<|system|>\n",
       .system_tail = "\n",
       .user_head = "<|user|>\n",
       .user_tail = "\n",
       .assistant_head = "<|assistant|>\n",
       .assistant_tail = "{eos}\n",
       .generation = "<|assistant|>\n",
       .bos = true},
      // ---- others ----
      {.name = "granite",
       .models = "Granite 3",
       .all_of = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n'"},
       .none_of = {"trim", "strip(", "split("},
       .system_head = "<|start_of_role|>system<|end_of_role|>",
       .system_tail = "<|end_of_text|>\n",
       .user_head = "<|start_of_role|>user<|end_of_role|>",
       .user_tail = "<|end_of_text|>\n",
       .assistant_head = "<|start_of_role|>assistant<|end_of_role|>",
       .assistant_tail = "<|end_of_text|>\n",
       .generation = "<|start_of_role|>assistant<|end_of_role|>"},
      {.name = "deepseek-r1-think",
       .models = "DeepSeek-R1 and its distillates",
       .all_of = {"'<｜User｜>'+message['content']}}", "'<｜Assistant｜><think>\n'", ".split('</think>')[-1]",
                  "'<｜Assistant｜>'+content+'<｜end▁of▁sentence｜>'"},
       .none_of = {"strip(", "trim"},
       .user_head = "<｜User｜>",
       .user_tail = "",
       .assistant_head = "<｜Assistant｜>",
       .assistant_tail = "<｜end▁of▁sentence｜>",
       .generation = "<｜Assistant｜><think>\n",
       .bos = true,
       .thoughts = Thoughts::kDrop},
      {.name = "deepseek-r1",
       .models = "DeepSeek-R1, first template",
       .all_of = {"'<｜User｜>'+message['content']}}", "{{'<｜Assistant｜>'}}", ".split('</think>')[-1]",
                  "'<｜Assistant｜>'+content+'<｜end▁of▁sentence｜>'"},
       .none_of = {"strip(", "trim", "<｜Assistant｜><think>"},
       .user_head = "<｜User｜>",
       .user_tail = "",
       .assistant_head = "<｜Assistant｜>",
       .assistant_tail = "<｜end▁of▁sentence｜>",
       .generation = "<｜Assistant｜>",
       .bos = true,
       .thoughts = Thoughts::kDrop},
      {.name = "deepseek-coder",
       .models = "DeepSeek Coder",
       .all_of = {"'### Instruction:\n'+message['content']+'\n'",
                  "'### Response:\n'+message['content']+'\n<|EOT|>\n'", "utilizing the Deepseek Coder model",
                  "not ns.found"},
       .none_of = {"trim", "strip("},
       .text_outside = true,
       .by_name = false,
       .user_head = "### Instruction:\n",
       .user_tail = "\n",
       .assistant_head = "### Response:\n",
       .assistant_tail = "\n<|EOT|>\n",
       .generation = "### Response:\n",
       .bos = true},
      {.name = "deepseek",
       .models = "DeepSeek LLM, V2 and V2.5 chat",
       .all_of = {"'User: '+message['content']+'\n\n'", "'Assistant: '+message['content']+eos_token",
                  "{{ message['content']+'\n\n' }}", "'Assistant:'"},
       .none_of = {"trim", "strip("},
       .system_tail = "\n\n",
       .user_head = "User: ",
       .user_tail = "\n\n",
       .assistant_head = "Assistant: ",
       .assistant_tail = "{eos}",
       .generation = "Assistant:",
       .bos = true},
  };
  return forms;
}

}  // namespace

std::span<const ChatForm> chat_forms() { return table(); }

std::string canonical_template(std::string_view jinja) {
  std::string text;
  const auto trim_end = [&] {
    while (text.ends_with(' ')) text.pop_back();
  };
  for (std::size_t i = 0; i < jinja.size(); ++i) {
    const std::string_view rest = jinja.substr(i);
    if (rest.starts_with("\\n")) {
      text += '\n', ++i;
    } else if (rest[0] == '"') {
      text += '\'';
    } else if (rest.starts_with(".content") || rest.starts_with(".role")) {
      const std::string_view name = rest.substr(1, rest[1] == 'c' ? 7 : 4);
      text.append("['").append(name).append("']");
      i += name.size();
    } else if (rest[0] == '+' || rest[0] == '|') {
      trim_end();
      text += rest[0];
      while (i + 1 < jinja.size() && jinja[i + 1] == ' ') ++i;
    } else {
      text += rest[0];
    }
  }
  return text;
}

namespace {
/// Position of the closing mark of a tag. Marks inside strings do not count, except in
/// comments, which have no strings.
std::size_t end_of_tag(std::string_view jinja, std::size_t at, std::string_view closing) {
  if (closing[0] == '#') return jinja.find(closing, at);
  char quote = 0;
  for (; at < jinja.size(); ++at) {
    if (quote != 0) {
      if (jinja[at] == '\\') {
        ++at;
      } else if (jinja[at] == quote) {
        quote = 0;
      }
    } else if (jinja[at] == '\'' || jinja[at] == '"') {
      quote = jinja[at];
    } else if (jinja.substr(at).starts_with(closing)) {
      return at;
    }
  }
  return jinja.npos;
}
}  // namespace

std::string text_outside(std::string_view jinja) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  if (jinja.ends_with('\n')) jinja.remove_suffix(1);
  std::string out;
  bool strip_left = false;
  for (std::size_t at = 0; at <= jinja.size();) {
    std::size_t tag = jinja.find('{', at);
    while (tag < jinja.size() && (tag + 1 == jinja.size() ||
                                  std::string_view("%{#").find(jinja[tag + 1]) == std::string_view::npos))
      tag = jinja.find('{', tag + 1);
    tag = std::min(tag, jinja.size());
    std::string_view text = jinja.substr(at, tag - at);
    if (strip_left) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (tag == jinja.size()) return out.append(text);
    const char kind = jinja[tag + 1];
    if (jinja.substr(tag + 2).starts_with('-')) {
      text = text.substr(0, text.find_last_not_of(kSpace) + 1);
    } else if (kind != '{') {
      const std::size_t line = text.find_last_of('\n') + 1;
      // Removes white space between the beginning of the line and the tag, if there is nothing else.
      if (text.find_first_not_of(" \t", line) == text.npos && (line > 0 || at == 0))
        text = text.substr(0, line);
    }
    out.append(text);
    const std::string_view closing = kind == '%' ? "%}" : kind == '{' ? "}}" : "#}";
    const std::size_t end = end_of_tag(jinja, tag + 2, closing);
    if (end == jinja.npos) return out;
    at = end + 2;
    strip_left = jinja[end - 1] == '-';
    if (!strip_left && kind != '{' && at < jinja.size() && jinja[at] == '\n') ++at;
  }
  return out;
}

const ChatForm* find_chat_form(std::string_view canonical) {
  const auto holds = [&](std::string_view marker) { return canonical.find(marker) != canonical.npos; };
  for (const ChatForm& form : chat_forms()) {
    if (std::ranges::all_of(form.all_of, holds) && std::ranges::none_of(form.none_of, holds)) return &form;
  }
  return nullptr;
}

}  // namespace speclab
