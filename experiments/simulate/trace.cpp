#include "experiments/simulate/trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/error.h"
#include "core/decoding/registry.h"
#include "experiments/config/experiment.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

bool drafts_branches(const CaseData& data) {
  return any_step(data, [](const StepRecord& step) {
    for (std::size_t i = 0; i < step.drafted.size(); ++i) {
      if (step.drafted[i].parent != static_cast<int>(i)) return true;
    }
    return false;
  });
}

bool drafts_any_shape(const CaseData& data) {
  const StrategyInfo* info = recorded_strategy(data.config.value("strategy", ""));
  return info != nullptr && info->drafts_any_shape;
}

TracedDraft traced_draft(const StepRecord& step, const std::vector<Token>& text, std::size_t position) {
  TracedDraft draft;
  draft.top = step.top;
  for (std::size_t i = 0; i < step.drafted.size(); ++i) {
    const DraftedToken& token = step.drafted[i];
    draft.confidence.push_back(token.confidence);
    draft.entropy.push_back(token.entropy);
    const bool matches_so_far = draft.matching == static_cast<int>(i);
    if (matches_so_far && position + 1 + i < text.size() && token.id == text[position + 1 + i])
      ++draft.matching;
  }
  return draft;
}

TracedText traced_text(const LineRecord& line, const GenerationRecord& turn, int number) {
  TracedText out{.prompt = line.prompt, .seed = line.seed, .turn = number, .drafts = {}};
  std::size_t position = 0;
  for (const StepRecord& step : turn.steps) out.drafts.push_back(traced_draft(step, turn.tokens, position++));
  return out;
}

}  // namespace

bool is_trace(const CaseData& data) {
  return data.reference && data.config["loss_class"] != "L3" &&
         data.options().value("emit_at_most", 0) == 1 &&
         any_step(data, [](const StepRecord& step) { return !step.drafted.empty(); });
}

void require_trace(const CaseData& data) {
  if (data.unequal()) {
    throw Error({.what = data.id(),
                 .got = "a text that differs from the reference",
                 .expected = "the text of autoregressive decoding",
                 .advice = "A trace needs a lossless rule at temperature 0 or with Gumbel coins."});
  }
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        if (step.emitted == 1) continue;
        throw Error({.what = fmt::format("{}, prompt {}", data.id(), line.prompt),
                     .got = fmt::format("a step that emitted {} tokens", step.emitted),
                     .expected = "steps that emit one token",
                     .advice = "Record it with speclab trace, which sets emit_at_most 1."});
      }
    }
  });
}

void require_known_version(const RunData& run) {
  const json version = run.config.is_object() ? run.config.value("row_details", json()) : json();
  if (!version.is_number_integer() || version <= kRowDetailsVersion) return;
  throw Error({.what = "row_details of the run",
               .got = fmt::format("version {}", version.dump()),
               .expected = fmt::format("at most {}", kRowDetailsVersion),
               .advice = "Read the trace with the version of speclab that wrote it."});
}

std::vector<Trace> read_traces(const RunData& run) {
  require_known_version(run);
  std::vector<Trace> traces;
  bool other_traces = false;
  for (const auto& data : run.cases) {
    if (!is_trace(*data)) continue;
    if (drafts_branches(*data)) {
      if (drafts_any_shape(*data)) {
        other_traces = true;
        continue;
      }
      throw Error(
          {.what = data->id(),
           .got = "a draft with branches",
           .expected = "chains",
           .advice = "Replay can only shorten chains; leave cases that draft trees out of the trace."});
    }
    require_trace(*data);
    Trace& trace = traces.emplace_back();
    trace.data = data;
    for_each_line(*data, 0, [&](std::size_t, const LineRecord& line) {
      for (std::size_t turn = 0; turn < line.turns.size(); ++turn)
        trace.texts.push_back(traced_text(line, line.turns[turn], static_cast<int>(turn)));
    });
  }
  if (traces.empty() && !other_traces) {
    throw Error({.what = "speclab replay",
                 .got = "a run without a trace",
                 .expected = "a run with cases that draft and have the option \"emit_at_most\": 1",
                 .advice = "Make one with: speclab trace configs/trace.json --out DIR"});
  }
  return traces;
}

}  // namespace speclab
