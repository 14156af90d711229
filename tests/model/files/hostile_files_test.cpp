#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <new>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/model/files/checkpoint.h"
#include "core/model/files/gguf.h"
#include "core/model/net/model.h"
#include "core/model/files/safetensors.h"
#include "core/model/net/session.h"
#include "tests/model/files/gguf_files.h"
#include "tests/base/error_text.h"

/// Files that have broken other readers of GGUF and safetensors must give a clear error. Cases that
/// gguf_test, safetensors_test and checkpoint_damage_test do not cover.
namespace speclab::hostile_files_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace speclab::fixtures;
using namespace std::string_literals;
using W = GgufWriter;

std::string gguf_error(const std::string& file) {
  return message_of([&] { GgufFile::parse(std::as_bytes(std::span(file)), "f"); });
}

std::string safetensors_error(const std::string& file) {
  return message_of([&] { read_safetensors(std::as_bytes(std::span(file)), "f"); });
}

Json entry(const char* dtype, Json shape, Json offsets) {
  return {{"dtype", dtype}, {"shape", std::move(shape)}, {"data_offsets", std::move(offsets)}};
}

TEST(HostileGguf, TinyFilesThatClaimGigabytes) {
  const auto with = [](const std::string& value, std::uint32_t type) {
    W writer;
    writer.add("k", type, value);
    std::string file = writer.file();
    file.resize(160, '\0');
    return gguf_error(file);
  };
  for (const std::uint64_t claim :
       {UINT64_C(4) << 30, UINT64_C(1) << 40, UINT64_MAX - 7, UINT64_MAX / 2 + 1}) {
    EXPECT_THAT(with(W::number(claim), W::kString), HasSubstr(fmt::format("expected {} bytes", claim)))
        << claim;
    for (const W::Type element : {W::kU8, W::kU64, W::kBool, W::kString, W::kArray}) {
      EXPECT_THAT(with(W::array(element, claim, ""), W::kArray), HasSubstr("f: metadata k: got "))
          << claim << " " << element;
    }
  }
  W names;
  std::string file = names.file().substr(0, 24) + W::number(UINT64_C(1) << 40);  // without the padding
  file[8] = 1;  // one tensor, whose name is a terabyte
  file.resize(160, '\0');
  EXPECT_THAT(gguf_error(file), HasSubstr("f: name of tensor 0: got "));
}

TEST(HostileGguf, AnAlignmentThatIsNone) {
  const auto with = [](std::uint32_t type, const std::string& value) {
    W writer;
    writer.add("general.alignment", type, value);
    writer.tensors = {{"a", {1}, 0, "1234"}};
    return gguf_error(writer.file());
  };
  EXPECT_THAT(with(W::kF32, W::number(32.f)),
              HasSubstr("metadata general.alignment: got a float, expected an integer"));
  EXPECT_THAT(with(W::kBool, "\1"), HasSubstr("metadata general.alignment: got a bool"));
  EXPECT_THAT(with(W::kArray, W::array(W::kU32, 1, W::number(32u))),
              HasSubstr("metadata general.alignment: got an array"));
  EXPECT_THAT(with(W::kI32, W::number(-32)), HasSubstr("metadata general.alignment: got -32"));
  EXPECT_THAT(with(W::kU64, W::number(UINT64_C(1) << 63)),
              HasSubstr("metadata general.alignment: got 9223372036854775808"));
  // A power of two that is larger than the file leaves no data.
  EXPECT_THAT(with(W::kU32, W::number(1u << 30)), HasSubstr("tensor a: got 4 bytes of data at offset 0"));
}

TEST(HostileGguf, ArraysOfAnotherElementType) {
  Shape shape = tiny_shape();
  shape.vocab = kByteVocab;
  TempDir dir;
  const auto with = [&](const char* key, const std::string& array) {
    W writer = gguf_writer(random_llama(shape, 1));
    add_byte_tokenizer(writer);
    writer.erase(key);
    writer.add(key, W::kArray, array);
    write_file(dir.path() / "m.gguf", writer.file());
    return message_of([&] { Checkpoint::open(dir.path() / "m.gguf").tokenizer(); });
  };
  const std::string numbers = W::array(W::kU32, kByteVocab, std::string(4 * kByteVocab, '\0')),
                    bools = W::array(W::kBool, kByteVocab, std::string(kByteVocab, '\1')),
                    reals = W::array(W::kF32, kByteVocab, std::string(4 * kByteVocab, '\0'));
  EXPECT_THAT(with("tokenizer.ggml.tokens", numbers),
              HasSubstr("metadata tokenizer.ggml.tokens: got an array of another type"));
  EXPECT_THAT(with("tokenizer.ggml.merges", numbers),
              HasSubstr("metadata tokenizer.ggml.merges: got an array of another type"));
  for (const std::string& other : {bools, reals, W::strings(std::vector<std::string>(kByteVocab, "1"))}) {
    EXPECT_THAT(with("tokenizer.ggml.token_type", other),
                HasSubstr("metadata tokenizer.ggml.token_type: got an array of another type"));
  }
}

TEST(HostileGguf, EmptyKeysAndNames) {
  W writer;
  writer.add("", 1u);
  writer.tensors = {{"", {1}, 0, "1234"}};
  EXPECT_EQ(gguf_error(writer.file()), "no error");  // the format does not forbid them
  writer.tensors.push_back(writer.tensors[0]);
  EXPECT_THAT(gguf_error(writer.file()), HasSubstr("name of tensor 1: got the name  twice"));
  W keys;
  keys.add("", 1u);
  keys.add("", 1u);
  EXPECT_THAT(gguf_error(keys.file()), HasSubstr("metadata key 1: got the name  twice"));
}

TEST(HostileGguf, SizesThatWrapAround) {
  const std::string data(64, 'x');
  const auto one = [&](std::vector<std::uint64_t> sizes, std::uint32_t type, std::uint64_t offset = 0) {
    W writer;
    writer.tensors = {{"a", std::move(sizes), type, data, offset}};
    return gguf_error(writer.file());
  };
  const std::uint64_t half = UINT64_C(1) << 32;
  EXPECT_THAT(one({half, half}, 0),
              HasSubstr("tensor a: got 18446744073709551615 bytes"));  // 2^64 weights: 0
  EXPECT_THAT(one({half, half + 1}, 0),
              HasSubstr("tensor a: got 18446744073709551615 bytes"));  // 2^32 left over
  EXPECT_THAT(one({16, 1u << 31, 1u << 31, 4}, 0),
              HasSubstr("tensor a: got 18446744073709551615"));  // 64 bytes mod 2^64 and more
  EXPECT_THAT(one({INT64_MAX}, 0), HasSubstr("tensor a: got 18446744073709551615"));
  EXPECT_THAT(one({UINT64_C(1) << 63}, 1), HasSubstr("tensor a: got a dimension of 9223372036854775808"));
  EXPECT_THAT(one({UINT64_C(1) << 62, 2, 2, 2}, 8), HasSubstr("tensor a: got 18446744073709551615"));
  EXPECT_THAT(one({16}, 0, UINT64_MAX - 63),
              HasSubstr("at offset 18446744073709551552"));  // offset + size = 0 mod 2^64
}

TEST(HostileSafetensors, ShapesThatReadersTripOver) {
  const auto one = [](const char* dtype, Json shape, Json offsets, const std::string& data) {
    return safetensors_error(
        safetensors_file({{"a", entry(dtype, std::move(shape), std::move(offsets))}}, data));
  };
  EXPECT_EQ(one("F32", Json::array(), {0, 4}, "1234"), "no error");  // a scalar
  EXPECT_EQ(one("U8", {1, 1, 1, 1, 1, 1, 1, 4}, {0, 4}, "1234"), "no error");
  EXPECT_THAT(
      one("U8", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {0, 1}, "1"),
      HasSubstr("f: header: got more than 8 values in a list in the member \"a\", expected at most 8"));
  const std::uint64_t large = UINT64_C(1) << 63;
  EXPECT_THAT(one("U8", {large}, {0, 0}, ""), HasSubstr("expected the size of U8 [9223372036854775808]"));
  EXPECT_THAT(one("F32", {0, large}, {0, 0}, ""),
              HasSubstr("expected the size of F32 [0, 9223372036854775808]"));
  EXPECT_THAT(one("U8", {UINT64_C(1) << 32, UINT64_C(1) << 32}, {0, 0}, ""),
              HasSubstr("expected the size of U8"));
  EXPECT_THAT(one("U8", {4}, {UINT64_MAX - 3, UINT64_MAX}, "1234"),
              HasSubstr("data_offsets: got [18446744073709551612"));
  EXPECT_THAT(one("U8", {4}, {large, large + 4}, "1234"),
              HasSubstr("data_offsets: got [9223372036854775808"));
  EXPECT_THAT(one("U8", {4}, {-4, 0}, "1234"),
              HasSubstr("data_offsets: got a JSON number that is no whole number"));
  EXPECT_THAT(one("U8", {4}, {0, 4}, "12345"),
              HasSubstr("got 5 bytes of data, expected 4"));  // trailing bytes
}

TEST(HostileSafetensors, AnEmptyNameIsOneAndTwiceIsAnError) {
  EXPECT_EQ(safetensors_error(safetensors_file({{"", entry("U8", {1}, {0, 1})}}, "1")), "no error");
  const std::string text =
      R"({"": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})";
  std::string file;
  append(file, std::uint64_t{text.size()});
  EXPECT_THAT(safetensors_error(file + text + "12"), HasSubstr("got the key \"\" twice"));
}

TEST(HostileFiles, FilesOfNoAndOneByte) {
  TempDir dir;
  write_tiny_llama(dir.path() / "m", tiny_shape(), 1);
  for (const std::size_t size : {0u, 1u}) {
    const std::string bytes(size, '{');
    write_file(dir.path() / "f.gguf", bytes);
    EXPECT_THAT(message_of([&] { Checkpoint::open(dir.path() / "f.gguf"); }),
                HasSubstr("f.gguf: header: got "));
    for (const char* name : {"model.safetensors", "config.json"}) {
      const std::filesystem::path file = dir.path() / "m" / name;
      std::filesystem::rename(file, dir.path() / "kept");
      write_file(file, bytes);
      EXPECT_THAT(message_of([&] { Checkpoint::open(dir.path() / "m"); }), HasSubstr(file.string()));
      std::filesystem::rename(dir.path() / "kept", file);
    }
    write_file(dir.path() / "m" / "tokenizer.json", bytes);
    EXPECT_THAT(message_of([&] { Checkpoint::open(dir.path() / "m").tokenizer(); }),
                HasSubstr("tokenizer.json"));
  }
}

TEST(HostileFiles, JsonThatFillsTheMemory) {
  TempDir dir;
  write_tiny_llama(dir.path() / "m", tiny_shape(), 1);
  const std::string config = huggingface_config(tiny_shape()).dump();
  const auto with = [&](std::size_t size) {
    write_file(dir.path() / "m" / "config.json", config + std::string(size - config.size(), ' '));
    return message_of([&] { Checkpoint::open(dir.path() / "m"); });
  };
  EXPECT_EQ(with(std::size_t{1} << 20), "no error");
  EXPECT_THAT(
      with((std::size_t{1} << 20) + 1),
      HasSubstr("config.json: got 1048577 bytes, expected at most 1048576. No model's file is so large"));
  with(config.size());
  write_file(dir.path() / "m" / "tokenizer_config.json", std::string((std::size_t{16} << 20) + 1, ' '));
  EXPECT_THAT(message_of([&] { Checkpoint::open(dir.path() / "m"); }),
              HasSubstr("tokenizer_config.json: got 16777217 bytes, expected at most 16777216"));
}

/// A short configuration with ten thousand layers must be refused before memory is taken for their tensors.
TEST(HostileFiles, MoreLayersThanTensors) {
  TempDir dir;
  write_tiny_llama(dir.path() / "m", tiny_shape(), 1);
  Shape shape = tiny_shape();
  shape.layers = 10'000;
  write_file(dir.path() / "m" / "config.json", huggingface_config(shape).dump());
  EXPECT_THAT(
      message_of([&] { Checkpoint::open(dir.path() / "m"); }),
      HasSubstr("config.json: num_hidden_layers: got 10000, expected no more layers than the 21 tensors"));
  W writer = gguf_writer(random_llama(tiny_shape(), 1));
  writer.set("llama.block_count", 10'000u);
  write_file(dir.path() / "m.gguf", writer.file());
  EXPECT_THAT(
      message_of([&] { Checkpoint::open(dir.path() / "m.gguf"); }),
      HasSubstr("metadata llama.block_count: got 10000, expected no more layers than the 21 tensors"));
}

TEST(HostileFiles, AModelThatIsWrittenToWhileItIsLoaded) {
  TempDir dir;
  write_tiny_llama(dir.path(), tiny_shape(), 1);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  std::filesystem::last_write_time(dir.path() / "model.safetensors",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_THAT(
      message_of([&] { Model::load(checkpoint, make_cpu_backend({1, "f32"}), {}); }),
      AllOf(HasSubstr("model.safetensors: got changed contents"), HasSubstr("Another program writes")));
}

}  // namespace
}  // namespace speclab::hostile_files_test
