#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/base/token.h"

namespace speclab {

/// A corpus of tokens with a suffix array, mapped from a file: where did this phrase occur, and what followed
/// it? (He et al. 2024, REST.) Documents are separated, so that no phrase runs from one into the next.
///
/// The file, little-endian: a header (magic "SPECDATA", version, numbers, the hash of the tokenizer that the
/// ids belong to, the SHA-256 of what follows), int32 tokens with -1 behind each document, uint32 positions
/// of all tokens but the separators, sorted by the kDepth tokens that begin there: no question looks further.
/// 8 bytes a token.
class Datastore {
 public:
  static constexpr int kDepth = 32;

  /// Collects documents and writes the file.
  class Builder {
   public:
    /// `vocab`: ids are 0 .. vocab - 1; `tokenizer`: Tokenizer::sha256, "" for a model without one.
    Builder(int vocab, std::string tokenizer);
    /// Throws Error for an id outside the vocabulary. Documents without tokens are left out.
    void add(TokenSpan document);
    std::size_t tokens() const { return text_.size(); }  ///< separators included
    /// Sorts and writes. Throws Error when nothing was added, for more than 2^31 tokens and when the file
    /// cannot be written.
    void write(const std::filesystem::path& path);

   private:
    int vocab_;
    std::string tokenizer_;
    std::vector<Token> text_;
  };

  /// Throws Error for a file that is none, of another version, cut, damaged (checksum) or without any token.
  /// Reads all of it once.
  static Datastore open(const std::filesystem::path& path);
  /// Throws Error unless the ids mean the same to this model.
  void require(int vocab, const std::string& tokenizer) const;

  std::size_t tokens() const { return text_.size(); }
  int vocab() const { return vocab_; }
  const std::string& tokenizer() const { return tokenizer_; }

  /// Occurrences of a phrase: entries [first, last) of the suffix array.
  struct Range {
    std::size_t first = 0, last = 0;
    int length = 0;  ///< of the phrase
    std::size_t size() const { return last - first; }
  };
  Range find(TokenSpan phrase) const;  ///< of at most kDepth tokens
  /// Occurrences of the longest ending of `text` that has any, of `shortest` to `longest` tokens; else an
  /// empty range.
  Range find_ending(TokenSpan text, int shortest, int longest) const;
  /// The token `offset` places behind the start of the i-th occurrence; -1 at the end of its document.
  Token token(std::size_t i, int offset) const;

 private:
  Datastore(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  int vocab_ = 0;
  std::string tokenizer_;
  TokenSpan text_;
  std::span<const std::uint32_t> suffixes_;
};

}  // namespace speclab
