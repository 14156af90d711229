#include "core/model/files/safetensors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_text.h"

namespace speclab {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the limit of the format's reference reader
// These limits are far above real files. They hold for tensors, entries of __metadata__, dimensions, and
// bytes of a name or text. Without them, a file with nothing but a header could take twenty times its size in
// memory.
constexpr JsonLimits kHeaderLimits{
    .depth = 4, .members = 65'536, .inner_members = 4096, .items = 8, .token_bytes = 1 << 20};
constexpr const char* kFetchWhole = "The file is damaged or not safetensors; fetch it again.";

struct Dtype {
  int bytes;
  std::optional<TensorType> type;
};

const std::map<std::string, Dtype, std::less<>>& dtypes() {
  static const std::map<std::string, Dtype, std::less<>> table{{"F32", {4, TensorType::kF32}},
                                                               {"F16", {2, TensorType::kF16}},
                                                               {"BF16", {2, TensorType::kBf16}},
                                                               {"I32", {4, TensorType::kI32}},
                                                               {"BOOL", {1, {}}},
                                                               {"U8", {1, {}}},
                                                               {"I8", {1, {}}},
                                                               {"F8_E5M2", {1, {}}},
                                                               {"F8_E4M3", {1, {}}},
                                                               {"F8_E8M0", {1, {}}},
                                                               {"I16", {2, {}}},
                                                               {"U16", {2, {}}},
                                                               {"U32", {4, {}}},
                                                               {"F64", {8, {}}},
                                                               {"I64", {8, {}}},
                                                               {"U64", {8, {}}},
                                                               {"C64", {8, {}}}};
  return table;
}

/// Reads a list of non-negative integers. Throws Error naming `what` for any other value.
std::vector<std::uint64_t> numbers(const Json& value, const std::string& what) {
  const auto fail = [&](std::string got) {
    throw Error(
        {.what = what, .got = std::move(got), .expected = "a list of whole numbers", .advice = kFetchWhole});
  };
  if (!value.is_array()) fail(fmt::format("a JSON {}", json_type_name(value)));
  std::vector<std::uint64_t> out;
  for (const Json& item : value) {
    if (!item.is_number_unsigned())
      fail(fmt::format("a JSON {} that is no whole number", json_type_name(item)));
    out.push_back(item.get<std::uint64_t>());
  }
  return out;
}

StoredTensor read_entry(const std::string& tensor_name, const Json& json, std::span<const std::byte> data,
                        const std::string& file_name) {
  const std::string what = fmt::format("{}: tensor {}", file_name, tensor_name);
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() || !json.contains("shape") ||
      !json.contains("data_offsets") || json.size() != 3) {
    throw Error({.what = what,
                 .got = fmt::format("a JSON {} with {} members", json_type_name(json), json.size()),
                 .expected = "an object of dtype, shape and data_offsets",
                 .advice = kFetchWhole});
  }
  const std::string dtype = json["dtype"].get<std::string>();
  const auto known = dtypes().find(dtype);
  if (known == dtypes().end()) {
    throw Error({.what = what,
                 .got = "dtype \"" + dtype + "\"",
                 .expected = "F32, F16 or BF16",
                 .advice = "Convert the model to one of these."});
  }
  const auto shape = numbers(json["shape"], what + ": shape");
  const auto offsets = numbers(json["data_offsets"], what + ": data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data.size()) {
    throw Error({.what = what + ": data_offsets",
                 .got = fmt::format("[{}]", fmt::join(offsets, ", ")),
                 .expected = fmt::format("begin <= end <= {}, the bytes after the header", data.size()),
                 .advice = "The file is truncated or damaged; fetch it again."});
  }
  std::uint64_t bytes = static_cast<std::uint64_t>(known->second.bytes);
  bool fits = true;
  for (const std::uint64_t size : shape) {
    fits = fits && size <= INT64_MAX && !__builtin_mul_overflow(bytes, size, &bytes);
  }
  if (!fits || bytes != offsets[1] - offsets[0]) {
    throw Error({.what = what,
                 .got = fmt::format("{} bytes", offsets[1] - offsets[0]),
                 .expected = fmt::format("the size of {} [{}]", dtype, fmt::join(shape, ", ")),
                 .advice = kFetchWhole});
  }
  return {
      tensor_name, dtype, known->second.type, {shape.begin(), shape.end()}, data.subspan(offsets[0], bytes)};
}

}  // namespace

std::vector<StoredTensor> read_safetensors(std::span<const std::byte> file, const std::string& name) {
  if (file.size() < kLengthBytes) {
    throw Error({.what = name,
                 .got = fmt::format("{} bytes", file.size()),
                 .expected = "a safetensors file, which has at least 8",
                 .advice = "The file is truncated; fetch it again."});
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  const std::uint64_t room = std::min<std::uint64_t>(file.size() - kLengthBytes, kMaxHeader);
  if (length > room) {
    throw Error({.what = name + ": header length",
                 .got = fmt::format("{} bytes", length),
                 .expected = fmt::format("at most {} in a file of {} bytes", room, file.size()),
                 .advice = "The file is truncated or not safetensors; fetch it again."});
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + length);
  std::vector<StoredTensor> tensors;
  parse_json_members(header, name + ": header", kHeaderLimits,
                     [&](const std::string& tensor_name, const Json& entry) {
                       if (tensor_name != "__metadata__")
                         tensors.push_back(read_entry(tensor_name, entry, data, name));
                     });
  const auto begin_of = [&](const StoredTensor& tensor) {
    return static_cast<std::uint64_t>(tensor.data.data() - data.data());
  };
  std::sort(tensors.begin(), tensors.end(), [&](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(begin_of(a), a.data.size()) < std::pair(begin_of(b), b.data.size());
  });
  std::uint64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    if (begin_of(tensor) != at) {
      throw Error(
          {.what = fmt::format("{}: tensor {}", name, tensor.name),
           .got = fmt::format("data from byte {}", begin_of(tensor)),
           .expected = fmt::format("byte {}, where the tensor before it ends", at),
           .advice = "Tensors overlap or leave a hole; write the file again with a safetensors library."});
    }
    at += tensor.data.size();
  }
  if (at != data.size()) {
    throw Error({.what = name,
                 .got = fmt::format("{} bytes of data", data.size()),
                 .expected = fmt::format("{}, the end of the last tensor", at),
                 .advice = kFetchWhole});
  }
  return tensors;
}

}  // namespace speclab
