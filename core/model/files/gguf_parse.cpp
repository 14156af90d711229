#include "core/model/files/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/model/files/gguf_types.h"

namespace speclab {
namespace {

constexpr std::array<std::uint64_t, kGgufTypes> kValueBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

constexpr std::uint64_t kDefaultAlignment = 32;
constexpr int kMaxNesting = 8;
// These limits are far above real models. In memory a key takes up to about 9 times the bytes that it has in
// the file. Without the limit, a large file that holds only keys would take 9 times its size. A tensor takes
// little more than 4 times the bytes of its description.
constexpr std::uint64_t kMostKeys = 4096, kMostTensors = 32'768;
constexpr std::uint64_t kMostNameBytes =
    65'535;  // the format's limit for keys; its limit for names of tensors is 64
constexpr const char* kFetchAgain = "The file is truncated or damaged; fetch it again.";

/// Reads the file from front to back and never past its end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {}

  std::uint64_t offset() const { return at_; }
  std::uint64_t left() const { return file_.size() - at_; }

  [[noreturn]] void fail(const std::string& where, std::string got, std::string expected,
                         std::string advice = kFetchAgain) const {
    throw Error({.what = fmt::format("{}: {}", name_, where),
                 .got = std::move(got),
                 .expected = std::move(expected),
                 .advice = std::move(advice)});
  }

  std::span<const std::byte> take(std::uint64_t bytes, const std::string& where) {
    if (bytes > left()) {
      fail(where, fmt::format("{} bytes from byte {} to the end of the file", left(), at_),
           fmt::format("{} bytes", bytes));
    }
    const auto out = file_.subspan(at_, bytes);
    at_ += bytes;
    return out;
  }

  template <typename T>
  T number(const std::string& where) {
    T value;
    std::memcpy(&value, take(sizeof(T), where).data(), sizeof(T));
    return value;
  }

  std::string_view string(const std::string& where) {
    const auto bytes = take(number<std::uint64_t>(where), where);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// Reads a key or a tensor's name.
  std::string_view name(const std::string& where) {
    const std::string_view text = string(where);
    if (text.size() > kMostNameBytes) {
      fail(where, fmt::format("a name of {} bytes", text.size()), fmt::format("at most {}", kMostNameBytes));
    }
    if (!is_utf8(text)) fail(where, "a name that is not UTF-8", "UTF-8");
    return text;
  }
  [[noreturn]] void fail_twice(const std::string& where, std::string_view name) const {
    fail(where, fmt::format("the name {} twice", name), "every name once");
  }

  std::uint32_t value_type(const std::string& where) {
    const auto type = number<std::uint32_t>(where);
    if (type >= kGgufTypes) fail(where, fmt::format("value type {}", type), "a type from 0 to 12");
    return type;
  }

 private:
  std::span<const std::byte> file_;
  const std::string& name_;
  std::uint64_t at_ = 0;
};

std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {  // saturates on overflow
  std::uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

GgufArray read_array(Cursor& cursor, const std::string& where, int depth) {
  if (depth > kMaxNesting)
    cursor.fail(where, "arrays in arrays", fmt::format("at most {} deep", kMaxNesting));
  GgufArray array{cursor.value_type(where), cursor.number<std::uint64_t>(where), {}, {}};
  if (array.element_type == kGgufString || array.element_type == kGgufArray) {
    const std::uint64_t least =
        array.element_type == kGgufString ? 8 : 12;  // bytes of the smallest possible element
    if (array.count > cursor.left() / least) {
      cursor.fail(where, fmt::format("an array of {} elements", array.count),
                  fmt::format("one that fits in the {} bytes left", cursor.left()));
    }
    if (array.element_type == kGgufString)
      array.strings.reserve(array.count);  // a growing vector holds two copies for a while
    for (std::uint64_t i = 0; i < array.count; ++i) {
      if (array.element_type == kGgufString) {
        array.strings.push_back(cursor.string(where));
      } else {
        read_array(cursor, where, depth + 1);
      }
    }
  } else {
    array.bytes = cursor.take(multiply(array.count, kValueBytes[array.element_type]), where);
  }
  return array;
}

bool read_bool(Cursor& cursor, const std::string& where) {
  const auto value = cursor.number<std::uint8_t>(where);
  if (value > 1) cursor.fail(where, fmt::format("the bool {}", value), "0 or 1");
  return value == 1;
}

GgufValue read_value(Cursor& cursor, const std::string& where) {
  switch (cursor.value_type(where)) {
    case kGgufU8: return std::uint64_t{cursor.number<std::uint8_t>(where)};
    case kGgufI8: return std::int64_t{cursor.number<std::int8_t>(where)};
    case kGgufU16: return std::uint64_t{cursor.number<std::uint16_t>(where)};
    case kGgufI16: return std::int64_t{cursor.number<std::int16_t>(where)};
    case kGgufU32: return std::uint64_t{cursor.number<std::uint32_t>(where)};
    case kGgufI32: return std::int64_t{cursor.number<std::int32_t>(where)};
    case kGgufF32: return double{cursor.number<float>(where)};
    case kGgufBool: return read_bool(cursor, where);
    case kGgufString: {
      const std::string_view text = cursor.string(where);
      if (!is_utf8(text)) cursor.fail(where, "a string that is not UTF-8", "UTF-8");
      return text;
    }
    case kGgufArray: return read_array(cursor, where, 1);
    case kGgufU64: return cursor.number<std::uint64_t>(where);
    case kGgufI64: return cursor.number<std::int64_t>(where);
    default: return cursor.number<double>(where);
  }
}

struct Description {
  std::string_view name;
  StoredTensor tensor;  // without its data
  std::uint64_t offset, bytes;
};

std::string name_of_tensor(std::uint64_t index) { return fmt::format("name of tensor {}", index); }

Description read_description(Cursor& cursor, std::uint64_t index) {
  Description out;
  out.name = cursor.name(name_of_tensor(index));
  out.tensor.name = out.name;
  const std::string where = "tensor " + out.tensor.name;
  const auto dimensions = cursor.number<std::uint32_t>(where);
  if (dimensions < 1 || dimensions > 4)
    cursor.fail(where, fmt::format("{} dimensions", dimensions), "1 to 4");
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    const auto size = cursor.number<std::uint64_t>(where);
    if (size == 0 || size > INT64_MAX)
      cursor.fail(where, fmt::format("a dimension of {}", size), "at least 1, below 2^63");
    out.tensor.shape.insert(out.tensor.shape.begin(), static_cast<std::int64_t>(size));
  }
  const auto id = cursor.number<std::uint32_t>(where);
  const GgmlType type = ggml_type(id);
  if (!type.type) {
    cursor.fail(where,
                type.name != nullptr ? fmt::format("type {}", type.name) : fmt::format("type number {}", id),
                weight_type_names(), "Convert the model to one of these types.");
  }
  out.tensor.type = type.type;
  out.tensor.type_name = type.name;
  const TensorTypeInfo& info = tensor_type_info(*type.type);
  const std::uint64_t row = static_cast<std::uint64_t>(out.tensor.shape.back());
  if (row % static_cast<std::uint64_t>(info.block) != 0) {
    cursor.fail(where, fmt::format("rows of {} weights", row),
                fmt::format("a multiple of {}, as {} needs", info.block, type.name));
  }
  out.bytes =
      multiply(row / static_cast<std::uint64_t>(info.block), static_cast<std::uint64_t>(info.block_bytes));
  for (std::size_t i = 0; i + 1 < out.tensor.shape.size(); ++i) {
    out.bytes = multiply(out.bytes, static_cast<std::uint64_t>(out.tensor.shape[i]));
  }
  out.offset = cursor.number<std::uint64_t>(where);
  return out;
}

/// Checks the descriptions of the tensors and moves the cursor behind them.
void pass_descriptions(Cursor& cursor, std::uint64_t count) {
  std::set<std::string_view> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view name = read_description(cursor, i).name;
    if (!names.insert(name).second) cursor.fail_twice(name_of_tensor(i), name);
  }
}

/// Reads the descriptions again and finds the bytes of each tensor. The place of the data is known only after
/// the last description. A list of descriptions, kept until then, would take as much memory as the result.
std::vector<StoredTensor> read_tensors(Cursor cursor, std::uint64_t count, std::span<const std::byte> data,
                                       std::uint64_t alignment) {
  std::vector<StoredTensor> tensors;
  tensors.reserve(count);  // a growing vector holds two copies for a while
  for (std::uint64_t i = 0; i < count; ++i) {
    Description entry = read_description(cursor, i);
    const std::string where = "tensor " + entry.tensor.name;
    if (entry.offset % alignment != 0) {
      cursor.fail(where, fmt::format("data at offset {}", entry.offset),
                  fmt::format("a multiple of {}", alignment));
    }
    if (entry.offset > data.size() || entry.bytes > data.size() - entry.offset) {
      cursor.fail(where, fmt::format("{} bytes of data at offset {}", entry.bytes, entry.offset),
                  fmt::format("data inside the {} bytes of the data section", data.size()));
    }
    entry.tensor.data = data.subspan(entry.offset, entry.bytes);
    tensors.push_back(std::move(entry.tensor));
  }
  const auto begin_of = [&](const StoredTensor& tensor) { return tensor.data.data() - data.data(); };
  const auto end_of = [&](const StoredTensor& tensor) {
    return begin_of(tensor) + static_cast<std::ptrdiff_t>(tensor.data.size());
  };
  std::vector<const StoredTensor*> order;
  order.reserve(count);
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [&](const auto* a, const auto* b) { return begin_of(*a) < begin_of(*b); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (begin_of(*order[i]) < end_of(*order[i - 1])) {
      cursor.fail(
          "tensor " + order[i]->name, fmt::format("data at offset {}", begin_of(*order[i])),
          fmt::format("no overlap with {}, which ends at {}", order[i - 1]->name, end_of(*order[i - 1])));
    }
  }
  return tensors;
}

void read_magic_and_version(Cursor& cursor) {
  const auto magic = cursor.take(4, "header");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
    std::string bytes;
    for (const std::byte byte : magic) bytes += fmt::format(" {:02x}", static_cast<int>(byte));
    cursor.fail("header", "a file that begins with the bytes" + bytes, "\"GGUF\"",
                "Give a GGUF file, or the directory of a Hugging Face model.");
  }
  const auto version = cursor.number<std::uint32_t>("header");
  if (version == 2 || version == 3) return;
  const bool big_endian = version == 2u << 24 || version == 3u << 24;
  cursor.fail("header", big_endian ? "a big-endian file" : fmt::format("GGUF version {}", version),
              "little-endian GGUF of version 2 or 3", "Convert the model again with a current tool.");
}

std::uint64_t read_count(Cursor& cursor, const char* what, std::uint64_t least_bytes, std::uint64_t most) {
  const std::string where = fmt::format("number of {}", what);
  const auto count = cursor.number<std::uint64_t>(where);
  if (count > cursor.left() / least_bytes) {
    cursor.fail(where, fmt::format("{}", count),
                fmt::format("as many as fit in the {} bytes left", cursor.left()));
  }
  if (count > most) {
    cursor.fail(where, fmt::format("{}", count), fmt::format("at most {}", most),
                "No real model has so many. The file is damaged, or made to exhaust the memory.");
  }
  return count;
}

}  // namespace

GgufFile GgufFile::parse(std::span<const std::byte> file, std::string name) {
  GgufFile out;
  out.name_ = std::move(name);
  Cursor cursor(file, out.name_);
  read_magic_and_version(cursor);
  const std::uint64_t tensor_count = read_count(
      cursor, "tensors", 32, kMostTensors);  // 32 bytes: a tensor without a name and with one dimension
  const std::uint64_t key_count = read_count(cursor, "metadata keys", 13, kMostKeys);

  for (std::uint64_t i = 0; i < key_count; ++i) {
    const std::string where = fmt::format("metadata key {}", i), key(cursor.name(where));
    if (out.has(key)) cursor.fail_twice(where, key);
    out.metadata_.emplace(key, read_value(cursor, "metadata " + key));
  }
  std::uint64_t alignment = kDefaultAlignment;
  if (out.has("general.alignment")) {
    alignment = static_cast<std::uint64_t>(out.integer("general.alignment", 1, 1 << 30));
    if (!std::has_single_bit(alignment)) {
      cursor.fail("metadata general.alignment", fmt::format("{}", alignment), "a power of two");
    }
  }
  const Cursor descriptions = cursor;
  pass_descriptions(cursor, tensor_count);

  const std::uint64_t start = (cursor.offset() + alignment - 1) / alignment * alignment;
  const auto data = start < file.size() ? file.subspan(start) : std::span<const std::byte>{};
  out.tensors_ = read_tensors(descriptions, tensor_count, data, alignment);
  return out;
}

}  // namespace speclab
