#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/model/files/stored_tensor.h"

namespace speclab {

/// Types of metadata values, by their numbers in the file.
enum GgufType : std::uint32_t {
  kGgufU8,
  kGgufI8,
  kGgufU16,
  kGgufI16,
  kGgufU32,
  kGgufI32,
  kGgufF32,
  kGgufBool,
  kGgufString,
  kGgufArray,
  kGgufU64,
  kGgufI64,
  kGgufF64,
  kGgufTypes
};

/// An array in GGUF metadata. Strings are listed, numbers and bools stay as the bytes of the file; arrays of
/// arrays are only checked and counted, because no model that we read has any.
struct GgufArray {
  std::uint32_t element_type;  ///< a GgufType
  std::uint64_t count;
  std::vector<std::string_view> strings;  ///< of an array of strings
  std::span<const std::byte> bytes;       ///< of an array of numbers or bools, little-endian, unaligned

  /// Element i of an array of integers of any width. Bug when it is not one.
  std::int64_t integer(std::uint64_t i) const;
  /// Element i of an array of f32 or f64.
  double real(std::uint64_t i) const;
  bool holds_integers() const;
  bool holds_reals() const;
};

/// Signed and unsigned integers, f32 and f64, bool, string, array.
using GgufValue = std::variant<std::int64_t, std::uint64_t, double, bool, std::string_view, GgufArray>;

/// A GGUF file, version 2 or 3, little-endian (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md):
/// header, metadata, tensor descriptions, aligned data. Views borrow from the file's bytes.
class GgufFile {
 public:
  /// Throws Error naming `name` and the byte where the file breaks the format: foreign magic or version,
  /// counts and lengths beyond the file, unknown value types, keys or tensors twice, names that are not
  /// UTF-8, dimensions of zero or more than four, tensor types that cannot be read, rows that are no whole
  /// blocks, data that is misaligned, overlapping or outside; and for more than 4,096 keys, 32,768 tensors or
  /// 65,535 bytes of a name.
  static GgufFile parse(std::span<const std::byte> file, std::string name);

  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  /// Shapes are outermost first (the file lists them innermost first).
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  bool has(std::string_view key) const { return metadata_.contains(key); }
  /// Typed access: Error naming file and key when it is absent, of another type, or out of range.
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) const;
  double real(std::string_view key) const;
  bool flag(std::string_view key) const;
  std::string_view text(std::string_view key) const;
  const GgufArray& array(std::string_view key) const;

 private:
  template <typename T>
  const T& get(std::string_view key, const char* expected) const;
  const GgufValue& at(std::string_view key, const char* expected) const;

  std::string name_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace speclab
