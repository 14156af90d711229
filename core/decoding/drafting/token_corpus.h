#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Documents of tokens, one behind the other: what files of texts are built from (Datastore, NgramFile).
class TokenCorpus {
 public:
  /// `vocab`: ids are 0 .. vocab - 1; `tokenizer`: Tokenizer::sha256, "" for a model without one.
  TokenCorpus(int vocab, std::string tokenizer);
  /// Throws Error for an id outside the vocabulary. Documents without tokens are left out.
  void add(TokenSpan document);

  std::size_t tokens() const { return text_.size(); }  ///< separators included

 protected:
  static constexpr std::size_t kMostTokens = std::size_t{1} << 31;

  /// -1 behind each document, so that nothing runs from one into the next.
  TokenSpan text() const { return text_; }
  int vocab() const { return vocab_; }
  const std::string& tokenizer() const { return tokenizer_; }
  /// Positions of all tokens but the separators, sorted by the `depth` tokens that begin there, equal ones in
  /// the order of the text. Throws Error when there are no tokens, or more than 2^31.
  std::vector<std::uint32_t> sorted_positions(int depth) const;

 private:
  int vocab_;
  std::string tokenizer_;
  std::vector<Token> text_;
};

}  // namespace speclab
