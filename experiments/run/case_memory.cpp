#include "experiments/run/case_memory.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace speclab {

bool CaseMemory::prepare(const PlannedLine& next, const std::function<bool()>& interrupted) {
  const CaseSpec& spec = experiment_.cases[static_cast<std::size_t>(next.case_index)];
  if (!spec.strategy.carries_memory()) return true;
  std::vector<int> wanted;
  for (int prompt = 0; prompt < next.prompt_index; ++prompt) {
    const std::string& id = experiment_.prompts[static_cast<std::size_t>(prompt)].id;
    if (lines_.fingerprint({spec.id, id, next.seed, next.repeat}) != nullptr) wanted.push_back(prompt);
  }
  State& state = states_[next.case_index];
  const std::pair pass(next.repeat, next.seed);
  const bool knows = state.valid && state.pass == pass && state.prompts == wanted;
  state.valid = false;  // until the line is finished
  if (knows) return true;
  decoder_.forget(spec);
  if (!wanted.empty())
    progress_.note(
        fmt::format("{} decodes {} finished texts again to rebuild its memory", spec.id, wanted.size()));
  for (const int prompt : wanted) {
    if (!decode_again(spec, next, prompt, interrupted)) return false;
  }
  state.pass = pass;
  state.prompts = std::move(wanted);
  return true;
}

bool CaseMemory::decode_again(const CaseSpec& spec, const PlannedLine& next, int prompt,
                              const std::function<bool()>& interrupted) {
  const PromptSpec& text = experiment_.prompts[static_cast<std::size_t>(prompt)];
  const LineRecord* reference = nullptr;
  if (spec.strategy.info().needs_reference) reference = lines_.text(spec.reference, text.id, next.seed);
  const auto turns = decoder_.decode({.spec = &spec,
                                      .prompt = &text,
                                      .seed = next.seed,
                                      .reference = reference,
                                      .interrupted = interrupted});
  if (!turns) return false;
  if (fingerprint_of(*turns) != *lines_.fingerprint({spec.id, text.id, next.seed, next.repeat})) {
    throw Error({.what = fmt::format("the memory of {}", spec.id),
                 .got = fmt::format("another text or other drafts when prompt {} was decoded again", text.id),
                 .expected = "the same text and drafts as in the record",
                 .advice = "Start a new run with another --out."});
  }
  return true;
}

void CaseMemory::finished(const PlannedLine& line) {
  const auto found = states_.find(line.case_index);
  if (found == states_.end()) return;  // a case without memory
  found->second.valid = true;
  found->second.prompts.push_back(line.prompt_index);
}

}  // namespace speclab
