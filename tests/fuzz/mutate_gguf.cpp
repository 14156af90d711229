#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/fuzz/mutate.h"

namespace speclab::fuzz {
namespace {

/// A GGUF file split into its parts without validation; `rest` holds the bytes that do not fit the format.
struct Parts {
  std::uint32_t version = 3;
  struct Key {
    std::string name;
    std::uint32_t type;
    std::string value;  // bytes of the file
  };
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> sizes;  // innermost first
    std::uint32_t type;
    std::uint64_t offset;
  };
  std::vector<Key> keys;
  std::vector<Tensor> tensors;
  std::string data;
};

constexpr std::uint32_t kBool = 7, kString = 8, kArray = 9, kTypes = 13;
constexpr std::size_t kValueBytes[kTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_string(std::string& bytes, const std::string& text) {
  append(bytes, std::uint64_t{text.size()});
  bytes += text;
}

/// Reads from the front; after a failure it returns zeros.
class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}
  bool failed() const { return failed_; }
  std::size_t at() const { return at_; }

  std::string take(std::uint64_t size) {
    failed_ = failed_ || size > file_.size() - at_;
    if (failed_) return {};
    const std::string out = file_.substr(at_, size);
    at_ += size;
    return out;
  }
  template <typename T>
  T number() {
    T value{};
    const std::string bytes = take(sizeof value);
    if (!failed_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string string() { return take(number<std::uint64_t>()); }

  void skip_value(std::uint32_t type, int depth = 0) {
    failed_ = failed_ || type >= kTypes || depth > 20;
    if (failed_) return;
    if (type == kString) {
      string();
    } else if (type != kArray) {
      take(kValueBytes[type]);
    } else {
      const auto element = number<std::uint32_t>();
      const auto count = number<std::uint64_t>();
      for (std::uint64_t i = 0; i < count && !failed_; ++i) skip_value(element, depth + 1);
    }
  }

 private:
  const std::string& file_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

std::uint64_t alignment_of(const Parts& parts) {
  std::uint64_t alignment = 32;
  for (const Parts::Key& key : parts.keys) {
    if (key.name == "general.alignment" && key.type == 4 && key.value.size() == 4) {
      std::uint32_t value = 0;
      std::memcpy(&value, key.value.data(), sizeof value);
      if (value > 0 && value <= 4096) alignment = value;
    }
  }
  return alignment;
}

std::size_t aligned(std::size_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

/// False when the file does not follow the format up to its data.
bool take_apart(const std::string& file, Parts& parts) {
  Reader reader(file);
  if (reader.take(4) != "GGUF") return false;
  parts.version = reader.number<std::uint32_t>();
  const auto tensors = reader.number<std::uint64_t>(), keys = reader.number<std::uint64_t>();
  for (std::uint64_t i = 0; i < keys && !reader.failed(); ++i) {
    Parts::Key key{reader.string(), reader.number<std::uint32_t>(), {}};
    const std::size_t from = reader.at();
    reader.skip_value(key.type);
    key.value = file.substr(from, reader.at() - from);
    parts.keys.push_back(std::move(key));
  }
  for (std::uint64_t i = 0; i < tensors && !reader.failed(); ++i) {
    Parts::Tensor tensor{reader.string(), {}, 0, 0};
    const auto dimensions = reader.number<std::uint32_t>();
    for (std::uint32_t k = 0; k < dimensions && !reader.failed(); ++k)
      tensor.sizes.push_back(reader.number<std::uint64_t>());
    tensor.type = reader.number<std::uint32_t>();
    tensor.offset = reader.number<std::uint64_t>();
    parts.tensors.push_back(std::move(tensor));
  }
  if (reader.failed()) return false;
  const std::size_t start = aligned(reader.at(), alignment_of(parts));
  if (start < file.size()) parts.data = file.substr(start);
  return true;
}

std::string put_together(const Parts& parts, std::uint64_t more_tensors, std::uint64_t more_keys) {
  std::string out = "GGUF";
  append(out, parts.version);
  append(out, parts.tensors.size() + more_tensors);
  append(out, parts.keys.size() + more_keys);
  for (const Parts::Key& key : parts.keys) {
    append_string(out, key.name);
    append(out, key.type);
    out += key.value;
  }
  for (const Parts::Tensor& tensor : parts.tensors) {
    append_string(out, tensor.name);
    append(out, static_cast<std::uint32_t>(tensor.sizes.size()));
    for (const std::uint64_t size : tensor.sizes) append(out, size);
    append(out, tensor.type);
    append(out, tensor.offset);
  }
  out.resize(aligned(out.size(), alignment_of(parts)));
  return out + parts.data;
}

std::uint64_t extreme_number(Random& random) {
  static constexpr std::uint64_t kNumbers[] = {0,
                                               1,
                                               2,
                                               3,
                                               4,
                                               24,
                                               31,
                                               32,
                                               33,
                                               256,
                                               65'536,
                                               1u << 30,
                                               1u << 31,
                                               UINT32_MAX,
                                               UINT64_C(1) << 32,
                                               (UINT64_C(1) << 61) + 1,
                                               UINT64_C(1) << 62,
                                               INT64_MAX,
                                               UINT64_C(1) << 63,
                                               UINT64_MAX - 31,
                                               UINT64_MAX};
  return kNumbers[below(random, std::size(kNumbers))];
}

std::string number_bytes(std::uint64_t number, std::size_t bytes) {
  return std::string(reinterpret_cast<const char*>(&number), bytes);
}

std::string random_value(std::uint32_t type, Random& random, int depth = 0) {
  std::string out;
  if (type == kString) {
    append_string(out, std::string(below(random, 6), static_cast<char>(random())));
  } else if (type == kArray) {
    const auto element = static_cast<std::uint32_t>(depth > 9 ? 0 : below(random, kTypes));
    const std::uint64_t count = below(random, 5);
    append(out, element);
    append(out, below(random, 20) == 0 ? extreme_number(random) : count);
    for (std::uint64_t i = 0; i < count; ++i) out += random_value(element, random, depth + 1);
  } else if (type < kTypes) {
    out = number_bytes(type == kBool ? below(random, 2) : extreme_number(random), kValueBytes[type]);
  }
  return out;
}

void change_key(Parts& parts, Random& random, const MutateBytes& bytes) {
  if (parts.keys.empty()) {
    parts.keys.push_back({"general.alignment", 4, number_bytes(64, 4)});
    return;
  }
  Parts::Key& key = parts.keys[below(random, parts.keys.size())];
  switch (below(random, 8)) {
    case 0: bytes(key.name); break;
    case 1:
      key.type = static_cast<std::uint32_t>(below(random, kTypes + 1));
      key.value = random_value(key.type, random);
      break;
    case 2: {
      const Parts::Key copy = key;
      parts.keys.push_back(copy);
      if (below(random, 4) != 0) parts.keys.back().name += "2";
      break;
    }
    case 3:
      parts.keys.erase(parts.keys.begin() + static_cast<std::ptrdiff_t>(below(random, parts.keys.size())));
      break;
    case 4: parts.keys.push_back({"general.alignment", 4, number_bytes(extreme_number(random), 4)}); break;
    case 5:  // the value of another key
      key = {key.name, parts.keys[below(random, parts.keys.size())].type, {}};
      key.value = random_value(key.type, random);
      break;
    default:
      if (key.type < kTypes && kValueBytes[key.type] > 0 && below(random, 2) == 0) {
        key.value = number_bytes(extreme_number(random), kValueBytes[key.type]);
      } else if (key.type == kString && key.value.size() >= 8) {
        std::string text = key.value.substr(8);
        bytes(text);
        key.value.clear();
        append_string(key.value, text);
      } else {
        bytes(key.value);  // of an array: its type, its length or its elements
      }
  }
}

void change_tensor(Parts& parts, Random& random, const MutateBytes& bytes) {
  if (parts.tensors.empty()) {
    parts.tensors.push_back({"a", {4}, 0, 0});
    parts.data.resize(std::max<std::size_t>(parts.data.size(), 16));
    return;
  }
  Parts::Tensor& tensor = parts.tensors[below(random, parts.tensors.size())];
  switch (below(random, 9)) {
    case 0: bytes(tensor.name); break;
    case 1: tensor.type = static_cast<std::uint32_t>(below(random, 42)); break;
    case 2: tensor.offset = below(random, 2) == 0 ? extreme_number(random) : 32 * below(random, 64); break;
    case 3: tensor.sizes.push_back(below(random, 2) == 0 ? 1 : extreme_number(random)); break;
    case 4:
      if (!tensor.sizes.empty()) tensor.sizes.pop_back();
      break;
    case 5: {
      const Parts::Tensor copy = tensor;
      parts.tensors.push_back(copy);
      if (below(random, 4) != 0) parts.tensors.back().name += "2";
      break;
    }
    case 6:
      parts.tensors.erase(parts.tensors.begin() +
                          static_cast<std::ptrdiff_t>(below(random, parts.tensors.size())));
      break;
    case 7: std::swap(tensor.name, parts.tensors[below(random, parts.tensors.size())].name); break;
    default:
      if (!tensor.sizes.empty()) tensor.sizes[below(random, tensor.sizes.size())] = extreme_number(random);
  }
}

}  // namespace

std::string mutate_gguf(const std::string& file, Random& random, const MutateBytes& bytes) {
  Parts parts;
  if (!take_apart(file, parts)) {
    if (below(random, 2) == 0) {
      std::string out = file;
      bytes(out);
      return out;
    }
    parts = {};
    parts.tensors.push_back({"a", {4}, 0, 0});
    parts.data.resize(32);
  }
  for (std::size_t i = 0, n = 1 + below(random, 3); i < n; ++i) {
    switch (below(random, 8)) {
      case 0: bytes(parts.data); break;
      case 1:
        parts.data.resize(below(random, 3) == 0 ? parts.data.size() / 2
                                                : std::min<std::size_t>(2 * parts.data.size(), 1 << 15));
        break;
      case 2:
      case 3:
      case 4: change_key(parts, random, bytes); break;
      default: change_tensor(parts, random, bytes);
    }
  }
  if (below(random, 50) == 0) parts.version = static_cast<std::uint32_t>(extreme_number(random));
  const bool miscount = below(random, 30) == 0;
  return put_together(parts, miscount ? extreme_number(random) : 0,
                      miscount && below(random, 2) == 0 ? 1 : 0);
}

}  // namespace speclab::fuzz
