// Reading a malicious file must take at most a few times its size in memory, as the fuzzers demand. Not under
// AddressSanitizer, which has its own operator new and does not allow another.
#ifndef __SANITIZE_ADDRESS__
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

// Both replaced operators use malloc and free; the compiler sees only one of them inlined.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include "core/model/files/gguf.h"
#include "core/model/files/safetensors.h"
#include "core/model/text/unicode/unicode.h"
#include "tests/base/error_text.h"
#include "tests/fuzz/memory_limit.h"
#include "tests/model/files/gguf_files.h"

namespace {
std::atomic<std::int64_t> held{0}, most_held{0};
}

void* operator new(std::size_t bytes) {
  void* p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  const std::int64_t now = held += static_cast<std::int64_t>(::malloc_usable_size(p));
  if (now > most_held) most_held = now;
  return p;
}
void operator delete(void* p) noexcept {
  held -= static_cast<std::int64_t>(::malloc_usable_size(p));
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

namespace speclab {
namespace {

using ::testing::HasSubstr;
using namespace speclab::fixtures;
using W = GgufWriter;

constexpr std::int64_t kMiB = 1 << 20;

/// The peak of allocated bytes while `action` runs, beyond those before it.
std::int64_t peak_of(const std::function<void()>& action) {
  const std::int64_t before = most_held = held.load();
  action();
  return most_held - before;
}

struct Read {
  std::string error;
  std::int64_t peak;
};

Read read_gguf_file(const std::string& file) {
  Read out;
  out.peak =
      peak_of([&] { out.error = message_of([&] { GgufFile::parse(std::as_bytes(std::span(file)), "f"); }); });
  return out;
}

Read read_header(const std::string& header, const std::string& data = "") {
  std::string file;
  append(file, std::uint64_t{header.size()});
  file += header + data;
  Read out;
  out.peak = peak_of(
      [&] { out.error = message_of([&] { read_safetensors(std::as_bytes(std::span(file)), "f"); }); });
  return out;
}

/// The smallest possible entries, and the number that the file claims.
std::string gguf_file(std::uint64_t tensors, std::uint64_t keys) {
  std::string file = "GGUF";
  append(file, 3u);
  append(file, tensors);
  append(file, keys);
  for (std::uint64_t i = 0; i < keys; ++i)
    file += W::string(std::to_string(i)) + W::number(std::uint32_t{W::kBool}) + '\1';
  for (std::uint64_t i = 0; i < tensors; ++i) {
    file += W::string(std::to_string(i)) + W::number(1u) + W::number(std::uint64_t{1}) + W::number(0u) +
            W::number(32 * i);
  }
  file.resize((file.size() + 31) / 32 * 32 + 32 * tensors);
  return file;
}

TEST(HostileMemory, TheCounterCounts) {
  EXPECT_GE(peak_of([] { std::string(100, 'x').append(1000, 'y'); }), 1100);
  EXPECT_EQ(peak_of([] {}), 0);
}

TEST(HostileMemory, MoreEntriesInAGgufFileThanAnyModelHas) {
  const Read keys = read_gguf_file(gguf_file(1, 1'000'000)), tensors = read_gguf_file(gguf_file(200'000, 1));
  EXPECT_THAT(
      keys.error,
      HasSubstr("f: number of metadata keys: got 1000000, expected at most 4096. No real model has so many"));
  EXPECT_LT(keys.peak, kMiB / 4);
  EXPECT_THAT(
      tensors.error,
      HasSubstr("f: number of tensors: got 200000, expected at most 32768. No real model has so many"));
  EXPECT_LT(tensors.peak, kMiB / 4);

  const std::string most = gguf_file(32'768, 4096);
  const Read read = read_gguf_file(most);
  EXPECT_EQ(read.error, "no error");
  EXPECT_LE(read.peak, fuzz::memory_limit("gguf", most.size()));
}

// Names of one character and tensors of one number in two bytes, or without data.
TEST(HostileMemory, TheSmallestEntriesInAGgufFile) {
  const auto name = [](char32_t character) {
    std::string text;
    unicode::append_utf8(text, character);
    return W::string(text);
  };
  for (const std::uint64_t tensors : {0u, 32'768u}) {
    for (const bool data : {true, false}) {
      std::string file = "GGUF";
      append(file, 3u);
      append(file, tensors);
      append(file, std::uint64_t{4096});
      file += W::string("general.alignment") + W::number(std::uint32_t{W::kU8}) + '\1';
      for (char32_t i = 1; i < 4096; ++i) file += name(i) + W::number(std::uint32_t{W::kBool}) + '\1';
      for (char32_t i = 0; i < tensors; ++i) {
        file += name(i + 1) + W::number(1u) + W::number(std::uint64_t{1}) + W::number(ggml_type("F16")) +
                W::number(std::uint64_t{2 * i});
      }
      if (data) file.resize(file.size() + 2 * tensors);
      const Read read = read_gguf_file(file);
      if (data || tensors == 0) EXPECT_EQ(read.error, "no error");
      else EXPECT_THAT(read.error, HasSubstr("got 2 bytes of data at offset 0"));
      EXPECT_LE(read.peak, fuzz::memory_limit("gguf", file.size())) << tensors << ", " << data;
    }
  }
}

TEST(HostileMemory, ALongNameInAGgufFile) {
  std::string name(65'535, 'n');
  W writer;
  writer.add(name, 1u);
  EXPECT_EQ(read_gguf_file(writer.file()).error, "no error");
  name += std::string(4 * kMiB, 'n');
  writer.add(name, 1u);
  const Read key = read_gguf_file(writer.file());
  EXPECT_THAT(key.error, HasSubstr("f: metadata key 1: got a name of 4259839 bytes, expected at most 65535"));
  EXPECT_LT(key.peak, kMiB);
  W other;
  other.tensors = {{name, {1}, 0, "1234"}};
  EXPECT_THAT(read_gguf_file(other.file()).error,
              HasSubstr("f: name of tensor 0: got a name of 4259839 bytes"));
}

TEST(HostileMemory, ASafetensorsHeaderThatIsOneShape) {
  std::string shape = "1";
  for (int i = 0; i < 4'000'000; ++i) shape += ",1";
  const Read read =
      read_header(R"({"a":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]}})", "x");
  EXPECT_THAT(
      read.error,
      HasSubstr("f: header: got more than 8 values in a list in the member \"a\", expected at most 8"));
  EXPECT_LT(read.peak, kMiB / 4);
}

TEST(HostileMemory, ASafetensorsHeaderThatIsOneText) {
  const auto with = [](std::size_t size) {
    return read_header(R"({"__metadata__":{"a":")" + std::string(size, 'x') + "\"}}");
  };
  EXPECT_EQ(with(kMiB - 1).error, "no error");
  const Read read = with(16 * kMiB);
  EXPECT_THAT(
      read.error,
      HasSubstr("f: header: line 1, column 22: got a text, number or white space of more than 1048576 "
                "bytes, expected at most 1048576"));
  EXPECT_LT(read.peak, kMiB / 4);
}

TEST(HostileMemory, MoreEntriesInASafetensorsHeaderThanAnyModelHas) {
  const auto tensors = [](int count) {
    std::string header = "{";
    for (int i = 0; i < count; ++i)
      header += fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
    header.back() = '}';
    return header;
  };
  const auto metadata = [](int count) {
    std::string header = R"({"__metadata__":{)";
    for (int i = 0; i < count; ++i) header += fmt::format(R"("{}":"",)", i);
    header.back() = '}';
    return header + "}";
  };
  EXPECT_THAT(read_header(tensors(65'537)).error,
              HasSubstr("f: header: got more than 65536 members of an object, expected at most 65536"));
  const std::string most = tensors(65'536);
  const Read read = read_header(most);
  EXPECT_EQ(read.error, "no error");
  EXPECT_LE(read.peak, fuzz::memory_limit("safetensors", most.size()));
  EXPECT_EQ(read_header(metadata(4096)).error, "no error");
  const Read many = read_header(metadata(500'000));
  EXPECT_THAT(
      many.error,
      HasSubstr(
          "got more than 4096 members of an object in the member \"__metadata__\", expected at most 4096"));
  EXPECT_LT(many.peak, 2 * kMiB);
}

}  // namespace
}  // namespace speclab

#endif  // __SANITIZE_ADDRESS__
