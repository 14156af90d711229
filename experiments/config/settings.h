#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// Applies the NAME=VALUE texts of --set to a config. `run` and `generate` share this syntax
/// (configs/README.md, "--set").
///
/// NAME is a dotted path into the config ("prompts.limit", "cases.0.gamma"), or the bare name of an option. A
/// generation option, "verify", "devices" and an option that "options" has already are written into "options"
/// and removed from every case, so that they hold for all cases. Any other option of a strategy is written
/// into every case whose strategy has it. VALUE is JSON, and numbers may be written as .3, 3. or +3; anything
/// that is not JSON is a text.
class Settings {
 public:
  explicit Settings(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  /// Changes the config, text by text in order. `top` holds the keys that a config may have. Throws Error for
  /// a missing name, an unknown name (suggests the nearest one), an option of strategies that no case uses, a
  /// path into a scalar or past the end of an array, and a value that begins like JSON but is malformed.
  void apply(nlohmann::json& config, const std::vector<std::string>& top);

  /// Calls `work`. If that throws an Error about a value that was set here, adds --set NAME=VALUE to the
  /// front of its message.
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

/// Parses the VALUE of a setting.
nlohmann::json parse_setting_value(std::string_view text, const std::string& where);

/// What --help says about --set.
std::string setting_help();

}  // namespace speclab
