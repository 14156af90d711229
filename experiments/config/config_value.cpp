#include "experiments/config/config_value.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace speclab {

using nlohmann::json;

void wrong_value(const std::string& where, const json& value, std::string expected) {
  throw Error(
      {.what = where, .got = value.dump().substr(0, 80), .expected = std::move(expected), .advice = ""});
}

bool is_natural(const json& value) {
  return value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
}

std::string read_from(const json& model, const std::string& where) {
  if (!model["from"].is_string())
    wrong_value(where + "/from", model["from"], "a text that says where to get the model");
  return model["from"].get<std::string>();
}

}  // namespace speclab
