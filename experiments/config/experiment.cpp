#include "experiments/config/experiment.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <re2/re2.h>

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"
#include "core/base/sha256.h"
#include "core/base/utf8.h"
#include "core/measure/run_result.h"
#include "core/model/text/chat_template.h"
#include "experiments/config/experiment_cases.h"
#include "experiments/metrics/metrics.h"
#include "experiments/config/settings.h"

namespace speclab {
namespace {

using nlohmann::json;

[[noreturn]] void wrong_type(const std::string& where, const json& value, std::string expected) {
  throw Error(
      {.what = where, .got = value.dump().substr(0, 80), .expected = std::move(expected), .advice = ""});
}

bool is_natural(const json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
}

/// The keys of a config beside its scalar settings.
const std::vector<std::string> kSections = {"target",  "drafts", "prompts",     "seed",     "seeds",
                                            "options", "cases",  "calibration", "published"};

/// The scalar settings of an experiment.
struct Header {
  Experiment& experiment;
  void fields(OptionVisitor& visit) {
    visit("name", experiment.name, "of the experiment");
    visit("description", experiment.description, "one sentence");
    visit("repeats", experiment.repeats, Range<int>{1, 1000},
          "timed decodings of each prompt under each case");
    visit("warmup", experiment.warmup, Range<int>{0, 100}, "untimed prompts per case before the first line");
    visit("teacher_forced", experiment.teacher_forced,
          "estimate alpha on the autoregressive texts after the timed runs");
    visit("share_prefills", experiment.share_prefills,
          "prefill a prompt once for all cases that follow one another on it; keeps one more cache per turn");
  }
};

struct PromptSettings {
  Experiment& experiment;
  PromptSource& source;
  std::string file;
  void fields(OptionVisitor& visit) {
    visit("file", file, "JSONL");
    visit("limit", source.limit, Range<int>{0, 1 << 30}, "first n prompts; 0 = all");
    visit("per_category", source.per_category, Range<int>{0, 1 << 30}, "first n of each category; 0 = all");
    visit("categories", source.categories, "only these; empty = all");
    visit("split", source.split,
          {{PromptSplit::none, "any"}, {PromptSplit::fit, "fit"}, {PromptSplit::measure, "measure"}},
          "only prompts of this split: constants are chosen on \"fit\" and measured on \"measure\"");
    visit("chat_template", experiment.chat_template,
          "wrap prompts in the model's chat template, if it has one; or the name of a family of templates");
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
    if (!list.is_array()) wrong_type(where + "/inline", list, "a list of prompts");
    for (std::size_t i = 0; i < list.size(); ++i) {
      source.inline_prompts.push_back(
          parse_prompt(list[i], static_cast<int>(i) + 1, fmt::format("{}/inline/{}", where, i)));
    }
  }
  experiment.prompts = load_prompts(source);
  // A prompt may override any option of any strategy: it must be an option of some strategy, with a value
  // that it can have.
  std::vector<std::string> known = common_case_keys();
  known.erase(std::remove_if(known.begin(), known.end(),
                             [](const auto& key) {
                               return key == "strategy" || key == "draft" || key == "verify" ||
                                      key == "devices";
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

/// Runs of consecutive numbers: 0-4,29.
std::string layer_text(const std::vector<int>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    if (i > 0) text += ',';
    text += end > i ? fmt::format("{}-{}", layers[i], layers[end]) : fmt::format("{}", layers[i]);
    i = end + 1;
  }
  return text;
}

void read_seeds(Experiment& experiment, const json& value, const std::string& where) {
  const json list = value.is_array() ? value : json::array({value});
  if (list.empty()) wrong_type(where, value, "at least one seed");
  experiment.seeds.clear();
  for (const json& seed : list) {
    if (!is_natural(seed)) wrong_type(where, seed, "a seed, an integer of 0 or more");
    experiment.seeds.push_back(seed.get<std::uint64_t>());
  }
  if (std::set<std::uint64_t>(experiment.seeds.begin(), experiment.seeds.end()).size() !=
      experiment.seeds.size()) {
    wrong_type(where, value, "distinct seeds");
  }
}

}  // namespace

std::vector<int> spread_layers(int keep, int count) {
  if (keep < 1 || keep > count) {
    throw Error({.what = "draft: layers to keep",
                 .got = std::to_string(keep),
                 .expected = fmt::format("1 to {}, the layers of the target", count),
                 .advice = ""});
  }
  std::vector<int> layers;
  for (int i = 0; i < keep; ++i)
    layers.push_back(
        keep == 1 ? 0 : static_cast<int>((static_cast<long>(i) * (count - 1) + (keep - 1) / 2) / (keep - 1)));
  return layers;
}

namespace {

std::string read_from(const json& value, const std::string& where) {
  if (!value["from"].is_string())
    wrong_type(where + "/from", value["from"], "where the model can be had, a text");
  return value["from"].get<std::string>();
}

/// [{"case": ID, "category": NAME, "source": TEXT, "reason": TEXT, "metrics": {NAME: number}, "predictions":
/// {NAME: number}}], category and reason as wanted.
void read_published(Experiment& experiment, const json& list, const std::string& where) {
  if (!list.is_array()) wrong_type(where, list, "a list");
  std::vector<std::string> ids, known, categories;
  for (const PromptSpec& prompt : experiment.prompts) categories.push_back(prompt.category);
  for (const CaseSpec& spec : experiment.cases) ids.push_back(spec.id);
  for (const Metric& metric : metrics()) known.emplace_back(metric.name);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("{}/{}", where, i);
    const json& row = list[i];
    const auto is_text = [&](const char* key) { return row.contains(key) && row[key].is_string(); };
    if (!row.is_object() || !is_text("case") || !is_text("source"))
      wrong_type(at, row, "{\"case\": ID, \"source\": TEXT, \"metrics\": {...}, \"predictions\": {...}}");
    const std::string id = row["case"].get<std::string>();
    if (std::ranges::find(ids, id) == ids.end())
      throw Error({.what = at + "/case",
                   .got = "\"" + id + "\"",
                   .expected = "the id of a case",
                   .advice = suggest(id, ids)});
    for (const auto& [key, values] : row.items()) {
      if (key == "case" || key == "source") continue;
      if (key == "reason" || key == "category") {
        if (!values.is_string()) wrong_type(at + "/" + key, values, "a text");
        if (key == "category" && std::ranges::find(categories, values.get<std::string>()) == categories.end())
          throw Error({.what = at + "/category",
                       .got = values.dump(),
                       .expected = "a category of the prompts",
                       .advice = suggest(values.get<std::string>(), categories)});
        continue;
      }
      if (key != "metrics" && key != "predictions")
        throw Error({.what = json_pointer(at, key),
                     .got = "an unknown key",
                     .expected = "case, category, source, reason, metrics, predictions",
                     .advice = ""});
      if (!values.is_object()) wrong_type(at + "/" + key, values, "numbers by name");
      for (const auto& [name, value] : values.items()) {
        const std::string pointer = json_pointer(at + "/" + key, name);
        if (!value.is_number()) wrong_type(pointer, value, "a number");
        if (key == "metrics" && std::ranges::find(known, name) == known.end())
          throw Error(
              {.what = pointer, .got = "an unknown metric", .expected = "", .advice = suggest(name, known)});
      }
    }
  }
  experiment.published = list;
}

}  // namespace

InflateShape parse_inflate(const json& value, const std::string& where) {
  InflateShape shape;
  parse_options(option_fields(shape), value, where);
  if (!shape.any())
    wrong_type(where, value, "at least one of hidden, layers, heads, kv_heads, head_dim, ffn, vocab");
  return shape;
}

json to_json(const InflateShape& shape) {
  InflateShape copy = shape;
  json all = echo_options(option_fields(copy)), out = json::object();
  for (const auto& [key, size] : all.items()) {
    if (size != 0) out[key] = size;
  }
  return out;
}

DraftSpec parse_draft(const json& value, std::string name, const std::string& where) {
  DraftSpec draft;
  draft.name = std::move(name);
  const bool inflated = value.is_object() && value.contains("model") && value.contains("inflate");
  const bool from = value.is_object() && value.contains("model") && value.contains("from");
  if (!value.is_object() || value.size() != 1u + inflated + from ||
      !(value.contains("model") || value.contains("layers"))) {
    wrong_type(
        where, value,
        "{\"model\": PATH}, {\"model\": PATH, \"inflate\": {...}}, {\"layers\": [0, 1, ...]} or {\"layers\": "
        "{\"keep\": N}}");
  }
  if (inflated) {
    if (draft.name.empty())
      wrong_type(where + "/inflate", value["inflate"],
                 "an inflated draft in \"drafts\", so that it has a name");
    draft.inflate = parse_inflate(value["inflate"], where + "/inflate");
  }
  if (value.contains("model")) {
    if (from) draft.from = read_from(value, where);
    const json& model = value["model"];
    if (!model.is_string() || model.get_ref<const std::string&>().empty())
      wrong_type(where + "/model", model, "a path");
    draft.model = model.get<std::string>();
    std::filesystem::path path = std::filesystem::path(draft.model).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (draft.name.empty()) draft.name = path.filename().string();
    return draft;
  }
  const json& layers = value["layers"];
  constexpr int kMostLayers = 10'000;  // as of a checkpoint; a larger number would wrap around in an int
  if (layers.is_object() && layers.size() == 1 && layers.contains("keep") &&
      layers["keep"].is_number_integer() && layers["keep"] > 0 && layers["keep"] <= kMostLayers) {
    draft.keep = layers["keep"].get<int>();
    if (draft.name.empty()) draft.name = fmt::format("keep{}", draft.keep);
    return draft;
  }
  const bool list = layers.is_array() && !layers.empty() &&
                    std::all_of(layers.begin(), layers.end(),
                                [](const json& layer) { return is_natural(layer) && layer < kMostLayers; });
  if (list) draft.layers = layers.get<std::vector<int>>();
  if (!list || std::adjacent_find(draft.layers.begin(), draft.layers.end(), std::greater_equal<>()) !=
                   draft.layers.end()) {
    wrong_type(where + "/layers", layers,
               "an ascending list of layer numbers, or {\"keep\": N} with N above 0");
  }
  if (draft.name.empty()) draft.name = "layers" + layer_text(draft.layers);
  return draft;
}

json CaseSpec::options() const {
  StrategyChoice choice = strategy;
  GenerationOptions copy = generation;
  json all = echo_options(choice.fields());
  all.update(echo_options(option_fields(copy)));
  return all;
}

LossClass CaseSpec::loss_class() const {
  return generation.acceptance_rule().loss(generation.rule_options, generation.sampling);
}

void CalibrationOptions::fields(OptionVisitor& visit) {
  visit("enabled", enabled, "measure t(n), draft and acceptance costs apart from the cases");
  visit("rows", rows, Range<int>{1, 128}, "t(n) for n = 1 .. rows");
  visit("context", context, Range<int>{0, 1 << 20},
        "committed positions while measuring; 0: the mean of the run");
  visit(
      "rounds", rounds, Range<int>{1, 100000},
      "measurements of each small size, spread over the run, at most one between two lines; the mean counts");
  visit(
      "texts", texts, Range<int>{1, 100000},
      "short texts that each case decodes, at most one a round, for what its steps cost besides the target");
  visit("drift_every", drift_every, Range<int>{0, 1 << 20},
        "steps of a line between two forwards of as many rows, outside its clock, that say how slow the "
        "machine is just then (CPU); "
        "0: only the rounds say it");
}

const CaseSpec& Experiment::case_by_id(const std::string& id) const {
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const CaseSpec& spec) { return spec.id == id; });
  SPECLAB_CHECK(found != cases.end(), "no case {}", id);
  return *found;
}

json Experiment::resolved() const {
  json draft_list = json::object(), prompt_list = json::array(), case_list = json::array();
  for (const auto& [key, draft] : drafts) {
    draft_list[key] = !draft.model.empty() ? json{{"model", draft.model}}
                      : draft.keep > 0     ? json{{"layers", {{"keep", draft.keep}}}}
                                           : json{{"layers", draft.layers}};
    if (draft.inflate.any()) draft_list[key]["inflate"] = to_json(draft.inflate);
  }
  for (const PromptSpec& prompt : prompts) {
    prompt_list.push_back({{"id", prompt.id},
                           {"category", prompt.category},
                           {"split", to_string(prompt.split)},
                           {"turns", prompt.turns},
                           {"options", prompt.options}});
  }
  for (const CaseSpec& spec : cases) {
    case_list.push_back({{"id", spec.id},
                         {"strategy", spec.strategy.info().name},
                         {"draft", spec.draft.empty() ? json(nullptr) : json(spec.draft)},
                         {"verify", to_string(spec.verify)},
                         {"devices", spec.devices},
                         {"reference", spec.reference.empty() ? json(nullptr) : json(spec.reference)},
                         {"axes", spec.axes},
                         {"added", spec.added},
                         {"rule", spec.generation.acceptance_rule().name},
                         {"loss_class", to_string(spec.loss_class())},
                         {"options", spec.options()}});
  }
  CalibrationOptions copy = calibration;
  json out = {
      {"schema_version", kSchemaVersion},
      {"file", file},
      {"name", name},
      {"description", description},
      {"target", inflate.any() ? json{{"model", target}, {"inflate", to_json(inflate)}} : json(target)},
      {"drafts", draft_list},
      {"prompts", prompt_list},
      {"chat_template", chat_family.empty() ? json(chat_template) : json(chat_family)},
      {"system", system},
      {"seeds", seeds},
      {"repeats", repeats},
      {"warmup", warmup},
      {"teacher_forced", teacher_forced},
      {"share_prefills", share_prefills},
      {"calibration", echo_options(option_fields(copy))},
      {"published", published},
      {"cases", case_list},
      {"source", source}};
  if (!target_name.empty()) out["target_name"] = target_name;
  return out;
}

namespace {

/// Throws Error for a text that cannot be a part of the name of a run's folder.
void require_folder_name(const std::string& text, const std::string& where) {
  constexpr std::size_t kMostBytes = 200;  // of 255: a date, or an ending, is added
  const bool plain =
      !text.empty() && is_utf8(text) && text.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
  if (plain && text.size() <= kMostBytes) return;
  throw Error({.what = where,
               .got = plain ? fmt::format("a name of {} bytes", text.size())
                            : fmt::format("\"{}\"", printable(text, 60)),
               .expected = fmt::format("a name of 1 to {} bytes for a folder, without a slash", kMostBytes),
               .advice = "Choose a plain name; --out says where the folder is."});
}

/// "target" is the target's name in environment.json.
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
  experiment.file = printable(name, 4096);  // a path may be no UTF-8, a record must be
  experiment.source = config;
  const std::string root = name + ": ";
  if (!config.is_object()) wrong_type(name, config, "an object");
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
  if (target.is_object() && target.contains("model") &&
      target.size() == 1u + target.contains("inflate") + target.contains("from")) {
    if (target.contains("inflate"))
      experiment.inflate = parse_inflate(target["inflate"], root + target_at + "/inflate");
    if (target.contains("from")) experiment.target_from = read_from(target, root + target_at);
    target = json(target["model"]);
  }
  if (!target.is_string() || target.get_ref<const std::string&>().empty())
    wrong_type(root + target_at, target, "the path of a model, or {\"model\": PATH, \"inflate\": {...}}");
  experiment.target = target.get<std::string>();
  const json drafts = config.value("drafts", json::object());
  if (!drafts.is_object()) wrong_type(root + "/drafts", drafts, "an object of drafts by name");
  for (const auto& [key, value] : drafts.items()) {
    if (key.empty() || key.find('/') != std::string::npos)
      wrong_type(root + "/drafts", json(key), "names without a slash");
    experiment.drafts.emplace(key, parse_draft(value, key, json_pointer(root + "/drafts", key)));
  }
  if (config.contains("seed") && config.contains("seeds"))
    wrong_type(root + "/seeds", config["seeds"], "\"seed\" or \"seeds\", not both");
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
                     .expected = "no option of a strategy that takes memory from one prompt to the next",
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
  if (config.contains("target")) wrong_type(where, targets, "\"target\" or \"targets\", not both");
  if (!targets.is_object() || targets.empty()) wrong_type(where, targets, "an object of targets by name");
  std::vector<Experiment> all;
  for (const auto& [key, target] : targets.items()) {
    if (key.empty() || key.find('/') != std::string::npos || key.front() == '.')
      wrong_type(where, json(key), "names of folders: without a slash, not beginning with a dot");
    require_folder_name(key, where);
    json one = config;
    one.erase("targets");
    one["target"] = target;
    all.push_back(parse_experiment(std::move(one), name, json_pointer("/targets", key)));
    all.back().target_name = key;
  }
  return all;
}

void filter_cases(Experiment& experiment, const std::string& regex) {
  RE2::Options options;
  options.set_log_errors(false);
  const RE2 expression(regex, options);
  if (!expression.ok()) {
    throw Error(
        {.what = "--filter",
         .got = fmt::format("\"{}\", {}", printable(regex, 200), expression.error()),
         .expected = "a regular expression in RE2's syntax",
         .advice = "For example --filter 'gamma=4$'. Put a backslash before a sign that stands for itself."});
  }
  std::set<std::string> keep;
  for (const CaseSpec& spec : experiment.cases) {
    if (!RE2::PartialMatch(spec.id, expression)) continue;
    keep.insert(spec.id);
    if (!spec.reference.empty()) keep.insert(spec.reference);
  }
  if (keep.empty()) {
    throw Error({.what = "--filter",
                 .got = fmt::format("\"{}\"", printable(regex, 200)),
                 .expected = "a match in at least one case id",
                 .advice = "speclab run CONFIG --dry-run lists them."});
  }
  std::erase_if(experiment.cases, [&](const CaseSpec& spec) { return !keep.contains(spec.id); });
}

void require_few_lines(const Experiment& experiment) {
  std::uint64_t lines = 1;
  for (const std::size_t factor : {experiment.cases.size(), experiment.prompts.size(),
                                   experiment.seeds.size(), static_cast<std::size_t>(experiment.repeats)}) {
    if (factor > kMostLines || lines * factor > kMostLines) {  // both are at most kMostLines: no overflow
      throw Error(
          {.what = experiment.file,
           .got = fmt::format("{} cases x {} prompts x {} seeds x {} repeats", experiment.cases.size(),
                              experiment.prompts.size(), experiment.seeds.size(), experiment.repeats),
           .expected = fmt::format("at most {} lines", kMostLines),
           .advice = "Take fewer with --filter, --set prompts.limit=N or --set repeats=N, or make several "
                     "experiments of it."});
    }
    lines *= factor;
  }
}

bool apply_prompt_options(const PromptSpec& prompt, StrategyChoice& strategy, GenerationOptions& generation) {
  if (prompt.options.empty()) return false;
  const json before = echo_options(strategy.fields());
  const std::string where = fmt::format("prompt {}: options", prompt.id);
  std::vector<std::string> all;
  for (const auto& [key, value] : prompt.options.items()) all.push_back(key);
  parse_options(option_fields(generation), prompt.options, where, all);
  parse_options(strategy.fields(), prompt.options, where, all);
  generation.acceptance_rule();
  return echo_options(strategy.fields()) != before;
}

}  // namespace speclab
