#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "core/backend/backend.h"
#include "core/model/files/checkpoint.h"
#include "core/model/net/model.h"

namespace speclab::fixtures {

/// The real target that scripts/get_model.sh fetches.
inline std::filesystem::path target_file() {
  return std::filesystem::path(SPECLAB_SOURCE_DIR) / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

/// Loads the model once per executable. Throws when the file is missing (run scripts/get_model.sh).
inline std::shared_ptr<const Model> target_model() {
  static const std::shared_ptr<const Model> model =
      Model::load(Checkpoint::open(target_file()), make_cpu_backend({0, "f32"}), {});
  return model;
}

/// True if the tests should run without the model (scripts/test.sh --offline).
inline bool offline() { return std::getenv("SPECLAB_OFFLINE") != nullptr; }

}  // namespace speclab::fixtures

/// First line of a test that needs the real target.
#define SPECLAB_NEEDS_TARGET() \
  if (speclab::fixtures::offline()) GTEST_SKIP() << "offline: needs the target model"
