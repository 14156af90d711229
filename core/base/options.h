#pragma once

#include <cstddef>
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

/// Interval of allowed values. It includes both ends. With `above_min` it excludes the lower end.
template <class T>
struct Range {
  T min;
  T max;
  bool above_min = false;
};

/// Declares, parses, describes and echoes options. Options are declared once, in a struct with a member
///
///     void fields(OptionVisitor& visit) {
///       visit("gamma", gamma, Range<int>{1, 64}, "tokens drafted per step");
///       schedule.fields(visit);  // a struct may contain others; all names share one flat object
///     }
///
/// The initial values of the members are the defaults. The same declaration is used to parse options from
/// JSON, to write their values as JSON (options_json.h), and to describe the options in help texts
/// (describe_options).
class OptionVisitor {
 public:
  void operator()(std::string_view name, int& value, Range<int> range, std::string_view help);
  void operator()(std::string_view name, std::int64_t& value, Range<std::int64_t> range,
                  std::string_view help);
  void operator()(std::string_view name, double& value, Range<double> range, std::string_view help);
  void operator()(std::string_view name, bool& value, std::string_view help);
  /// A text that must be one of the choices.
  void operator()(std::string_view name, std::string& value, std::initializer_list<std::string_view> choices,
                  std::string_view help);
  void operator()(std::string_view name, std::string& value, const std::vector<std::string>& choices,
                  std::string_view help);
  /// An enum. `names` lists its values with their names in configs.
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
  /// Lists. The range applies to each entry.
  void operator()(std::string_view name, std::vector<double>& value, Range<double> range,
                  std::string_view help);
  void operator()(std::string_view name, std::vector<int>& value, Range<int> range, std::string_view help);
  void operator()(std::string_view name, std::vector<std::string>& value, std::string_view help);

  /// Applies to the option that was declared last. In a record that was written before the option existed,
  /// the option counts as having this value, which may differ from today's default.
  void absent_means(std::string_view value);

  struct Impl;  ///< what to do with each field; defined in options.cpp
  explicit OptionVisitor(Impl& impl) : impl_(impl) {}

 private:
  Impl& impl_;
};

/// Throws an Error that says that `word` is none of `names`.
[[noreturn]] void refuse_choice(const std::string& what, std::string_view word,
                                std::span<const std::string_view> names, const std::string& advice);

/// Returns the enum value that `word` names. `names` lists the values with their names. If the word is none
/// of them, throws an Error that lists all names. `what` says where the word stands, such as "--split", and
/// `advice` is the advice of the error.
template <class Enum, std::size_t n>
  requires std::is_enum_v<Enum>
Enum parse_choice(const std::string& what, std::string_view word,
                  const std::pair<Enum, std::string_view> (&names)[n], const std::string& advice = "") {
  std::vector<std::string_view> known;
  for (const auto& [value, name] : names) {
    if (name == word) return value;
    known.push_back(name);
  }
  refuse_choice(what, word, known, advice);
}

/// Calls fields() of an option struct. The caller does not have to know the type of the struct.
using OptionFields = std::function<void(OptionVisitor&)>;
template <class Options>
OptionFields option_fields(Options& options) {
  return [&options](OptionVisitor& visit) { options.fields(visit); };
}

/// The description of one option, for help texts.
struct OptionInfo {
  std::string name;
  std::string type;           ///< "integer", "number", "boolean", "choice", "text", "list of numbers", ...
  std::string default_value;  ///< as JSON: "4", "\"draft\"", "[]"
  std::string range;          ///< "1 to 64", "above 0, at most 1"; empty when there is none
  std::vector<std::string> choices;  ///< the allowed values if `type` is "choice"
  std::string help;
  std::string absent_means{};  ///< value in records without this option, as JSON; empty: unknown
  bool list = false;  ///< the value is an array, so an array in a config is one value, not one for each case
};
std::vector<OptionInfo> describe_options(const OptionFields& fields);

}  // namespace speclab
