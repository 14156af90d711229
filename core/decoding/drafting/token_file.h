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

/// A mapped file of arrays that were made from the ids of one tokenizer.
///
/// Little-endian: magic, version, size of the vocabulary, bytes of each section, the hash of the tokenizer,
/// the SHA-256 of everything else, then the sections. A file of another kind or version, a cut or a damaged
/// one is refused. What the numbers in the sections mean is for the owner to check.
class TokenFile {
 public:
  static constexpr std::size_t kSections = 8;
  struct Kind {
    std::array<char, 8> magic;
    std::uint32_t version;
    std::string_view name;     ///< "datastore": of the errors
    std::string_view command;  ///< that builds one
  };
  using Sections = std::span<const std::span<const std::byte>>;

  /// At most kSections, each a multiple of four bytes. Throws Error when the file cannot be written.
  static void write(const std::filesystem::path& path, const Kind& kind, int vocab,
                    const std::string& tokenizer, Sections sections);
  /// Throws Error; reads all of the file once. `kind` must outlive the object.
  static TokenFile open(const std::filesystem::path& path, const Kind& kind);

  /// Throws Error unless the ids mean the same to this model.
  void require(int vocab, const std::string& tokenizer) const;
  /// Throws the Error of a file that holds something else than it should.
  [[noreturn]] void refuse(std::string got, std::string expected) const;

  int vocab() const { return vocab_; }
  const std::string& tokenizer() const { return tokenizer_; }
  /// A section, aligned to four bytes; empty when it was not written. Valid while this lives, moved or not.
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
