#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Collects tokenized documents, to build a file from them (Datastore, NgramFile).
class TokenCorpus {
 public:
  /// Token ids go from 0 to vocab - 1. `tokenizer` is Tokenizer::sha256, or "" for a model without a
  /// tokenizer.
  TokenCorpus(int vocab, std::string tokenizer);
  /// Adds a document, unless it is empty. Throws Error for an id outside the vocabulary.
  void add(TokenSpan document);

  std::size_t tokens() const { return text_.size(); }  ///< separators included

 protected:
  static constexpr std::size_t kMostTokens = std::size_t{1} << 31;

  /// All documents, with -1 after each.
  TokenSpan text() const { return text_; }
  int vocab() const { return vocab_; }
  const std::string& tokenizer() const { return tokenizer_; }
  /// Positions of all tokens except the separators, sorted by the `depth` tokens from each position on. Equal
  /// entries are in text order. Throws Error when there are no tokens, or more than 2^31.
  std::vector<std::uint32_t> sorted_positions(int depth) const;

 private:
  int vocab_;
  std::string tokenizer_;
  std::vector<Token> text_;
};

}  // namespace speclab
