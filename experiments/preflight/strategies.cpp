#include "experiments/preflight/strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/drafting/tree_shape.h"

namespace speclab {
namespace {

using nlohmann::json;

const CaseData& traced_case(const RunData& run, const std::string& id) {
  for (const auto& data : run.cases) {
    if (data->id() == id) return *data;
  }
  throw Error({.what = "speclab preflight",
               .got = fmt::format("no case {} in the trace", id),
               .expected = "the case of each replayed setting",
               .advice = "The record is damaged. Make the trace again."});
}

/// What people call the drafts of a case.
std::string name_of_drafts(const CaseData& data, bool own, bool tree) {
  if (own && tree) return "draft tree";
  if (own) return is_searched_as(data, SearchedAs::ngram_chain) ? "n-gram chain" : "draft chain";
  if (is_searched_as(data, SearchedAs::copies)) return "prompt copies";
  return data.config.value("strategy", "");
}

}  // namespace

bool is_searched_as(const CaseData& data, SearchedAs what) {
  const StrategyInfo* const info = recorded_strategy(data.config.value("strategy", ""));
  return info != nullptr && info->searched_as == what;
}

json best_of_strategies(const RunData& run, std::span<const ReplayedSetting> settings, const CaseData& own) {
  std::vector<const ReplayedSetting*> order;
  for (const ReplayedSetting& setting : settings) order.push_back(&setting);
  std::ranges::stable_sort(
      order, [](const ReplayedSetting* a, const ReplayedSetting* b) { return a->speedup > b->speedup; });
  json out = json::array();
  std::set<std::string> seen;
  for (const ReplayedSetting* setting : order) {
    if (!seen.insert(setting->case_id).second) continue;
    const CaseData& data = traced_case(run, setting->case_id);
    const json& draft = data.config.at("draft");
    const bool with_own = data.id() == own.id() || (!draft.is_null() && draft == own.config.at("draft")),
               tree = setting->drafts_tree();
    const json lists = {{"parents", setting->tree.parents}, {"ranks", setting->tree.ranks}};
    out.push_back({{"what", name_of_drafts(data, with_own, tree)},
                   {"strategy", data.config.value("strategy", "")},
                   {"case", data.id()},
                   {"own", with_own},
                   {"gamma", tree ? json() : json(setting->length)},
                   {"tree", tree ? lists : json()},
                   {"tau", setting->tau},
                   {"tau_ci95", setting->tau_ci95},
                   {"speedup", setting->speedup},
                   {"speedup_ci95", setting->speedup_ci95}});
  }
  return out;
}

json tree_file_of(const json& strategy) {
  json file = strategy.at("tree");
  file["format"] = kTreeFormat;
  return file;
}

std::string setting_words(const json& strategy) {
  if (!strategy.at("tree").is_object()) {
    const int gamma = strategy.at("gamma");
    return fmt::format("drafts of {} {}", gamma, gamma == 1 ? "token" : "tokens");
  }
  const json& lists = strategy["tree"];
  const theory::RankedTree tree{.parents = lists.at("parents").get<std::vector<int>>(),
                                .ranks = lists.at("ranks").get<std::vector<int>>()};
  const int depth = tree.depth();
  return fmt::format("a tree of {} drafted tokens in {} {}", tree.nodes() - 1, depth,
                     depth == 1 ? "level" : "levels");
}

}  // namespace speclab
