#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <sstream>

#include "core/base/error.h"
#include "core/theory/predictions.h"
#include "experiments/command.h"
#include "experiments/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

std::vector<double> parse_list(const std::string& text, const std::string& option) {
  std::vector<double> numbers;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    double number = 0;
    const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (code != std::errc{} || end != part.data() + part.size()) {
      throw Error({.what = option,
                   .got = "\"" + part + "\"",
                   .expected = "numbers with commas between them",
                   .advice = ""});
    }
    numbers.push_back(number);
  }
  return numbers;
}

/// "1:1,5:1.8" -> {1: 1, 5: 1.8}
theory::RowTimes parse_times(const std::string& text) {
  std::map<int, double> times;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t colon = part.find(':');
    int rows = 0;
    const auto [end, code] = std::from_chars(part.data(), part.data() + std::min(colon, part.size()), rows);
    if (colon == std::string::npos || code != std::errc{} || end != part.data() + colon || rows < 1) {
      throw Error({.what = "--t",
                   .got = "\"" + part + "\"",
                   .expected = "pairs rows:time with commas between them",
                   .advice = "For example --t 1:1,5:1.3,9:1.7."});
    }
    times[rows] = parse_list(part.substr(colon + 1), "--t").at(0);
  }
  return theory::RowTimes(std::move(times));
}

int run(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  options.add_options()("alpha", po::value<double>(), "P(accept | reached), 0 to 1")(
      "gamma", po::value<int>(), "tokens drafted per step (K)")(
      "c", po::value<double>(), "time of a draft step / of a target step")("c-hat", po::value<double>(),
                                                                           "the same of operations")(
      "t", po::value<std::string>(), "times of a target forward by rows: 1:1,5:1.3,9:1.7")(
      "acceptance", po::value<std::string>(), "acceptance by position: .8,.75,.7")(
      "tau", po::value<double>(), "measured tokens per step")("r", po::value<double>(),
                                                              "tau / (gamma + 1), when tau is not known")(
      "speedup", po::value<double>(), "measured")("max-gamma", po::value<int>()->default_value(64),
                                                  "range of the search for the best gamma")("json",
                                                                                            "as JSON");
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
  if (values->count("gamma") > 0) inputs.gamma = (*values)["gamma"].as<int>();
  if (values->count("t") > 0) inputs.target = parse_times((*values)["t"].as<std::string>());
  if (values->count("acceptance") > 0)
    inputs.acceptance = parse_list((*values)["acceptance"].as<std::string>(), "--acceptance");
  inputs.max_gamma = (*values)["max-gamma"].as<int>();
  const std::vector<theory::Prediction> found = theory::predictions(inputs);
  if (found.empty()) {
    throw Error({.what = "speclab theory",
                 .got = "too little for any formula",
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
    "Evaluates every closed form that applies to what is given, with its equation and assumptions.",
    "speclab theory --alpha .8 --gamma 5 --c .05", run};

}  // namespace speclab
