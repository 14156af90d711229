#include "core/decoding/ahead/divided_models.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/backend/backend.h"
#include "core/base/error.h"

namespace speclab {

DividedModels divide_threads(const std::shared_ptr<const Model>& target,
                             const std::shared_ptr<const Model>& draft, std::string_view strategy) {
  constexpr int kOfDraft = 1;
  const std::string what = fmt::format("strategy {}", strategy);
  std::shared_ptr<Backend> for_draft = draft->backend().beside(kOfDraft);
  if (for_draft == nullptr) {
    throw Error({.what = what,
                 .got = fmt::format("backend {}", draft->backend().name()),
                 .expected = "the CPU backend, whose threads two models can share",
                 .advice = "Run this case with --backend cpu, or leave the case out."});
  }
  const int threads = target->backend().threads();
  if (threads <= kOfDraft) {
    throw Error({.what = what,
                 .got = fmt::format("{} thread", threads),
                 .expected = "at least 2 threads: one drafts while the others verify",
                 .advice = "Give --threads 2 or more."});
  }
  std::shared_ptr<Backend> for_target = target->backend().beside(threads - kOfDraft);
  SPECLAB_CHECK(for_target != nullptr,
                "the draft model has a backend that can be divided, its target has not");
  return {Model::on_backend(target, std::move(for_target)), Model::on_backend(draft, std::move(for_draft))};
}

}  // namespace speclab
