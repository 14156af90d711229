#include "core/model/files/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "core/base/error.h"
#include "tests/model/files/gguf_files.h"
#include "tests/base/error_text.h"

namespace speclab::gguf_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace speclab::fixtures;
using namespace std::string_literals;
using W = GgufWriter;

GgufFile parse(const std::string& file) { return GgufFile::parse(std::as_bytes(std::span(file)), "f"); }

std::string error_of(const std::string& file) {
  return message_of([&] { parse(file); });
}

std::string error_of(const W& writer) { return error_of(writer.file()); }

W one_tensor(W::Tensor tensor) {
  W writer;
  writer.tensors.push_back(std::move(tensor));
  return writer;
}

TEST(Gguf, ReadsEveryTypeOfMetadata) {
  W writer;
  writer.add("u8", W::kU8, W::number(std::uint8_t{200}));
  writer.add("i8", W::kI8, W::number(std::int8_t{-100}));
  writer.add("u16", W::kU16, W::number(std::uint16_t{60'000}));
  writer.add("i16", W::kI16, W::number(std::int16_t{-30'000}));
  writer.add("u32", 4'000'000'000u);
  writer.add("i32", W::kI32, W::number(-2'000'000'000));
  writer.add("f32", 1.5f);
  writer.add("bool", W::kBool, "\1"s);
  writer.add("string", "h\xc3\xa9");
  writer.add("u64", W::kU64, W::number(std::uint64_t{1} << 40));
  writer.add("i64", W::kI64, W::number(-(std::int64_t{1} << 40)));
  writer.add("f64", W::kF64, W::number(.1));
  writer.add("strings", W::kArray, W::strings({"a", "", "bc"}));
  writer.add("ints", W::kArray,
             W::array(W::kI16, 2, W::number(std::int16_t{-5}) + W::number(std::int16_t{7})));
  writer.add("reals", W::kArray, W::array(W::kF32, 1, W::number(.5f)));
  writer.add("doubles", W::kArray, W::array(W::kF64, 2, W::number(.25) + W::number(.1)));
  writer.add("longs", W::kArray,
             W::array(W::kI64, 2, W::number(std::int64_t{-1}) + W::number(std::int64_t{1} << 40)));
  writer.add("bools", W::kArray, W::array(W::kBool, 3, "\0\1\1"s));
  writer.add("nested", W::kArray, W::array(W::kArray, 2, W::strings({"x"}) + W::array(W::kU8, 0, "")));
  for (const std::uint32_t version : {2u, 3u}) {
    writer.version = version;
    const std::string bytes = writer.file();
    const GgufFile file = parse(bytes);
    EXPECT_EQ(file.metadata().size(), 19u);
    EXPECT_EQ(file.integer("u8", 0, 1000), 200);
    EXPECT_EQ(file.integer("i8", -1000, 0), -100);
    EXPECT_EQ(file.integer("u16", 0, 100'000), 60'000);
    EXPECT_EQ(file.integer("i16", -100'000, 0), -30'000);
    EXPECT_EQ(file.integer("u32", 0, INT64_MAX), 4'000'000'000);
    EXPECT_EQ(file.integer("i32", INT64_MIN, 0), -2'000'000'000);
    EXPECT_EQ(file.real("f32"), 1.5);
    EXPECT_TRUE(file.flag("bool"));
    EXPECT_EQ(file.text("string"), "h\xc3\xa9");
    EXPECT_EQ(file.integer("u64", 0, INT64_MAX), std::int64_t{1} << 40);
    EXPECT_EQ(file.integer("i64", INT64_MIN, 0), -(std::int64_t{1} << 40));
    EXPECT_EQ(file.real("f64"), .1);
    EXPECT_THAT(file.array("strings").strings, ElementsAre("a", "", "bc"));
    EXPECT_TRUE(file.array("ints").holds_integers());
    EXPECT_EQ(file.array("ints").integer(0), -5);
    EXPECT_EQ(file.array("ints").integer(1), 7);
    EXPECT_THROW(file.array("ints").integer(2), Bug);
    EXPECT_EQ(file.array("reals").real(0), .5);
    EXPECT_EQ(file.array("doubles").real(1), .1);
    EXPECT_EQ(file.array("longs").integer(1), std::int64_t{1} << 40);
    EXPECT_EQ(file.array("bools").count, 3u);
    EXPECT_EQ(file.array("nested").count, 2u);
  }
}

TEST(Gguf, TypedAccessSaysWhatIsWrong) {
  W writer;
  writer.add("n", 5u);
  writer.add("huge", W::kU64, W::number(UINT64_MAX));
  writer.add("s", "text");
  const std::string bytes = writer.file();
  const GgufFile file = parse(bytes);
  EXPECT_THAT(message_of([&] { file.integer("m", 0, 1); }),
              HasSubstr("f: metadata m: got no such key, expected an integer"));
  EXPECT_THAT(message_of([&] { file.integer("n", 6, 9); }),
              HasSubstr("f: metadata n: got 5, expected a number from 6 to 9"));
  EXPECT_THAT(message_of([&] { file.integer("huge", 0, 9); }), HasSubstr("got 18446744073709551615"));
  EXPECT_THAT(message_of([&] { file.integer("s", 0, 9); }),
              HasSubstr("f: metadata s: got a string, expected an integer"));
  EXPECT_THAT(message_of([&] { file.real("n"); }), HasSubstr("got an integer, expected a float"));
  EXPECT_THAT(message_of([&] { file.text("n"); }), HasSubstr("got an integer, expected a string"));
  EXPECT_THAT(message_of([&] { file.array("s"); }), HasSubstr("got a string, expected an array"));
  EXPECT_THAT(message_of([&] { file.flag("s"); }), HasSubstr("got a string, expected a bool"));
}

TEST(Gguf, ReadsTensors) {
  for (const std::uint64_t alignment : {32, 64, 8}) {
    W writer;
    writer.alignment = alignment;
    if (alignment != 32) writer.add("general.alignment", static_cast<std::uint32_t>(alignment));
    writer.tensors = {{"a", {3}, 0, std::string(12, 'a')},
                      {"b", {32, 2}, 8, std::string(68, 'b')},
                      {"c", {32, 1, 2, 3}, 2, std::string(6 * 18, 'c')}};
    const std::string bytes = writer.file();
    const GgufFile file = parse(bytes);
    const auto& tensors = file.tensors();
    ASSERT_EQ(tensors.size(), 3u);
    EXPECT_EQ(tensors[0].type, TensorType::kF32);
    EXPECT_EQ(tensors[1].type, TensorType::kQ8_0);
    EXPECT_EQ(tensors[1].type_name, "Q8_0");
    EXPECT_THAT(tensors[1].shape, ElementsAre(2, 32));
    EXPECT_THAT(tensors[2].shape, ElementsAre(3, 2, 1, 32));
    const char first[] = {'a', 'b', 'c'};
    const std::size_t sizes[] = {12, 68, 108};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensors[i].data.data()), tensors[i].data.size()),
                std::string(sizes[i], first[i]));
    }
  }
}

/// The numbers of ggml's enum ggml_type, with the bytes of a row of 256.
TEST(Gguf, KnowsTheTypesOfTensors) {
  const std::tuple<std::uint32_t, TensorType, std::size_t> types[] = {
      {0, TensorType::kF32, 1024},      {1, TensorType::kF16, 512},     {2, TensorType::kQ4_0, 8 * 18},
      {3, TensorType::kQ4_1, 8 * 20},   {6, TensorType::kQ5_0, 8 * 22}, {7, TensorType::kQ5_1, 8 * 24},
      {8, TensorType::kQ8_0, 8 * 34},   {10, TensorType::kQ2K, 84},     {11, TensorType::kQ3K, 110},
      {12, TensorType::kQ4K, 144},      {13, TensorType::kQ5K, 176},    {14, TensorType::kQ6K, 210},
      {20, TensorType::kIq4Nl, 8 * 18}, {30, TensorType::kBf16, 512}};
  for (const auto& [id, type, bytes] : types) {
    const std::string file = one_tensor({"a", {256}, id, std::string(bytes, 'x')}).file();
    const GgufFile parsed = parse(file);
    EXPECT_EQ(parsed.tensors()[0].type, type) << id;
    EXPECT_EQ(parsed.tensors()[0].data.size(), bytes) << id;
    EXPECT_EQ(parsed.tensors()[0].type_name, tensor_type_info(type).name) << id;
  }
}

TEST(Gguf, RefusesForeignFiles) {
  EXPECT_THAT(error_of("PK\3\4 and so on"),
              AllOf(HasSubstr("f: header: got a file that begins with the bytes 50 4b 03 04"),
                    HasSubstr("expected \"GGUF\"")));
  EXPECT_THAT(error_of(""),
              HasSubstr("f: header: got 0 bytes from byte 0 to the end of the file, expected 4 bytes"));
  W writer;
  writer.version = 1;
  EXPECT_THAT(error_of(writer),
              HasSubstr("got GGUF version 1, expected little-endian GGUF of version 2 or 3"));
  writer.version = 3u << 24;
  EXPECT_THAT(error_of(writer), HasSubstr("got a big-endian file"));
}

TEST(Gguf, EveryTruncationIsAnError) {
  W writer;
  writer.add("general.name", "tiny");
  writer.add("list", W::kArray, W::strings({"a", "bc"}));
  writer.add("numbers", W::kArray, W::array(W::kU32, 2, "12345678"));
  writer.tensors = {{"a", {8}, 0, std::string(32, 'a')}, {"b", {32, 2}, 8, std::string(68, 'b')}};
  const std::string bytes = writer.file();
  EXPECT_EQ(error_of(bytes), "no error");
  const std::size_t padding = 96 - 68;
  for (std::size_t size = 0; size < bytes.size() - padding; ++size) {
    ASSERT_THAT(error_of(bytes.substr(0, size)), AllOf(HasSubstr("f: "), HasSubstr("fetch it again")))
        << size;
  }
  EXPECT_EQ(error_of(bytes.substr(0, bytes.size() - padding)), "no error");
}

TEST(Gguf, RefusesCountsAndLengthsBeyondTheFile) {
  W writer;
  writer.extra_tensors = std::uint64_t{1} << 60;
  EXPECT_THAT(error_of(writer),
              HasSubstr("number of tensors: got 1152921504606846976, expected as many as fit"));
  writer.extra_tensors = 0;
  writer.extra_keys = UINT64_MAX;
  EXPECT_THAT(error_of(writer), HasSubstr("number of metadata keys: got 18446744073709551615"));

  const auto value = [](std::uint32_t type, const std::string& bytes) {
    W keyed;
    keyed.add("k", type, bytes);
    return error_of(keyed);
  };
  EXPECT_THAT(value(W::kString, W::number(UINT64_MAX)),
              AllOf(HasSubstr("f: metadata k"), HasSubstr("expected 18446744073709551615 bytes")));
  EXPECT_THAT(value(W::kArray, W::array(W::kString, UINT64_MAX, "")),
              HasSubstr("metadata k: got an array of 18446744073709551615"));
  EXPECT_THAT(value(W::kArray, W::array(W::kArray, 1u << 30, "")),
              HasSubstr("metadata k: got an array of 1073741824"));
  EXPECT_THAT(value(W::kArray, W::array(W::kU32, std::uint64_t{1} << 62, "")), HasSubstr("metadata k: got"));
  EXPECT_THAT(value(W::kArray, W::array(W::kU64, (std::uint64_t{1} << 61) + 1, "")),
              HasSubstr("metadata k: got"));
  EXPECT_THAT(value(13, ""), HasSubstr("metadata k: got value type 13, expected a type from 0 to 12"));
  EXPECT_THAT(value(W::kArray, W::array(static_cast<W::Type>(99), 1, "")),
              HasSubstr("metadata k: got value type 99"));
  EXPECT_THAT(value(W::kBool, "\2"), HasSubstr("metadata k: got the bool 2"));
  std::string deep = W::array(W::kU8, 0, "");
  for (int i = 0; i < 7; ++i) deep = W::array(W::kArray, 1, deep);
  EXPECT_EQ(value(W::kArray, deep), "no error");
  EXPECT_THAT(value(W::kArray, W::array(W::kArray, 1, deep)), HasSubstr("metadata k: got arrays in arrays"));
}

TEST(Gguf, RefusesNamesTwiceOrNotUtf8) {
  W writer;
  writer.add("k", 1u);
  writer.add("k", 2u);
  EXPECT_THAT(error_of(writer), HasSubstr("metadata key 1: got the name k twice"));
  for (const char* bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xe2\x82", "\xf4\x90\x80\x80", "a\x80",
                          "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xc1\xbf", "\xf5\x80\x80\x80"}) {
    W other;
    other.add(bad, 1u);
    EXPECT_THAT(error_of(other), HasSubstr("metadata key 0: got a name that is not UTF-8"));
    EXPECT_THAT(error_of(one_tensor({bad, {1}, 0, "1234"})),
                HasSubstr("name of tensor 0: got a name that is not UTF-8"));
  }
  W text;
  text.add("k", "caf\xe9");
  EXPECT_THAT(error_of(text), HasSubstr("metadata k: got a string that is not UTF-8"));
  W good;
  good.add("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 1u);
  EXPECT_EQ(error_of(good), "no error");
  W tensors = one_tensor({"a", {1}, 0, "1234"});
  tensors.tensors.push_back(tensors.tensors[0]);
  EXPECT_THAT(error_of(tensors), HasSubstr("name of tensor 1: got the name a twice"));
}

TEST(Gguf, RefusesBadTensors) {
  const std::string data(64, 'x');
  EXPECT_EQ(error_of(one_tensor({"a", {16}, 0, data})), "no error");
  EXPECT_THAT(error_of(one_tensor({"a", {}, 0, data})),
              HasSubstr("f: tensor a: got 0 dimensions, expected 1 to 4"));
  EXPECT_THAT(error_of(one_tensor({"a", {2, 2, 2, 2, 1}, 0, data})), HasSubstr("tensor a: got 5 dimensions"));
  EXPECT_THAT(error_of(one_tensor({"a", {16, 0}, 0, data})), HasSubstr("tensor a: got a dimension of 0"));
  EXPECT_THAT(error_of(one_tensor({"a", {UINT64_MAX}, 0, data})),
              HasSubstr("tensor a: got a dimension of 18446744073709551615"));
  EXPECT_THAT(error_of(one_tensor({"a", {32}, 15, data})),
              AllOf(HasSubstr("tensor a: got type Q8_K, expected F32, F16, BF16, Q4_0"),
                    HasSubstr("IQ4_NL, Q2_K, Q3_K, Q4_K, Q5_K or Q6_K"), HasSubstr("Convert")));
  EXPECT_THAT(error_of(one_tensor({"a", {32}, 999, data})), HasSubstr("tensor a: got type number 999"));
  EXPECT_THAT(error_of(one_tensor({"a", {48}, 2, data})),
              HasSubstr("tensor a: got rows of 48 weights, expected a multiple of 32"));
  for (const std::uint32_t k_type : {10u, 11u, 12u, 13u, 14u}) {
    EXPECT_THAT(error_of(one_tensor({"a", {576, 2}, k_type, data})),
                AllOf(HasSubstr("tensor a: got rows of 576 weights, expected a multiple of 256, as Q"),
                      HasSubstr("_K needs")));
  }
  EXPECT_THAT(error_of(one_tensor({"a", {17}, 0, data})),
              HasSubstr("tensor a: got 68 bytes of data at offset 0, expected data inside the 64 bytes of "
                        "the data section"));
  EXPECT_THAT(error_of(one_tensor({"a", {1u << 31, 1u << 31, 1u << 31, 4}, 0, data})),
              HasSubstr("tensor a: got 18446744073709551615 bytes of data"));
  EXPECT_THAT(error_of(one_tensor({"a", {std::uint64_t{1} << 62, 4}, 0, data})),
              HasSubstr("tensor a: got 18446744073709551615 bytes"));
  EXPECT_THAT(error_of(one_tensor({"a", {8}, 0, data, 4})),
              HasSubstr("tensor a: got data at offset 4, expected a multiple of 32"));
  EXPECT_THAT(error_of(one_tensor({"a", {8}, 0, data, 64})),
              HasSubstr("tensor a: got 32 bytes of data at offset 64"));
  EXPECT_THAT(error_of(one_tensor({"a", {8}, 0, data, UINT64_MAX - 31})),
              HasSubstr("tensor a: got 32 bytes of data at offset 18446744073709551584"));
  W two = one_tensor({"a", {16}, 0, data});
  two.tensors.push_back({"b", {16}, 0, data, 32});
  EXPECT_THAT(error_of(two),
              HasSubstr("tensor b: got data at offset 32, expected no overlap with a, which ends at 64"));
  two.tensors[1].offset = 64;
  EXPECT_EQ(error_of(two), "no error");
}

TEST(Gguf, RefusesABadAlignment) {
  const auto with = [](std::uint32_t alignment) {
    W writer;
    writer.add("general.alignment", alignment);
    return error_of(writer);
  };
  EXPECT_EQ(with(1), "no error");
  EXPECT_THAT(with(0), HasSubstr("metadata general.alignment: got 0"));
  EXPECT_THAT(with(24), HasSubstr("metadata general.alignment: got 24, expected a power of two"));
  EXPECT_THAT(with(1u << 31), HasSubstr("metadata general.alignment: got 2147483648"));
  W writer;
  writer.add("general.alignment", "wide");
  EXPECT_THAT(error_of(writer), HasSubstr("metadata general.alignment: got a string"));
}

}  // namespace
}  // namespace speclab::gguf_test
