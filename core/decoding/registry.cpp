#include "core/decoding/registry.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"

namespace speclab {
namespace {

// The constructors of static objects in other files fill the list, so the first call creates it.
std::vector<StrategyEntry>& entries() {
  static std::vector<StrategyEntry> all;
  return all;
}

/// Returns the first strategy whose property has this value. If there is none, the message of the failed
/// check is "no strategy", followed by `does`.
template <class Value>
const StrategyEntry& strategy_with(Value StrategyInfo::* property, Value value, std::string_view does) {
  const auto& all = entries();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const StrategyEntry& entry) { return entry.info.*property == value; });
  SPECLAB_CHECK(found != all.end(), "no strategy {}", does);
  return *found;
}

}  // namespace

StrategyChoice::StrategyChoice(const StrategyEntry& entry)
    : entry_(&entry), options_(entry.new_options(nullptr)) {}

StrategyChoice::StrategyChoice(const StrategyChoice& other)
    : entry_(other.entry_), options_(other.entry_->new_options(other.options_.get())) {}

StrategyChoice& StrategyChoice::operator=(const StrategyChoice& other) {
  options_ = other.entry_->new_options(other.options_.get());
  entry_ = other.entry_;
  return *this;
}

OptionFields StrategyChoice::fields() {
  return [this](OptionVisitor& visit) { entry_->fields(options_.get(), visit); };
}

std::unique_ptr<Strategy> StrategyChoice::make(const Resources& resources) const {
  if (info().needs_draft && !resources.draft) {
    throw Error({fmt::format("strategy {}", info().name), "no draft model", "a draft model",
                 "Name one with \"draft\": {\"model\": PATH} or {\"layers\": [...]}."});
  }
  if (static_cast<int>(resources.drafts.size()) > info().most_drafts) {
    throw Error({fmt::format("strategy {}", info().name),
                 fmt::format("{} draft models", resources.drafts.size()),
                 fmt::format("at most {}", info().most_drafts), "Leave the others out of \"drafts\"."});
  }
  if (lacks_file()) {
    throw Error({fmt::format("strategy {}", info().name), fmt::format("no \"{}\"", info().needs_file),
                 "a file", fmt::format("speclab describe {} says which one.", info().name)});
  }
  if (needs_costs() && !resources.costs) {
    throw Error({fmt::format("strategy {}", info().name),
                 "budget \"auto\", or a schedule that chooses by costs, without a table of costs",
                 "a table of costs (StepCosts)", "speclab run and speclab generate measure one."});
  }
  return entry_->make(options_.get(), resources);
}

bool StrategyChoice::lacks_file() const {
  if (info().needs_file.empty()) return false;
  const OptionFields fields = [this](OptionVisitor& visit) { entry_->fields(options_.get(), visit); };
  return echo_options(fields).at(std::string(info().needs_file)) == "";
}

std::span<const StrategyEntry> strategies() { return entries(); }

const StrategyEntry& find_strategy(std::string_view name) {
  std::vector<std::string> names;
  for (const StrategyEntry& entry : entries()) {
    if (entry.info.name == name) return entry;
    if (!name.empty() && entry.info.former_name == name) {
      throw Error({"strategy", fmt::format("\"{}\"", name), "a registered strategy",
                   fmt::format("The strategy is now called \"{}\".", entry.info.name)});
    }
    names.emplace_back(entry.info.name);
  }
  throw Error({"strategy", fmt::format("\"{}\"", name), "a registered strategy", suggest(name, names)});
}

const StrategyInfo* recorded_strategy(std::string_view name) {
  const auto& all = entries();
  const auto found = std::find_if(all.begin(), all.end(), [&](const StrategyEntry& entry) {
    return entry.info.name == name || (!name.empty() && entry.info.former_name == name);
  });
  return found == all.end() ? nullptr : &found->info;
}

const StrategyEntry& baseline_strategy() {
  return strategy_with(&StrategyInfo::is_baseline, true, "is registered as the reference");
}

const StrategyEntry& tree_strategy() {
  return strategy_with(&StrategyInfo::drafts_any_shape, true, "drafts trees of any shape");
}

const StrategyEntry& layer_strategy() {
  return strategy_with(&StrategyInfo::skips_layers, true, "skips layers");
}

const StrategyEntry& searched_strategy(SearchedAs what) {
  return strategy_with(&StrategyInfo::searched_as, what, "is registered for this search");
}

void register_strategy(const StrategyEntry& entry) {
  auto& all = entries();
  const auto by_name = [](const StrategyEntry& a, const StrategyEntry& b) {
    return a.info.name < b.info.name;
  };
  all.insert(std::upper_bound(all.begin(), all.end(), entry, by_name), entry);
}

}  // namespace speclab
