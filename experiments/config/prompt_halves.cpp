#include "experiments/config/prompt_halves.h"

#include <map>
#include <string>
#include <vector>

namespace speclab {

void keep_half(Experiment& experiment, PromptHalf half) {
  const int wanted = half == PromptHalf::first ? 0 : 1;
  std::map<std::string, int> seen;
  std::erase_if(experiment.prompts,
                [&](const PromptSpec& prompt) { return seen[prompt.category]++ % 2 != wanted; });
}

}  // namespace speclab
