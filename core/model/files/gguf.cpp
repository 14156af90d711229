#include "core/model/files/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::array<const char*, kGgufTypes> kValueNames{
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

}  // namespace

const GgufValue& GgufFile::at(std::string_view key, const char* expected) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) {
    throw Error({.what = fmt::format("{}: metadata {}", name_, key),
                 .got = "no such key",
                 .expected = expected,
                 .advice = "The file is incomplete; convert or fetch the model again."});
  }
  return found->second;
}

template <typename T>
const T& GgufFile::get(std::string_view key, const char* expected) const {
  const GgufValue& value = at(key, expected);
  if (const T* typed = std::get_if<T>(&value)) return *typed;
  constexpr std::array<const char*, 6> names{"an integer", "an integer", "a float",
                                             "a bool",     "a string",   "an array"};
  throw Error({.what = fmt::format("{}: metadata {}", name_, key),
               .got = names.at(value.index()),
               .expected = expected,
               .advice = "The file is of another kind or damaged; convert or fetch the model again."});
}

std::int64_t GgufFile::integer(std::string_view key, std::int64_t least, std::int64_t most) const {
  const GgufValue& value = at(key, "an integer");
  const std::uint64_t* large = std::get_if<std::uint64_t>(&value);
  const std::int64_t number = large == nullptr     ? get<std::int64_t>(key, "an integer")
                              : *large > INT64_MAX ? INT64_MAX
                                                   : static_cast<std::int64_t>(*large);
  if (number < least || number > most) {
    throw Error({.what = fmt::format("{}: metadata {}", name_, key),
                 .got = large != nullptr ? fmt::format("{}", *large) : fmt::format("{}", number),
                 .expected = fmt::format("a number from {} to {}", least, most),
                 .advice = ""});
  }
  return number;
}

double GgufFile::real(std::string_view key) const { return get<double>(key, "a float"); }
bool GgufFile::flag(std::string_view key) const { return get<bool>(key, "a bool"); }
std::string_view GgufFile::text(std::string_view key) const { return get<std::string_view>(key, "a string"); }
const GgufArray& GgufFile::array(std::string_view key) const { return get<GgufArray>(key, "an array"); }

namespace {

template <typename T>
T element(std::span<const std::byte> bytes, std::uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

bool GgufArray::holds_integers() const {
  return element_type <= kGgufI32 || element_type == kGgufU64 || element_type == kGgufI64;
}
bool GgufArray::holds_reals() const { return element_type == kGgufF32 || element_type == kGgufF64; }

std::int64_t GgufArray::integer(std::uint64_t i) const {
  SPECLAB_CHECK(i < count, "element {} of {}", i, count);
  switch (element_type) {
    case kGgufU8: return element<std::uint8_t>(bytes, i);
    case kGgufI8: return element<std::int8_t>(bytes, i);
    case kGgufU16: return element<std::uint16_t>(bytes, i);
    case kGgufI16: return element<std::int16_t>(bytes, i);
    case kGgufU32: return element<std::uint32_t>(bytes, i);
    case kGgufI32: return element<std::int32_t>(bytes, i);
    case kGgufU64:
      return static_cast<std::int64_t>(std::min<std::uint64_t>(element<std::uint64_t>(bytes, i), INT64_MAX));
    case kGgufI64: return element<std::int64_t>(bytes, i);
    default: SPECLAB_CHECK(false, "an array of {}", kValueNames.at(element_type)); return 0;
  }
}

double GgufArray::real(std::uint64_t i) const {
  SPECLAB_CHECK(i < count && holds_reals(), "element {} of {}, of type {}", i, count,
                kValueNames.at(element_type));
  return element_type == kGgufF32 ? element<float>(bytes, i) : element<double>(bytes, i);
}

}  // namespace speclab
