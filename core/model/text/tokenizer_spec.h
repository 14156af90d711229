#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/text/character_map.h"
#include "core/model/text/sentencepiece_model.h"
#include "core/model/text/tokenizer.h"
#include "core/model/text/tokenizer_split.h"

namespace speclab {

/// U+2581, by which many vocabularies write a space.
inline constexpr std::string_view kSpaceMark = "\u2581";

/// The common form of tokenizers from all file formats. Tokenizer::build checks
/// it and makes the tables. Internal.
struct TokenizerSpec {
  enum class Scheme {
    kByteLevel,      ///< bytes are written in the 256 characters of GPT-2's alphabet
    kSpaceMark,      ///< spaces are U+2581; `prefix` says when one is added before the text
    kSentencePiece,  ///< SentencePiece's library does everything except cutting at special tokens
  };
  /// Whether a U+2581 is added before a text.
  enum class Prefix {
    kNever,
    kNormalizer,  ///< before every non-empty text (normalizers Prepend and Replace)
    kAlways,      ///< before every text that does not begin with one (pre-tokeniser Metaspace)
    kFirst,       ///< as kAlways, but only at the beginning of the whole encoded text
  };

  /// Places for errors: "x.gguf: tokenizer.ggml.tokens", "tokenizer.json: /model/vocab".
  std::string file, tokens_at, merges_at, added_at;

  Scheme scheme = Scheme::kByteLevel;
  std::vector<SplitStep> steps;         ///< for the scheme kByteLevel
  Prefix prefix = Prefix::kNormalizer;  ///< for the scheme kSpaceMark
  bool metaspace = false;  ///< for kSpaceMark: spaces are marked after added tokens are found, not before
  /// With `metaspace`: the text is cut at white space, which is dropped; `prefix` then holds for each part.
  bool cut_at_white_space = false;
  bool words_begin_at_marks =
      false;  ///< with `metaspace`: every U+2581 begins a word; if false, the text is one word
  std::shared_ptr<const SentencePieceModel> sentencepiece;  ///< for the scheme kSentencePiece
  std::vector<double> unigram_scores;  ///< if not empty: a unigram model over the first unigram_scores.size()
                                       ///< tokens encodes words, and merges are not used
  // The next four fields say how the text is normalised, in this order, after added tokens with `normalized`
  // false are found.
  bool nfc = false;  ///< canonical composition
  std::shared_ptr<const CharacterMap> character_map;
  bool strip_right = false;  ///< removes white space at the end
  std::string space_run;     ///< replaces two or more consecutive spaces; empty: no replacement

  std::vector<std::string> tokens;  ///< by id
  std::vector<bool>
      is_hole;  ///< by id: true for an id without a token, whose spelling is empty; an empty list: no such id
  std::vector<std::pair<std::string, std::string>> merges;

  struct Added {
    Token token;
    bool special;
    bool normalized;                   ///< matched by its normalised spelling in the normalised text
    bool left = false, right = false;  ///< includes the white space on that side
    bool single_word =
        false;  ///< matches only if no word character (unicode::kWord) is directly before or after it
  };
  std::vector<Added> added;

  bool ignore_merges = false;       ///< a word that is itself a token becomes this token; no merges are made
  bool byte_fallback = false;       ///< characters without a token become tokens <0x..>
  bool fuse_unk = false;            ///< neighbouring characters without a token become one unk_symbol
  std::optional<Token> unk_symbol;  ///< replaces a character without a token; absent: the character vanishes
  bool strip_first_space = false;   ///< when decoding: the text loses one space at its beginning
  bool strip_marks_until_text =
      false;  ///< when decoding: each token loses one leading space mark as long as the decoded text is empty
  bool first_token_without_spaces = false;  ///< when decoding (Metaspace): the first token loses its spaces

  Tokenizer::Ids ids;
  bool add_bos = false;
  std::vector<std::string> assumed;
};

/// The spec for GGUF's SentencePiece keys (tokenizer.ggml.model "llama": BPE, "t5": unigram). `parts` must be
/// complete: types, ids that llama.cpp assumes for missing keys, and add_bos.
TokenizerSpec sentencepiece_parts_spec(Tokenizer::Parts parts);

/// GPT-2's byte-level alphabet: printable Latin-1 bytes stand for themselves, the
/// other 68 bytes are U+0100 and up.
char32_t byte_character(std::uint8_t byte);
/// The bytes that a spelling in this alphabet stands for, or the spelling
/// itself if it has any other character.
std::string bytes_of_spelling(std::string_view spelling);

}  // namespace speclab
