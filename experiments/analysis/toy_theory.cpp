#include "experiments/analysis/toy_theory.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/decoding/drafting/draft_model.h"
#include "core/decoding/registry.h"
#include "core/theory/toys/toy_chain.h"
#include "core/theory/toys/toy_rows.h"
#include "experiments/config/toy_spec.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

/// The toy that has this role in environment.json; nothing for other models.
std::optional<toy::MarkovTable> toy_table_of(const CaseData& data, const std::string& role) {
  const json models = data.environment.value("models", json::object());
  const json model = models.value(role, json::object());
  if (!model.contains("markov")) return std::nullopt;
  return toy::make_markov_table(parse_markov(model["markov"], "environment.json: /models/" + role));
}

/// Whether the tables alone determine the law of text and drafts: no option changes it.
bool has_plain_options(const json& options) {
  return options.value("schedule", "constant") == "constant" && options.value("budget", "fixed") == "fixed" &&
         options.value("repetition_penalty", 1.0) == 1 && options.value("emit_at_most", 0) == 0 &&
         options.value("streams", 1) == 1 && options.value("banned_tokens", json::array()).empty() &&
         options.value("stop", json::array()).empty();
}

/// By the number of tokens after the first one: how many texts of this length begin with each token.
using ToyTexts = std::map<int, std::vector<double>>;

/// The texts of repeat 0. Nothing if a text or a step is not as the closed form assumes.
std::optional<ToyTexts> toy_texts_of(const CaseData& data, int contexts, int gamma) {
  ToyTexts texts;
  bool regular = true;
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      int left = static_cast<int>(turn.tokens.size()) - 1;
      if (turn.finish != Finish::length || left < 0 || turn.tokens.front() < 0 ||
          turn.tokens.front() >= contexts) {
        regular = false;
        return;
      }
      std::vector<double>& first = texts[left];
      first.resize(static_cast<std::size_t>(contexts));
      ++first[static_cast<std::size_t>(turn.tokens.front())];
      for (const StepRecord& step : turn.steps) {
        regular = regular && static_cast<int>(step.drafted.size()) == std::min(gamma, left - 1);
        left -= step.emitted;
      }
    }
  });
  if (!regular || texts.empty()) return std::nullopt;
  return texts;
}

}  // namespace

std::vector<theory::Prediction> toy_predictions(const CaseData& data) try {
  const json& options = data.options();
  const json draft_name = data.config.value("draft", json());
  const StrategyInfo* info = recorded_strategy(data.config.at("strategy").get<std::string>());
  const AcceptanceRule* rule = recorded_rule(data);
  if (info == nullptr || !info->drafts_model_chains || rule == nullptr || !rule->chain_law ||
      !draft_name.is_string() || !options.contains("gamma") || !has_plain_options(options))
    return {};
  const auto target = toy_table_of(data, "target"), draft = toy_table_of(data, draft_name.get<std::string>());
  if (!target || !draft) return {};
  const int gamma = options.at("gamma").get<int>();
  const SamplingParams sampling{.temperature = options.at("temperature").get<double>(),
                                .top_k = options.at("top_k").get<int>(),
                                .top_p = options.at("top_p").get<double>()};
  const DraftSampling of_draft{.temperature = options.value("draft_temperature", -1.0),
                               .top_k = options.value("draft_top_k", -1),
                               .top_p = options.value("draft_top_p", -1.0)};
  toy::MarkovRows p = theory::sampled_rows(*target, sampling),
                  q = theory::sampled_rows(*draft, of_draft.over(sampling));
  const auto texts = toy_texts_of(data, p.contexts(), gamma);
  if (!texts) return {};
  const theory::ToyChain chain(std::move(p), std::move(q), gamma, *rule->chain_law);
  theory::ChainCounts counts;
  for (const auto& [tokens, first] : *texts) counts += chain.of_texts(first, tokens);
  if (counts.steps == 0) return {};
  const char* assumptions =
      "none: the tables of target and draft, the rule, and the first token of each text";
  std::vector<theory::Prediction> out;
  out.push_back(
      {.name = "toy_exact",
       .value = counts.tau(),
       .quantity = "tau",
       .equation = "tokens / E[steps] of the texts, by dynamic programming over the states of the chain",
       .assumptions = assumptions,
       .ci = {}});
  if (counts.tests > 0) {
    out.push_back({.name = "toy_exact_alpha",
                   .value = counts.alpha(),
                   .quantity = "alpha",
                   .equation = "E[accepted tokens] / E[tests] of the texts, by the same program",
                   .assumptions = assumptions,
                   .ci = {}});
  }
  return out;
} catch (const Error&) {
  return {};  // the chain is too large for the rule, or the record holds another version's toy
}

}  // namespace speclab
