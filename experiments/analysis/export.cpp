#include "experiments/analysis/export.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using json = nlohmann::ordered_json;  // names in the order of the table

constexpr std::string_view kTools[] = {"vllm", "sglang", "spec-bench", "llama.cpp"};

/// What all tools count. `drafts` is the number of steps that drafted something. Accepted tokens are those
/// that became part of the text.
struct Counts {
  std::int64_t requests = 0;       ///< turns
  std::int64_t prompt_tokens = 0;  ///< fed by prefills
  std::int64_t tokens = 0;         ///< emitted, including those from prefill
  std::int64_t steps = 0, drafts = 0, drafted = 0, accepted = 0;
  std::size_t width = 0;                        ///< the most tokens that any of the steps could accept
  std::vector<std::int64_t> accepted_at;        ///< [width]; entry i: drafts with more than i accepted tokens
  std::vector<std::int64_t> histogram;          ///< [width + 1]; entry i: drafts with i accepted tokens
  std::optional<double> prefill_ms, decode_ms;  ///< of target and draft, summed over all lines
};

template <class Time>
std::optional<double> median_ms(const CaseData& data, Time time) {
  std::vector<double> sums(common_repeats(data), 0.0);
  if (sums.empty() || data.unequal()) return std::nullopt;
  for (std::size_t r = 0; r < sums.size(); ++r)
    for_each_line(data, r, [&](std::size_t, const LineRecord& line) {
      sums[r] += static_cast<double>(time(line)) * 1e-6;
    });
  return stats::median(sums);
}

Counts count(const CaseData& data) {
  Counts n;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      ++n.requests;
      n.prompt_tokens += turn.target_prefill.rows;
      n.tokens += static_cast<std::int64_t>(turn.tokens.size());
      for (const StepRecord& step : turn.steps) {
        ++n.steps;
        if (step.drafted.empty()) continue;
        ++n.drafts;
        n.drafted += static_cast<std::int64_t>(step.drafted.size());
        n.accepted += step.accepted;
        n.width = std::max({n.width, draft_depth(step), static_cast<std::size_t>(step.accepted)});
        n.accepted_at.resize(n.width, 0);
        n.histogram.resize(n.width + 1, 0);
        ++n.histogram[static_cast<std::size_t>(step.accepted)];
        for (int i = 0; i < step.accepted; ++i) ++n.accepted_at[static_cast<std::size_t>(i)];
      }
    }
  });
  n.prefill_ms = median_ms(data, [](const LineRecord& line) { return line.prefill_ns(); });
  n.decode_ms = median_ms(data, [](const LineRecord& line) { return line.decode_ns(); });
  return n;
}

json ratio(double above, double below) { return below == 0 ? json(nullptr) : json(above / below); }
json ratio(std::optional<double> above, double below) { return above ? ratio(*above, below) : json(nullptr); }
json per_second(double count, std::optional<double> ms) {
  return ms ? ratio(1e3 * count, *ms) : json(nullptr);
}
json or_null(std::optional<double> value) { return value ? json(*value) : json(nullptr); }

double decode_steps(const Counts& n) {  // as llama.cpp counts: prefill gives the first token of a request
  return static_cast<double>(n.tokens - n.requests);
}
json accept_rate(const Counts& n) {
  return ratio(static_cast<double>(n.accepted), static_cast<double>(n.drafted));
}
json accept_percent(const Counts& n) {
  return ratio(100.0 * static_cast<double>(n.accepted), static_cast<double>(n.drafted));
}
json mean_length(const Counts& n) {  // over the steps that drafted; each emits one token more than it accepts
  return ratio(static_cast<double>(n.drafts + n.accepted), static_cast<double>(n.drafts));
}
json joint_rates(const Counts& n) {
  json rates = json::array();
  for (const std::int64_t at : n.accepted_at)
    rates.push_back(ratio(static_cast<double>(at), static_cast<double>(n.drafts)));
  return rates;
}

// A server of SGLang that speculates verifies at every step, also when the draft is empty.
std::int64_t verified(const Counts& n) { return n.drafts == 0 ? 0 : n.steps; }
json verified_histogram(const Counts& n) {
  json histogram = n.histogram;
  if (!histogram.empty()) histogram[0] = n.histogram[0] + n.steps - n.drafts;
  return histogram;
}

struct Name {
  std::string_view tool;
  const char* path;  ///< JSON pointer to the place of the value; its parts are the tool's names
  json (*value)(const Counts&);
};

// clang-format off
const Name kNames[] = {
  {"vllm", "/vllm:spec_decode_num_drafts", [](const Counts& n) { return json(n.drafts); }},
  {"vllm", "/vllm:spec_decode_num_draft_tokens", [](const Counts& n) { return json(n.drafted); }},
  {"vllm", "/vllm:spec_decode_num_accepted_tokens", [](const Counts& n) { return json(n.accepted); }},
  {"vllm", "/vllm:spec_decode_num_accepted_tokens_per_pos", [](const Counts& n) { return json(n.accepted_at); }},
  {"vllm", "/Mean acceptance length", mean_length},
  {"vllm", "/Per-position acceptance rate", joint_rates},
  {"vllm", "/Avg Draft acceptance rate", accept_percent},
  {"vllm", "/metrics/speculative_decoding/mean_acceptance_length", mean_length},
  {"vllm", "/metrics/speculative_decoding/draft_acceptance_rate", accept_rate},
  {"vllm", "/metrics/speculative_decoding/acceptance_histogram", [](const Counts& n) { return json(n.histogram); }},
  {"vllm", "/metrics/speculative_decoding/num_spec_steps", [](const Counts& n) { return json(n.drafts); }},
  {"vllm", "/metrics/speculative_decoding/num_accepted_draft_tokens", [](const Counts& n) { return json(n.accepted); }},
  {"vllm", "/metrics/speculative_decoding/num_draft_tokens", [](const Counts& n) { return json(n.drafted); }},
  {"vllm", "/metrics/speculative_decoding/num_spec_tokens", [](const Counts& n) { return json(n.width); }},

  {"sglang", "/meta_info/completion_tokens", [](const Counts& n) { return json(n.tokens); }},
  {"sglang", "/meta_info/spec_verify_ct", [](const Counts& n) { return json(verified(n)); }},
  {"sglang", "/meta_info/spec_accept_length", [](const Counts& n) { return ratio(static_cast<double>(n.tokens), static_cast<double>(verified(n))); }},
  {"sglang", "/meta_info/spec_accept_rate", accept_rate},
  {"sglang", "/meta_info/spec_num_correct_drafts", [](const Counts& n) { return json(n.accepted); }},
  {"sglang", "/meta_info/spec_num_proposed_drafts", [](const Counts& n) { return json(n.drafted); }},
  {"sglang", "/meta_info/spec_correct_drafts_histogram", verified_histogram},
  {"sglang", "/sglang:spec_accept_length", [](const Counts& n) { return ratio(static_cast<double>(verified(n) + n.accepted), static_cast<double>(verified(n))); }},
  {"sglang", "/sglang:spec_accept_rate", accept_rate},

  {"llama.cpp", "/n_predict", [](const Counts& n) { return json(n.tokens); }},
  {"llama.cpp", "/n_drafted", [](const Counts& n) { return json(n.drafted); }},
  {"llama.cpp", "/n_accept", [](const Counts& n) { return json(n.accepted); }},
  {"llama.cpp", "/accept", accept_percent},
  {"llama.cpp", "/draft acceptance", accept_rate},
  {"llama.cpp", "/mean len", mean_length},
  {"llama.cpp", "/acc per pos", joint_rates},
  {"llama.cpp", "/timings/prompt_n", [](const Counts& n) { return json(n.prompt_tokens); }},
  {"llama.cpp", "/timings/prompt_ms", [](const Counts& n) { return or_null(n.prefill_ms); }},
  {"llama.cpp", "/timings/prompt_per_token_ms", [](const Counts& n) { return ratio(n.prefill_ms, static_cast<double>(n.prompt_tokens)); }},
  {"llama.cpp", "/timings/prompt_per_second", [](const Counts& n) { return per_second(static_cast<double>(n.prompt_tokens), n.prefill_ms); }},
  {"llama.cpp", "/timings/predicted_n", [](const Counts& n) { return json(n.tokens); }},
  {"llama.cpp", "/timings/predicted_ms", [](const Counts& n) { return or_null(n.decode_ms); }},
  {"llama.cpp", "/timings/predicted_per_token_ms", [](const Counts& n) { return ratio(n.decode_ms, decode_steps(n)); }},
  {"llama.cpp", "/timings/predicted_per_second", [](const Counts& n) { return per_second(decode_steps(n), n.decode_ms); }},
  {"llama.cpp", "/timings/draft_n", [](const Counts& n) { return json(n.drafted); }},
  {"llama.cpp", "/timings/draft_n_accepted", [](const Counts& n) { return json(n.accepted); }},
  {"llama.cpp", "/llamacpp:spec_decode_num_drafts_total", [](const Counts& n) { return json(n.drafts); }},
  {"llama.cpp", "/llamacpp:spec_decode_num_draft_tokens_total", [](const Counts& n) { return json(n.drafted); }},
  {"llama.cpp", "/llamacpp:spec_decode_num_accepted_tokens_total", [](const Counts& n) { return json(n.accepted); }},
  {"llama.cpp", "/llamacpp:spec_decode_num_accepted_tokens_per_pos_total", [](const Counts& n) { return json(n.accepted_at); }},
};
// clang-format on

json case_object(const CaseData& data, const std::string& tool) {
  const Counts counts = count(data);
  json out = {{"case", data.id()}};
  for (const Name& name : kNames) {
    if (name.tool == tool) out[json::json_pointer(name.path)] = name.value(counts);
  }
  return out;
}

/// The answers of a line, one for each turn.
std::vector<std::string> answers(const LineRecord& line) {
  constexpr std::string_view kSeparator = "\u241e";
  std::vector<std::string> texts(1);
  for (std::string_view rest = line.text;;) {
    const std::size_t at = rest.find(kSeparator);
    texts.back() = rest.substr(0, at);
    if (at == std::string_view::npos) break;
    texts.emplace_back();
    rest.remove_prefix(at + kSeparator.size());
  }
  if (texts.size() != line.turns.size()) {
    throw Error({.what = fmt::format("export of {}, prompt {}", line.case_id, line.prompt),
                 .got = fmt::format("{} answers", texts.size()),
                 .expected = fmt::format("{}, one for each turn, separated by U+241E", line.turns.size()),
                 .advice = "An answer contains U+241E itself; such a case has no Spec-Bench file."});
  }
  return texts;
}

/// One sample of a prompt: the lines of one seed, by repeat.
json choice(std::size_t index, const std::vector<LineRecord>& repeats) {
  const LineRecord& first = repeats.front();
  json steps = json::array(), tokens = json::array(), seconds = json::array(), lengths = json::array();
  for (std::size_t t = 0; t < first.turns.size(); ++t) {
    const GenerationRecord& turn = first.turns[t];
    steps.push_back(turn.steps.size());
    tokens.push_back(turn.tokens.size());
    for (const StepRecord& step : turn.steps) lengths.push_back(step.emitted);
    std::vector<double> times;
    for (const LineRecord& line : repeats) {
      const GenerationRecord& timed = line.turns.at(t);
      times.push_back(static_cast<double>(timed.prefill_ns + timed.draft_prefill_ns + timed.decode_ns) *
                      1e-9);
    }
    seconds.push_back(stats::median(times));
  }
  return {{"index", index},       {"turns", answers(first)}, {"decoding_steps", steps},
          {"new_tokens", tokens}, {"wall_time", seconds},    {"accept_lengths", lengths}};
}

bool is_number(const std::string& id) {
  return !id.empty() && id.size() < 18 &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
}

std::string answer_file(const CaseData& data) {
  if (data.unequal()) {
    throw Error({.what = "export of " + data.id(),
                 .got = "texts that differ from their reference although they must not",
                 .expected = "a case that is equal to its reference, because others have no valid times",
                 .advice = "speclab report RUN --json shows where they differ first."});
  }
  // Spec-Bench's questions have numbers, and reorg_answer_file sorts by them. So either all ids are numbers
  // or none is.
  const bool numbers = std::all_of(data.prompts.begin(), data.prompts.end(), is_number);
  std::string text;
  for (std::size_t i = 0; i < data.prompts.size(); ++i) {
    const PromptLines& seeds = *data.lines[i];
    json line = {{"question_id", numbers ? json(std::stoll(data.prompts[i])) : json(data.prompts[i])},
                 {"category", data.categories[i]},
                 {"answer_id", output_hash(seeds.front().front().tokens()).substr(0, 22)},
                 {"model_id", data.id()},
                 {"choices", json::array()}};
    for (std::size_t k = 0; k < seeds.size(); ++k) line["choices"].push_back(choice(k, seeds[k]));
    text += line.dump() + "\n";
  }
  return text;
}

}  // namespace

std::span<const std::string_view> export_tools() { return kTools; }

std::string export_run(const RunData& run, const std::string& tool, const std::string& case_id) {
  if (std::find(std::begin(kTools), std::end(kTools), tool) == std::end(kTools)) {
    throw Error({.what = "--export",
                 .got = tool,
                 .expected = fmt::format("one of {}", fmt::join(kTools, ", ")),
                 .advice = ""});
  }
  std::vector<std::string> ids;
  std::vector<std::shared_ptr<CaseData>> chosen;
  for (const auto& data : run.cases) {
    ids.push_back(data->id());
    if (case_id.empty() || case_id == data->id()) chosen.push_back(data);
  }
  if (chosen.empty()) {
    throw Error({.what = "--case",
                 .got = fmt::format("no case \"{}\"", case_id),
                 .expected = "",
                 .advice = suggest(case_id, ids)});
  }
  if (tool == "spec-bench") {
    if (chosen.size() > 1) {
      throw Error({.what = "--export spec-bench",
                   .got = fmt::format("{} cases", chosen.size()),
                   .expected = "one case, because an answer file holds one method",
                   .advice = fmt::format("Choose it with --case, for example --case {}.", ids.back())});
    }
    return answer_file(*chosen.front());
  }
  std::string text;
  for (const auto& data : chosen) text += case_object(*data, tool).dump() + "\n";
  return text;
}

}  // namespace speclab
