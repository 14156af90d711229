#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "core/backend/backend.h"

/// Tests that run on a device. SPECLAB_TEST_BACKEND names the backend: "host-simt", the default (in CTest),
/// is the simulated GPU with small sizes; "cuda" is the GPU SPECLAB_TEST_DEVICE with the sizes of real models
/// (scripts/gpu_check.sh, stage "tests", which runs every suite with "OnDevice" in its name). Tests skip for
/// any other backend.
namespace speclab::on_device {

inline std::string backend_name() {
  const char* name = std::getenv("SPECLAB_TEST_BACKEND");
  return name == nullptr || *name == '\0' ? "host-simt" : name;
}
inline int ordinal() {
  const char* number = std::getenv("SPECLAB_TEST_DEVICE");
  return number == nullptr ? 0 : std::atoi(number);
}
inline bool on_gpu() { return backend_name() == "cuda"; }
/// The reason why the tests cannot run; "" if they can.
inline std::string absent() {
  const std::string name = backend_name();
  if (name == "cuda") return gpu_absent();
  return name == "host-simt" ? "" : "backend " + name + " is no device: cuda or host-simt";
}
/// Returns the size for the simulated GPU or for a real one.
template <typename T>
T size(T simulated, T real) {
  return on_gpu() ? real : simulated;
}

/// The backend under test, one per program. It is never destroyed, because CUDA may already be shut down when
/// the program exits.
inline const std::shared_ptr<Backend>& backend() {
  static const auto* const made = new std::shared_ptr<Backend>(
      make_cuda_backend({.device = ordinal(), .threads = 0, .simulated = !on_gpu()}));
  return *made;
}
/// The reference on the CPU: float activations, and keys and values in bf16 as on the device.
inline const std::shared_ptr<Backend>& cpu() {
  static const std::shared_ptr<Backend> made = make_cpu_backend({on_gpu() ? 0 : 1, "f32-kv16"});
  return made;
}

class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = absent(); !why.empty()) GTEST_SKIP() << why;
  }
};

}  // namespace speclab::on_device
