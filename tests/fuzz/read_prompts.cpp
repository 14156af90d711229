#include "experiments/config/prompts.h"
#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/reading.h"

namespace speclab::fuzz {

bool read_prompts(std::string_view input) {
  const MemoryFile file(input);
  return accepted([&] {
    PromptSource source;
    source.file = file.path();
    for (const PromptSpec& prompt : load_prompts(source))
      require(!prompt.turns.empty(), "a prompt of nothing");
  });
}

}  // namespace speclab::fuzz
