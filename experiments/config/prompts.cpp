#include "experiments/config/prompts.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json_text.h"
#include "core/base/nearest.h"
#include "core/base/options_json.h"

namespace speclab {
namespace {

using nlohmann::json;

[[noreturn]] void wrong(const std::string& where, const json& value, std::string expected) {
  throw Error({.what = where,
               .got = std::string(json_type_name(value)),
               .expected = std::move(expected),
               .advice = ""});
}

std::vector<PromptSpec> read_prompts(const std::filesystem::path& path) {
  if (!path_exists(path)) {
    throw Error({.what = path.string(),
                 .got = "no such prompt file",
                 .expected = "a JSONL file, one prompt per line",
                 .advice = "Paths are relative to the current directory."});
  }
  std::istringstream in(read_whole_file(path, "a JSONL file, one prompt per line"));
  std::vector<PromptSpec> prompts;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}: line {}", path.string(), number);
    prompts.push_back(parse_prompt(parse_json(line, where), number, where));
  }
  return prompts;
}

}  // namespace

std::string_view to_string(PromptSplit split) {
  switch (split) {
    case PromptSplit::fit: return "fit";
    case PromptSplit::measure: return "measure";
    case PromptSplit::none: break;
  }
  return "";
}

PromptSpec parse_prompt(const json& value, int number, const std::string& where) {
  PromptSpec prompt;
  prompt.id = std::to_string(number);
  if (value.is_string()) {
    prompt.turns = {value.get<std::string>()};
    return prompt;
  }
  if (!value.is_object()) wrong(where, value, "a text or an object with \"turns\"");
  if (!value.contains("turns")) {
    throw Error(
        {.what = where, .got = "no \"turns\"", .expected = "\"turns\", a list of texts", .advice = ""});
  }
  for (const auto& [key, entry] : value.items()) {
    if (key == "question_id" || key == "id") {
      if (!entry.is_string() && !entry.is_number_integer())
        wrong(json_pointer(where, key), entry, "a text or an integer");
      prompt.id = entry.is_string() ? entry.get<std::string>() : entry.dump();
    } else if (key == "category") {
      if (!entry.is_string()) wrong(json_pointer(where, key), entry, "a text");
      prompt.category = entry.get<std::string>();
    } else if (key == "split") {
      if (entry != "fit" && entry != "measure") {
        throw Error({.what = json_pointer(where, key),
                     .got = entry.dump(),
                     .expected = "\"fit\" or \"measure\"",
                     .advice = "Leave it out if nothing is fitted to these prompts."});
      }
      prompt.split = entry == "fit" ? PromptSplit::fit : PromptSplit::measure;
    } else if (key == "turns") {
      if (!entry.is_array() || entry.empty())
        wrong(json_pointer(where, key), entry, "a list of one or more texts");
      for (const json& turn : entry) {
        if (!turn.is_string()) wrong(json_pointer(where, key), turn, "texts only");
        prompt.turns.push_back(turn.get<std::string>());
      }
    } else if (key == "options") {
      if (!entry.is_object()) wrong(json_pointer(where, key), entry, "an object of options");
      prompt.options = entry;
    } else if (key == "renderer") {
      if (!entry.is_string()) wrong(json_pointer(where, key), entry, "a text");
      prompt.renderer = entry.get<std::string>();
    } else if (key != "reference" && key != "source") {  // Spec-Bench's reference answers are not used
      const std::vector<std::string> known{"id",      "question_id", "category",  "split", "turns",
                                           "options", "renderer",    "reference", "source"};
      throw Error({.what = json_pointer(where, key),
                   .got = "an unknown key",
                   .expected = "",
                   .advice = suggest(key, known)});
    }
  }
  if (!prompt.renderer.empty() && prompt.turns.size() != 1) {
    throw Error(
        {.what = where,
         .got = fmt::format("\"renderer\" and {} turns", prompt.turns.size()),
         .expected = "one turn",
         .advice = "A later turn follows the model's answer, so it cannot be rendered before the run."});
  }
  return prompt;
}

std::vector<PromptSpec> load_prompts(const PromptSource& source) {
  const std::vector<PromptSpec> all = source.file.empty() ? source.inline_prompts : read_prompts(source.file);
  const std::string where = source.file.empty() ? "prompts" : source.file.string();
  const std::set<std::string> wanted(source.categories.begin(), source.categories.end());
  std::vector<PromptSpec> chosen;
  std::set<std::string> ids, categories;
  std::map<std::string, int> per_category;
  for (const PromptSpec& prompt : all) {
    if (!ids.insert(prompt.id).second) {
      throw Error({.what = where,
                   .got = fmt::format("two prompts with the id \"{}\"", prompt.id),
                   .expected = "distinct ids",
                   .advice = "Give each prompt an id of its own."});
    }
    categories.insert(prompt.category);
    if (source.split != PromptSplit::none && prompt.split != source.split) continue;
    if (!wanted.empty() && !wanted.contains(prompt.category)) continue;
    if (source.per_category > 0 && ++per_category[prompt.category] > source.per_category) continue;
    if (source.limit > 0 && static_cast<int>(chosen.size()) >= source.limit) continue;
    chosen.push_back(prompt);
  }
  for (const std::string& category : source.categories) {
    if (categories.contains(category)) continue;
    const std::vector<std::string> known(categories.begin(), categories.end());
    throw Error({.what = where,
                 .got = fmt::format("no prompt of category \"{}\"", category),
                 .expected = "",
                 .advice = suggest(category, known)});
  }
  if (chosen.empty()) {
    throw Error({.what = where,
                 .got = "no prompts",
                 .expected = source.split == PromptSplit::none
                                 ? "at least one"
                                 : fmt::format("at least one of split \"{}\"", to_string(source.split)),
                 .advice = ""});
  }
  return chosen;
}

}  // namespace speclab
