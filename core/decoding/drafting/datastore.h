#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/token.h"
#include "core/decoding/drafting/token_corpus.h"
#include "core/decoding/drafting/token_file.h"

namespace speclab {

/// Finds where a phrase occurs in a corpus and what followed it (He et al. 2024, REST). The corpus
/// of tokens and its suffix array are mapped from a file. Documents are separated, so that no
/// phrase crosses from one into the next.
///
/// The file (TokenFile, "SPECDATA") holds int32 tokens with -1 after each document, and uint32 positions of
/// all tokens except the separators, sorted by the kDepth tokens from each position on. A query compares at
/// most kDepth tokens. The file takes 8 bytes per token.
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

  /// Reads the whole file once. Throws Error when it is no datastore, has another version, is cut or damaged
  /// (checksum), or holds no tokens.
  static Datastore open(const std::filesystem::path& path);
  /// Throws Error unless the model has the same vocabulary and tokenizer.
  void require(int vocab, const std::string& tokenizer) const { file_.require(vocab, tokenizer); }

  std::size_t tokens() const { return text_.size(); }
  int vocab() const { return file_.vocab(); }
  const std::string& tokenizer() const { return file_.tokenizer(); }

  /// The occurrences of a phrase: entries [first, last) of the suffix array.
  struct Range {
    std::size_t first = 0, last = 0;
    int length = 0;  ///< tokens of the phrase
    std::size_t size() const { return last - first; }
  };
  Range find(TokenSpan phrase) const;  ///< `phrase` has at most kDepth tokens
  /// Finds the longest suffix of `text` that occurs in the corpus and has `shortest` to `longest` tokens, at
  /// most kDepth. Returns its occurrences, or an empty range when no such suffix occurs.
  Range find_suffix(TokenSpan text, int shortest, int longest) const;
  /// The token `offset` places after the position in entry i of the suffix array (see Range). -1: the
  /// document of this position ends there.
  Token token(std::size_t i, int offset) const;

 private:
  explicit Datastore(TokenFile file);

  TokenFile file_;
  TokenSpan text_;
  std::span<const std::uint32_t> suffixes_;
};

}  // namespace speclab
