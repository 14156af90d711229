#pragma once

#include <optional>

#include "core/backend/backend.h"

namespace speclab {

/// The speed of the device if SPECLAB_DEVICE_SPEED in the environment gives it. A run then does not measure
/// the speed and saves about a second. The value has two numbers: bytes per second from memory and operations
/// per second, for example "2e10,4e11". No value if the variable is empty or not set. Throws Error for any
/// other text.
std::optional<DeviceSpeed> given_speed();

}  // namespace speclab
