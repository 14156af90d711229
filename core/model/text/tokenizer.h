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

/// Ids that tokenizer.json does not hold; they stand in config.json or generation_config.json.
struct TokenizerIds {
  std::optional<Token> bos = {}, eos = {}, unk = {}, pad = {};
  std::vector<Token> end_of_generation = {};  ///< besides eos
};

/// Byte-pair encoding (Sennrich et al. 2016; on bytes: Radford et al. 2019) with the ids of Hugging Face's
/// package `tokenizers`: text is cut at special tokens, cut into words by a fixed rule ("pre-tokeniser"), and
/// inside a word the adjacent pair of lowest rank is merged until none is left. Two schemes: byte-level
/// (every byte is a character of the vocabulary's alphabet) and spaces written as U+2581, with bytes as
/// fallback (the Llama 2 form); the latter also as a unigram model (Kudo 2018). Models in SentencePiece's own
/// form are run by its library.
///
/// A cheap value: copies share immutable data. All members are thread-safe.
class Tokenizer {
 public:
  using Ids = TokenizerIds;

  /// The keys tokenizer.ggml.* of a GGUF file. What the file does not say is decided as llama.cpp decides it,
  /// and assumed() says so.
  struct Parts {
    std::string file;            ///< named in errors
    std::string model = "gpt2";  ///< tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" or "t5"
                                 ///< (SentencePiece: BPE, unigram)
    std::string pre_tokenizer;   ///< tokenizer.ggml.pre: a name of gguf_tokenizer_rules.h; empty: missing
    std::vector<std::string> tokens;        ///< spelling by id
    std::vector<std::string> merges;        ///< "left right" by rank
    std::vector<std::int32_t> token_types;  ///< by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5
                                            ///< unused, 6 byte, others: normal; empty: missing
    Ids ids;                                ///< tokenizer.ggml.{bos,eos,unknown,padding}_token_id, eot, eom
    std::set<std::string, std::less<>> stated_roles;  ///< of fill in the middle: "fim_pre", ..., see there
    std::optional<bool> add_bos;                      ///< tokenizer.ggml.add_bos_token
    std::vector<std::string> assumed;                 ///< what the reader of the file assumed before
    // SentencePiece only:
    std::vector<float> scores;              ///< by id
    bool add_space_prefix = true;           ///< tokenizer.ggml.add_space_prefix
    bool remove_extra_whitespaces = false;  ///< tokenizer.ggml.remove_extra_whitespaces
    std::string character_map;              ///< tokenizer.ggml.precompiled_charsmap
  };

  /// Reads a tokenizer.json of Hugging Face. Throws Error (file, JSON path or line and column, what is
  /// expected) for anything that is malformed or that would change ids and is not known here.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view file_name_for_errors,
                             const Ids& ids = {});
  /// Throws Error as from_json.
  static Tokenizer from_parts(Parts parts);
  /// Reads a tokenizer.model of SentencePiece, unigram or BPE. `ids` go before those that the file names;
  /// `add_bos` is what add_bos() will say if there is a BOS. Throws Error as from_json.
  static Tokenizer from_sentencepiece(std::string_view tokenizer_model, std::string_view file_name_for_errors,
                                      const Ids& ids = {}, bool add_bos = true);

  /// Token ids of a text. Ill-formed UTF-8 is read as Python's bytes.decode("utf-8", "replace") would.
  /// Special tokens written out in the text become their ids only when `parse_special` (templates: yes; text
  /// of others: no); added tokens that are not special always do. No BOS is added: see add_bos(). Bytes for
  /// which the vocabulary has no token (dropped_bytes) vanish, as in the reference. Time O(n log n) in the
  /// longest word.
  std::vector<Token> encode(std::string_view text, bool parse_special = false) const;

  /// The bytes of a sequence; not always whole characters: see StreamDecoder. Ids without a token (holes in
  /// the vocabulary, and rows with which a model pads it past vocab_size) have no bytes. `skip_special`
  /// leaves special tokens out.
  std::string decode(TokenSpan tokens, bool skip_special = false) const;

  /// Bytes that a token stands for. Valid as long as any copy of this tokenizer.
  std::string_view token_bytes(Token token) const;
  /// As the vocabulary spells it: "Ġthe" for " the".
  std::string_view spelling(Token token) const;
  /// By spelling.
  std::optional<Token> find(std::string_view spelling) const;

  int vocab_size() const;  ///< the largest id plus one
  /// Control tokens: no text of their own, left out of what people read.
  bool is_special(Token token) const;
  std::optional<Token> bos() const;
  std::optional<Token> eos() const;
  std::optional<Token> unk() const;
  std::optional<Token> pad() const;
  /// Whether prompts without a chat template begin with bos(); the caller adds it.
  bool add_bos() const;
  /// Ids that end an answer, ascending: eos, those of the file, and special tokens whose names say so
  /// ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>", ...).
  const std::vector<Token>& end_of_generation() const;
  bool ends_generation(Token token) const;
  /// What the files do not say, or say wrongly, and was decided as llama.cpp or transformers decides it: a
  /// sentence each.
  const std::vector<std::string>& assumed() const;
  /// Bytes that cannot be encoded, ascending.
  const std::vector<std::uint8_t>& dropped_bytes() const;

  /// Hex SHA-256 over all spellings in id order, each followed by a NUL byte, then over all merges ("left
  /// right") in rank order, each followed by a NUL byte. Binds a draft to its target's tokenizer.
  std::string sha256() const;

 private:
  friend class StreamDecoder;
  struct Data;
  explicit Tokenizer(std::shared_ptr<const Data> data);
  static Tokenizer build(struct TokenizerSpec spec);
  std::string_view first_bytes(Token token) const;  // of a token before which there is no text
  std::shared_ptr<const Data> data_;
};

/// Text of tokens that arrive one at a time. Returns whole characters only; the bytes of an unfinished one
/// are held back. All that push and finish return, joined, is decode() of the tokens with U+FFFD for
/// ill-formed sequences.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special = true);
  std::string push(Token token);
  /// The end: U+FFFD for an unfinished character, otherwise empty. Ready for another text afterwards.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  bool at_start_ = true;
  std::string held_;  // at most 3 bytes between calls
};

}  // namespace speclab
