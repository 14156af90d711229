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

/// Types of metadata values. The numbers are those in the file.
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

/// An array in GGUF metadata. Strings are listed; numbers and bools stay as bytes of the file. Arrays of
/// arrays are only checked and counted, because no supported model has any.
struct GgufArray {
  std::uint32_t element_type;  ///< a GgufType
  std::uint64_t count;
  std::vector<std::string_view> strings;  ///< for an array of strings
  std::span<const std::byte> bytes;       ///< for an array of numbers or bools; little-endian, unaligned

  /// Element i of an array of integers of any width; a u64 above INT64_MAX becomes INT64_MAX. Throws Bug for
  /// another array.
  std::int64_t integer(std::uint64_t i) const;
  /// Element i of an array of f32 or f64; throws Bug for another array.
  double real(std::uint64_t i) const;
  bool holds_integers() const;
  bool holds_reals() const;
};

/// A value of the metadata: a signed or unsigned integer, f32 or f64, a bool, a string or an array.
using GgufValue = std::variant<std::int64_t, std::uint64_t, double, bool, std::string_view, GgufArray>;

/// Parses a GGUF file, version 2 or 3, little-endian
/// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): header, metadata, tensor descriptions,
/// aligned data. Views refer to the file's bytes.
class GgufFile {
 public:
  /// Throws Error naming `name` and the place if the file breaks the format. Examples are a wrong magic or
  /// version, counts and lengths beyond the file, unknown value types, duplicate keys or tensors, names that
  /// are not UTF-8, a dimension of zero or more than four dimensions, unsupported tensor types, rows that are
  /// not whole blocks, and data that is misaligned, overlapping or outside the file. Also throws for more
  /// than 4,096 keys, 32,768 tensors or 65,535 bytes of a name.
  static GgufFile parse(std::span<const std::byte> file, std::string name);

  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  /// The tensors. Shapes are outermost first (the file has them innermost first).
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  bool has(std::string_view key) const { return metadata_.contains(key); }
  /// Typed access. Throws Error naming file and key when the key is absent, has
  /// another type, or is out of range.
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
