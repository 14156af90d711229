#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"
#include "core/base/standard_streams.h"
#include "core/model/files/checkpoint.h"
#include "core/decoding/registry.h"
#include "core/decoding/drafting/schedule.h"
#include "experiments/cli/command.h"
#include "experiments/metrics/metrics.h"
#include "experiments/analysis/table.h"
#include "experiments/analysis/table_fit.h"

namespace speclab {
namespace po = boost::program_options;
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// A table to print: the keys of its columns in order, one object of texts per row, and the columns that a
/// narrow terminal need not show (Table::expendable).
struct Listing {
  std::vector<std::string> columns;
  json rows = json::array();
  std::vector<std::string> expendable = {};
};

Listing list_strategies() {
  Listing listing{{"name", "draft source", "stop rule", "verification", "criterion", "loss class", "trained"},
                  json::array(),
                  {"loss class", "trained", "criterion", "verification", "stop rule"}};
  for (const StrategyEntry& entry : strategies()) {
    const StrategyInfo& info = entry.info;
    listing.rows.push_back({{"name", info.name},
                            {"draft source", info.draft_source},
                            {"stop rule", info.stop_rule},
                            {"verification", info.verification},
                            {"criterion", info.criterion},
                            {"loss class", info.loss},
                            {"trained", info.trained},
                            {"summary", info.summary},
                            {"paper", info.paper}});
  }
  return listing;
}

/// The loss class of a rule at a temperature: for example "L1", or "L1 or L3" if the rule is lossless by
/// default and some options make it lossy.
std::string loss_text(const AcceptanceRule& rule, double temperature) {
  RuleOptions loose;
  for (const RuleOption* option : rule.options) {
    if (option->number != nullptr) loose.*option->number = .5;
    else loose.*option->count = 2;
  }
  const LossClass usual = rule.loss({}, {.temperature = temperature}),
                  most = rule.loss(loose, {.temperature = temperature});
  return std::string(to_string(usual)) + (most == usual ? "" : fmt::format(" or {}", to_string(most)));
}

Listing list_acceptances() {
  Listing listing{{"name", "loss T=0", "loss T=1", "on a GPU", "options", "summary", "source"},
                  json::array(),
                  {"source", "on a GPU", "options", "loss T=0"}};
  for (const AcceptanceRule& rule : acceptance_rules()) {
    listing.rows.push_back({{"name", rule.name},
                            {"loss T=0", loss_text(rule, 0)},
                            {"loss T=1", loss_text(rule, 1)},
                            {"on a GPU", rule.device_form != nullptr ? "yes" : "no"},
                            {"options", fmt::format("{}", fmt::join(option_names(rule), " "))},
                            {"summary", rule.summary},
                            {"source", rule.source}});
  }
  return listing;
}

Listing list_schedules() {
  Listing listing{{"name", "options", "summary", "source"}, json::array(), {"source", "options"}};
  for (const ScheduleInfo& info : schedules()) {
    listing.rows.push_back({{"name", info.name},
                            {"options", fmt::format("{}", fmt::join(info.options, " "))},
                            {"summary", info.summary},
                            {"source", info.source}});
  }
  return listing;
}

Listing list_metrics() {
  Listing listing{
      {"name", "unit", "better", "estimator", "description"}, json::array(), {"estimator", "better", "unit"}};
  for (const Metric& metric : metrics()) {
    listing.rows.push_back({{"name", metric.name},
                            {"unit", metric.unit},
                            {"better", to_string(metric.better)},
                            {"estimator", metric.estimator},
                            {"description", metric.description}});
  }
  return listing;
}

/// All models below models/ that can be opened.
Listing list_models() {
  Listing listing{{"path", "family", "parameters", "layers", "vocab", "tokenizer"},
                  json::array(),
                  {"tokenizer", "vocab", "layers"}};
  if (!path_exists("models")) return listing;
  std::vector<fs::path> paths;
  std::error_code code;
  const auto skip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at("models", skip, code), end; !code && at != end;
       at.increment(code)) {
    if (at->path().extension() == ".gguf") paths.push_back(at->path());
    if (at->path().filename() == "config.json") paths.push_back(at->path().parent_path());
  }
  if (code) fail_path("models", code.value(), "a folder that can be listed");
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    try {
      const Checkpoint checkpoint = Checkpoint::open(path);
      const ModelConfig& config = checkpoint.config();
      listing.rows.push_back({{"path", path.string()},
                              {"family", config.family},
                              {"parameters", fmt::format("{:.1f} M", weight_count(checkpoint) * 1e-6)},
                              {"layers", std::to_string(config.layers)},
                              {"vocab", std::to_string(config.vocab)},
                              {"tokenizer", config.embedding_of_target ? "of its target"
                                            : checkpoint.tokenizer()   ? "yes"
                                                                       : "no"}});
    } catch (const Error& error) {
      print_status("{}\n", error.what());
    }
  }
  return listing;
}

int run_list(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("json", "print JSON");
  add_wide_option(options);
  const auto values = parse_arguments(command, arguments, options, {"KIND"});
  if (!values) return kOk;
  const std::string kind = required(*values, "KIND", command);
  static const std::vector<std::pair<std::string, Listing (*)()>> kinds = {{"strategies", list_strategies},
                                                                           {"acceptances", list_acceptances},
                                                                           {"schedules", list_schedules},
                                                                           {"metrics", list_metrics},
                                                                           {"models", list_models}};
  std::vector<std::string> known;
  for (const auto& [name, list] : kinds) {
    known.push_back(name);
    if (name != kind) continue;
    const Listing listing = list();
    if (values->count("json") > 0) {
      fmt::print("{}\n", listing.rows.dump(1));
      return kOk;
    }
    Table table{.header = listing.columns, .rows = {}, .right = {}, .expendable = listing.expendable};
    for (const json& row : listing.rows) {
      std::vector<std::string> cells;
      for (const std::string& column : listing.columns) cells.push_back(row.at(column));
      table.rows.push_back(std::move(cells));
    }
    fmt::print("{}", fitted_text(table, table_width(*values)));
    return kOk;
  }
  throw Error({.what = "speclab list",
               .got = fmt::format("unknown kind \"{}\"", kind),
               .expected = fmt::format("one of {}", fmt::join(known, ", ")),
               .advice = ""});
}

void print_options(const std::vector<OptionInfo>& infos, std::optional<int> width) {
  if (infos.empty()) {
    fmt::print("No options.\n");
    return;
  }
  Table table{.header = {"option", "type", "default", "range", "meaning"},
              .rows = {},
              .right = {},
              .expendable = {"type", "range"}};
  for (const OptionInfo& info : infos) {
    table.rows.push_back({info.name, info.type, info.default_value,
                          info.choices.empty() ? info.range : fmt::format("{}", fmt::join(info.choices, " ")),
                          info.help});
  }
  fmt::print("{}", fitted_text(table, width));
}

json options_json(const std::vector<OptionInfo>& infos) {
  json out = json::array();
  for (const OptionInfo& info : infos) {
    out.push_back({{"name", info.name},
                   {"type", info.type},
                   {"default", json::parse(info.default_value)},
                   {"range", info.range},
                   {"choices", info.choices},
                   {"help", info.help}});
  }
  return out;
}

int describe(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("json", "print JSON");
  add_wide_option(options);
  const auto values = parse_arguments(command, arguments, options, {"NAME"});
  if (!values) return kOk;
  const std::string name = required(*values, "NAME", command);
  const bool as_json = values->count("json") > 0;
  std::vector<std::string> known = {"generation"};
  if (name == "generation") {
    GenerationOptions generation;
    const auto infos = describe_options(option_fields(generation));
    if (as_json) {
      fmt::print("{}\n", json{{"name", name}, {"options", options_json(infos)}}.dump(1));
    } else {
      fmt::print("generation: options of every case, whatever its strategy\n\n");
      print_options(infos, table_width(*values));
    }
    return kOk;
  }
  for (const StrategyEntry& entry : strategies()) {
    known.emplace_back(entry.info.name);
    if (entry.info.name != name) continue;
    StrategyChoice choice(entry);
    const auto infos = describe_options(choice.fields());
    const StrategyInfo& info = entry.info;
    if (as_json) {
      fmt::print("{}\n", json{{"name", name},
                              {"summary", info.summary},
                              {"paper", info.paper},
                              {"needs_draft", info.needs_draft},
                              {"needs_file", info.needs_file.empty() ? json() : json(info.needs_file)},
                              {"options", options_json(infos)}}
                             .dump(1));
      return kOk;
    }
    fmt::print(
        "{}: {}\n  paper         {}\n  drafts from   {}\n  stops         {}\n  verification  {}\n  criterion "
        "    {}\n  loss class    {}\n  trained       {}\n\n",
        name, info.summary, info.paper, info.draft_source, info.stop_rule, info.verification, info.criterion,
        info.loss, info.trained);
    print_options(infos, table_width(*values));
    return kOk;
  }
  for (const AcceptanceRule& rule : acceptance_rules()) {
    known.emplace_back(rule.name);
    if (rule.name != name) continue;
    if (as_json) {
      fmt::print("{}\n", json{{"name", name},
                              {"summary", rule.summary},
                              {"source", rule.source},
                              {"options", option_names(rule)}}
                             .dump(1));
    } else {
      fmt::print("{}: {}\n  source      {}\n  loss class  {} at temperature 0, {} at 1\n  options     {}\n",
                 name, rule.summary, rule.source, loss_text(rule, 0), loss_text(rule, 1),
                 fmt::join(option_names(rule), " "));
    }
    return kOk;
  }
  for (const ScheduleInfo& info : schedules()) {
    known.emplace_back(info.name);
    if (info.name != name) continue;
    if (as_json) {
      fmt::print(
          "{}\n",
          json{{"name", name}, {"summary", info.summary}, {"source", info.source}, {"options", info.options}}
              .dump(1));
    } else {
      fmt::print("{}: {}\n  source   {}\n  options  {}\n", name, info.summary, info.source,
                 fmt::join(info.options, " "));
    }
    return kOk;
  }
  for (const Metric& metric : metrics()) {
    known.emplace_back(metric.name);
    if (metric.name != name) continue;
    if (as_json) {
      fmt::print("{}\n", json{{"name", name},
                              {"unit", metric.unit},
                              {"better", to_string(metric.better)},
                              {"estimator", metric.estimator},
                              {"description", metric.description}}
                             .dump(1));
    } else {
      fmt::print("{}: {}\n  unit       {}\n  better     {}\n  estimator  {}\n", name, metric.description,
                 metric.unit.empty() ? "none" : metric.unit, to_string(metric.better), metric.estimator);
    }
    return kOk;
  }
  throw Error({.what = "speclab describe",
               .got = fmt::format("unknown name \"{}\"", name),
               .expected = "a strategy, acceptance rule, schedule, metric, or \"generation\"",
               .advice = suggest(name, known)});
}

}  // namespace

const Command kListCommand = {"list", "strategies|acceptances|schedules|metrics|models [--json] [--wide]",
                              "Lists strategies, acceptance rules, schedules, metrics or models.",
                              "speclab list strategies", run_list};
const Command kDescribeCommand = {
    "describe", "NAME [--json] [--wide]",
    "Describes a strategy, acceptance rule, schedule or metric, or the options of generation.",
    "speclab describe speculative_sampling", describe};

}  // namespace speclab
