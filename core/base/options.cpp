#include "core/base/options.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"

namespace speclab {

using nlohmann::json;

struct OptionVisitor::Impl {
  enum class Mode { parse, describe, echo };
  explicit Impl(Mode what) : mode(what) {}
  const Mode mode;
  const json* object = nullptr;  // used by parse
  std::string where;             // used by parse
  std::vector<std::string> names;
  std::vector<OptionInfo> infos;  // filled by describe
  json echo = json::object();
};

namespace {

using Impl = OptionVisitor::Impl;

template <class T>
std::string range_text(const Range<T>& range) {
  constexpr T kLow = std::numeric_limits<T>::lowest(), kHigh = std::numeric_limits<T>::max();
  const bool low = range.min != kLow, high = range.max != kHigh;
  const std::string from =
      range.above_min ? fmt::format("above {}", range.min) : fmt::format("{}", range.min);
  if (low && high)
    return range.above_min ? fmt::format("{}, at most {}", from, range.max)
                           : fmt::format("{} to {}", from, range.max);
  if (low) return range.above_min ? from : fmt::format("{} or more", from);
  return high ? fmt::format("{} or less", range.max) : std::string();
}

template <class T>
bool inside(T value, const Range<T>& range) {
  return (range.above_min ? value > range.min : value >= range.min) && value <= range.max;
}

// Returns the value as text for an error message, shortened so that the rest of the message stays visible.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

[[noreturn]] void reject(const std::string& pointer, const json& value, const std::string& expected,
                         const std::string& advice = "") {
  throw Error({pointer, shown(value), expected, advice});
}

std::string with_range(std::string_view type, const std::string& range) {
  return range.empty() ? std::string(type) : fmt::format("{}, {}", type, range);
}

void take(const json& value, const std::string& pointer, const std::string& range_words,
          Range<std::int64_t> range, std::int64_t& out) {
  const std::string expected = with_range("an integer", range_words);
  if (!value.is_number_integer()) reject(pointer, value, expected);
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
    reject(pointer, value, expected);
  const auto number = value.get<std::int64_t>();
  if (!inside(number, range)) reject(pointer, value, expected);
  out = number;
}

void take(const json& value, const std::string& pointer, const std::string& range_words, Range<int> range,
          int& out) {
  std::int64_t wide = 0;
  take(value, pointer, range_words, Range<std::int64_t>{range.min, range.max, range.above_min}, wide);
  out = static_cast<int>(wide);
}

void take(const json& value, const std::string& pointer, const std::string& range_words, Range<double> range,
          double& out) {
  const std::string expected = with_range("a number", range_words);
  if (!value.is_number()) reject(pointer, value, expected);
  const double number = value.get<double>();
  if (!inside(number, range)) reject(pointer, value, expected);
  out = number;
}

template <class T>
void take_list(const json& value, const std::string& pointer, const std::string& range_words, Range<T> range,
               std::vector<T>& out) {
  if (!value.is_array()) reject(pointer, value, with_range("a list of numbers", range_words));
  out.resize(value.size());
  for (std::size_t i = 0; i < value.size(); ++i)
    take(value[i], json_pointer(pointer, std::to_string(i)), range_words, range, out[i]);
}

// Handles one field in each of the three modes. `take_value(json, pointer)` parses it.
template <class T, class Take>
void field(Impl& impl, std::string_view name, T& value, const OptionInfo& info, Take&& take_value) {
  for (const std::string& known : impl.names)
    SPECLAB_CHECK(known != name, "option \"{}\" is declared twice", name);
  impl.names.emplace_back(name);
  switch (impl.mode) {
    case Impl::Mode::parse: {
      const auto found = impl.object->find(name);
      if (found != impl.object->end()) take_value(*found, json_pointer(impl.where, name));
      break;
    }
    case Impl::Mode::describe:
      impl.infos.push_back(info);
      impl.infos.back().name = name;
      impl.infos.back().default_value = json(value).dump();
      break;
    case Impl::Mode::echo: impl.echo[std::string(name)] = value; break;
  }
}

OptionInfo info_of(std::string type, std::string range, std::string_view help, bool list = false) {
  return {{}, std::move(type), {}, std::move(range), {}, std::string(help), {}, list};
}

template <class T>
void number_field(Impl& impl, std::string_view name, T& value, Range<T> range, std::string_view help,
                  std::string type) {
  const std::string words = range_text(range);
  field(impl, name, value, info_of(std::move(type), words, help),
        [&](const json& from, const std::string& pointer) { take(from, pointer, words, range, value); });
}

template <class T>
void list_field(Impl& impl, std::string_view name, std::vector<T>& value, Range<T> range,
                std::string_view help, std::string type) {
  const std::string words = range_text(range);
  field(impl, name, value, info_of(std::move(type), words, help, true),
        [&](const json& from, const std::string& pointer) { take_list(from, pointer, words, range, value); });
}

}  // namespace

void OptionVisitor::operator()(std::string_view name, int& value, Range<int> range, std::string_view help) {
  number_field(impl_, name, value, range, help, "integer");
}

void OptionVisitor::operator()(std::string_view name, std::int64_t& value, Range<std::int64_t> range,
                               std::string_view help) {
  number_field(impl_, name, value, range, help, "integer");
}

void OptionVisitor::operator()(std::string_view name, double& value, Range<double> range,
                               std::string_view help) {
  number_field(impl_, name, value, range, help, "number");
}

void OptionVisitor::operator()(std::string_view name, bool& value, std::string_view help) {
  field(impl_, name, value, info_of("boolean", "", help), [&](const json& from, const std::string& pointer) {
    if (!from.is_boolean()) reject(pointer, from, "true or false");
    value = from.get<bool>();
  });
}

void OptionVisitor::operator()(std::string_view name, std::string& value,
                               const std::vector<std::string>& choices, std::string_view help) {
  OptionInfo info = info_of("choice", "", help);
  info.choices = choices;
  field(impl_, name, value, info, [&](const json& from, const std::string& pointer) {
    std::string expected = "one of";
    for (std::size_t i = 0; i < choices.size(); ++i)
      expected += fmt::format("{} \"{}\"", i == 0 ? "" : ",", choices[i]);
    if (!from.is_string()) reject(pointer, from, expected);
    const auto text = from.get<std::string>();
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      const std::string near = nearest_name(text, choices);
      reject(pointer, from, expected, near.empty() ? "" : fmt::format("Did you mean \"{}\"?", near));
    }
    value = text;
  });
}

void OptionVisitor::operator()(std::string_view name, std::string& value,
                               std::initializer_list<std::string_view> choices, std::string_view help) {
  (*this)(name, value, std::vector<std::string>(choices.begin(), choices.end()), help);
}

void OptionVisitor::operator()(std::string_view name, std::string& value, std::string_view help) {
  field(impl_, name, value, info_of("text", "", help), [&](const json& from, const std::string& pointer) {
    if (!from.is_string()) reject(pointer, from, "a text");
    value = from.get<std::string>();
  });
}

void OptionVisitor::operator()(std::string_view name, std::vector<double>& value, Range<double> range,
                               std::string_view help) {
  list_field(impl_, name, value, range, help, "list of numbers");
}

void OptionVisitor::operator()(std::string_view name, std::vector<int>& value, Range<int> range,
                               std::string_view help) {
  list_field(impl_, name, value, range, help, "list of integers");
}

void OptionVisitor::operator()(std::string_view name, std::vector<std::string>& value,
                               std::string_view help) {
  field(impl_, name, value, info_of("list of texts", "", help, true),
        [&](const json& from, const std::string& pointer) {
          if (!from.is_array()) reject(pointer, from, "a list of texts");
          std::vector<std::string> texts;
          for (std::size_t i = 0; i < from.size(); ++i) {
            if (!from[i].is_string()) reject(json_pointer(pointer, std::to_string(i)), from[i], "a text");
            texts.push_back(from[i].get<std::string>());
          }
          value = std::move(texts);
        });
}

void refuse_choice(const std::string& what, std::string_view word, std::span<const std::string_view> names,
                   const std::string& advice) {
  std::string expected;
  for (std::size_t i = 0; i < names.size(); ++i)
    expected += fmt::format("{}{}", i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", names[i]);
  throw Error({.what = what, .got = fmt::format("\"{}\"", word), .expected = expected, .advice = advice});
}

void OptionVisitor::absent_means(std::string_view value) {
  SPECLAB_CHECK(!impl_.names.empty(), "absent_means() before an option");
  if (impl_.mode != Impl::Mode::describe) return;
  OptionInfo& info = impl_.infos.back();
  const bool is_text = info.type == "text" || info.type == "choice";
  const json as_json = is_text ? json(value) : json::parse(value, nullptr, false);
  SPECLAB_CHECK(!as_json.is_discarded(), "absent_means(\"{}\") of option {}", value, info.name);
  info.absent_means = as_json.dump();
}

std::vector<OptionInfo> describe_options(const OptionFields& fields) {
  Impl impl(Impl::Mode::describe);
  OptionVisitor visitor(impl);
  fields(visitor);
  return std::move(impl.infos);
}

json echo_options(const OptionFields& fields) {
  Impl impl(Impl::Mode::echo);
  OptionVisitor visitor(impl);
  fields(visitor);
  return std::move(impl.echo);
}

void parse_options(const OptionFields& fields, const json& object, std::string_view where,
                   std::span<const std::string> others) {
  if (!object.is_object()) throw Error({std::string(where), shown(object), "an object with options", ""});
  Impl impl(Impl::Mode::parse);
  impl.object = &object;
  impl.where = where;
  OptionVisitor visitor(impl);
  fields(visitor);
  for (const auto& [key, value] : object.items()) {
    const auto is_key = [&key = key](const std::string& name) { return name == key; };
    if (std::any_of(impl.names.begin(), impl.names.end(), is_key) ||
        std::any_of(others.begin(), others.end(), is_key))
      continue;
    std::vector<std::string> known = impl.names;
    known.insert(known.end(), others.begin(), others.end());
    throw Error({json_pointer(where, key), "an unknown option", "", suggest(key, known)});
  }
}

std::string json_pointer(std::string_view where, std::string_view key) {
  std::string out(where);
  out += '/';
  for (const char c : key) {
    if (c == '~') out += "~0";
    else if (c == '/') out += "~1";
    else out += c;
  }
  return out;
}

}  // namespace speclab
