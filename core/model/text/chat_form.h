#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// Describes as data how a family of models writes a conversation. "{bos}" and "{eos}" in the texts stand for
/// the spellings of these tokens. Internal to ChatTemplate.
struct ChatForm {
  enum class System {
    kTurn,       ///< a turn of its own, between system_head and system_tail
    kFirstUser,  ///< head, system message and tail stand inside the first turn, before the user's message;
                 ///< they are left out if that turn is the assistant's
    kLastUser,   ///< the same for the last turn
    kNone,       ///< the template has no place for a system message
  };
  /// How an answer with thoughts before "</think>" is written.
  enum class Thoughts {
    kKeep,      ///< unchanged
    kDrop,      ///< without everything up to its last "</think>"
    kDropLine,  ///< as kDrop, then without line ends at the beginning; the last message is unchanged
    kQwen3,     ///< as kDropLine, but an answer after the last question keeps its thoughts, or gets empty
                ///< ones if it has none and is the last message
  };
  /// What is stripped from a message: nothing, or what Python's str.strip(), str.rstrip() or str.lstrip("\n")
  /// removes.
  enum class Strip { kNo, kBoth, kRight, kLeadingLines };

  std::string_view name;    ///< "llama-3"
  std::string_view models;  ///< names of models, for error messages
  /// A template belongs to the form when its canonical_template() contains all texts
  /// of `all_of` and none of `none_of`.
  std::vector<std::string_view> all_of, none_of = {};
  bool text_outside =
      false;            ///< whether its templates have text outside the tags; if false, such text is refused
  bool by_name = true;  ///< whether it can be chosen by name, without the source of a template

  System system = System::kTurn;
  std::string_view system_head = {}, system_tail = {};
  std::string_view user_head = {}, user_tail = {};
  std::string_view assistant_head = {}, assistant_tail = {};
  std::string_view generation = {};  ///< head of the answer that is to be written
  /// Whether BOS is put before the first turn if the form is chosen by name. If the source of a template is
  /// given, BOS is put there if the source contains "bos_token" and user_head does not contain "{bos}".
  bool bos = false;
  Strip strip_system = Strip::kNo, strip_user = Strip::kNo, strip_assistant = Strip::kNo;
  Thoughts thoughts = Thoughts::kKeep;
  bool always_system = false;  ///< writes the system turn even without a system message
};

/// All forms, special ones before general ones.
std::span<const ChatForm> chat_forms();
/// Rewrites the source of a template so that equal expressions have one spelling: \n becomes a real line end,
/// a double quote becomes a single quote, .content becomes ['content'], .role becomes ['role'], and spaces
/// around + and | are dropped.
std::string canonical_template(std::string_view jinja);
/// Returns the text outside a template's tags. Jinja writes this text as it stands. White space around a tag
/// is removed if the tag says so ("{%-", "-%}") or if the options that transformers gives to Jinja
/// (trim_blocks, lstrip_blocks) say so.
std::string text_outside(std::string_view jinja);
/// The form of a canonical source, or null.
const ChatForm* find_chat_form(std::string_view canonical);

}  // namespace speclab
