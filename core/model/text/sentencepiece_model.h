#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// What a SentencePiece model (Kudo and Richardson 2018) consists of; the fields of its file that matter
/// here.
struct SentencePieceSpec {
  enum class Kind { kUnigram = 1, kBpe = 2 };
  enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string text;  ///< spaces as U+2581
    float score;       ///< unigram: log probability; BPE: greater merges first
    int type;          ///< a Type; GGUF has the same numbers
  };

  Kind kind = Kind::kBpe;
  std::vector<Piece> pieces;  ///< by id
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = false;
  std::string character_map;  ///< "precompiled_charsmap": normalisation rules as a trie; empty: none
};

/// A SentencePiece model, run by the library itself, so that its ids are SentencePiece's by construction.
/// Immutable; thread-safe.
class SentencePieceModel {
 public:
  /// Reads tokenizer.model. Throws Error naming `file`: no such model, a kind other than unigram and BPE,
  /// pieces that contradict each other or break the library, a character map that points outside itself (the
  /// library would follow it). The self-tests in it are not run.
  static SentencePieceModel from_file(std::string_view bytes, const std::string& file);
  /// From parts that stand elsewhere (GGUF). Throws Error as above.
  static SentencePieceModel from_spec(SentencePieceSpec spec, const std::string& file);
  ~SentencePieceModel();
  SentencePieceModel(SentencePieceModel&&) noexcept;

  const SentencePieceSpec& spec() const { return spec_; }
  /// Appends the ids of a valid UTF-8 text. Throws Error for one of hundreds of megabytes (megabytes with a
  /// character map), whose normalised form the library cannot count. Control pieces written out in the text
  /// are ordinary text, user-defined ones are not.
  void encode(std::string_view text, std::vector<Token>& out) const;

  std::optional<Token> bos() const, eos() const, unk() const, pad() const;

 private:
  struct Library;
  SentencePieceModel(SentencePieceSpec spec, std::string_view bytes, const std::string& file);
  SentencePieceSpec spec_;
  std::unique_ptr<Library> library_;
};

/// The file format, a protocol buffer (sentencepiece_model.proto of the library, messages ModelProto,
/// TrainerSpec and NormalizerSpec). Throws Error naming `file` for anything malformed.
SentencePieceSpec parse_sentencepiece_file(std::string_view bytes, const std::string& file);
/// The file without its self-tests: texts that the library would encode when it loads it, printing what
/// differs. Throws Error as above.
std::string without_self_tests(std::string_view bytes, const std::string& file);
std::string write_sentencepiece_file(const SentencePieceSpec& spec);

}  // namespace speclab
