#include "core/backend/cuda/runtime/gpu_status.h"

#include <nlohmann/json.hpp>

#include "core/backend/cuda/runtime/gpu.h"
#include "core/backend/cuda/runtime/gpu_state.h"
#include "core/backend/cuda/runtime/gpu_watch.h"

namespace speclab::cuda {

nlohmann::json GpuStatus::state() const { return gpu_state(gpu_bus_id(ordinal_)); }

std::string GpuStatus::uuid() const { return gpu_uuid(gpu_bus_id(ordinal_)); }

std::unique_ptr<DeviceWatch> GpuStatus::watch() const {
  auto watch = std::make_unique<GpuWatch>(gpu_bus_id(ordinal_));
  return watch->problem().empty() ? std::move(watch) : nullptr;
}

double GpuStatus::measure_copy_bandwidth() const { return gpu_copy_bandwidth(ordinal_); }

void GpuStatus::profile(bool begin) const { gpu_profile(ordinal_, begin); }

std::unique_ptr<DeviceStatus> Gpu::make_status() const { return std::make_unique<GpuStatus>(ordinal_); }

}  // namespace speclab::cuda
