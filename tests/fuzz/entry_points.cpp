#include "tests/fuzz/entry_points.h"

#include <array>

namespace speclab::fuzz {
namespace {

constexpr std::array<EntryPoint, 11> kEntryPoints{{{"safetensors", read_safetensors_file},
                                                   {"gguf", read_gguf},
                                                   {"tokenizer", read_tokenizer},
                                                   {"sentencepiece", read_sentencepiece},
                                                   {"chat_template", read_chat_template},
                                                   {"experiment", read_experiment},
                                                   {"prompts", read_prompts},
                                                   {"draft", read_draft},
                                                   {"datastore", read_datastore},
                                                   {"ngram_model", read_ngram_model},
                                                   {"record", read_record}}};

}  // namespace

std::span<const EntryPoint> entry_points() { return kEntryPoints; }

}  // namespace speclab::fuzz
