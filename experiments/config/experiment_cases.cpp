#include "experiments/config/experiment_cases.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"
#include "core/decoding/drafting/schedule.h"
#include "core/decoding/rules/accept.h"
#include "experiments/config/sweep.h"

namespace speclab {
namespace {

using nlohmann::json;

constexpr int kMostDevices = 64;

/// Keys of a case that are no options.
const std::vector<std::string> kCaseKeys = {"strategy", "draft", "drafts", "verify", "devices"};

/// Options that do not change the law of autoregressive text: the acceptance rule and its parameters, except
/// those with RuleOption::changes_reference. Two cases that differ only in these options share a reference.
/// There is one exception: above temperature 0, a case with the loss class L2 and a case of another class
/// have different references.
const std::set<std::string>& options_without_effect_on_text() {
  static const std::set<std::string> names = [] {
    std::set<std::string> found{"rule"};
    for (const RuleOption* option : all_rule_options()) {
      if (!option->changes_reference) found.emplace(option->name);
    }
    return found;
  }();
  return names;
}

std::vector<OptionInfo> generation_infos() {
  GenerationOptions options;
  return describe_options(option_fields(options));
}

std::vector<std::string> names_of(const std::vector<OptionInfo>& infos) {
  std::vector<std::string> names;
  for (const OptionInfo& info : infos) names.push_back(info.name);
  return names;
}

bool is_list(const std::vector<OptionInfo>& infos, std::string_view key) {
  return std::any_of(infos.begin(), infos.end(),
                     [&](const OptionInfo& info) { return info.list && info.name == key; });
}

/// The keys of `shared` that are options of other strategies and not of the strategy whose options are `own`.
std::vector<std::string> of_other_strategies(const json& shared, const std::vector<OptionInfo>& own) {
  std::vector<std::string> keys;
  const std::vector<std::string> own_names = names_of(own), of_strategies = strategy_option_names();
  for (const auto& [key, value] : shared.items()) {
    if (std::ranges::find(own_names, key) == own_names.end() &&
        std::ranges::find(of_strategies, key) != of_strategies.end())
      keys.push_back(key);
  }
  return keys;
}

/// The options that decide which text autoregressive decoding writes.
json text_key(const GenerationOptions& generation) {
  GenerationOptions copy = generation;
  json key = echo_options(option_fields(copy));
  for (const std::string& name : options_without_effect_on_text()) key.erase(name);
  return key;
}

/// Turns {"layers": {"keep": [5, 10]}} into a list of two drafts, so that "draft" becomes an axis of the
/// sweep (experiments/config/sweep.h).
json unfold_draft(const json& draft) {
  if (draft.is_array()) {
    json all = json::array();
    for (const json& entry : draft) {
      const json unfolded = unfold_draft(entry);
      if (unfolded.is_array()) {
        all.insert(all.end(), unfolded.begin(), unfolded.end());
      } else {
        all.push_back(unfolded);
      }
    }
    return all;
  }
  const json::json_pointer keep("/layers/keep");
  if (!draft.is_object() || !draft.contains(keep) || !draft[keep].is_array()) return draft;
  json all = json::array();
  for (const json& count : draft[keep]) {
    json one = draft;
    one[keep] = count;
    all.push_back(std::move(one));
  }
  return all;
}

class Expander {
 public:
  Expander(Experiment& experiment, std::string where) : experiment_(experiment), where_(std::move(where)) {}

  void add_entry(const json& entry, const json& shared, const std::string& where);
  void add_references();

 private:
  void add(const std::string& strategy, const SweepPoint& own, const json& written, const SweepPoint& shared,
           const std::string& where);
  std::string draft_name(const json& value, const std::string& where);
  void add_drafts(CaseSpec& spec, const json& own, const std::string& where);
  void insert(CaseSpec spec);

  Experiment& experiment_;
  std::string where_;
  std::map<std::string, std::string> place_of_;  // id of each case so far -> its place in the config
  const std::vector<OptionInfo> generation_ = generation_infos();
};

void Expander::add_entry(const json& entry, const json& shared, const std::string& where) {
  if (!entry.is_object()) {
    throw Error(
        {.what = where, .got = std::string(json_type_name(entry)), .expected = "an object", .advice = ""});
  }
  if (!entry.contains("strategy")) {
    throw Error({.what = where,
                 .got = "no \"strategy\"",
                 .expected = "the name of a strategy",
                 .advice = "speclab list strategies"});
  }
  json names = entry["strategy"];
  if (!names.is_array()) names = json::array({names});
  if (names.empty()) {
    throw Error({.what = where + "/strategy",
                 .got = "an empty sweep []",
                 .expected = "at least one strategy",
                 .advice = "speclab list strategies"});
  }
  for (const json& name : names) {
    if (!name.is_string()) {
      throw Error({.what = where + "/strategy",
                   .got = name.dump(),
                   .expected = "the name of a strategy",
                   .advice = "speclab list strategies"});
    }
    const StrategyEntry* found = nullptr;
    try {
      found = &find_strategy(name.get<std::string>());
    } catch (const Error& error) {
      throw Error({.what = where + "/strategy", .got = error.what(), .expected = "", .advice = ""});
    }
    StrategyChoice choice(*found);
    const std::vector<OptionInfo> own_infos = describe_options(choice.fields());
    json own = entry;
    own.erase("strategy");
    if (own.contains("draft")) own["draft"] = unfold_draft(own["draft"]);
    const auto list_of = [&](std::string_view key) {
      return key == "drafts" || is_list(own_infos, key) || is_list(generation_, key);
    };
    json common = shared;  // an option of the case itself overrides the shared one
    for (const auto& [key, value] : own.items()) common.erase(key);
    for (const std::string& key : of_other_strategies(shared, own_infos)) common.erase(key);
    if (found->info.is_baseline) {  // autoregressive decoding drafts nothing: no rules, no devices
      for (const std::string& key : options_without_effect_on_text()) common.erase(key);
      common.erase("devices");
    }
    for (const SweepPoint& outer : expand_sweep(common, list_of, where_ + ": /options")) {
      for (const SweepPoint& inner : expand_sweep(own, list_of, where))
        add(name.get<std::string>(), inner, own, outer, where);
    }
  }
}

std::string Expander::draft_name(const json& value, const std::string& where) {
  if (value.is_object()) {
    DraftSpec draft = parse_draft(value, "", where, experiment_.markov ? &*experiment_.markov : nullptr);
    const std::string name = draft.name;
    experiment_.drafts.emplace(name, std::move(draft));
    return name;
  }
  if (!value.is_string()) {
    throw Error(
        {.what = where,
         .got = value.dump(),
         .expected = "the name of a draft, or {\"model\": PATH}, {\"layers\": [...]} or {\"markov\": {...}}",
         .advice = ""});
  }
  const auto name = value.get<std::string>();
  if (!experiment_.drafts.contains(name)) {
    std::vector<std::string> known;
    for (const auto& [key, draft] : experiment_.drafts) known.push_back(key);
    throw Error({.what = where,
                 .got = fmt::format("unknown draft \"{}\"", name),
                 .expected = "a name in \"drafts\"",
                 .advice = known.empty() ? "Declare it: \"drafts\": {\"" + name + "\": {\"model\": PATH}}."
                                         : suggest(name, known)});
  }
  return name;
}

/// Reads "draft" or "drafts" of a case.
void Expander::add_drafts(CaseSpec& spec, const json& own, const std::string& where) {
  if (own.contains("draft") && own.contains("drafts")) {
    throw Error({.what = where,
                 .got = "both \"draft\" and \"drafts\"",
                 .expected = "one of them",
                 .advice = "List every draft model in \"drafts\"."});
  }
  if (own.contains("draft")) spec.drafts.push_back(draft_name(own["draft"], where + "/draft"));
  if (own.contains("drafts")) {
    const json& list = own["drafts"];
    if (!list.is_array() || list.empty()) {
      throw Error({.what = where + "/drafts",
                   .got = list.dump(),
                   .expected = "a list of at least one draft",
                   .advice = "Name one draft with \"draft\"."});
    }
    for (std::size_t i = 0; i < list.size(); ++i)
      spec.drafts.push_back(draft_name(list[i], fmt::format("{}/drafts/{}", where, i)));
  }
  const StrategyInfo& info = spec.strategy.info();
  if (spec.drafts.size() > 1 && static_cast<int>(spec.drafts.size()) > info.most_drafts) {
    throw Error({.what = where + "/drafts",
                 .got = fmt::format("{} drafts for {}", spec.drafts.size(), info.name),
                 .expected = fmt::format("at most {}", info.most_drafts),
                 .advice = "Give each draft a case of its own: \"draft\": [...] is a sweep over drafts."});
  }
  spec.draft = fmt::format("{}", fmt::join(spec.drafts, "+"));
}

void Expander::add(const std::string& strategy, const SweepPoint& own, const json& written,
                   const SweepPoint& shared, const std::string& where) {
  CaseSpec spec(strategy, where);
  const std::vector<std::string> own_names = names_of(describe_options(spec.strategy.fields()));
  std::vector<std::string> of_strategy = own_names, of_generation = names_of(generation_);
  for (std::vector<std::string>* names : {&of_strategy, &of_generation})
    names->insert(names->end(), {"verify", "devices"});
  parse_options(option_fields(spec.generation), shared.object, where_ + ": /options", of_strategy);
  parse_options(spec.strategy.fields(), shared.object, where_ + ": /options", of_generation);
  std::vector<std::string> others = names_of(generation_);
  others.insert(others.end(), kCaseKeys.begin(), kCaseKeys.end());
  parse_options(spec.strategy.fields(), own.object, where, others);
  others = own_names;
  others.insert(others.end(), kCaseKeys.begin(), kCaseKeys.end());
  parse_options(option_fields(spec.generation), own.object, where, others);

  json merged = shared.object;
  merged.update(own.object);
  if (merged.contains("verify")) {
    const json& verify = merged["verify"];
    const auto* found = std::ranges::find(kVerifyNames, verify.is_string() ? verify.get<std::string>() : "");
    if (found == std::end(kVerifyNames)) {
      throw Error({.what = where + "/verify",
                   .got = verify.dump(),
                   .expected = fmt::format("one of {}", fmt::join(kVerifyNames, ", ")),
                   .advice = ""});
    }
    spec.verify = static_cast<VerifyWith>(found - std::begin(kVerifyNames));
  }
  if (merged.contains("devices")) {
    const json& devices = merged["devices"];
    const auto count = devices.is_number_integer() ? devices.get<std::int64_t>() : 0;
    if (count < 1 || count > kMostDevices) {
      throw Error({.what = where + "/devices",
                   .got = devices.dump(),
                   .expected = fmt::format("1 to {} devices", kMostDevices),
                   .advice = ""});
    }
    if (count > 1 && (!spec.strategy.info().divides_over_devices || spec.verify != VerifyWith::one_pass)) {
      std::vector<std::string_view> dividing;
      for (const StrategyEntry& entry : strategies()) {
        if (entry.info.divides_over_devices) dividing.push_back(entry.info.name);
      }
      throw Error(
          {.what = where + "/devices",
           .got = fmt::format("{} devices for {}{}", count, strategy,
                              spec.verify != VerifyWith::one_pass ? " verified as a batch of sequences" : ""),
           .expected =
               fmt::format("1 device, or {} with \"verify\": \"one_pass\"", fmt::join(dividing, ", ")),
           .advice = "Only such steps can be divided over several devices; remove \"devices\"."});
    }
    spec.devices = static_cast<int>(count);
  }
  try {
    spec.generation.acceptance_rule();
  } catch (const Error& error) {
    throw Error(
        {where + ": " + error.text().what, error.text().got, error.text().expected, error.text().advice});
  }

  // The id lists the case's own options in the order of their declaration. After them come the shared options
  // that the experiment sweeps.
  const auto part = [&](const std::string& key, const json& value) {
    spec.id += "/" + key + "=" + id_text(value);
  };
  const auto is_tie = [&](const std::string& key) {
    return written[key].is_string() && written[key].get_ref<const std::string&>().starts_with('=');
  };
  add_drafts(spec, own.object, where);
  if (!spec.draft.empty()) part(spec.drafts.size() > 1 ? "drafts" : "draft", spec.draft);
  std::vector<std::string> order = own_names;
  for (const OptionInfo& info : generation_) order.push_back(info.name);
  order.insert(order.end(), {"verify", "devices"});
  for (const std::string& key : order) {
    if (own.object.contains(key) && !is_tie(key)) part(key, own.object[key]);
  }
  for (const std::string& key : order) {
    if (std::find(shared.axes.begin(), shared.axes.end(), key) != shared.axes.end())
      part(key, shared.object[key]);
  }
  for (const std::vector<std::string>* axes : {&shared.axes, &own.axes}) {
    for (const std::string& key : *axes)
      spec.axes[key] = key == "draft" || key == "drafts" ? json(spec.draft) : merged[key];
  }
  insert(std::move(spec));
}

void Expander::insert(CaseSpec spec) {
  if (spec.strategy.info().needs_draft && spec.draft.empty()) {
    throw Error({.what = spec.where,
                 .got = "no \"draft\"",
                 .expected = fmt::format("a draft model for {}", spec.strategy.info().name),
                 .advice = "Add \"draft\": NAME, with NAME declared in \"drafts\"."});
  }
  if (spec.strategy.lacks_file()) {
    const StrategyInfo& info = spec.strategy.info();
    throw Error({.what = spec.where,
                 .got = fmt::format("no \"{}\"", info.needs_file),
                 .expected = fmt::format("a file for {}", info.name),
                 .advice = fmt::format("speclab describe {} says which one.", info.name)});
  }
  const json options = spec.options();
  const ScheduleInfo* schedule = recorded_schedule(options.value("schedule", ""));
  if (schedule != nullptr && schedule->needs_controller && options.value("controller", "").empty()) {
    throw Error(
        {.what = spec.where,
         .got = "no \"controller\"",
         .expected = fmt::format("the file of a trained controller for the schedule {}", schedule->name),
         .advice = "Train one with scripts/fit/fit_controller.py."});
  }
  if (const auto [other, fresh] = place_of_.emplace(spec.id, spec.where); !fresh) {
    throw Error({.what = spec.where,
                 .got = fmt::format("the case {} a second time (first in {})", spec.id, other->second),
                 .expected = "cases that differ",
                 .advice = "Remove one of them."});
  }
  if (experiment_.cases.size() == kMostCases) {
    throw Error({.what = spec.where,
                 .got = fmt::format("more than {} cases", kMostCases),
                 .expected = "fewer in one experiment",
                 .advice = "Split it into several experiments."});
  }
  experiment_.cases.push_back(std::move(spec));
}

/// The options of the case's reference. They are the options of the case, but the rule is "auto" and its
/// parameters have their defaults. Parameters that change the text keep their values
/// (RuleOption::changes_reference). The temperature is 0 if the case's loss class is L2, because the text of
/// such a case is the greedy text.
GenerationOptions reference_generation(const CaseSpec& spec) {
  GenerationOptions generation = spec.generation;
  generation.rule = "auto";
  generation.rule_options = RuleOptions{};
  for (const RuleOption* option : all_rule_options()) {
    if (option->changes_reference) option->copy(spec.generation.rule_options, generation.rule_options);
  }
  if (spec.loss_class() == LossClass::l2) generation.sampling.temperature = 0;
  return generation;
}

void Expander::add_references() {
  const auto is_reference = [](const CaseSpec& spec) {
    return spec.strategy.info().is_baseline && spec.generation.rule == "auto";
  };
  std::map<json, std::string> reference_of;  // id by text_key
  for (const CaseSpec& spec : experiment_.cases) {
    if (is_reference(spec)) reference_of.emplace(text_key(spec.generation), spec.id);
  }
  std::vector<CaseSpec> added;
  std::set<std::string> added_ids;
  for (const CaseSpec& spec : experiment_.cases) {
    const GenerationOptions generation = reference_generation(spec);
    const json key = text_key(generation);
    if (is_reference(spec) || reference_of.contains(key)) continue;
    CaseSpec reference(std::string(baseline_strategy().info.name), spec.where);
    reference.generation = generation;
    reference.added = true;
    GenerationOptions defaults;
    const json usual = text_key(defaults);
    for (const OptionInfo& info : generation_) {  // the id holds the options that the experiment sweeps
      if (options_without_effect_on_text().contains(info.name) || !spec.axes.contains(info.name)) {
        continue;
      }
      reference.axes[info.name] =
          info.name == "temperature" && generation.sampling.temperature == 0 ? json(0) : spec.axes[info.name];
      reference.id += "/" + info.name + "=" + id_text(reference.axes[info.name]);
    }
    if (place_of_.contains(reference.id) || added_ids.contains(reference.id)) {
      for (const OptionInfo& info : generation_) {
        if (!options_without_effect_on_text().contains(info.name) && !reference.axes.contains(info.name) &&
            key[info.name] != usual[info.name]) {
          reference.id += "/" + info.name + "=" + id_text(key[info.name]);
        }
      }
    }
    reference_of.emplace(key, reference.id);
    added_ids.insert(reference.id);
    added.push_back(std::move(reference));
  }
  // References come first, because the texts of the other cases are compared with the references' texts.
  for (CaseSpec& reference : added) insert(std::move(reference));
  std::stable_partition(experiment_.cases.begin(), experiment_.cases.end(), is_reference);
  for (CaseSpec& spec : experiment_.cases) {
    if (is_reference(spec)) continue;
    const auto found = reference_of.find(text_key(reference_generation(spec)));
    SPECLAB_CHECK(found != reference_of.end(), "{} has no reference", spec.id);
    spec.reference = found->second;
  }
}

}  // namespace

std::vector<std::string> strategy_option_names() {
  std::set<std::string> names;
  for (const StrategyEntry& entry : strategies()) {
    StrategyChoice choice(entry);
    for (const OptionInfo& info : describe_options(choice.fields())) names.insert(info.name);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> common_case_keys() {
  std::vector<std::string> names = names_of(generation_infos());
  names.insert(names.end(), kCaseKeys.begin(), kCaseKeys.end());
  return names;
}

void expand_cases(Experiment& experiment, const json& cases, const json& shared, const std::string& where) {
  if (!cases.is_array() || cases.empty()) {
    throw Error(
        {.what = where + ": /cases",
         .got = cases.is_array() ? "an empty list" : std::string(json_type_name(cases)),
         .expected = "a list of at least one case",
         .advice = fmt::format("For example [{{\"strategy\": \"{}\"}}].", baseline_strategy().info.name)});
  }
  if (!shared.is_object()) {
    throw Error({.what = where + ": /options",
                 .got = std::string(json_type_name(shared)),
                 .expected = "an object",
                 .advice = ""});
  }
  Expander expander(experiment, where);
  for (std::size_t i = 0; i < cases.size(); ++i)
    expander.add_entry(cases[i], shared, fmt::format("{}: /cases/{}", where, i));
  expander.add_references();
}

}  // namespace speclab
