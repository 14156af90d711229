#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/text/character_map.h"
#include "core/model/text/sentencepiece_model.h"
#include "core/model/text/tokenizer.h"
#include "core/model/text/tokenizer_split.h"

namespace speclab {

/// What both file formats are translated to; Tokenizer::build checks it and makes the tables. Internal.
struct TokenizerSpec {
  enum class Scheme {
    kByteLevel,      ///< text bytes are written in the 256 characters of GPT-2's alphabet
    kSpaceMark,      ///< spaces are U+2581; one more stands before the text as `prefix` says
    kSentencePiece,  ///< the library of that name does all but cutting at special tokens
  };
  enum class Prefix {
    kNever,
    kNormalizer,  ///< before every text that is not empty (normalizers Prepend and Replace)
    kAlways,      ///< pre-tokeniser Metaspace: unless there is one already
    kFirst,       ///< the same, only at the very beginning of what is encoded
  };

  /// Names of the places for errors: "x.gguf: tokenizer.ggml.tokens", "tokenizer.json: /model/vocab".
  std::string file, tokens_at, merges_at, added_at;

  Scheme scheme = Scheme::kByteLevel;
  std::vector<SplitStep> steps;         ///< byte-level only
  Prefix prefix = Prefix::kNormalizer;  ///< space mark only
  bool metaspace = false;  ///< space mark only: spaces are marked after added tokens were found, not before
  bool cut_at_white_space =
      false;  ///< metaspace only: what lies between white space is marked each for itself
  bool words_begin_at_marks = false;  ///< metaspace only: every U+2581 begins a word; else there are no words
  std::shared_ptr<const SentencePieceModel> sentencepiece;  ///< of that scheme
  std::vector<double>
      unigram_scores;  ///< not empty: a unigram model instead of merges, over the first so many tokens
  // What is done to the text before anything else but looking for raw added tokens, in this order:
  bool nfc = false;  ///< canonical composition
  std::shared_ptr<const CharacterMap> character_map;
  bool strip_right = false;         ///< white space at the end goes
  std::string space_run;            ///< stands for two or more spaces in a row; empty: they stay
  std::vector<std::string> tokens;  ///< by id
  std::vector<bool> is_hole;        ///< by id: no token, whose spelling here is empty; may be empty
  std::vector<std::pair<std::string, std::string>> merges;

  struct Added {
    Token token;
    bool special;
    bool normalized;                   ///< matched in the normalised text, by its normalised spelling
    bool left = false, right = false;  ///< takes the white space on that side with it
    bool single_word = false;          ///< matches only where no letter or digit stands beside it
  };
  std::vector<Added> added;

  bool ignore_merges = false;  ///< a word that is a token needs no merges
  bool byte_fallback = false;  ///< characters without a token become tokens <0x..>
  bool fuse_unk = false;
  std::optional<Token> unk_symbol;  ///< stands for a character without a token; absent: it vanishes
  bool strip_first_space = false;   ///< of decoded text
  bool strip_marks_until_text =
      false;  ///< decoding: every token that comes before any text loses one space mark
  bool first_token_without_spaces = false;  ///< decoding; decoder Metaspace

  Tokenizer::Ids ids;
  bool add_bos = false;
  std::vector<std::string> assumed;
};

/// Of the keys that GGUF has for SentencePiece (tokenizer.ggml.model "llama": BPE, "t5": unigram), completed:
/// with types, the ids that llama.cpp takes where keys are missing, and add_bos.
TokenizerSpec sentencepiece_parts_spec(Tokenizer::Parts parts);

/// GPT-2's byte-level alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 upwards.
char32_t byte_character(std::uint8_t byte);
/// The bytes that a spelling in that alphabet stands for; the spelling itself if it has any other character.
std::string bytes_of_spelling(std::string_view spelling);

}  // namespace speclab
