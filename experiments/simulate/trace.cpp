#include "experiments/simulate/trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>

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

/// Appends token i of a step to a draft that is put together from several steps.
void append_token(TracedDraft& draft, const StepRecord& step, std::size_t i) {
  const std::size_t width = step.top.size() / step.drafted.size();
  draft.confidence.push_back(step.drafted[i].confidence);
  draft.entropy.push_back(step.drafted[i].entropy);
  for (std::size_t k = 0; k < width; ++k) draft.top.push_back(step.top[i * width + k]);
}

/// A draft that is drawn from this position on, and how much of it is accepted. Each position of the text has
/// a first drafted token that was judged there. The draft is made of these tokens up to the first one that
/// was rejected, and of what was drawn after that one.
TracedDraft drawn_draft(const std::vector<StepRecord>& steps, std::size_t position, std::size_t longest) {
  TracedDraft draft;
  for (std::size_t at = position; at < steps.size(); ++at) {
    const std::vector<DraftedToken>& drafted = steps[at].drafted;
    const bool accepted = !drafted.empty() && drafted.front().accepted, goes_on = at + 1 < steps.size();
    for (std::size_t i = 0; i < drafted.size(); ++i) {
      if (draft.confidence.size() == longest) break;
      append_token(draft, steps[at], i);
      if (accepted && goes_on) break;  // the rest is drawn at the next position
    }
    if (!accepted) break;
    draft.matching = std::min(draft.matching + 1, draft.drafted());
    if (draft.confidence.size() == longest) break;
  }
  return draft;
}

std::size_t longest_recorded_draft(const CaseData& data) {
  std::size_t longest = 0;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) longest = std::max(longest, step.drafted.size());
    }
  });
  return longest;
}

bool drafts_model_chains(const CaseData& data) {
  const StrategyInfo* info = recorded_strategy(data.config.value("strategy", ""));
  return info != nullptr && info->drafts_model_chains;
}

/// Reads one text. `drawn`: the drafts are drawn along the text; without it the text says what is accepted.
TracedText traced_text(const LineRecord& line, const GenerationRecord& turn, int number, bool drawn,
                       std::size_t longest) {
  TracedText out{.prompt = line.prompt, .seed = line.seed, .turn = number, .drafts = {}};
  for (std::size_t position = 0; position < turn.steps.size(); ++position) {
    out.drafts.push_back(drawn ? drawn_draft(turn.steps, position, longest)
                               : traced_draft(turn.steps[position], turn.tokens, position));
  }
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

std::string why_not_replayed(const CaseData& data) {
  if (draft_follows_steps(data))
    return "its drafts depend on earlier steps. Laws fitted to a run predict lookahead decoding, Jacobi "
           "decoding "
           "and token recycling: speclab replay RUN --fitted";
  if (!text_follows_steps(data)) return "";
  const AcceptanceRule* rule = recorded_rule(data);
  if (rule == nullptr) return "this version does not know its acceptance rule";
  if (const std::string reason = why_not_expected(*rule); !reason.empty()) return reason;
  if (drafts_model_chains(data)) return "";
  const bool drawn = any_step(data, [](const StepRecord& step) {
    return std::ranges::any_of(step.drafted,
                               [](const DraftedToken& token) { return token.q >= 0 && token.q != 1; });
  });
  if (drawn) return "its drafts are drawn, but not by a draft model alone";
  if (!rule->accepts_what_it_emits)
    return fmt::format("the rule \"{}\" may emit a copied token that it did not accept", rule->name);
  return "";
}

bool same_texts(const Trace& a, const Trace& b) {
  if (a.certainty != Certainty::exact || b.certainty != Certainty::exact) return false;
  return std::ranges::equal(a.texts, b.texts, [](const TracedText& one, const TracedText& other) {
    return one.prompt == other.prompt && one.seed == other.seed && one.turn == other.turn &&
           one.drafts.size() == other.drafts.size();
  });
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
    if (!why_not_replayed(*data).empty()) {
      other_traces = true;
      continue;
    }
    Trace& trace = traces.emplace_back();
    trace.data = data;
    const bool sampled = text_follows_steps(*data), drawn = sampled && drafts_model_chains(*data);
    const std::size_t longest = drawn ? longest_recorded_draft(*data) : 0;
    trace.certainty = sampled ? Certainty::expectation : Certainty::exact;
    for_each_line(*data, 0, [&](std::size_t, const LineRecord& line) {
      for (std::size_t turn = 0; turn < line.turns.size(); ++turn)
        trace.texts.push_back(traced_text(line, line.turns[turn], static_cast<int>(turn), drawn, longest));
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
