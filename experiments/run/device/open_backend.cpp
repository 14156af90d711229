#include "experiments/run/device/open_backend.h"

#include <fmt/format.h>

#include "core/backend/backend.h"
#include "core/base/error.h"
#include "core/measure/environment.h"
#include "experiments/run/device/tested_devices.h"

namespace speclab {
namespace {

/// Runs the self-test of a device unless this program has passed it on this device, with this driver, before.
void test_once(const std::shared_ptr<Backend>& backend, const BackendChoice& choice, const SayLine& say) {
  const TestedDevice tested{.binary_sha256 = binary_sha256(),
                            .device = std::string(backend->device_name()),
                            .unit = unit_of(backend->device_status(), choice.device),
                            .driver = driver_of(backend->device_status()),
                            .numerics = std::string(backend->numerics_class()),
                            .kernels = std::string(name_of(choice.kernels))};
  if (passed_before(tested)) return;
  const SelfTestResult result = test_device(backend);
  require_passed(result, tested.device);
  std::string kept;
  try {
    kept = "kept in " + note_passed(tested).string();
  } catch (const Error& error) {
    kept = std::string("not kept, so it will run again: ") + error.what();
  }
  say(fmt::format("self-test of {} passed: {} tokens, logits within {:.1e} of the CPU's; {}", tested.device,
                  result.tokens, result.logit_difference, kept));
}

}  // namespace

bool needs_self_test(const BackendChoice& choice, BackendKind kind) {
  if (kind == BackendKind::kCpu || choice.self_test == SelfTestWhen::kOff) return false;
  return choice.self_test == SelfTestWhen::kOn || choice.backend == BackendKind::kAuto;
}

std::string chosen_gpu_text(const std::string& device, bool gpu_record) {
  return fmt::format("--backend auto takes the GPU {}; --backend cpu takes the CPU{}", device,
                     gpu_record ? ""
                                : ". Warning: this code has never run on a GPU, only on a simulated one "
                                  "(results/gpu holds no record)");
}

std::string auto_numerics_text(const AutoNumerics& taken) {
  return fmt::format("--numerics auto takes {} ({})", taken.numerics, taken.reason);
}

void require_passed(const SelfTestResult& result, const std::string& device) {
  if (result.problem.empty()) return;
  throw Error({.what = "self-test of " + device,
               .got = result.problem,
               .expected = "the texts and logits of the CPU, up to rounding",
               .advice = "Use --backend cpu. --self-test off uses the device nevertheless; do not trust its "
                         "texts and times."});
}

std::shared_ptr<Backend> open_backend(const BackendChoice& choice, const SayLine& say) {
  const BackendKind kind =
      resolve_backend(choice, choice.backend == BackendKind::kAuto ? gpu_absent() : std::string());
  if (kind == BackendKind::kCpu && choice.self_test == SelfTestWhen::kOn) {
    throw Error({.what = "--self-test",
                 .got = "on, with the CPU",
                 .expected = "auto or off, or a GPU",
                 .advice = "The self-test compares a device with the CPU."});
  }
  std::shared_ptr<Backend> backend = make_backend(choice);
  if (choice.backend == BackendKind::kAuto && kind != BackendKind::kCpu)
    say(chosen_gpu_text(std::string(backend->device_name()), build_info().gpu_record));
  if (needs_self_test(choice, kind)) test_once(backend, choice, say);
  return backend;
}

}  // namespace speclab
