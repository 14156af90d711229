#include "core/decoding/drafting/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/base/error.h"
#include "core/base/sha256.h"

namespace speclab {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is mapped as it is");

struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::int32_t vocab;
  std::array<std::uint64_t, TokenFile::kSections> bytes;
  std::array<char, 64> tokenizer;  // hexadecimal digits, or zeros
  std::array<char, 64> checksum;   // SHA-256 of the header with zeros here, and of all sections
};
static_assert(sizeof(Header) == 208);

std::string text_of(const std::array<char, 64>& field) {
  return {field.data(),
          static_cast<std::size_t>(std::find(field.begin(), field.end(), '\0') - field.begin())};
}

std::span<const std::byte> bytes_of(const Header& header) { return std::as_bytes(std::span(&header, 1)); }

}  // namespace

void TokenFile::write(const std::filesystem::path& path, const Kind& kind, int vocab,
                      const std::string& tokenizer, Sections sections) {
  SPECLAB_CHECK(sections.size() <= kSections && tokenizer.size() <= 64, "{} sections, hash of {} digits",
                sections.size(), tokenizer.size());
  Header header{kind.magic, kind.version, vocab, {}, {}, {}};
  tokenizer.copy(header.tokenizer.data(), header.tokenizer.size());
  for (std::size_t i = 0; i < sections.size(); ++i) {
    SPECLAB_CHECK(sections[i].size() % 4 == 0, "a section of {} bytes", sections[i].size());
    header.bytes[i] = sections[i].size();
  }
  Sha256 sum;
  sum.update(bytes_of(header));
  for (const auto section : sections) sum.update(section);
  sum.hex().copy(header.checksum.data(), header.checksum.size());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  const auto put = [&](std::span<const std::byte> bytes) {
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  put(bytes_of(header));
  for (const auto section : sections) put(section);
  out.close();
  if (!out) {
    throw Error({path.string(), "an error while writing",
                 fmt::format("a file that can hold the {}", kind.name),
                 "Check the path and the free space."});
  }
}

void TokenFile::refuse(std::string got, std::string expected) const {
  throw Error({file_.path().string(), std::move(got), std::move(expected),
               fmt::format("Build it again: {}.", kind_->command)});
}

TokenFile TokenFile::open(const std::filesystem::path& path, const Kind& kind) {
  TokenFile file(MappedFile::open(path), kind);
  const std::span<const std::byte> bytes = file.file_.bytes();
  Header header;
  if (bytes.size() < sizeof header)
    file.refuse(fmt::format("{} bytes", bytes.size()), std::string(kind.name));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kind.magic) file.refuse("a file of another kind", std::string(kind.name));
  if (header.version != kind.version)
    file.refuse(fmt::format("version {}", header.version), fmt::format("version {}", kind.version));
  std::uint64_t left = bytes.size() - sizeof header;
  bool whole = header.vocab >= 1;
  for (const std::uint64_t section : header.bytes) {
    whole = whole && section <= left && section % 4 == 0;
    if (whole) left -= section;
  }
  if (!whole || left != 0) {
    file.refuse(fmt::format("{} bytes, which differ from the sizes in its header", bytes.size()),
                fmt::format("a whole {}", kind.name));
  }
  Header summed = header;
  summed.checksum = {};
  Sha256 sum;
  sum.update(bytes_of(summed));
  sum.update(bytes.subspan(sizeof header));
  if (sum.hex() != text_of(header.checksum))
    file.refuse("contents that differ from their checksum", fmt::format("an undamaged {}", kind.name));
  // The header and every section are multiples of four bytes, and the mapping begins on
  // a page, so sections are aligned.
  std::size_t at = sizeof header;
  for (std::size_t i = 0; i < kSections; ++i) {
    file.sections_[i] = bytes.subspan(at, static_cast<std::size_t>(header.bytes[i]));
    at += static_cast<std::size_t>(header.bytes[i]);
  }
  file.vocab_ = header.vocab;
  file.tokenizer_ = text_of(header.tokenizer);
  return file;
}

void TokenFile::require(int vocab, const std::string& tokenizer) const {
  if (vocab_ != vocab) {
    throw Error({file_.path().string(), fmt::format("a vocabulary of {} tokens", vocab_),
                 fmt::format("the {} tokens of the target", vocab), "Build it with the target's tokenizer."});
  }
  if (tokenizer_ != tokenizer) {
    throw Error({file_.path().string(), "ids of another tokenizer", "the target's tokenizer",
                 "Build it with the target's tokenizer."});
  }
}

}  // namespace speclab
