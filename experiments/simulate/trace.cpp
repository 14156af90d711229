#include "experiments/simulate/trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

TracedDraft traced_draft(const StepRecord& step, const std::vector<Token>& text, std::size_t position,
                         const std::string& where) {
  TracedDraft draft;
  for (std::size_t i = 0; i < step.drafted.size(); ++i) {
    const DraftedToken& token = step.drafted[i];
    if (token.parent != static_cast<int>(i)) {
      throw Error(
          {.what = where,
           .got = "a draft with branches",
           .expected = "chains",
           .advice = "Replay can only shorten chains; leave cases that draft trees out of the trace."});
    }
    draft.confidence.push_back(token.confidence);
    draft.entropy.push_back(token.entropy);
    const bool matches_so_far = draft.matching == static_cast<int>(i);
    if (matches_so_far && position + 1 + i < text.size() && token.id == text[position + 1 + i])
      ++draft.matching;
  }
  return draft;
}

TracedText traced_text(const LineRecord& line, const GenerationRecord& turn, int number,
                       const std::string& where) {
  TracedText out{.prompt = line.prompt, .turn = number, .drafts = {}};
  std::size_t position = 0;
  for (const StepRecord& step : turn.steps) {
    if (step.emitted != 1) {
      throw Error({.what = where,
                   .got = fmt::format("a step that emitted {} tokens", step.emitted),
                   .expected = "steps that emit one token",
                   .advice = "Run the config with emit_at_most 1, as configs/trace.json does."});
    }
    out.drafts.push_back(traced_draft(step, turn.tokens, position, where));
    ++position;
  }
  return out;
}

bool is_trace(const CaseData& data) {
  return data.reference && data.config["loss_class"] != "L3" &&
         data.options().value("emit_at_most", 0) == 1 &&
         any_step(data, [](const StepRecord& step) { return !step.drafted.empty(); });
}

}  // namespace

std::vector<Trace> read_traces(const RunData& run) {
  std::vector<Trace> traces;
  for (const auto& data : run.cases) {
    if (!is_trace(*data)) continue;
    if (data->unequal()) {
      throw Error({.what = data->id(),
                   .got = "a text that differs from the reference",
                   .expected = "the text of autoregressive decoding",
                   .advice = "A trace needs a lossless rule at temperature 0 or with Gumbel coins."});
    }
    Trace& trace = traces.emplace_back();
    trace.data = data;
    for_each_line(*data, 0, [&](std::size_t, const LineRecord& line) {
      const std::string where = fmt::format("{}, prompt {}", data->id(), line.prompt);
      for (std::size_t turn = 0; turn < line.turns.size(); ++turn)
        trace.texts.push_back(traced_text(line, line.turns[turn], static_cast<int>(turn), where));
    });
  }
  if (traces.empty()) {
    throw Error({.what = "speclab replay",
                 .got = "a run without a trace",
                 .expected = "a run with cases that draft and have the option \"emit_at_most\": 1",
                 .advice = "Make one with: speclab run configs/trace.json --out DIR"});
  }
  return traces;
}

}  // namespace speclab
