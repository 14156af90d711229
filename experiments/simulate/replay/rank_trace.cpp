#include "experiments/simulate/replay/rank_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/decoding/registry.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/simulate/trace.h"

namespace speclab {
namespace {

using nlohmann::json;

/// The largest number of tokens of a turn of this prompt.
int most_tokens(const RunData& run, const CaseData& data, const std::string& prompt) {
  int most = data.options().value("max_tokens", std::numeric_limits<int>::max());
  if (!run.config.is_object() || !run.config.contains("prompts")) return most;
  for (const json& entry : run.config["prompts"]) {
    if (entry.value("id", "") != prompt) continue;
    most = entry.value("options", json::object()).value("max_tokens", most);
  }
  return most;
}

/// The rank of the token among the children of the pending token; -1 if it is none of them.
int rank_among_children(const StepRecord& step, Token token) {
  int rank = 0;
  for (const DraftedToken& drafted : step.drafted) {
    if (drafted.parent != 0) continue;
    if (drafted.id == token) return rank;
    ++rank;
  }
  return -1;
}

RankedText ranked_text(const CaseData& data, const LineRecord& line, const GenerationRecord& turn, int number,
                       int most) {
  RankedText out{.prompt = line.prompt, .seed = line.seed, .turn = number, .ranks = {}, .confidence = {}};
  // A draft that begins with n tokens of the text has at most most - n - 1 tokens (Sequence::depth_limit).
  out.depth_limit = most - 2;
  const std::size_t count = turn.steps.size();
  for (std::size_t i = 0; i < count; ++i) {
    const StepRecord& step = turn.steps[i];
    out.ranks.push_back(rank_among_children(step, turn.tokens.at(i + 1)));
    out.confidence.push_back(step.root_confidence);
    const bool drafted = !step.drafted.empty();
    if (drafted && static_cast<int>(i) >= out.depth_limit) {
      throw Error({.what = fmt::format("{}, prompt {}", data.id(), line.prompt),
                   .got = fmt::format("a draft at position {}, but none at position {}", i, out.depth_limit),
                   .expected = "a draft at every position before the end of the text or of a context",
                   .advice = "Trees cannot be replayed where the draft model is not allowed any token."});
    }
    if (!drafted) out.depth_limit = std::min(out.depth_limit, static_cast<int>(i));
  }
  return out;
}

}  // namespace

bool drafts_best_tokens(const CaseData& data) {
  const json& options = data.options();
  const std::string children = options.value("children", "");
  if (children == "best") return true;
  const double draft = options.value("draft_temperature", -1.0),
               temperature = draft < 0 ? options.value("temperature", 0.0) : draft;
  return children == "without_replacement" && temperature == 0;
}

std::vector<RankTrace> read_rank_traces(const RunData& run) {
  require_known_version(run);
  std::vector<RankTrace> traces;
  for (const auto& data : run.cases) {
    const StrategyInfo* info = recorded_strategy(data->config.value("strategy", ""));
    if (info == nullptr || !info->drafts_any_shape || !is_trace(*data) || !drafts_best_tokens(*data) ||
        data->options().value("budget", "fixed") != "fixed" || data->config["draft"].is_null())
      continue;
    require_trace(*data);
    if (!why_not_replayed(*data).empty()) continue;
    RankTrace& trace = traces.emplace_back();
    trace.data = data;
    if (text_follows_steps(*data)) trace.certainty = Certainty::expectation;
    for_each_line(*data, 0, [&](std::size_t, const LineRecord& line) {
      const int most = most_tokens(run, *data, line.prompt);
      for (std::size_t turn = 0; turn < line.turns.size(); ++turn) {
        trace.texts.push_back(ranked_text(*data, line, line.turns[turn], static_cast<int>(turn), most));
        for (const StepRecord& step : line.turns[turn].steps) {
          const auto children = std::ranges::count(step.drafted, 0, &DraftedToken::parent);
          trace.width = std::max(trace.width, static_cast<int>(children));
        }
      }
    });
  }
  return traces;
}

}  // namespace speclab
