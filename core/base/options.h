#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace speclab {

/// Closed interval of allowed values; with `above_min` the lower end itself is excluded.
template <class T>
struct Range {
  T min;
  T max;
  bool above_min = false;
};

/// Options are declared once, in a struct with a member
///
///     void fields(OptionVisitor& visit) {
///       visit("gamma", gamma, Range<int>{1, 64}, "tokens drafted per step");
///       schedule.fields(visit);  // structs compose; names share one flat object
///     }
///
/// The initial values of the members are the defaults. The same declaration parses a JSON object, describes
/// the options to people, and echoes the resolved values (options_json.h).
class OptionVisitor {
 public:
  void operator()(std::string_view name, int& value, Range<int> range, std::string_view help);
  void operator()(std::string_view name, std::int64_t& value, Range<std::int64_t> range,
                  std::string_view help);
  void operator()(std::string_view name, double& value, Range<double> range, std::string_view help);
  void operator()(std::string_view name, bool& value, std::string_view help);
  /// One of the choices.
  void operator()(std::string_view name, std::string& value, std::initializer_list<std::string_view> choices,
                  std::string_view help);
  void operator()(std::string_view name, std::string& value, const std::vector<std::string>& choices,
                  std::string_view help);
  /// A value of an enumeration, by its name in configs.
  template <class Enum>
    requires std::is_enum_v<Enum>
  void operator()(std::string_view name, Enum& value,
                  std::span<const std::pair<Enum, std::string_view>> names, std::string_view help) {
    std::vector<std::string> choices;
    std::string text;
    for (const auto& [each, its_name] : names) {
      choices.emplace_back(its_name);
      if (each == value) text = its_name;
    }
    (*this)(name, text, choices, help);
    for (const auto& [each, its_name] : names) {
      if (text == its_name) value = each;
    }
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void operator()(std::string_view name, Enum& value,
                  std::initializer_list<std::pair<Enum, std::string_view>> names, std::string_view help) {
    (*this)(name, value, std::span(names.begin(), names.size()), help);
  }
  /// Any text.
  void operator()(std::string_view name, std::string& value, std::string_view help);
  /// Lists; the range holds for each entry.
  void operator()(std::string_view name, std::vector<double>& value, Range<double> range,
                  std::string_view help);
  void operator()(std::string_view name, std::vector<int>& value, Range<int> range, std::string_view help);
  void operator()(std::string_view name, std::vector<std::string>& value, std::string_view help);

  struct Impl;  ///< what to do with each field; made in options.cpp only
  explicit OptionVisitor(Impl& impl) : impl_(impl) {}

 private:
  Impl& impl_;
};

/// Any struct with fields(), without its type.
using OptionFields = std::function<void(OptionVisitor&)>;
template <class Options>
OptionFields option_fields(Options& options) {
  return [&options](OptionVisitor& visit) { options.fields(visit); };
}

/// One option as people see it.
struct OptionInfo {
  std::string name;
  std::string type;           ///< "integer", "number", "boolean", "choice", "text", "list of numbers", ...
  std::string default_value;  ///< as JSON: "4", "\"draft\"", "[]"
  std::string range;          ///< "1 to 64", "above 0, to 1"; empty when there is none
  std::vector<std::string> choices;  ///< of a choice
  std::string help;
  bool list = false;  ///< an array is a value of it, not a sweep axis
};
std::vector<OptionInfo> describe_options(const OptionFields& fields);

}  // namespace speclab
