#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/decoding/rules/accept.h"
#include "core/measure/run_result.h"
#include "core/model/toy/toy_checkpoint.h"
#include "core/theory/toys/toy_chain.h"
#include "core/theory/toys/toy_rows.h"
#include "experiments/cli/command.h"
#include "experiments/cli/predict/row_times_text.h"
#include "experiments/config/toy_spec.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

/// The rules whose steps on chains have a closed form.
std::vector<const AcceptanceRule*> toy_rules() {
  std::vector<const AcceptanceRule*> rules;
  for (const AcceptanceRule& rule : acceptance_rules()) {
    if (rule.chain_law) rules.push_back(&rule);
  }
  return rules;
}

std::vector<int> toy_gammas(const std::string& text) {
  std::vector<int> gammas;
  for (const double number : parse_number_list(text, "--gamma")) {
    if (!(number >= 1 && number <= 64 && number == std::floor(number))) {
      throw Error({.what = "--gamma",
                   .got = fmt::format("{}", number),
                   .expected = "draft lengths from 1 to 64",
                   .advice = "For example --gamma 1,2,4."});
    }
    gammas.push_back(static_cast<int>(number));
  }
  return gammas;
}

/// The options that were given, as the JSON that a config has under "markov".
json markov_of(const po::variables_map& values,
               const std::vector<std::pair<const char*, const char*>>& names) {
  json out = json::object();
  for (const auto& [option, key] : names) {
    if (values.count(option) == 0) continue;
    const std::string text = values[option].as<std::string>();
    const std::vector<double> number = parse_number_list(text, fmt::format("--{}", option));
    if (number.size() != 1) {
      throw Error({.what = fmt::format("--{}", option),
                   .got = "\"" + text + "\"",
                   .expected = "one number",
                   .advice = ""});
    }
    const bool whole = number[0] == std::floor(number[0]) && std::abs(number[0]) < 9e15;
    out[key] = whole ? json(static_cast<std::int64_t>(number[0])) : json(number[0]);
  }
  return out;
}

/// tau of an endless text; null for the rule `block` if the Markov chain is too large for it.
json toy_tau(const toy::MarkovRows& p, const toy::MarkovRows& q, int gamma, ChainLaw law) {
  const double paths = p.contexts() * std::pow(p.vocab, gamma);
  if (law == ChainLaw::block &&
      (paths > theory::ToyChain::kMostPaths || p.contexts() > theory::ToyChain::kMostBlockContexts))
    return nullptr;
  return theory::ToyChain(p, q, gamma, law).long_run().tau();
}

/// The exact expectations of a target and a draft.
json toy_numbers(const toy::MarkovSpec& target, const toy::MarkovSpec& draft, double temperature,
                 const std::vector<int>& gammas) {
  const SamplingParams sampling{.temperature = temperature, .top_k = 0, .top_p = 1};
  const toy::MarkovRows p = theory::sampled_rows(toy::make_markov_table(target), sampling),
                        q = theory::sampled_rows(toy::make_markov_table(draft), sampling);
  json out = {{"target", to_json(target)},
              {"draft", to_json(draft)},
              {"tokens", p.contexts()},
              {"temperature", temperature},
              {"entropy_nats", theory::entropy_rate(p)},
              {"alpha", json::object()},
              {"tau", json::array()}};
  const std::vector<const AcceptanceRule*> rules = toy_rules();
  for (const AcceptanceRule* rule : rules) {
    if (*rule->chain_law != ChainLaw::block)
      out["alpha"][std::string(rule->name)] = theory::stationary_alpha(p, q, *rule->chain_law);
  }
  for (const int gamma : gammas) {
    json row = {{"gamma", gamma}};
    for (const AcceptanceRule* rule : rules)
      row[std::string(rule->name)] = toy_tau(p, q, gamma, *rule->chain_law);
    out["tau"].push_back(std::move(row));
  }
  return out;
}

void print_toy(const json& numbers, const std::string& target, const std::string& draft) {
  fmt::print("target  {}\ndraft   {}\n", target, draft);
  fmt::print("vocabulary of {} tokens; entropy {:.4f} nats per token at temperature {}\n\n",
             numbers["tokens"].get<int>(), numbers["entropy_nats"].get<double>(),
             numbers["temperature"].get<double>());
  fmt::print("{:<34}", "");
  const std::vector<const AcceptanceRule*> rules = toy_rules();
  for (const AcceptanceRule* rule : rules) fmt::print("{:>14}", rule->name);
  const auto cell = [](const json& value) {
    return value.is_number() ? fmt::format("{:>14.5f}", value.get<double>()) : fmt::format("{:>14}", "-");
  };
  fmt::print("\n{:<34}", "alpha, mean over all positions");
  for (const AcceptanceRule* rule : rules)
    fmt::print("{}", cell(numbers["alpha"].value(std::string(rule->name), json())));
  for (const json& row : numbers["tau"]) {
    fmt::print("\n{:<34}", fmt::format("tau at gamma {}", row["gamma"].get<int>()));
    for (const AcceptanceRule* rule : rules) fmt::print("{}", cell(row[std::string(rule->name)]));
  }
  fmt::print("\n");
}

/// Writes the target to DIR, the draft to DIR-draft and texts to DIR/texts.jsonl.
void write_toys(const std::string& folder, const toy::MarkovSpec& target, const toy::MarkovSpec& draft,
                int texts, int tokens) {
  const toy::MarkovTable table = toy::make_markov_table(target);
  toy::write_toy(folder, table, toy::describe(target));
  std::filesystem::path beside = std::filesystem::path(folder).lexically_normal();
  if (!beside.has_filename()) beside = beside.parent_path();
  beside += "-draft";
  toy::write_toy(beside, toy::make_markov_table(draft), toy::describe(draft));
  std::string lines;
  const toy::MarkovRows rows = toy::softmax_rows(table);
  for (int i = 0; i < texts; ++i) {
    lines += json{{"ids", toy::sample_text(rows, tokens, static_cast<std::uint64_t>(i) + 1)}}.dump() + "\n";
  }
  if (texts > 0) write_file(std::filesystem::path(folder) / "texts.jsonl", lines);
}

int run_toy(const Command& command, const std::vector<std::string>& arguments) {
  std::string gammas, folder;
  double temperature = 1;
  int texts = 0, tokens = 200;
  po::options_description options;
  const auto number = [] { return po::value<std::string>(); };
  options.add_options()("vocab", number(), "number of symbols; default 16")(
      "order", number(), "number of last symbols that the next one depends on, 1 to 3; default 1")(
      "seed", number(), "seed of the target's table; default 1")(
      "sharpness", number(), "logits are drawn from [-sharpness, sharpness]; default 2")(
      "noise", number(), "draft: share of another table that is mixed into the target's; default 0")(
      "noise-seed", number(), "draft: seed of the table that is mixed in; default seed + 1")(
      "memory", number(), "draft: number of last symbols that the draft looks at; default the order")(
      "temperature", po::value(&temperature)->default_value(1), "above 0; of target and draft")(
      "gamma", po::value(&gammas)->default_value("1,2,3,4"), "draft lengths")(
      "out", po::value(&folder), "folder for the target as a model; the draft goes to FOLDER-draft")(
      "texts", po::value(&texts)->default_value(0),
      "number of texts of the target (temperature 1) to write to texts.jsonl in the folder of --out")(
      "tokens", po::value(&tokens)->default_value(200), "tokens of each text")("json", "print JSON");
  const auto values = parse_arguments(command, arguments, options, {});
  if (!values) return kOk;
  if (!(temperature > 0 && temperature <= 100)) {
    throw Error({.what = "--temperature",
                 .got = fmt::format("{}", temperature),
                 .expected = "above 0, at most 100",
                 .advice = "At temperature 0 a chain runs in a circle that depends on its first token."});
  }
  if (texts < 0 || texts > 100'000 || tokens < 1 || tokens > 1'000'000) {
    throw Error({.what = "--texts, --tokens",
                 .got = fmt::format("{} texts of {} tokens", texts, tokens),
                 .expected = "at most 100000 texts of 1 to 1000000 tokens",
                 .advice = ""});
  }
  if (folder.empty()) refuse_options(*values, "speclab toy without --out", {"texts", "tokens"});
  const std::string where = "speclab toy: ";
  const toy::MarkovSpec target = parse_markov(
      markov_of(*values,
                {{"vocab", "vocab"}, {"order", "order"}, {"seed", "seed"}, {"sharpness", "sharpness"}}),
      where);
  const toy::MarkovSpec draft = parse_markov_draft(
      markov_of(*values, {{"noise", "noise"}, {"noise-seed", "noise_seed"}, {"memory", "memory"}}), where,
      target);
  const json numbers = toy_numbers(target, draft, temperature, toy_gammas(gammas));
  if (!folder.empty()) write_toys(folder, target, draft, texts, tokens);
  if (values->count("json") > 0) {
    fmt::print("{}\n", numbers.dump(1));
  } else {
    print_toy(numbers, toy::describe(target), toy::describe(draft));
  }
  return kOk;
}

}  // namespace

const Command kToyCommand = {"toy", "[options]",
                             "Shows the exact alpha and tau of a pair of Markov chains. With --out, also "
                             "writes the two chains as models. A config can take such a pair as target and "
                             "draft.",
                             "speclab toy --noise 0.3 --gamma 1,2,4", run_toy};

}  // namespace speclab
