#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/tokenizer.h"
#include "core/model/tokenizer_split.h"

namespace speclab {

/// What both file formats are translated to; Tokenizer::build checks it and makes the tables. Internal.
struct TokenizerSpec {
  enum class Scheme {
    kByteLevel,  ///< text bytes are written in the 256 characters of GPT-2's alphabet
    kSpaceMark,  ///< text with U+2581 before it and for every space; no words
  };

  /// Names of the places for errors: "x.gguf: tokenizer.ggml.tokens", "tokenizer.json: /model/vocab".
  std::string file, tokens_at, merges_at, added_at;

  Scheme scheme = Scheme::kByteLevel;
  std::vector<SplitStep> steps;  ///< byte-level only
  bool nfc = false;              ///< canonical composition before the words are cut
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;

  struct Added {
    Token token;
    bool special;
    bool normalized;  ///< matched in the normalised text, by its normalised spelling
  };
  std::vector<Added> added;

  bool ignore_merges = false;  ///< a word that is a token needs no merges
  bool byte_fallback = false;  ///< characters without a token become tokens <0x..>
  bool fuse_unk = false;
  std::optional<Token> unk_symbol;  ///< stands for a character without a token; absent: it vanishes
  bool strip_first_space = false;   ///< of decoded text

  Tokenizer::Ids ids;
  bool add_bos = false;
};

/// GPT-2's byte-level alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 upwards.
char32_t byte_character(std::uint8_t byte);
/// The bytes that a spelling in that alphabet stands for; the spelling itself if it has any other character.
std::string bytes_of_spelling(std::string_view spelling);

}  // namespace speclab
