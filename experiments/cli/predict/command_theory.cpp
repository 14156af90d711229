#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/base/error.h"
#include "core/model/files/checkpoint.h"
#include "core/theory/cascade.h"
#include "core/theory/conversions.h"
#include "core/theory/model_costs.h"
#include "core/theory/predictions.h"
#include "core/theory/verifier_bounds.h"
#include "experiments/cli/command.h"
#include "experiments/cli/predict/row_times_text.h"
#include "experiments/analysis/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

/// The options W, N and G; absent when none is set. G defaults to W, as in Fu et al. 2024.
std::optional<theory::LookaheadShape> parse_shape(const po::variables_map& values) {
  const auto given = [&](const char* name) { return values.count(name) > 0; };
  if (!given("W") && !given("N") && !given("G")) return std::nullopt;
  const auto value = [&](const char* name, int least, int most) {
    const int found = given(name) ? values[name].as<int>() : -1;
    if (found < least || found > most) {
      throw Error({.what = fmt::format("--{}", name),
                   .got = given(name) ? fmt::format("{}", found) : "no value",
                   .expected = fmt::format("{} to {}", least, most),
                   .advice = "For example --alpha .425 --f 3.106 --W 15 --N 5."});
    }
    return found;
  };
  theory::LookaheadShape shape{value("W", 0, 1 << 20), value("N", 2, 64), 0};
  shape.G = given("G") ? value("G", 0, 1 << 20) : shape.W;
  return shape;
}

/// Throws Error for an option that does nothing without another one.
void require_partner(const po::variables_map& values, const char* name, const char* partner,
                     const char* advice) {
  const auto set = [&](const char* option) {
    return values.count(option) > 0 && !values[option].defaulted();
  };
  if (!set(name) || set(partner)) return;
  throw Error({.what = fmt::format("--{}", name),
               .got = fmt::format("no --{}", partner),
               .expected = fmt::format("--{} together with --{}", name, partner),
               .advice = advice});
}

/// The numbers of nodes of a tree at depth 1, 2, ..., from a text such as "4,8,8".
std::vector<int> parse_tree(const std::string& text) {
  std::vector<int> nodes;
  for (const double number : parse_number_list(text, "--tree")) {
    if (!(number >= 1 && number <= 1 << 20) || number != std::floor(number)) {
      throw Error({.what = "--tree",
                   .got = fmt::format("{}", number),
                   .expected = "whole numbers of nodes, at least 1 at each depth",
                   .advice = "For example --tree 4,8,8: 4 nodes at depth 1, and 8 at depths 2 and 3."});
    }
    nodes.push_back(static_cast<int>(number));
  }
  return nodes;
}

/// The rows p and q of one position; absent without --p and --q.
std::optional<theory::RowInputs> parse_rows(const po::variables_map& values) {
  const char* both = "For example --p .55,.25,.15,.05 --q .4,.35,.05,.2 --k 2 --gamma 4.";
  require_partner(values, "p", "q", both);
  require_partner(values, "q", "p", both);
  require_partner(values, "k", "p", both);
  if (values.count("p") == 0) return std::nullopt;
  if (values.count("alpha") > 0) {
    throw Error({.what = "--alpha",
                 .got = "--alpha and --p",
                 .expected = "only one of them",
                 .advice = "The rows give alpha: the sum of min(p, q)."});
  }
  theory::RowInputs rows;
  rows.p = parse_number_list(values["p"].as<std::string>(), "--p");
  rows.q = parse_number_list(values["q"].as<std::string>(), "--q");
  rows.k = values["k"].as<int>();
  if (values.count("gamma") > 0) rows.gamma = values["gamma"].as<int>();
  return rows;
}

void add_model_options(po::options_description& options) {
  options.add_options()("model", po::value<std::string>(),
                        "a model (DIR or GGUF): what its forwards cost, from its shape alone")(
      "draft", po::value<std::string>(), "with --model: the draft model, for c_hat and c")(
      "context", po::value<double>()->default_value(0), "with --model: tokens in the KV cache")(
      "rows", po::value<int>()->default_value(1), "with --model: rows of a forward over a chain, gamma + 1")(
      "tree", po::value<std::string>(),
      "with --model, instead of --rows: drafted nodes at depth 1, 2, ... of a tree, such as 4,8,8")(
      "batch", po::value<int>()->default_value(1), "with --model: sequences of a forward")(
      "weight-bytes", po::value<double>()->default_value(2), "with --model: bytes per weight; 2 for bf16")(
      "kv-bytes", po::value<double>()->default_value(2), "with --model: bytes per number in the KV cache")(
      "peak-flops", po::value<double>(), "with --model and --bandwidth: operations per second of a device")(
      "bandwidth", po::value<double>(), "with --model and --peak-flops: bytes per second of a device")(
      "overhead", po::value<double>()->default_value(0),
      "with --peak-flops: seconds per forward for kernel launches and the like");
}

/// The options of a model and a device; absent without --model.
std::optional<theory::ModelCostInputs> parse_model(const po::variables_map& values) {
  for (const char* name : {"draft", "context", "rows", "tree", "batch", "weight-bytes", "kv-bytes",
                           "peak-flops", "bandwidth", "overhead"})
    require_partner(values, name, "model", "Add --model with the folder or the GGUF file of the target.");
  const char* sheet = "Both are in the data sheet of the device; speclab run measures those of this machine.";
  require_partner(values, "peak-flops", "bandwidth", sheet);
  require_partner(values, "bandwidth", "peak-flops", sheet);
  require_partner(values, "overhead", "peak-flops", sheet);
  if (values.count("model") == 0) return std::nullopt;
  if (values.count("tree") > 0 && !values["rows"].defaulted()) {
    throw Error({.what = "--tree",
                 .got = "--tree and --rows",
                 .expected = "only one of them",
                 .advice = "A tree has one row for the pending token and one for each node."});
  }
  const auto positive = [&](const char* name) {
    const double value = values[name].as<double>();
    if (!(value > 0 && std::isfinite(value)))
      throw Error({fmt::format("--{}", name), fmt::format("{}", value), "a finite number > 0", ""});
    return value;
  };
  const double weight_bytes = positive("weight-bytes"), kv_bytes = positive("kv-bytes");
  const auto shape_of = [&](const char* name) {
    const Checkpoint checkpoint = Checkpoint::open(values[name].as<std::string>());
    return theory::decoder_shape(checkpoint.config(), weight_bytes, kv_bytes);
  };
  theory::ModelCostInputs inputs;
  inputs.target = shape_of("model");
  if (values.count("draft") > 0) inputs.draft = shape_of("draft");
  inputs.context = values["context"].as<double>();
  inputs.batch = values["batch"].as<int>();
  inputs.rows = values["rows"].as<int>();
  if (values.count("tree") > 0) inputs.tree = parse_tree(values["tree"].as<std::string>());
  if (values.count("peak-flops") > 0)
    inputs.machine =
        theory::Machine{positive("peak-flops"), positive("bandwidth"), values["overhead"].as<double>()};
  return inputs;
}

/// Calls `evaluate`, which computes formulas. An Error about an input names the option that set this input.
std::vector<theory::Prediction> naming_options(
    const po::options_description& options,
    const std::function<std::vector<theory::Prediction>()>& evaluate) {
  try {
    return evaluate();
  } catch (const Error& error) {
    std::string name = error.text().what;
    std::replace(name.begin(), name.end(), '_', '-');
    const bool known = std::any_of(options.options().begin(), options.options().end(),
                                   [&](const auto& option) { return option->long_name() == name; });
    if (!known) throw;
    throw Error({"--" + name, error.text().got, error.text().expected, error.text().advice});
  }
}

/// Every formula that the options allow: bounds for verifiers, closed forms, conversions, cascades, and the
/// costs of a model. If `rows` is given, alpha is the sum of min(p, q) of these rows. If c_hat is not given,
/// it comes from the shapes in `model`.
std::vector<theory::Prediction> evaluate_all(theory::PredictionInputs inputs,
                                             std::optional<double> utilization, theory::CascadeInputs cascade,
                                             const std::optional<theory::RowInputs>& rows,
                                             const std::optional<theory::ModelCostInputs>& model) {
  std::vector<theory::Prediction> bounds, costs;
  if (rows) {
    bounds = theory::verifier_bounds(*rows);
    inputs.alpha = std::min(1.0, theory::row_overlap(rows->p, rows->q));
  }
  if (model) costs = theory::model_costs(*model);
  for (const theory::Prediction& cost : costs) {
    if (cost.name == "model_c_hat" && !inputs.c_hat) inputs.c_hat = cost.value;
  }
  std::vector<theory::Prediction> found = std::move(bounds);
  for (theory::Prediction& one : theory::predictions(inputs)) found.push_back(std::move(one));
  for (theory::Prediction& one : theory::conversions(inputs, utilization)) found.push_back(std::move(one));
  cascade.alpha = inputs.alpha, cascade.c = inputs.c, cascade.gamma = inputs.gamma;
  for (theory::Prediction& one : theory::cascade_predictions(cascade)) found.push_back(std::move(one));
  for (theory::Prediction& one : costs) found.push_back(std::move(one));
  return found;
}

void print_json(const std::vector<theory::Prediction>& found) {
  json out = json::object();
  for (const auto& p : found) {
    out[p.name] = {{"value", std::isfinite(p.value) ? json(p.value) : json(nullptr)},
                   {"quantity", p.quantity},
                   {"equation", p.equation},
                   {"assumptions", p.assumptions}};
  }
  fmt::print("{}\n", out.dump(1));
}

void print_table(const std::vector<theory::Prediction>& found) {
  Table table{.header = {"formula", "of", "value", "equation", "assumes"},
              .rows = {},
              .right = {false, false, true, false, false}};
  for (const auto& p : found)
    table.rows.push_back({p.name, p.quantity, std::isfinite(p.value) ? number_text(p.value, 4) : "unbounded",
                          p.equation, p.assumptions});
  fmt::print("{}", to_text(table));
}

int run_theory(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("alpha", po::value<double>(), "P(accept given tested), 0 to 1")(
      "gamma", po::value<int>(), "tokens drafted per step (K)")(
      "c", po::value<double>(), "time of a draft forward / of a target forward, one row each")(
      "c-hat", po::value<double>(), "operations of a draft forward / of a target forward, one row each")(
      "t", po::value<std::string>(),
      "times of a target forward by number of rows, in any unit: 1:1,5:1.3,9:1.7")(
      "acceptance", po::value<std::string>(), "acceptance by position: .8,.75,.7")(
      "tau", po::value<double>(), "measured tokens per step")(
      "r", po::value<double>(), "tau / (gamma + 1), when tau is not known")("speedup", po::value<double>(),
                                                                            "measured speedup")(
      "utilization", po::value<double>(),
      "accepted / drafted tokens, the acceptance rate of llama.cpp and vLLM; with --gamma")(
      "W", po::value<int>(),
      "lookahead decoding: columns of the window; --alpha is then P(accept) of a token of a guess")(
      "N", po::value<int>(), "lookahead decoding: n-gram size")(
      "G", po::value<int>(), "lookahead decoding: number of guesses; default: W")(
      "f", po::value<double>(), "lookahead decoding: one step in f has a good guess")(
      "share", po::value<double>(),
      "lookahead decoding: an exponent s; if W differs from G, the law takes W^s G^(1-s) as the number of "
      "guesses; default .5")("max-gamma", po::value<int>()->default_value(64),
                             "largest gamma in the search for the best one")(
      "p", po::value<std::string>(),
      "the target's row, such as .55,.25,.15,.05; with --q: gives bounds for verifiers")(
      "q", po::value<std::string>(), "the draft's row; with --p")(
      "k", po::value<int>()->default_value(1), "with --p and --q: drafted children of a node")(
      "alpha2", po::value<double>(),
      "cascade of two drafts: acceptance of draft 2 by the target (with --rounds: by draft 1)")(
      "gamma2", po::value<int>(),
      "cascade of two drafts: tokens of draft 2, which follow the gamma tokens of draft 1; with --rounds: "
      "tokens of draft 2 in each round")("c2", po::value<double>(),
                                         "c of draft 2 of a cascade; default 0, as for copies")(
      "rounds", po::value<int>(),
      "vertical cascade: rounds in which draft 1 reviews gamma2 tokens of draft 2")("json", "print JSON");
  add_model_options(options);
  const auto values = parse_arguments(command, arguments, options, {});
  if (!values) return kOk;
  theory::PredictionInputs inputs;
  const auto number = [&](const char* name, std::optional<double>& into) {
    if (values->count(name) > 0) into = (*values)[name].as<double>();
  };
  number("alpha", inputs.alpha);
  number("c", inputs.c);
  number("c-hat", inputs.c_hat);
  number("tau", inputs.tau);
  number("r", inputs.r);
  number("speedup", inputs.speedup);
  number("f", inputs.f);
  number("share", inputs.share);
  inputs.lookahead = parse_shape(*values);
  if (values->count("gamma") > 0) inputs.gamma = (*values)["gamma"].as<int>();
  if (values->count("t") > 0) inputs.target = parse_row_times((*values)["t"].as<std::string>());
  if (values->count("acceptance") > 0)
    inputs.acceptance = parse_number_list((*values)["acceptance"].as<std::string>(), "--acceptance");
  inputs.max_gamma = (*values)["max-gamma"].as<int>();
  std::optional<double> utilization;
  number("utilization", utilization);
  require_partner(*values, "utilization", "gamma",
                  "The same utilization means a different alpha at each gamma.");
  theory::CascadeInputs cascade;
  number("alpha2", cascade.alpha2);
  cascade.c2 = 0;
  number("c2", cascade.c2);
  if (values->count("gamma2") > 0) cascade.gamma2 = (*values)["gamma2"].as<int>();
  if (values->count("rounds") > 0) cascade.rounds = (*values)["rounds"].as<int>();
  const char* both_drafts = "For example --alpha .7 --alpha2 .8 --gamma2 4 --rounds 2 --c .2 --c2 .01.";
  for (const char* name : {"gamma2", "c2", "rounds"}) require_partner(*values, name, "alpha2", both_drafts);
  require_partner(*values, "alpha2", "gamma2", both_drafts);
  require_partner(*values, "alpha2", "alpha", both_drafts);
  if (cascade.alpha2 && !cascade.rounds) require_partner(*values, "alpha2", "gamma", both_drafts);
  const auto model = parse_model(*values);
  const auto rows = parse_rows(*values);
  const std::vector<theory::Prediction> found =
      naming_options(options, [&] { return evaluate_all(inputs, utilization, cascade, rows, model); });
  if (found.empty()) {
    throw Error({.what = "speclab theory",
                 .got = "too few options for any formula",
                 .expected = "at least --alpha, --model, or --p and --q",
                 .advice = fmt::format("For example: {}", command.example)});
  }
  if (values->count("json") > 0) {
    print_json(found);
  } else {
    print_table(found);
  }
  return kOk;
}

}  // namespace

const Command kTheoryCommand = {
    "theory", "[options]",
    "Evaluates every closed form that the given options allow, with its equation and assumptions. With a "
    "model: what its forwards cost.",
    "speclab theory --alpha .8 --gamma 5 --c .05", run_theory};

}  // namespace speclab
