#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/decoding/drafting/ngram_counts.h"
#include "core/decoding/drafting/token_corpus.h"
#include "core/decoding/drafting/token_file.h"

namespace speclab {

/// The n-grams of up to `order` tokens of texts, mapped from a file; what NgramCounts knows of a growing
/// text.
///
/// The file (TokenFile, "SPECNGRM"): a section for each length, of entries {token, count, different tokens
/// before it, where its continuations begin in the next section} of 16 bytes, sorted by the n-gram:
/// continuations of one are neighbours. The last section's continuations begin at 0.
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
    /// Throws Error when nothing was added, for more than 2^31 tokens and when the file cannot be written.
    /// `order` from 1 to NgramCounts::kMostOrder.
    void write(const std::filesystem::path& path, int order) const;
  };

  /// Throws Error for a file that is none, of another version, cut, or damaged (checksum). Reads all of it
  /// once.
  static NgramFile open(const std::filesystem::path& path);
  /// Throws Error unless the ids mean the same to this model.
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
