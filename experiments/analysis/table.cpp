#include "experiments/analysis/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/metrics/bound_verdict.h"
#include "experiments/metrics/metrics.h"

namespace speclab {
namespace {

using nlohmann::json;

std::vector<std::string> lines_of_cell(const std::string& cell) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end; (end = cell.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(cell.substr(begin, end - begin));
  lines.push_back(cell.substr(begin));
  return lines;
}

std::string latex_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("&%$#_{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out == "—" ? "--" : out;
}

}  // namespace

std::size_t shown_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string to_text(const Table& table) {
  std::vector<std::size_t> widths(table.header.size(), 0);
  const auto measure = [&](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (const std::string& line : lines_of_cell(row[i]))
        widths[i] = std::max(widths[i], shown_width(line));
    }
  };
  measure(table.header);
  for (const auto& row : table.rows) measure(row);
  std::string out;
  const auto print = [&](const std::vector<std::string>& row) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (const std::string& cell : row) {
      cells.push_back(lines_of_cell(cell));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t k = 0; k < height; ++k) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string text = k < cells[i].size() ? cells[i][k] : std::string();
        const std::string space(widths[i] - shown_width(text), ' ');
        const bool right = i < table.right.size() && table.right[i];
        line += (i > 0 ? "  " : "") + (right ? space + text : text + space);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
  };
  print(table.header);
  std::size_t total = 2 * (widths.size() - 1);
  for (const std::size_t width : widths) total += width;
  out += std::string(total, '-') + "\n";
  for (const auto& row : table.rows) print(row);
  return out;
}

std::string to_latex(const Table& table, const std::string& caption) {
  std::string columns;
  for (std::size_t i = 0; i < table.header.size(); ++i)
    columns += i < table.right.size() && table.right[i] ? 'r' : 'l';
  std::string out = fmt::format(
      "% needs "
      "\\usepackage{{booktabs}}\n\\begin{{table}}\n\\caption{{{}}}\n\\begin{{tabular}}{{{}}}\n\\toprule\n",
      latex_escaped(caption), columns);
  const auto print = [&](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) out += (i > 0 ? " & " : "") + latex_escaped(row[i]);
    out += " \\\\\n";
  };
  print(table.header);
  out += "\\midrule\n";
  for (const auto& row : table.rows) print(row);
  return out + "\\bottomrule\n\\end{tabular}\n\\end{table}\n";
}

std::string to_markdown(const Table& table) {
  std::string out;
  const auto print = [&](const std::vector<std::string>& row) {
    for (const std::string& cell : row) {
      out += "| ";
      for (const char c : cell) {
        if (c == '|') out += '\\';  // a bar would end the cell
        out += c;
      }
      out += ' ';
    }
    out += "|\n";
  };
  print(table.header);
  for (std::size_t i = 0; i < table.header.size(); ++i)
    out += i < table.right.size() && table.right[i] ? "|---:" : "|---";
  out += "|\n";
  for (const auto& row : table.rows) print(row);
  return out;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out(1, '"');
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
  return out;
}

std::string number_text(const json& value, int digits) {
  if (value.is_null()) return "—";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "NO";
  if (!value.is_number()) return value.dump();
  const double number = value.get<double>();
  const double size = std::abs(number);
  if (size == 0) return "0";
  if (size >= 1e5 || size < 1e-4) return fmt::format("{:.3g}", number);
  return fmt::format("{:.{}f}", number,
                     std::max(0, digits - 1 - static_cast<int>(std::floor(std::log10(size)))));
}

std::string few_prompts_text(std::size_t prompts) {
  return prompts > 0 && prompts < stats::kFewClusters ? fmt::format(" (n = {})", prompts) : "";
}

std::string interval_text(const json& metrics, const std::string& name, int digits, std::size_t prompts) {
  const json value = metrics.value(name, json());
  std::string text = number_text(value, digits);
  const auto ci = metrics.find(name + "_ci95");
  if (!value.is_null() && ci != metrics.end() && ci->is_array()) {
    text += fmt::format(" [{}, {}]{}", number_text((*ci)[0], digits), number_text((*ci)[1], digits),
                        few_prompts_text(prompts));
  }
  return text;
}

namespace {

constexpr const char* kOtherTexts = " *";        ///< mark after a speedup, see notes_text
constexpr const char* kPredicted = "predicted";  ///< this column is no metric, see predicted_speedup
constexpr double kMeaninglessNoise = .5;  ///< a noise floor above this means that too little was measured
constexpr std::size_t kLeastPrompts = 3;  ///< prompts that a noise floor needs

/// True when the case's speedup compares texts that differ from those of its reference. Older records do not
/// say whether they differ; the result is then false.
bool speedup_of_other_texts(const json& entry) {
  const json& metrics = entry.at("metrics");
  return metrics.value("texts_equal", json()) == json(false) && !metrics.value("speedup", json()).is_null();
}

/// The speedup of a case as predicted from acceptance and calibrated times of forwards, for its kind of
/// draft; null without such a prediction.
json predicted_speedup(const json& entry) {
  const auto predictions = entry.find("predictions");
  if (predictions == entry.end()) return nullptr;
  for (const char* name : {"cascade_measured_t", "tree_speedup", "measured_t_speedup", "mixture_speedup"}) {
    const auto found = predictions->find(name);
    if (found != predictions->end()) return found->value("value", json());
  }
  return nullptr;
}

std::string noise_text(const json& summary) {
  std::size_t prompts = 0, repeats = 0;
  for (const json& entry : summary.at("cases")) {
    prompts = std::max(prompts, entry.value("prompts", std::size_t{0}));
    repeats = std::max(repeats, entry.value("repeats", std::size_t{0}));
  }
  const json& floor = summary.at("noise_floor");
  if (prompts == 0) return "";
  if (floor.is_number() && prompts >= kLeastPrompts && floor <= kMeaninglessNoise)
    return fmt::format("Differences of time below {:.1f} % are noise.\n", 100 * floor.get<double>());
  const char* few = floor.is_null() ? "repeats" : "prompts or repeats";
  return fmt::format("Too few {} to say which differences of time are noise (prompts: {}, repeats: {}).\n",
                     few, prompts, repeats);
}

/// Says which chains the trees were compared with, and how many trees have none. "" without trees.
std::string chains_text(const json& summary) {
  std::map<std::string, int> trees_of_chain;
  int alone = 0;
  for (const json& entry : summary.at("cases")) {
    const auto chain = entry.find("best_chain");
    if (chain == entry.end()) continue;
    if (chain->is_null()) ++alone;
    else ++trees_of_chain[chain->get<std::string>()];
  }
  std::string text;
  if (!trees_of_chain.empty()) {
    text = "over chain: speed of the trees / speed of the fastest chain of the same draft in this run:";
    for (const auto& [chain, trees] : trees_of_chain)
      text += fmt::format("{} {} ({} {})", text.back() == ':' ? "" : ",", chain, trees,
                          trees == 1 ? "case" : "cases");
    text += ".\n";
  }
  if (alone > 0) {
    text +=
        fmt::format("{} with trees {} no chain of the same draft and sampling in this run to compare with.\n",
                    alone == 1 ? "1 case" : fmt::format("{} cases", alone), alone == 1 ? "has" : "have");
  }
  return text;
}

/// Names the cases whose times do not show how fast the method is, with the reason.
std::string times_text(const json& summary) {
  std::string text;
  for (const json& entry : summary.at("cases")) {
    const std::string note = entry.value("times_note", "");
    if (!note.empty()) text += fmt::format("{}: {}.\n", entry.at("id").get<std::string>(), note);
  }
  return text;
}

}  // namespace

std::string notes_text(const json& summary) {
  const json& cases = summary.at("cases");
  const bool others = std::any_of(cases.begin(), cases.end(), speedup_of_other_texts);
  return std::string(
             others ? "* The texts of this case differ from those of its reference: the speedup compares "
                      "the time per emitted token of different texts.\n"
                    : "") +
         times_text(summary) + chains_text(summary) + wrong_rules_text(summary) + noise_text(summary);
}

Table summary_table(const json& summary) {
  struct Column {
    const char* title;
    const char* metric;
    bool interval;
    int digits;
    bool of_rule = false;  ///< a column with the name of the rule stands before this one
    json value_of(const json& entry) const {
      return std::string_view(metric) == kPredicted ? predicted_speedup(entry)
                                                    : entry.at("metrics").value(metric, json());
    }
  };
  static constexpr Column kColumns[] = {
      {"tau", "tau", false, 3},
      {"bound", "tau_bound", false, 3},
      {"alpha", "alpha", false, 3, true},
      {"alpha_min", "alpha_min", false, 3},
      {"c", "c", false, 2},
      {"ms/token", "ms_per_token", false, 3},
      {"tokens/s", "tokens_per_second", false, 3},
      {"speedup [95 %]", "speedup", true, 3},
      {"predicted", kPredicted, false, 3},
      {"over chain [95 %]", "speed_over_chain", true, 3},
      {"copied", "copied_4grams", false, 2},
      {"ops", "ops_factor", false, 3},
      {"distance", "distance", false, 2},
      {"KL", "kl", false, 2},
      {"KL inf.", "kl_infinite", false, 1},
  };
  Table table;
  table.header = {"case", "class"};
  const json target = summary.at("cases").empty() ? json("") : summary["cases"][0].value("target", json(""));
  if (target.is_string() && target.get_ref<const std::string&>().find("inflated from") != std::string::npos)
    table.header[0] += " on " + target.get<std::string>();
  table.right = {false, false};
  table.expendable = {
      "ms/token", "copied",   "ops", "alpha_min",         "class", "bound",   "rule", "predicted", "KL inf.",
      "KL",       "distance", "c",   "over chain [95 %]", "alpha", "tokens/s"};
  std::vector<Column> used;
  for (const Column& column : kColumns) {
    const bool any = std::any_of(summary.at("cases").begin(), summary.at("cases").end(),
                                 [&](const json& entry) { return !column.value_of(entry).is_null(); });
    if (!any) continue;
    used.push_back(column);
    if (column.of_rule) {
      table.header.emplace_back("rule");
      table.right.push_back(false);
    }
    table.header.emplace_back(column.title);
    table.right.push_back(true);
  }
  table.header.emplace_back("equal");
  table.right.push_back(false);
  for (const json& entry : summary.at("cases")) {
    const json& metrics = entry.at("metrics");
    std::vector<std::string> row = {
        entry["id"], entry["lossy"].get<bool>() ? "L3 lossy" : entry["loss_class"].get<std::string>()};
    for (const Column& column : used) {
      if (column.of_rule)
        row.push_back(entry["reference"].is_null() ? number_text(nullptr) : entry.value("rule", ""));
      row.push_back(column.interval ? interval_text(metrics, column.metric, column.digits,
                                                    entry.value("prompts", std::size_t{0}))
                                    : number_text(column.value_of(entry), column.digits));
      if (column.metric == std::string_view("speedup") && speedup_of_other_texts(entry))
        row.back() += kOtherTexts;
    }
    const json equal = metrics.value("matches_reference", json());
    if (entry["errors"].get<int>() > 0) {
      row.emplace_back("ERROR");
    } else if (!entry.value("above_bound", json()).is_null()) {
      row.emplace_back("WRONG");
    } else if (entry["reference"].is_null() && equal != json(false)) {
      row.emplace_back("reference");
    } else if (equal.is_null()) {
      row.emplace_back(entry["lossy"].get<bool>() ? "no" : "same law");
    } else {
      row.push_back(number_text(equal));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string published_text(const json& summary) {
  std::string text;
  for (const json& entry : summary.at("cases")) {
    for (const json& row : entry.value("published", json::array())) {
      Table table{.header = {"", "published", "here"}, .rows = {}, .right = {false, true, true}};
      for (const json& value : row["values"])
        table.rows.push_back(
            {value["name"], number_text(value["published"], 4), number_text(value["here"], 4)});
      const std::string category = row.value("category", ""), reason = row.value("reason", "");
      text += fmt::format("{}{}, beside {}:\n{}{}\n", entry["id"].get<std::string>(),
                          category.empty() ? "" : " on " + category, row["source"].get<std::string>(),
                          to_text(table), reason.empty() ? "" : reason + "\n");
    }
  }
  return text;
}

std::string prompts_text(const json& summary, const std::string& case_id) {
  std::string text;
  for (const json& entry : summary.at("cases")) {
    if (!case_id.empty() && entry["id"] != case_id) continue;
    Table table{.header = {"prompt", "category", "copied", "tau", "speedup"},
                .rows = {},
                .right = {false, false, true, true, true}};
    for (const auto& [prompt, values] : entry.at("by_prompt").items()) {
      table.rows.push_back({prompt, values["category"], number_text(values["copied_4grams"], 2),
                            number_text(values["tau"], 3), number_text(values["speedup"], 3)});
    }
    text += fmt::format("{}\n{}\n", entry["id"].get<std::string>(), to_text(table));
  }
  return text;
}

std::string summary_csv(const json& summary) {
  std::string out = "case,strategy,draft,gamma,rule,loss_class,temperature,top_k,top_p";
  for (const Metric& metric : metrics()) {
    out += fmt::format(",{},{}_lo,{}_hi", metric.name, metric.name, metric.name);
  }
  out += "\n";
  const auto scalar = [](const json& value) {
    return value.is_number() || value.is_boolean() ? value.dump() : std::string();
  };
  const auto text = [](const json& value) {
    return value.is_null() ? std::string()
                           : csv_field(value.is_string() ? value.get<std::string>() : value.dump());
  };
  for (const json& entry : summary.at("cases")) {
    std::vector<std::string> fields;
    for (const char* key : {"id", "strategy", "draft", "gamma", "rule", "loss_class"})
      fields.push_back(text(entry[key]));
    for (const char* key : {"temperature", "top_k", "top_p"}) fields.push_back(text(entry["sampling"][key]));
    for (const Metric& metric : metrics()) {
      const json& all = entry["metrics"];
      const json value = all.value(std::string(metric.name), json());
      const auto ci = all.find(fmt::format("{}_ci95", metric.name));
      const bool interval = value.is_number() && ci != all.end();
      fields.push_back(scalar(value));
      fields.push_back(interval ? scalar((*ci)[0]) : std::string());
      fields.push_back(interval ? scalar((*ci)[1]) : std::string());
    }
    out += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return out;
}

}  // namespace speclab
