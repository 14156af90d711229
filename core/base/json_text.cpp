#include "core/base/json_text.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/base/error.h"

namespace speclab {
namespace {

/// The library's text is "[json.exception.parse_error.101] parse error at line 1, column 2: REASON"; the
/// position is stated in our own words, so only the reason is kept.
std::string reason(std::string text) {
  if (const auto end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  if (text.starts_with("parse error")) {
    if (const auto end = text.find(": "); end != std::string::npos) text.erase(0, end + 2);
  }
  return text;
}

[[noreturn]] void fail_at(std::string_view text, std::size_t at, const std::string& name, std::string got) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const std::size_t column =
      1 + (newline == std::string_view::npos ? before.size() : before.size() - newline - 1);
  throw Error({.what = fmt::format("{}: line {}, column {}", name, line, column),
               .got = std::move(got),
               .expected = "valid JSON",
               .advice = ""});
}

}  // namespace

constexpr int kDeepest = 200;  // readers copy, print and destroy values by recursion

nlohmann::json parse_json(std::string_view text, const std::string& name) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth >= kDeepest) {
      throw Error({.what = name,
                   .got = fmt::format("arrays and objects more than {} deep", kDeepest),
                   .expected = "JSON that a person or a program wrote",
                   .advice = "The file is damaged; fetch or write it again."});
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      throw Error({.what = name,
                   .got = "the key " + value.dump() + " twice in one JSON object",
                   .expected = "every key once",
                   .advice = "Delete one of the two."});
    }
    return true;
  };
  // The library takes a zero byte for the end of the text and would ignore what follows it.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    fail_at(text, zero, name, "a zero byte");
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    fail_at(text, std::min(error.byte > 0 ? error.byte - 1 : 0, text.size()), name, reason(error.what()));
  } catch (const Json::exception& error) {
    throw Error({.what = name, .got = reason(error.what()), .expected = "valid JSON", .advice = ""});
  }
}

std::string_view json_type_name(const nlohmann::json& value) {
  return value.type_name();
}

}  // namespace speclab
