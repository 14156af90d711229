#include "experiments/metrics/best_chain.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/decoding/rules/accept.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

using nlohmann::json;

/// What a case drafts.
struct Drafts {
  bool any = false, branch = false, probes = false;
  std::set<std::string> sources, models;
};

/// The source without the number that tells several draft models apart ("draft 2").
std::string kind_of(const std::string& source) { return source.substr(0, source.find(' ')); }

Drafts drafts_of(const CaseData& data) {
  Drafts out;
  for (const std::string& name : draft_names(data.config)) out.models.insert(name);
  for_each_line(data, 0, [&](std::size_t, const LineRecord& line) {
    for (const GenerationRecord& turn : line.turns) {
      for (const StepRecord& step : turn.steps) {
        if (!step.probes.empty()) out.probes = true;
        if (step.drafted.empty()) continue;
        out.any = true;
        for (std::size_t i = 0; i < step.drafted.size(); ++i)
          out.branch = out.branch || step.drafted[i].parent != static_cast<int>(i);
        for (const Contribution& part : step.contributions) out.sources.insert(kind_of(part.source));
        if (step.contributions.empty()) out.sources.insert(kind_of(step.source));
      }
    }
  });
  return out;
}

bool lossless(const CaseData& data) { return data.config.at("loss_class") != "L3"; }

bool same_rule(const CaseData& a, const CaseData& b) {
  if (a.config.at("rule") != b.config.at("rule")) return false;
  const AcceptanceRule* rule = recorded_rule(a);
  if (rule == nullptr) return true;
  for (const std::string_view name : option_names(*rule)) {
    const std::string key(name);
    if (a.options().value(key, json()) != b.options().value(key, json())) return false;
  }
  return true;
}

bool comparable(const CaseData& tree, const Drafts& of_tree, const CaseData& chain, const Drafts& of_chain) {
  return tree.config.at("reference") == chain.config.at("reference") &&
         of_tree.models.empty() == of_chain.models.empty() &&
         std::ranges::includes(of_tree.models, of_chain.models) &&
         std::ranges::includes(of_tree.sources, of_chain.sources) &&
         ((lossless(tree) && lossless(chain)) || same_rule(tree, chain));
}

}  // namespace

void find_best_chains(std::span<const std::shared_ptr<CaseData>> cases) {
  std::vector<Drafts> drafts;
  std::vector<double> speeds;  // of chains; 0 for other cases
  for (const auto& data : cases) {
    drafts.push_back(drafts_of(*data));
    const Drafts& own = drafts.back();
    data->branches = own.branch && !own.probes;
    const bool chain = own.any && !own.branch && !own.probes && data->reference && data->devices() == 1 &&
                       !data->unequal() && !data->reference->unequal();
    const auto speed = chain ? speed_ratio(*data->reference, *data, false, {.resamples = 1}) : std::nullopt;
    speeds.push_back(speed ? speed->value : 0);
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i]->branches) continue;
    std::size_t best = cases.size();
    for (std::size_t j = 0; j < cases.size(); ++j) {
      if (speeds[j] > (best < cases.size() ? speeds[best] : 0) &&
          comparable(*cases[i], drafts[i], *cases[j], drafts[j]))
        best = j;
    }
    if (best < cases.size()) cases[i]->best_chain = cases[best];
  }
}

}  // namespace speclab
