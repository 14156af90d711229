#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Ids of tokens by their purpose. They come from config.json and generation_config.json, or from the keys of
/// a GGUF file.
struct TokenizerIds {
  std::optional<Token> bos = {}, eos = {}, unk = {}, pad = {};
  std::vector<Token> end_of_generation = {};  ///< in addition to eos
};

/// Encodes text to token ids and decodes them. Byte-pair encoding (Sennrich et al. 2016; on bytes: Radford et
/// al. 2019) gives the same ids as Hugging Face's package `tokenizers`: the text is cut at special tokens,
/// then into words by a fixed rule ("pre-tokeniser"), and in a word the adjacent pair of lowest rank is
/// merged until no adjacent pair has a merge rule. There are two schemes: byte-level (every byte is a
/// character of the vocabulary's alphabet), and spaces as U+2581 with bytes as fallback (the form of Llama
/// 2). With the second scheme, a unigram model (Kudo 2018) may encode the words instead of merges. Models in
/// SentencePiece's format are run by SentencePiece's library.
///
/// Copies are cheap and share immutable data. All members are thread-safe.
class Tokenizer {
 public:
  using Ids = TokenizerIds;

  /// The keys tokenizer.ggml.* of a GGUF file. Missing keys are completed as in llama.cpp, and assumed()
  /// reports what is assumed. Missing ids are not completed for the model "gpt2".
  struct Parts {
    std::string file;            ///< the file's name in errors
    std::string model = "gpt2";  ///< tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (BPE of
                                 ///< SentencePiece) or "t5" (unigram model of SentencePiece)
    std::string
        pre_tokenizer;  ///< tokenizer.ggml.pre: a name from gguf_tokenizer_rules.h; empty when missing
    std::vector<std::string> tokens;        ///< spelling by id
    std::vector<std::string> merges;        ///< "left right" by rank
    std::vector<std::int32_t> token_types;  ///< by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5
                                            ///< unused, 6 byte, others: normal; empty when missing
    Ids ids;  ///< tokenizer.ggml.{bos,eos,unknown,padding}_token_id; eot and eom are in end_of_generation
    std::set<std::string, std::less<>>
        stated_roles;  ///< fill-in-the-middle roles that the file states, see control_tokens_by_name
    std::optional<bool> add_bos;       ///< tokenizer.ggml.add_bos_token
    std::vector<std::string> assumed;  ///< assumptions of the reader of the file
    // SentencePiece only:
    std::vector<float> scores;              ///< by id
    bool add_space_prefix = true;           ///< tokenizer.ggml.add_space_prefix
    bool remove_extra_whitespaces = false;  ///< tokenizer.ggml.remove_extra_whitespaces
    std::string character_map;              ///< tokenizer.ggml.precompiled_charsmap
  };

  /// Reads Hugging Face's tokenizer.json. Throws Error (file, JSON path or line and column, what is expected)
  /// for malformed data and for unknown settings that would change ids.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view file_name_for_errors,
                             const Ids& ids = {});
  /// Makes a tokenizer from GGUF keys. Throws Error like from_json.
  static Tokenizer from_parts(Parts parts);
  /// Reads SentencePiece's tokenizer.model, unigram or BPE. `ids` override those in the file. `add_bos` is
  /// the result of add_bos() if there is a BOS token. Throws Error like from_json.
  static Tokenizer from_sentencepiece(std::string_view tokenizer_model, std::string_view file_name_for_errors,
                                      const Ids& ids = {}, bool add_bos = true);

  /// Encodes a text. Ill-formed UTF-8 is read as by Python's bytes.decode("utf-8", "replace"). Special tokens
  /// that are written out in the text become their ids only with `parse_special` (yes for chat templates, no
  /// for foreign text); added tokens that are not special always do. No BOS is added, see add_bos(). Bytes
  /// without a token become the unknown token; without an unknown token they vanish, as in `tokenizers`.
  /// Merging a word of n bytes takes O(n log n) time.
  std::vector<Token> encode(std::string_view text, bool parse_special = false) const;

  /// The bytes of a token sequence. They may end within a character, see StreamDecoder. Ids without a token
  /// (holes in the vocabulary, and padding rows of a model past vocab_size) have no bytes. `skip_special`
  /// leaves out special tokens.
  std::string decode(TokenSpan tokens, bool skip_special = false) const;

  /// The bytes that a token stands for. The view is valid as long as any copy of this tokenizer exists.
  std::string_view token_bytes(Token token) const;
  /// The spelling of a token in the vocabulary: "Ġthe" for " the".
  std::string_view spelling(Token token) const;
  /// Finds a token by its spelling.
  std::optional<Token> find(std::string_view spelling) const;

  int vocab_size() const;  ///< largest id + 1
  /// Whether this is a control token, which is not part of the text that people read.
  bool is_special(Token token) const;
  std::optional<Token> bos() const;
  std::optional<Token> eos() const;
  std::optional<Token> unk() const;
  std::optional<Token> pad() const;
  /// Whether prompts without a chat template begin with bos(). The caller adds it.
  bool add_bos() const;
  /// Ids that end an answer, ascending: eos, those that the file names, and special tokens with known names
  /// ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>", ...).
  const std::vector<Token>& end_of_generation() const;
  /// One sentence for each entry of the files that is missing or wrong. It says what is assumed instead, as
  /// in llama.cpp or in Hugging Face's libraries.
  const std::vector<std::string>& assumed() const;

  /// Hex SHA-256 of all spellings in id order and all merges ("left right") in rank order, each followed by a
  /// NUL byte. Used to check that a draft has its target's tokenizer.
  std::string sha256() const;

 private:
  friend class StreamDecoder;
  struct Data;
  explicit Tokenizer(std::shared_ptr<const Data> data);
  static Tokenizer build(struct TokenizerSpec spec);
  std::string_view first_bytes(Token token) const;  // bytes of a token at the beginning of a text
  std::shared_ptr<const Data> data_;
};

/// Decodes tokens that arrive one at a time. Returns only whole characters and holds back the bytes of an
/// unfinished one. The results of push() and finish(), joined, are decode() of the tokens with U+FFFD for
/// ill-formed sequences.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = true);
  std::string push(Token token);
  /// Ends the text: returns U+FFFD for an unfinished character, otherwise nothing. The
  /// decoder is then ready for another text.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  bool at_start_ = true;
  std::string held_;  // at most 3 bytes between calls
};

}  // namespace speclab
