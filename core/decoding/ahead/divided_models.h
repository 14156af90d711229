#pragma once

#include <memory>
#include <string_view>

#include "core/model/net/model.h"

namespace speclab {

/// A target and a draft model whose forwards may run at the same time, because each model has a backend with
/// threads of its own.
struct DividedModels {
  std::shared_ptr<const Model> target, draft;
};

/// Divides the threads of the target's backend: the draft model gets one thread, and the target gets all
/// others. Both models keep their weights, and the bits of their rows stay the same. The given models may be
/// used further, but not while a forward of a divided model runs: the given and the divided models together
/// have more threads than the backend was given. Throws Error, which names `strategy`, if the target's
/// backend has fewer than two threads, and if the draft model's backend cannot be divided (a GPU).
DividedModels divide_threads(const std::shared_ptr<const Model>& target,
                             const std::shared_ptr<const Model>& draft, std::string_view strategy);

}  // namespace speclab
