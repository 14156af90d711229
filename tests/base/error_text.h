#pragma once

#include <functional>
#include <string>

#include "core/base/error.h"

namespace speclab::fixtures {

/// The message of the Error that `action` throws, or "no error".
inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace speclab::fixtures
