#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// How a family of models writes a conversation, as data. "{bos}" and "{eos}" in the texts stand for the
/// spellings of these tokens. Internal to ChatTemplate.
struct ChatForm {
  enum class System {
    kTurn,       ///< a turn of its own, between system_head and system_tail
    kFirstUser,  ///< the same text in front of the first user message, inside its turn
    kLastUser,   ///< the same in front of the last message
    kNone,       ///< the template has no place for it
  };
  enum class Thoughts {
    kKeep,      ///< an answer of an earlier turn is written as it was
    kDrop,      ///< without what stands up to its last "</think>"
    kDropLine,  ///< and without the line ends after that
    kQwen3,     ///< the same, but answers after the last question keep them, or get an empty one
  };
  /// Of what a message holds: Python's str.strip(), str.rstrip(), str.lstrip("\n").
  enum class Strip { kNo, kBoth, kRight, kLeadingLines };

  std::string_view name;    ///< "llama-3"
  std::string_view models;  ///< for people
  /// A template belongs to the form when it holds all of these texts and none of the others; see
  /// canonical_template.
  std::vector<std::string_view> all_of, none_of = {};
  bool text_outside = false;  ///< its templates have text outside of the tags too; of others that is refused
  bool by_name = true;        ///< complete without the text of a template

  System system = System::kTurn;
  std::string_view system_head = {}, system_tail = {};
  std::string_view user_head = {}, user_tail = {};
  std::string_view assistant_head = {}, assistant_tail = {};
  std::string_view generation = {};  ///< head of the answer that is to be written
  bool bos = false;                  ///< BOS in front, if the template says "bos_token" or is chosen by name
  Strip strip_system = Strip::kNo, strip_user = Strip::kNo, strip_assistant = Strip::kNo;
  Thoughts thoughts = Thoughts::kKeep;
  bool always_system = false;  ///< the system turn is written even when there is no such message
};

/// All forms, the more special before the more general.
std::span<const ChatForm> chat_forms();
/// The source with line ends for "\n", ' for ", ['content'] for .content, without spaces around + and |: the
/// same expressions in one spelling.
std::string canonical_template(std::string_view jinja);
/// What a template writes whatever it is given: the text outside of its tags, white space taken off as
/// transformers sets up Jinja (trim_blocks, lstrip_blocks) and as the tags say.
std::string text_outside(std::string_view jinja);
/// The form of a canonical source, or nothing.
const ChatForm* find_chat_form(std::string_view canonical);

}  // namespace speclab
