#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// The contents of a SentencePiece model (Kudo and Richardson 2018): those
/// fields of its file that are used here.
struct SentencePieceSpec {
  enum class Kind { kUnigram = 1, kBpe = 2 };
  enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string text;  ///< with U+2581 for a space
    float score;       ///< unigram: log probability; BPE: the adjacent pair whose merged piece has the
                       ///< greatest score is merged first
    int type;          ///< a Type; GGUF uses the same numbers
  };

  Kind kind = Kind::kBpe;
  std::vector<Piece> pieces;  ///< by id
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = false;
  std::string
      character_map;  ///< "precompiled_charsmap": normalisation rules as a trie; empty when there are none
};

/// Encodes text with SentencePiece's own library, so that the ids are
/// SentencePiece's. Immutable and thread-safe.
class SentencePieceModel {
 public:
  /// Reads tokenizer.model. Throws Error naming `file` when it is no such model, is neither unigram nor BPE,
  /// has pieces that contradict each other or break the library, or a character map with links outside itself
  /// (the library would follow them). Self-tests in the file are not run.
  static SentencePieceModel from_file(std::string_view bytes, const std::string& file);
  /// Makes a model from parts, as a GGUF file has them. Throws Error like from_file().
  static SentencePieceModel from_spec(SentencePieceSpec spec, const std::string& file);
  ~SentencePieceModel();
  SentencePieceModel(SentencePieceModel&&) noexcept;

  const SentencePieceSpec& spec() const { return spec_; }
  /// Appends the ids of a valid UTF-8 text. Control pieces that are written out in the text are ordinary
  /// text; user-defined pieces become their own ids. Throws Error if the normalised text may have more bytes
  /// than fit into the int in which the library counts them: from hundreds of megabytes of text, or from a
  /// few megabytes if a character map can lengthen it.
  void encode(std::string_view text, std::vector<Token>& out) const;

  std::optional<Token> bos() const, eos() const, unk() const, pad() const;

 private:
  struct Library;
  SentencePieceModel(SentencePieceSpec spec, std::string_view bytes, const std::string& file);
  SentencePieceSpec spec_;
  std::unique_ptr<Library> library_;
};

/// Parses the file, a protocol buffer (sentencepiece_model.proto of the library, messages ModelProto,
/// TrainerSpec and NormalizerSpec). Throws Error naming `file` for malformed data.
SentencePieceSpec parse_sentencepiece_file(std::string_view bytes, const std::string& file);
/// Returns the file without its self-tests: texts, each with the pieces that are expected for it. On loading,
/// the library would encode the texts, print every difference and then refuse the file. Throws Error like
/// parse_sentencepiece_file().
std::string without_self_tests(std::string_view bytes, const std::string& file);
std::string write_sentencepiece_file(const SentencePieceSpec& spec);

}  // namespace speclab
