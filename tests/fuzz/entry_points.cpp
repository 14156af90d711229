#include "tests/fuzz/entry_points.h"

#include <array>

namespace speclab::fuzz {
namespace {

constexpr std::array<EntryPoint, 7> kEntryPoints{{{"safetensors", read_safetensors_file},
                                                  {"gguf", read_gguf},
                                                  {"tokenizer", read_tokenizer},
                                                  {"chat_template", read_chat_template},
                                                  {"experiment", read_experiment},
                                                  {"prompts", read_prompts},
                                                  {"draft", read_draft}}};

}  // namespace

std::span<const EntryPoint> entry_points() {
  return kEntryPoints;
}

}  // namespace speclab::fuzz
