#include "experiments/run/run_lines.h"

#include <fmt/format.h>

#include <utility>

#include "experiments/run/reference_check.h"

namespace speclab {

std::string fingerprint_of(const std::vector<GenerationRecord>& turns) {
  std::vector<Token> ids;
  for (const GenerationRecord& turn : turns) {
    ids.push_back(static_cast<Token>(turn.tokens.size()));
    ids.insert(ids.end(), turn.tokens.begin(), turn.tokens.end());
    for (const StepRecord& step : turn.steps) {
      ids.push_back(static_cast<Token>(step.drafted.size()));
      for (const DraftedToken& token : step.drafted) ids.insert(ids.end(), {token.parent, token.id});
    }
  }
  return output_hash(ids);
}

RunLines::RunLines(const Experiment& experiment, const RunFolder& folder,
                   std::function<void(const std::string&)> note)
    : experiment_(experiment), folder_(folder), note_(std::move(note)) {
  for (const CaseSpec& spec : experiment.cases) cases_.emplace(spec.id, &spec);
  for (const CaseSpec& spec : experiment.cases) {
    for (LineRecord& line : read_case_lines(folder.path(), spec.id)) keep(std::move(line));
  }
}

const LineRecord* RunLines::text(const std::string& case_id, const std::string& prompt,
                                 std::uint64_t seed) const {
  const auto found = texts_.find({case_id, prompt, seed});
  return found == texts_.end() ? nullptr : &found->second;
}

const std::string* RunLines::fingerprint(const LineKey& key) const {
  const auto found = fingerprints_.find(key);
  return found == fingerprints_.end() ? nullptr : &found->second;
}

void RunLines::add(LineRecord line) {
  JsonLinesWriter(folder_.case_file(line.case_id)).append(to_json(line));
  keep(std::move(line));
}

void RunLines::keep(LineRecord line) {
  const LineKey key = key_of(line);
  done_.insert(key);
  if (!line.error.empty()) {
    failed_.insert(key);
    return;
  }
  const CaseSpec& spec = *cases_.at(line.case_id);
  if (spec.strategy.carries_memory()) fingerprints_.emplace(key, fingerprint_of(line.turns));
  const bool is_reference = spec.reference.empty();
  const LineRecord* reference = text(is_reference ? spec.id : spec.reference, line.prompt, line.seed);
  if (reference != nullptr) compare(line, *reference);
  if (line.repeat > 0) return;
  const LineRecord& kept =
      texts_.emplace(std::tuple(line.case_id, line.prompt, line.seed), std::move(line)).first->second;
  for (const CaseSpec& other : experiment_.cases) {  // lines that were measured before this reference
    if (!is_reference || other.reference != spec.id) continue;
    if (const LineRecord* earlier = text(other.id, kept.prompt, kept.seed)) compare(*earlier, kept);
  }
}

void RunLines::compare(const LineRecord& line, const LineRecord& reference) {
  const ReferenceCheck check = check_against(line, reference, line.promise.value_or(Promise::nothing));
  if (check.matches != false) return;
  ++unequal_;
  note_(fmt::format("not equal: {} prompt {} differs from its reference at token {}", line.case_id,
                    line.prompt, check.first_divergence.value_or(-1)));
}

}  // namespace speclab
