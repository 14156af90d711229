#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/model/files/dequantize.h"

namespace speclab {

/// A tensor as a file declares it. The reader has checked that `data` lies inside the file and has exactly
/// the size that shape and type require. The bytes belong to the file and may be unaligned.
struct StoredTensor {
  std::string name;
  std::string type_name;            ///< the format's name of the type, also if it is unsupported
  std::optional<TensorType> type;   ///< absent for a type that TensorType does not have
  std::vector<std::int64_t> shape;  ///< outermost first
  std::span<const std::byte> data;
};

}  // namespace speclab
