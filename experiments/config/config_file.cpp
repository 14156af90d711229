#include "experiments/config/config_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"
#include "core/base/utf8.h"
#include "core/measure/run_result.h"
#include "core/model/text/chat_template.h"
#include "experiments/config/config_value.h"
#include "experiments/config/experiment_cases.h"
#include "experiments/config/published.h"
#include "experiments/config/settings.h"
#include "experiments/config/toy_spec.h"

namespace speclab {
namespace {

using nlohmann::json;

/// The keys of a config that are not fields of Header.
const std::vector<std::string> kSections = {"target",  "drafts", "prompts",     "seed",     "seeds",
                                            "options", "cases",  "calibration", "published"};

/// The scalar settings of an experiment.
struct Header {
  Experiment& experiment;
  void fields(OptionVisitor& visit) {
    visit("name", experiment.name, "name of the experiment");
    visit("description", experiment.description, "what the experiment is, in one sentence");
    visit("repeats", experiment.repeats, Range<int>{1, 1000},
          "timed decodings of each prompt under each case");
    visit("warmup", experiment.warmup, Range<int>{0, 100}, "untimed prompts per case before the first line");
    visit("teacher_forced", experiment.teacher_forced,
          "after all lines, estimate alpha on the autoregressive texts, and -log p of the texts that lossy "
          "cases and their references emitted");
    visit("share_prefills", experiment.share_prefills,
          "prefill a prompt once for all cases that follow one another on it; keeps one more KV cache of the "
          "target for each turn of a conversation");
    visit("bounds", experiment.bounds,
          "for each step of the first repeat, compute what the best verifier could keep of the step's draft; "
          "this time is not measured");
    visit("row_details", experiment.row_details,
          "record also the entropy of the target's row at every token, and p, q and rank of the drafted "
          "tokens that the rule did not test; this time is not measured");
  }
};

struct PromptSettings {
  Experiment& experiment;
  PromptSource& source;
  std::string file;
  void fields(OptionVisitor& visit) {
    visit("file", file, "JSONL file of prompts");
    visit("limit", source.limit, Range<int>{0, 1 << 30}, "first n prompts; 0 = all");
    visit("per_category", source.per_category, Range<int>{0, 1 << 30}, "first n of each category; 0 = all");
    visit("categories", source.categories, "only these; empty = all");
    visit("split", source.split,
          {{PromptSplit::none, "any"}, {PromptSplit::fit, "fit"}, {PromptSplit::measure, "measure"}},
          "only prompts of this split: constants are chosen on \"fit\" and measured on \"measure\"");
    visit("chat_template", experiment.chat_template,
          "true: wrap prompts in the model's chat template, if it has one; a text: the name of a family of "
          "templates");
    visit("system", experiment.system, "system message");
  }
};

void read_prompts(Experiment& experiment, json value, const std::string& where) {
  if (value.is_string()) value = {{"file", value}};
  PromptSource source;
  if (value.is_object() && value.contains("chat_template") && value["chat_template"].is_string()) {
    experiment.chat_family = value["chat_template"].get<std::string>();
    try {
      ChatTemplate::by_name(experiment.chat_family);
    } catch (const Error& error) {
      throw Error({where + "/chat_template", error.text().got, "true, false, " + error.text().expected, ""});
    }
    value["chat_template"] = true;
  }
  PromptSettings settings{experiment, source, ""};
  parse_options(option_fields(settings), value, where, std::vector<std::string>{"inline"});
  source.file = settings.file;
  const bool has_inline = value.contains("inline");
  if (has_inline == !settings.file.empty()) {
    throw Error({.what = where,
                 .got = has_inline ? "both \"file\" and \"inline\"" : "neither \"file\" nor \"inline\"",
                 .expected = "one of them",
                 .advice = ""});
  }
  if (has_inline) {
    const json& list = value["inline"];
    if (!list.is_array()) wrong_value(where + "/inline", list, "a list of prompts");
    for (std::size_t i = 0; i < list.size(); ++i) {
      source.inline_prompts.push_back(
          parse_prompt(list[i], static_cast<int>(i) + 1, fmt::format("{}/inline/{}", where, i)));
    }
  }
  experiment.prompts = load_prompts(source);
  // A prompt may override any generation option and any option of any strategy. Any other key is an
  // error.
  std::vector<std::string> known = common_case_keys();
  known.erase(std::remove_if(known.begin(), known.end(),
                             [](const auto& key) {
                               return key == "strategy" || key == "draft" || key == "drafts" ||
                                      key == "verify" || key == "devices";
                             }),
              known.end());
  for (const StrategyEntry& entry : strategies()) {
    StrategyChoice choice(entry);
    for (const OptionInfo& info : describe_options(choice.fields())) known.push_back(info.name);
  }
  for (const PromptSpec& prompt : experiment.prompts) {
    for (const auto& [key, option] : prompt.options.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      throw Error({.what = json_pointer(fmt::format("{}: prompt {}: /options", where, prompt.id), key),
                   .got = "an unknown option",
                   .expected = "",
                   .advice = suggest(key, known)});
    }
  }
}

void read_seeds(Experiment& experiment, const json& value, const std::string& where) {
  const json list = value.is_array() ? value : json::array({value});
  if (list.empty()) wrong_value(where, value, "at least one seed");
  experiment.seeds.clear();
  for (const json& seed : list) {
    if (!is_natural(seed)) wrong_value(where, seed, "a seed, an integer of 0 or more");
    experiment.seeds.push_back(seed.get<std::uint64_t>());
  }
  if (std::set<std::uint64_t>(experiment.seeds.begin(), experiment.seeds.end()).size() !=
      experiment.seeds.size()) {
    wrong_value(where, value, "distinct seeds");
  }
}

/// Throws Error when the text cannot be part of the name of a run folder.
void require_folder_name(const std::string& text, const std::string& where) {
  constexpr std::size_t kMostBytes = 200;  // a file name may have 255; a date or an ending is added
  const bool plain =
      !text.empty() && is_utf8(text) && text.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
  if (plain && text.size() <= kMostBytes) return;
  throw Error({.what = where,
               .got = plain ? fmt::format("a name of {} bytes", text.size())
                            : fmt::format("\"{}\"", printable(text, 60)),
               .expected = fmt::format("a name of 1 to {} bytes for a folder, without a slash", kMostBytes),
               .advice = "Choose a name without a path. To put the folder elsewhere, use --out FOLDER."});
}

/// Throws Error for a draft called "target", because environment.json gives this name to the target.
void require_draft_name(const std::string& name, const std::string& where) {
  if (name != "target") return;
  throw Error({.what = where,
               .got = "a draft with the name \"target\"",
               .expected = "another name: \"target\" means the target model in every record",
               .advice = "Name it in \"drafts\": {\"small\": {\"model\": PATH}}."});
}

}  // namespace

Experiment parse_experiment(json config, const std::string& name, const std::string& target_at) {
  Experiment experiment;
  experiment.file = printable(name, 4096);  // a path need not be UTF-8, but a record must be
  experiment.source = config;
  const std::string root = name + ": ";
  if (!config.is_object()) wrong_value(name, config, "an object");
  Header header{experiment};
  experiment.name = std::filesystem::path(name).stem().string();
  parse_options(option_fields(header), config, root, kSections);
  require_folder_name(experiment.name, root + "/name");
  for (const char* key : {"target", "prompts", "cases"}) {
    if (!config.contains(key)) {
      throw Error({.what = name,
                   .got = fmt::format("no \"{}\"", key),
                   .expected = "\"target\", \"prompts\" and \"cases\"",
                   .advice = "See configs/README.md."});
    }
  }
  json& target = config["target"];
  if (target.is_object() && target.contains("markov") && target.size() == 1) {
    experiment.markov = parse_markov(target["markov"], root + target_at + "/markov");
    target = json(toy::describe(*experiment.markov));
  } else if (target.is_object() && target.contains("model") &&
             target.size() == 1u + target.contains("inflate") + target.contains("from")) {
    if (target.contains("inflate"))
      experiment.inflate = parse_inflate(target["inflate"], root + target_at + "/inflate");
    if (target.contains("from")) experiment.target_from = read_from(target, root + target_at);
    target = json(target["model"]);
  }
  if (!target.is_string() || target.get_ref<const std::string&>().empty())
    wrong_value(root + target_at, target,
                "the path of a model, {\"model\": PATH, \"inflate\": {...}} or {\"markov\": {...}}");
  experiment.target = target.get<std::string>();
  const json drafts = config.value("drafts", json::object());
  if (!drafts.is_object()) wrong_value(root + "/drafts", drafts, "an object of drafts by name");
  for (const auto& [key, value] : drafts.items()) {
    if (key.empty() || key.find('/') != std::string::npos)
      wrong_value(root + "/drafts", json(key), "names without a slash");
    experiment.drafts.emplace(key, parse_draft(value, key, json_pointer(root + "/drafts", key),
                                               experiment.markov ? &*experiment.markov : nullptr));
  }
  if (config.contains("seed") && config.contains("seeds"))
    wrong_value(root + "/seeds", config["seeds"], "\"seed\" or \"seeds\", not both");
  if (config.contains("seed")) read_seeds(experiment, config["seed"], root + "/seed");
  if (config.contains("seeds")) read_seeds(experiment, config["seeds"], root + "/seeds");
  json calibration = config.value("calibration", json::object());
  if (calibration.is_boolean()) calibration = {{"enabled", calibration}};
  parse_options(option_fields(experiment.calibration), calibration, root + "/calibration");
  expand_cases(experiment, config["cases"], config.value("options", json::object()), name);
  for (const auto& [key, draft] : experiment.drafts) require_draft_name(key, root + "/drafts");
  read_prompts(experiment, config["prompts"], root + "/prompts");
  if (config.contains("published")) read_published(experiment, config["published"], root + "/published");
  for (const PromptSpec& prompt : experiment.prompts) {
    if (prompt.options.empty()) continue;
    for (const CaseSpec& spec : experiment.cases) {
      StrategyChoice strategy = spec.strategy;
      GenerationOptions generation = spec.generation;
      const bool changes = apply_prompt_options(prompt, strategy, generation);
      if (changes && (spec.strategy.carries_memory() || strategy.carries_memory())) {
        throw Error({.what = fmt::format("{}: prompt {}: /options", root + "/prompts", prompt.id),
                     .got = fmt::format("{} for {}", prompt.options.dump(), spec.id),
                     .expected = "no option of a strategy that carries memory from one prompt to the next",
                     .advice = "Give such a prompt an experiment of its own."});
      }
    }
  }
  return experiment;
}

const std::vector<std::string>& config_keys() {
  static const std::vector<std::string> keys = [] {
    Experiment experiment;
    Header header{experiment};
    std::vector<std::string> names = kSections;
    for (const OptionInfo& info : describe_options(option_fields(header))) names.push_back(info.name);
    names.emplace_back("targets");
    return names;
  }();
  return keys;
}

std::vector<Experiment> load_experiments(const std::filesystem::path& file,
                                         const std::vector<std::string>& settings) {
  return configure_experiments(read_json_file(file), file.lexically_normal().string(), settings);
}

std::vector<Experiment> configure_experiments(json config, const std::string& name,
                                              const std::vector<std::string>& texts) {
  Settings settings(texts);
  settings.apply(config, config_keys());
  std::vector<Experiment> experiments;
  settings.explain([&] { experiments = parse_experiments(config, name); });
  return experiments;
}

std::vector<Experiment> parse_experiments(const json& config, const std::string& name) {
  if (!config.is_object() || !config.contains("targets")) return {parse_experiment(config, name)};
  const json& targets = config["targets"];
  const std::string where = name + ": /targets";
  if (config.contains("target")) wrong_value(where, targets, "\"target\" or \"targets\", not both");
  if (!targets.is_object() || targets.empty()) wrong_value(where, targets, "an object of targets by name");
  std::vector<Experiment> all;
  for (const auto& [key, target] : targets.items()) {
    if (key.empty() || key.find('/') != std::string::npos || key.front() == '.')
      wrong_value(where, json(key), "names of folders: without a slash, not beginning with a dot");
    require_folder_name(key, where);
    json one = config;
    one.erase("targets");
    one["target"] = target;
    all.push_back(parse_experiment(std::move(one), name, json_pointer("/targets", key)));
    all.back().target_name = key;
  }
  return all;
}

}  // namespace speclab
