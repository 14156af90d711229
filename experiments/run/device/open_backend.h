#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/backend/backend_choice.h"
#include "experiments/run/device/self_test.h"

namespace speclab {

/// Called with a line for the user.
using SayLine = std::function<void(const std::string&)>;

/// Makes the backend of a command that generates or measures texts. If --backend auto takes a GPU, `say` gets
/// a line about it (chosen_gpu_text()). Before the device is used, its self-test runs if needs_self_test(),
/// once for each program, device and driver (experiments/run/device/tested_devices.h). Throws Error as
/// make_backend() does, if the self-test finds something wrong, and for --self-test on with the CPU: devices
/// are compared with the CPU.
std::shared_ptr<Backend> open_backend(const BackendChoice& choice, const SayLine& say);

/// Whether a choice, resolved to the backend `kind`, asks for a self-test.
bool needs_self_test(const BackendChoice& choice, BackendKind kind);
/// The line about a GPU that --backend auto took; without `gpu_record` it warns that no GPU has run the code.
std::string chosen_gpu_text(const std::string& device, bool gpu_record);
/// The line about the class that --numerics auto took on the CPU.
std::string auto_numerics_text(const AutoNumerics& taken);
/// Throws Error if the self-test of a device found something wrong.
void require_passed(const SelfTestResult& result, const std::string& device);

}  // namespace speclab
