#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/base/mapped_file.h"

namespace speclab {

/// Writes and maps files that hold arrays made from the token ids of one tokenizer.
///
/// The layout, little-endian: magic, version, size of the vocabulary, number of bytes of each section, hash
/// of the tokenizer, SHA-256 of everything else, then the sections. Opening refuses a file of another kind or
/// version, and one that is cut or damaged. The class that owns the file checks the contents of the sections.
class TokenFile {
 public:
  static constexpr std::size_t kSections = 8;
  struct Kind {
    std::array<char, 8> magic;
    std::uint32_t version;
    std::string_view name;     ///< "datastore", for errors
    std::string_view command;  ///< the command that builds such a file
  };
  using Sections = std::span<const std::span<const std::byte>>;

  /// Writes at most kSections sections; their sizes are multiples of four bytes. Throws Error when the file
  /// cannot be written.
  static void write(const std::filesystem::path& path, const Kind& kind, int vocab,
                    const std::string& tokenizer, Sections sections);
  /// Maps the file and reads all of it once. Throws Error for a bad file. `kind` must outlive the object.
  static TokenFile open(const std::filesystem::path& path, const Kind& kind);

  /// Throws Error unless the file was made for this size of the vocabulary and this tokenizer.
  void require(int vocab, const std::string& tokenizer) const;
  /// Throws an Error that says that the contents of the file are wrong: what was found and what was expected.
  [[noreturn]] void refuse(std::string got, std::string expected) const;

  int vocab() const { return vocab_; }
  const std::string& tokenizer() const { return tokenizer_; }
  /// A section, aligned to four bytes; empty when it was not written. Valid as long as this object lives,
  /// also after a move.
  std::span<const std::byte> section(std::size_t i) const { return sections_[i]; }
  template <class T>
  std::span<const T> section_of(std::size_t i) const {
    static_assert(alignof(T) <= 4);
    if (sections_[i].size() % sizeof(T) != 0) refuse("a section that ends within an entry", "whole entries");
    return {reinterpret_cast<const T*>(sections_[i].data()), sections_[i].size() / sizeof(T)};
  }

 private:
  TokenFile(MappedFile file, const Kind& kind) : file_(std::move(file)), kind_(&kind) {}

  MappedFile file_;
  const Kind* kind_;
  int vocab_ = 0;
  std::string tokenizer_;
  std::array<std::span<const std::byte>, kSections> sections_{};
};

}  // namespace speclab
