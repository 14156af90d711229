#include "experiments/simulate/run_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "experiments/metrics/metrics_detail.h"
#include "experiments/metrics/record_files.h"

namespace speclab {
namespace {

using nlohmann::json;

/// The description of a model in environment.json; null if there is none, or none with a hash.
json model_named(const json& environment, const std::string& role) {
  const json models = environment.value("models", json::object());
  if (!models.contains(role) || !models[role].value("sha256", json()).is_string()) return nullptr;
  return models[role];
}

bool differ(const json& a, const json& b) {
  if (a.is_null() || b.is_null()) return false;
  return std::ranges::any_of(std::vector<const char*>{"sha256", "layers", "inflated"}, [&](const char* name) {
    return a.value(name, json()) != b.value(name, json());
  });
}

/// "SmolLM2 135M (SHA-256 b179c9523d0e...)". Lists the layers if `other` has the same file and other layers.
std::string text_of(const json& model, const json& other) {
  const auto hash = model["sha256"].get<std::string>();
  const bool same_file = hash == other["sha256"].get<std::string>();
  return fmt::format("{} (SHA-256 {}{}{})", printable(model.value("name", "a model without a name"), 80),
                     hash.substr(0, 12), hash.size() > 12 ? "..." : "",
                     same_file && model.contains("layers") && model["layers"] != other.value("layers", json())
                         ? ", layers " + printable(model["layers"].dump(), 60)
                         : "");
}

/// The turns of each prompt, by id. A prompt without turns in config.json is left out.
std::map<std::string, json> prompt_texts(const RunData& run) {
  std::map<std::string, json> texts;
  for (const json& prompt : run.config.value("prompts", json::array())) {
    if (prompt.contains("turns")) texts[prompt.at("id").get<std::string>()] = prompt["turns"];
  }
  return texts;
}

/// The token ids of the first turn of each prompt, by id, from any case of the run. Lines of repeat 0 keep
/// them.
std::map<std::string, std::vector<Token>> prompt_ids(const RunData& run) {
  std::map<std::string, std::vector<Token>> ids;
  for (const auto& data : run.cases) {
    for_each_line(*data, 0, [&](std::size_t, const LineRecord& line) {
      if (!line.turns.empty() && !line.turns.front().context.empty())
        ids.emplace(line.prompt, line.turns.front().context);
    });
  }
  return ids;
}

bool traces_drafts(const CaseData& data) {
  return data.reference != nullptr && data.options().value("emit_at_most", 0) == 1;
}

/// The strategy of a case and its draft model.
std::string drafter_of(const CaseData& data) {
  const std::vector<std::string> drafts = draft_names(data.config);
  const auto strategy = data.config.at("strategy").get<std::string>();
  return drafts.empty() ? strategy : fmt::format("{} with draft {}", strategy, fmt::join(drafts, "+"));
}

std::set<std::string> drafters_in(const RunData& trace) {
  std::set<std::string> drafters;
  for (const auto& data : trace.cases) {
    if (traces_drafts(*data)) drafters.insert(drafter_of(*data));
  }
  return drafters;
}

}  // namespace

MatchedRun with_models_of(const RunData& run, const json& environment, const std::string& other) {
  const json here = model_named(run.environment, "target"), there = model_named(environment, "target");
  if (differ(here, there)) {
    throw Error({.what = other,
                 .got = fmt::format("the target {}", text_of(there, here)),
                 .expected = fmt::format("{}, the target of the other run", text_of(here, there)),
                 .advice = "Combine runs of one target: times, texts and acceptance of two targets differ."});
  }
  MatchedRun out{.run = run, .notes = {}};
  std::erase_if(out.run.cases, [&](const std::shared_ptr<CaseData>& data) {
    for (const std::string& draft : draft_names(data->config)) {
      const json own = model_named(run.environment, draft), its = model_named(environment, draft);
      if (!differ(own, its)) continue;
      out.notes.push_back(fmt::format("{}: left out; its draft {} is {}, but {} in {}", data->id(), draft,
                                      text_of(own, its), text_of(its, own), other));
      return true;
    }
    return false;
  });
  return out;
}

MatchedRun with_models_of_device(const RunData& run, const std::string& device) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(device, ignored)) return {.run = run, .notes = {}};
  return with_models_of(run, read_run_environment(device), device);
}

void require_same_prompts(const RunData& run, const RunData& there, const std::string& other) {
  const auto texts = prompt_texts(run);
  for (const auto& [id, text] : prompt_texts(there)) {
    const auto found = texts.find(id);
    if (found == texts.end() || found->second == text) continue;
    throw Error(
        {.what = other,
         .got = fmt::format("another text of the prompt {}", id),
         .expected = "the prompts of the trace",
         .advice = "A trace predicts steps on its own texts. Record one with the prompts of this run."});
  }
  const auto ids = prompt_ids(run);
  for (const auto& [id, tokens] : prompt_ids(there)) {
    const auto found = ids.find(id);
    if (found == ids.end() || found->second == tokens) continue;
    throw Error({.what = other,
                 .got = fmt::format("other token ids of the prompt {} ({} tokens, {} in the trace)", id,
                                    tokens.size(), found->second.size()),
                 .expected = "the tokenizer and the chat template of the trace",
                 .advice = "Record a trace with the target of this run."});
  }
}

std::vector<std::string> not_replayed(const RunData& trace, const RunData& measured,
                                      const std::set<std::string>& compared) {
  const std::set<std::string> drafters = drafters_in(trace);
  std::vector<std::string> notes;
  for (const auto& data : measured.cases) {
    if (!data->reference || compared.contains(data->id())) continue;
    const std::string drafter = drafter_of(*data);
    notes.push_back(fmt::format(
        "{}: not replayed; {}", data->id(),
        drafters.contains(drafter)
            ? "the trace of its drafter has other options or prompts, shorter drafts, or lacks what its "
              "schedule looks at"
            : "the trace has no drafter " + drafter));
  }
  return notes;
}

std::string traced_drafters(const RunData& trace) {
  const std::set<std::string> drafters = drafters_in(trace);
  return drafters.empty() ? "none" : fmt::format("{}", fmt::join(drafters, ", "));
}

}  // namespace speclab
