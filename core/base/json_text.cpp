#include "core/base/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace speclab {
namespace {

/// The library's text is "[json.exception.parse_error.101] parse error at line 1, column 2: REASON". Our
/// messages state the position themselves, so only the reason is kept.
std::string reason(std::string text) {
  if (const auto end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  if (text.starts_with("parse error")) {
    if (const auto end = text.find(": "); end != std::string::npos) text.erase(0, end + 2);
  }
  return text;
}

[[noreturn]] void fail_at(std::string_view text, std::size_t at, const std::string& name, std::string got,
                          std::string expected = "valid JSON") {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const std::size_t column =
      1 + (newline == std::string_view::npos ? before.size() : before.size() - newline - 1);
  throw Error({.what = fmt::format("{}: line {}, column {}", name, line, column),
               .got = std::move(got),
               .expected = std::move(expected),
               .advice = ""});
}

// At most 200 levels, because values are copied, printed and destroyed by recursion.
constexpr JsonLimits kAnyText{200, SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};

using Json = nlohmann::json;
using Member = std::function<void(const std::string&, const Json&)>;

/// Checks a text against its limits while the library parses it. Passes the members of the outermost object
/// to the callback if there is one.
class Watch {
 public:
  Watch(const std::string& name, const JsonLimits& limits, const Member& member)
      : name_(name), limits_(limits), member_(member) {}

  /// The library calls this for each event of the parse. If it returns false for a complete value, the
  /// library drops that value.
  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    const bool complete = event != Event::object_start && event != Event::array_start;
    if (!complete && depth >= limits_.depth) {  // depth 0 is the first level
      fail(fmt::format("arrays and objects more than {} deep", limits_.depth),
           fmt::format("at most {} levels", limits_.depth), "The file is damaged; fetch or write it again.");
    }
    if (event == Event::key) {
      add_key(value);
      return true;
    }
    if (event == Event::object_end || event == Event::array_end) open_.pop_back();
    else add_value(event, value);
    if (!member_ || depth != 1 || !complete) return true;
    member_(key_, value);
    return event == Event::value;
  }

 private:
  struct Open {
    bool list;
    std::size_t items;           // of a list
    std::set<std::string> keys;  // of an object
  };

  [[noreturn]] void fail(std::string got, std::string expected, std::string advice) const {
    throw Error(
        {.what = name_, .got = std::move(got), .expected = std::move(expected), .advice = std::move(advice)});
  }
  [[noreturn]] void fail_count(const char* what, std::size_t most) const {
    const std::string member = open_.size() > 1 ? " in the member " + Json(key_).dump() : "";
    fail(fmt::format("more than {} {}{}", most, what, member), fmt::format("at most {}", most),
         "No real file has so many. The file is damaged, or made to exhaust the memory.");
  }

  void add_key(const Json& value) {
    std::set<std::string>& keys = open_.back().keys;
    if (!keys.insert(value.get<std::string>()).second) {
      fail("the key " + value.dump() + " twice in one JSON object", "every key once",
           "Delete one of the two.");
    }
    const std::size_t most = open_.size() == 1 ? limits_.members : limits_.inner_members;
    if (keys.size() > most) fail_count("members of an object", most);
    if (member_ && open_.size() == 1) key_ = value.get<std::string>();
  }

  void add_value(Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (open_.empty() && member_ && event != Event::object_start) {
      fail(fmt::format("a JSON {}", event == Event::array_start ? "array" : json_type_name(value)),
           "a JSON object", "The file is damaged; fetch it again.");
    }
    if (!open_.empty() && open_.back().list && ++open_.back().items > limits_.items)
      fail_count("values in a list", limits_.items);
    if (event != Event::value) open_.push_back({event == Event::array_start, 0, {}});
  }

  const std::string& name_;
  const JsonLimits& limits_;
  const Member& member_;
  std::vector<Open> open_;  // open objects and lists, the innermost last
  std::string key_;         // key of the outermost object's member that is being read
};

/// Offset of the first number that is too large for a double; npos when there is none.
std::size_t too_large_number(std::string_view text) {
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (quoted && text[at] == '\\') ++at;
    else if (text[at] == '"') quoted = !quoted;
    else if (!quoted && (text[at] == '-' || ('0' <= text[at] && text[at] <= '9'))) {
      const std::size_t end = std::min(text.find_first_not_of("+-.0123456789eE", at), text.size());
      if (!std::isfinite(std::strtod(std::string(text.substr(at, end - at)).c_str(), nullptr))) return at;
      at = end - 1;
    }
  }
  return std::string_view::npos;
}

/// Throws Error if a key, a text, or white space with the number in it has more than `most` bytes. Called
/// before the library reads the JSON, because the library copies a token up to six times.
void require_short_tokens(std::string_view text, const std::string& name, std::size_t most) {
  bool quoted = false;
  for (std::size_t at = 0, from = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '\\') {
      ++at;
    } else if (c == '"' || (!quoted && std::string_view(",:[]{}").find(c) != std::string_view::npos)) {
      quoted = c == '"' && !quoted;
      from = at;
    } else if (at - from > most) {
      fail_at(text, from, name, fmt::format("a text, number or white space of more than {} bytes", most),
              fmt::format("at most {}", most));
    }
  }
}

Json parse(std::string_view text, const std::string& name, const JsonLimits& limits, const Member& member) {
  // The library takes a zero byte for the end of the text and would ignore the rest.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    fail_at(text, zero, name, "a zero byte");
  if (limits.token_bytes < text.size()) require_short_tokens(text, name, limits.token_bytes);
  Watch watch(name, limits, member);
  try {
    return Json::parse(text, std::ref(watch));
  } catch (const Json::parse_error& error) {
    fail_at(text, std::min(error.byte > 0 ? error.byte - 1 : 0, text.size()), name, reason(error.what()));
  } catch (const Json::out_of_range& error) {  // this exception has no position
    const std::size_t at = too_large_number(text);
    if (at == std::string_view::npos)
      throw Error({.what = name, .got = reason(error.what()), .expected = "valid JSON", .advice = ""});
    fail_at(text, at, name,
            std::string(text.substr(
                at, std::min<std::size_t>(text.find_first_not_of("+-.0123456789eE", at) - at, 40))),
            "a number of at most 1.8e308");
  } catch (const Json::exception& error) {
    throw Error({.what = name, .got = reason(error.what()), .expected = "valid JSON", .advice = ""});
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& name) {
  return parse(text, name, kAnyText, nullptr);
}

void parse_json_members(std::string_view text, const std::string& name, const JsonLimits& limits,
                        const Member& member) {
  parse(text, name, limits, member);
}

std::string_view json_type_name(const nlohmann::json& value) { return value.type_name(); }

}  // namespace speclab
