#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/token.h"
#include "core/decoding/drafting/token_corpus.h"
#include "core/decoding/drafting/token_file.h"

namespace speclab {

/// A corpus of tokens with a suffix array, mapped from a file: where did this phrase occur, and what followed
/// it? (He et al. 2024, REST.) Documents are separated, so that no phrase runs from one into the next.
///
/// The file (TokenFile, "SPECDATA"): int32 tokens with -1 behind each document; uint32 positions of all
/// tokens but the separators, sorted by the kDepth tokens that begin there: no question looks further. 8
/// bytes a token.
class Datastore {
 public:
  static constexpr int kDepth = 32;

  /// Collects documents and writes the file.
  class Builder : public TokenCorpus {
   public:
    using TokenCorpus::TokenCorpus;
    /// Sorts and writes. Throws Error when nothing was added, for more than 2^31 tokens and when the file
    /// cannot be written.
    void write(const std::filesystem::path& path) const;
  };

  /// Throws Error for a file that is none, of another version, cut, damaged (checksum) or without any token.
  /// Reads all of it once.
  static Datastore open(const std::filesystem::path& path);
  /// Throws Error unless the ids mean the same to this model.
  void require(int vocab, const std::string& tokenizer) const { file_.require(vocab, tokenizer); }

  std::size_t tokens() const { return text_.size(); }
  int vocab() const { return file_.vocab(); }
  const std::string& tokenizer() const { return file_.tokenizer(); }

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
  explicit Datastore(TokenFile file);

  TokenFile file_;
  TokenSpan text_;
  std::span<const std::uint32_t> suffixes_;
};

}  // namespace speclab
