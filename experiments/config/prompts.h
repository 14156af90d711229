#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace speclab {

/// What a prompt may be used for. A constant must not be measured on prompts to which it was fitted.
enum class PromptSplit {
  none,     ///< the file does not say
  fit,      ///< constants may be chosen on it
  measure,  ///< no constant is chosen on it
};
std::string_view to_string(PromptSplit split);  ///< "", "fit", "measure"

/// A prompt of one or more turns. The turns are asked one after the other. The history of a turn holds the
/// earlier turns and the model's own answers.
struct PromptSpec {
  std::string id;
  std::string category;  ///< "" when it has none
  PromptSplit split = PromptSplit::none;
  std::vector<std::string> turns;                     ///< at least one
  nlohmann::json options = nlohmann::json::object();  ///< overrides for this prompt, flat, as in a case
  /// The program that wrote the only turn in the model's chat form ("jinja2 3.1.6, ..."); "" if the turn is
  /// the user's own text. A rendered turn is encoded as it is: its special tokens, BOS too, are written out.
  std::string renderer;
};

/// Which prompts an experiment uses: a file or inline prompts, and the selection from them.
struct PromptSource {
  std::filesystem::path file;  ///< JSONL; empty: inline
  std::vector<PromptSpec> inline_prompts;
  int limit = 0;                          ///< only the first n; 0: all
  int per_category = 0;                   ///< only the first n of each category; 0: all
  std::vector<std::string> categories;    ///< only these; empty: all
  PromptSplit split = PromptSplit::none;  ///< only prompts of this split; none: all prompts
};

/// Reads one prompt from JSON. It may be Spec-Bench's {question_id, category, turns} (Xia et al. 2024), {id,
/// category, split, turns, options, renderer}, or a text. The id is `number` if the value has no id.
PromptSpec parse_prompt(const nlohmann::json& value, int number, const std::string& where);

/// Reads the prompts, checks that their ids are distinct, and selects. Throws Error that names the file, and
/// the line if one line is malformed.
std::vector<PromptSpec> load_prompts(const PromptSource& source);

}  // namespace speclab
