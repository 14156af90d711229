#pragma once

#include <functional>
#include <string>

#include "core/base/error.h"

namespace speclab::fixtures {

/// What the Error that `action` throws says, or "no error".
inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace speclab::fixtures
