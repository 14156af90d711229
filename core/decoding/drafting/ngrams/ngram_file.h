#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/decoding/drafting/ngrams/ngram_counts.h"
#include "core/decoding/drafting/token_corpus.h"
#include "core/decoding/drafting/token_file.h"

namespace speclab {

/// The counts of all n-grams of up to `order` tokens of a corpus, mapped from a file. Has the interface that
/// NgramCounts has for a growing text.
///
/// The file (TokenFile, "SPECNGRM") has a section for each length. An entry has 16 bytes: {token, count,
/// number of different tokens before it, index of its first continuation in the next section}. Entries are
/// sorted by n-gram, so the continuations of an n-gram are neighbours. In the last section the index is 0.
class NgramFile {
 public:
  struct Node {
    std::uint32_t level, index;
    bool operator==(const Node&) const = default;
  };
  static constexpr Node kRoot{0, 0};
  static constexpr Node kNone{0xffffffff, 0};

  /// Collects documents and writes the file.
  class Builder : public TokenCorpus {
   public:
    using TokenCorpus::TokenCorpus;
    /// Writes the file; `order` from 1 to NgramCounts::kMostOrder. Throws Error when nothing was added, for
    /// more than 2^31 tokens, and when the file cannot be written.
    void write(const std::filesystem::path& path, int order) const;
  };

  /// Reads the whole file once. Throws Error when it is no n-gram model, has another version, or is cut or
  /// damaged (checksum).
  static NgramFile open(const std::filesystem::path& path);
  /// Throws Error unless the file was made for this size of the vocabulary and this tokenizer.
  void require(int vocab, const std::string& tokenizer) const { file_.require(vocab, tokenizer); }

  int vocab() const { return file_.vocab(); }
  const std::string& tokenizer() const { return file_.tokenizer(); }
  int order() const { return order_; }
  std::size_t nodes(int length) const { return levels_[static_cast<std::size_t>(length)].size(); }
  const CountsOfCounts& counts_of_counts(int order) const {
    return of_counts_[static_cast<std::size_t>(order)];
  }

  Node child(Node node, Token token) const;
  template <class Visit>
  void for_each_child(Node node, const Visit& visit) const {
    for (const Entry& entry : children(node)) visit(static_cast<Token>(entry.token), entry.count, entry.left);
  }

 private:
  struct Entry {
    std::uint32_t token, count, left, first_child;
  };
  explicit NgramFile(TokenFile file);
  void check(int length) const;
  std::span<const Entry> children(Node node) const;

  TokenFile file_;
  int order_ = 0;
  std::array<std::span<const Entry>, NgramCounts::kMostOrder + 1> levels_{};  // [length]; entry 0 unused
  std::array<CountsOfCounts, NgramCounts::kMostOrder + 1> of_counts_{};
};

}  // namespace speclab
