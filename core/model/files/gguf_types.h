#pragma once

#include <cstdint>
#include <optional>

#include "core/model/files/dequantize.h"

namespace speclab {

/// A tensor type of GGUF. An unsupported type has a name but no `type`; an unknown number has neither.
struct GgmlType {
  const char* name;  ///< null: unknown
  std::optional<TensorType> type;
};

/// The type with this number in the file.
GgmlType ggml_type(std::uint32_t number);

}  // namespace speclab
