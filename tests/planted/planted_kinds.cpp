// The table of executors in a program with a planted fault. This file holds all code of step_executor.cpp and
// is linked in its place. The only difference is executor_kinds(), which returns wrapped executors. So the
// engine itself has no hook for faults, and everything else in the program is the code of `speclab`.
#define executor_kinds engine_executor_kinds
#include "core/decoding/loop/executors/step_executor.cpp"
#undef executor_kinds

#include <cstddef>
#include <utility>

#include "tests/planted/planted_executor.h"

namespace speclab {
namespace {

template <std::size_t number>
std::unique_ptr<StepExecutor> make_planted(const ExecutorSetting& setting) {
  const ExecutorKind& kind = kKinds[number];
  return planted::with_plant(kind.make(setting), kind.on_device, setting);
}

template <std::size_t... numbers>
constexpr auto planted_kinds(std::index_sequence<numbers...>) {
  return std::array{ExecutorKind{kKinds[numbers].name, kKinds[numbers].on_device, make_planted<numbers>}...};
}

constexpr auto kPlantedKinds = planted_kinds(std::make_index_sequence<kKinds.size()>());

}  // namespace

std::span<const ExecutorKind> executor_kinds() { return kPlantedKinds; }

}  // namespace speclab
