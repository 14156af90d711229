#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace speclab {

/// A vocabulary id, 0 <= token < vocabulary size of the model that it belongs to.
using Token = std::int32_t;
using TokenSpan = std::span<const Token>;

}  // namespace speclab
