#include "core/model/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/model/files/model_files.h"

namespace speclab::safetensors_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace speclab::fixtures;
using namespace std::string_literals;

std::vector<StoredTensor> read(const std::string& file) {
  return read_safetensors(std::as_bytes(std::span(file)), "f");
}

std::string error_of(const std::string& file) {
  try {
    read(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Json entry(const char* dtype, Json shape, Json offsets) {
  return {{"dtype", dtype}, {"shape", std::move(shape)}, {"data_offsets", std::move(offsets)}};
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::string file = safetensors_file(
      {{"b", entry("F32", {1, 2}, {0, 8})}, {"a", entry("BF16", {2}, {8, 12})}}, "12345678abcd");
  const auto tensors = read(file);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "b");
  EXPECT_THAT(tensors[0].shape, ElementsAre(1, 2));
  EXPECT_EQ(tensors[0].type, TensorType::kF32);
  EXPECT_EQ(tensors[1].type, TensorType::kBf16);
  EXPECT_EQ(tensors[1].type_name, "BF16");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensors[1].data.data()), tensors[1].data.size()),
            "abcd");
}

TEST(Safetensors, KnowsTheSizesOfTypesThatItCannotRead) {
  const auto tensors = read(safetensors_file({{"a", entry("I64", {2}, {0, 16})}}, std::string(16, 'x')));
  EXPECT_EQ(tensors.at(0).type, std::nullopt);
  EXPECT_EQ(tensors.at(0).type_name, "I64");
  const std::pair<const char*, int> sizes[] = {{"BOOL", 1},    {"U8", 1},      {"I8", 1},  {"F8_E5M2", 1},
                                               {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2},
                                               {"I32", 4},     {"U32", 4},     {"F64", 8}, {"U64", 8}};
  for (const auto& [dtype, bytes] : sizes) {
    EXPECT_EQ(
        error_of(safetensors_file({{"a", entry(dtype, {3}, {0, 3 * bytes})}}, std::string(3 * bytes, 'x'))),
        "no error")
        << dtype;
  }
}

TEST(Safetensors, AnEmptyTensorHasNoData) {
  EXPECT_EQ(read(safetensors_file({{"a", entry("F32", {0, 4}, {0, 0})}}, "")).at(0).data.size(), 0u);
  // Two tensors at the same byte are refused, in either order of names.
  EXPECT_EQ(error_of(safetensors_file({{"a", entry("F32", {1}, {0, 4})}, {"b", entry("F32", {0}, {0, 0})}},
                                      "1234")),
            "no error");
}

TEST(Safetensors, RefusesLengthsBeyondTheFile) {
  EXPECT_THAT(error_of("1234567"), AllOf(HasSubstr("f: got 7 bytes"), HasSubstr("truncated")));
  std::string file;
  append(file, std::uint64_t{3});
  EXPECT_THAT(error_of(file + "{}"), HasSubstr("f: header length: got 3 bytes, expected at most 2"));
  file.clear();
  append(file, UINT64_MAX);
  EXPECT_THAT(error_of(file + "{}"), HasSubstr("header length: got 18446744073709551615 bytes"));
}

TEST(Safetensors, RefusesAHeaderThatIsNotOneObject) {
  const auto header_error = [](const std::string& text) {
    std::string file;
    append(file, std::uint64_t{text.size()});
    return error_of(file + text);
  };
  EXPECT_EQ(header_error("{}      "), "no error");
  EXPECT_THAT(header_error("{} x"), HasSubstr("f: header: line 1, column 4"));
  EXPECT_THAT(header_error("{}\0"s), HasSubstr("f: header: line 1, column 3"));
  EXPECT_THAT(header_error("[]"), HasSubstr("header: got a JSON array, expected a JSON object"));
  EXPECT_THAT(header_error("{\"a\":"), HasSubstr("header: line 1, column 6"));
  EXPECT_THAT(header_error("{\"\xff\": 1}"), HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(header_error(R"({"__metadata__": {}, "__metadata__": {}})"),
              HasSubstr("got the key \"__metadata__\" twice"));
  EXPECT_THAT(header_error(R"({"a": 5})"), HasSubstr("f: tensor a: got a JSON number"));
  EXPECT_THAT(header_error(R"({"a": {}})"), HasSubstr("f: tensor a: got a JSON object with 0 members"));
  EXPECT_THAT(header_error(R"({"a": {"dtype": 1, "shape": [], "data_offsets": [0, 4]}})"),
              HasSubstr("tensor a"));
  EXPECT_THAT(header_error(R"({"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0], "x": 1}})"),
              HasSubstr("tensor a: got a JSON object with 4 members"));
  EXPECT_THAT(header_error(std::string(50'000, '[')), HasSubstr("f: header: got a JSON array"));
  EXPECT_THAT(header_error("{\"a\": " + std::string(50'000, '[')),
              HasSubstr("f: header: got arrays and objects more than 4 deep"));
}

TEST(Safetensors, RefusesBadShapesAndOffsets) {
  const auto one = [](Json tensor, const std::string& data = "12345678") {
    return error_of(safetensors_file({{"a", tensor}}, data));
  };
  EXPECT_EQ(one(entry("F32", {2}, {0, 8})), "no error");
  EXPECT_THAT(one(entry("Q9", {2}, {0, 8})),
              HasSubstr("tensor a: got dtype \"Q9\", expected F32, F16 or BF16"));
  EXPECT_THAT(one(entry("F32", {3}, {0, 8})),
              HasSubstr("tensor a: got 8 bytes, expected the size of F32 [3]"));
  EXPECT_THAT(one(entry("F32", {-2}, {0, 8})),
              HasSubstr("tensor a: shape: got a JSON number that is no whole number"));
  EXPECT_THAT(one(entry("F32", {1.5}, {0, 8})), HasSubstr("tensor a: shape"));
  EXPECT_THAT(one(entry("F32", 2, {0, 8})), HasSubstr("tensor a: shape: got a JSON number"));
  EXPECT_THAT(one(entry("F32", {2}, {0, 9})),
              HasSubstr("data_offsets: got [0, 9], expected begin <= end <= 8"));
  EXPECT_THAT(one(entry("F32", {2}, {8, 0})), HasSubstr("data_offsets: got [8, 0]"));
  EXPECT_THAT(one(entry("F32", {2}, {0})), HasSubstr("data_offsets: got [0]"));
  // Products that overflow 64 bits must not come out as the right size.
  EXPECT_THAT(one(entry("F32", {1ull << 62, 4, 2}, {0, 8})),
              HasSubstr("expected the size of F32 [4611686018427387904, 4, 2]"));
  EXPECT_THAT(one(entry("F32", {1ull << 63, 2}, {0, 0})), HasSubstr("expected the size of F32"));
  EXPECT_THAT(one(entry("F32", {1ull << 62}, {0, 0}), ""), HasSubstr("expected the size of F32"));
}

TEST(Safetensors, DataMustBeContiguousAndEndWithTheFile) {
  const auto two = [](Json first, Json second, std::size_t size) {
    return error_of(safetensors_file({{"a", entry("U8", {4}, first)}, {"b", entry("U8", {4}, second)}},
                                     std::string(size, 'x')));
  };
  EXPECT_EQ(two({0, 4}, {4, 8}, 8), "no error");
  EXPECT_THAT(two({0, 4}, {2, 6}, 8), HasSubstr("tensor b: got data from byte 2, expected byte 4"));
  EXPECT_THAT(two({0, 4}, {5, 9}, 9), HasSubstr("tensor b: got data from byte 5, expected byte 4"));
  EXPECT_THAT(two({1, 5}, {5, 9}, 9), HasSubstr("tensor a: got data from byte 1, expected byte 0"));
  EXPECT_THAT(two({0, 4}, {4, 8}, 9),
              HasSubstr("f: got 9 bytes of data, expected 8, the end of the last tensor"));
}

}  // namespace
}  // namespace speclab::safetensors_test
