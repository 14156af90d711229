#include "experiments/config/toy_spec.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/options_json.h"
#include "experiments/config/config_value.h"

namespace speclab {
namespace {

using nlohmann::json;

toy::MarkovSpec parse_over(toy::MarkovSpec spec, const json& value, const std::string& where) {
  parse_options(option_fields(spec), value, where);
  try {
    toy::count_contexts(spec.vocab, spec.order);
  } catch (const Error& error) {
    throw Error({where, error.text().got, error.text().expected, error.text().advice});
  }
  if (spec.memory > spec.order)
    wrong_value(json_pointer(where, "memory"), spec.memory, fmt::format("at most {}, the order", spec.order));
  return spec;
}

}  // namespace

toy::MarkovSpec parse_markov(const json& value, const std::string& where) {
  return parse_over({}, value, where);
}

toy::MarkovSpec parse_markov_draft(const json& value, const std::string& where,
                                   const toy::MarkovSpec& target) {
  const toy::MarkovSpec spec = parse_over(target, value, where);
  if (spec.vocab != target.vocab)
    wrong_value(json_pointer(where, "vocab"), spec.vocab, fmt::format("{}, as in the target", target.vocab));
  if (spec.order != target.order) {
    wrong_value(
        json_pointer(where, "order"), spec.order,
        fmt::format("{}, as in the target; \"memory\" makes a draft that looks back less", target.order));
  }
  return spec;
}

json to_json(const toy::MarkovSpec& spec) {
  toy::MarkovSpec copy = spec;
  return echo_options(option_fields(copy));
}

std::string markov_name(const json& value) {
  std::string name = "markov";
  const char* before = "-";
  for (const auto& [key, entry] : value.items()) {
    name += fmt::format("{}{}={}", before, key, entry.dump());
    before = ",";
  }
  return name;
}

}  // namespace speclab
