#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/theory/predictions.h"
#include "experiments/cli/command.h"
#include "experiments/cli/row_times_text.h"
#include "experiments/analysis/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

/// The options W, N and G; absent when none is set. G defaults to W, as in the paper.
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

/// Evaluates the formulas. An Error about an input names the option that set this input.
std::vector<theory::Prediction> predict(const theory::PredictionInputs& inputs,
                                        const po::options_description& options) {
  try {
    return theory::predictions(inputs);
  } catch (const Error& error) {
    std::string name = error.text().what;
    std::replace(name.begin(), name.end(), '_', '-');
    const bool known = std::any_of(options.options().begin(), options.options().end(),
                                   [&](const auto& option) { return option->long_name() == name; });
    if (!known) throw;
    throw Error({"--" + name, error.text().got, error.text().expected, error.text().advice});
  }
}

int run_theory(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("alpha", po::value<double>(), "P(accept given tested), 0 to 1")(
      "gamma", po::value<int>(), "tokens drafted per step (K)")(
      "c", po::value<double>(), "time of a draft step / time of a target step")(
      "c-hat", po::value<double>(), "operations of a draft step / operations of a target step")(
      "t", po::value<std::string>(), "times of a target forward by number of rows: 1:1,5:1.3,9:1.7")(
      "acceptance", po::value<std::string>(), "acceptance by position: .8,.75,.7")(
      "tau", po::value<double>(), "measured tokens per step")(
      "r", po::value<double>(), "tau / (gamma + 1), when tau is not known")("speedup", po::value<double>(),
                                                                            "measured speedup")(
      "W", po::value<int>(),
      "lookahead decoding: window size; --alpha is then P(accept) of a token of a guess")(
      "N", po::value<int>(), "lookahead decoding: n-gram size")(
      "G", po::value<int>(), "lookahead decoding: number of guesses; default: W")(
      "f", po::value<double>(), "lookahead decoding: one step in f has a good guess")(
      "share", po::value<double>(),
      "lookahead decoding: the exponent s in W^s G^(1-s), the number of guesses in the law when W differs "
      "from G; default .5")("max-gamma", po::value<int>()->default_value(64),
                            "largest gamma in the search for the best one")("json", "print JSON");
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
  const std::vector<theory::Prediction> found = predict(inputs, options);
  if (found.empty()) {
    throw Error({.what = "speclab theory",
                 .got = "too few options for any formula",
                 .expected = "at least --alpha",
                 .advice = fmt::format("For example: {}", command.example)});
  }
  if (values->count("json") > 0) {
    json out = json::object();
    for (const auto& p : found) {
      out[p.name] = {{"value", std::isfinite(p.value) ? json(p.value) : json(nullptr)},
                     {"quantity", p.quantity},
                     {"equation", p.equation},
                     {"assumptions", p.assumptions}};
    }
    fmt::print("{}\n", out.dump(1));
    return kOk;
  }
  Table table{.header = {"formula", "of", "value", "equation", "assumes"},
              .rows = {},
              .right = {false, false, true, false, false}};
  for (const auto& p : found)
    table.rows.push_back({p.name, p.quantity, std::isfinite(p.value) ? number_text(p.value, 4) : "unbounded",
                          p.equation, p.assumptions});
  fmt::print("{}", to_text(table));
  return kOk;
}

}  // namespace

const Command kTheoryCommand = {
    "theory", "[options]",
    "Evaluates every closed form that the given options allow, with its equation and assumptions.",
    "speclab theory --alpha .8 --gamma 5 --c .05", run_theory};

}  // namespace speclab
