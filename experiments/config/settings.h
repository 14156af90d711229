#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// The NAME=VALUE texts of --set, one syntax for `run` and `generate` (configs/README.md, "--set").
///
/// NAME is a dotted path into the config ("prompts.limit", "cases.0.gamma"), or the bare name of an option.
/// An option of generation goes into "options" and out of every case, so that it holds for all; an option of
/// a strategy goes into every case whose strategy has it. VALUE is JSON with numbers as people write them
/// (.3, 3., +3), or else a text.
class Settings {
 public:
  explicit Settings(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  /// Changes the config in the order of the texts. `top` are the keys that a config may have. Throws Error:
  /// no name, an unknown name (the nearest one suggested), a path into a scalar or past the end of an array,
  /// a value that begins like JSON and is none.
  void apply(nlohmann::json& config, const std::vector<std::string>& top);

  /// Does the work. When it throws an Error about a value that was set here, the Error names --set NAME=VALUE
  /// first.
  void explain(const std::function<void()>& work) const;

 private:
  struct Place {
    std::string text;     ///< NAME=VALUE
    std::string pointer;  ///< where it was written, a JSON pointer
  };
  void set(nlohmann::json& config, const std::string& text, const std::vector<std::string>& top);
  void write(nlohmann::json& config, const std::string& text, const std::string& path,
             const nlohmann::json& value);

  std::vector<std::string> texts_;
  std::vector<Place> places_;
};

/// The VALUE of a setting.
nlohmann::json parse_setting_value(std::string_view text, const std::string& where);

/// What --help says about --set.
std::string setting_help();

}  // namespace speclab
