#include "experiments/analysis/table_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "experiments/analysis/case_names.h"

namespace speclab {
namespace {

constexpr std::size_t kColumnGap = 2;  ///< spaces between two columns, as to_text() prints them
/// A column of texts is not made narrower than this as long as another column can be left out instead.
constexpr std::size_t kReadable = 20;

/// The parts of a text between which a line may end: each ends with a space or a slash, or is the last one.
std::vector<std::string_view> breakable_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ' ' && text[i] != '/') continue;
    parts.push_back(text.substr(begin, i + 1 - begin));
    begin = i + 1;
  }
  if (begin < text.size()) parts.push_back(text.substr(begin));
  return parts;
}

std::string_view without_end_spaces(std::string_view text) {
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// The text in lines of at most `width` characters, if no part is longer.
std::string in_lines(std::string_view text, std::size_t width) {
  std::string out, line;
  for (const std::string_view part : breakable_parts(text)) {
    if (!line.empty() && shown_width(line) + shown_width(without_end_spaces(part)) > width) {
      out += without_end_spaces(line);
      out += '\n';
      line.clear();
    }
    line += part;
  }
  out += without_end_spaces(line);
  return out;
}

/// The widths that a column may have.
struct ColumnWidths {
  bool divided = false;     ///< its cells may be divided into lines
  std::size_t natural = 0;  ///< of its longest cell
  std::size_t least = 0;    ///< of its longest part that cannot be divided
  std::size_t readable() const { return divided ? std::max(least, std::min(natural, kReadable)) : natural; }
};

ColumnWidths widths_of_column(const Table& table, std::size_t index) {
  ColumnWidths widths{.divided = index >= table.right.size() || !table.right[index]};
  const auto look_at = [&](const std::string& cell) {
    widths.natural = std::max(widths.natural, shown_width(cell));
    for (const std::string_view part : breakable_parts(cell))
      widths.least = std::max(widths.least, shown_width(without_end_spaces(part)));
  };
  look_at(table.header[index]);
  for (const auto& row : table.rows) look_at(row[index]);
  if (!widths.divided) widths.least = widths.natural;
  return widths;
}

/// The width of each column; 0 for a column that is left out.
using Layout = std::vector<std::size_t>;

std::size_t line_width(const Layout& layout) {
  std::size_t sum = 0, shown = 0;
  for (const std::size_t width : layout) {
    sum += width;
    shown += width > 0;
  }
  return shown == 0 ? 0 : sum + kColumnGap * (shown - 1);
}

/// Leaves out expendable columns until the smallest widths fit.
Layout smallest_layout(const Table& table, const std::vector<std::size_t>& smallest, std::size_t width) {
  Layout layout = smallest;
  std::vector<std::size_t> left_out;
  for (const std::string& title : table.expendable) {
    if (line_width(layout) <= width) break;
    const auto at = std::find(table.header.begin(), table.header.end(), title);
    if (at == table.header.end()) continue;
    left_out.push_back(static_cast<std::size_t>(at - table.header.begin()));
    layout[left_out.back()] = 0;
  }
  // A wide column that was left out late may have made room for one that was left out early.
  for (auto index = left_out.rbegin(); index != left_out.rend(); ++index) {
    layout[*index] = smallest[*index];
    if (line_width(layout) > width) layout[*index] = 0;
  }
  return layout;
}

/// Gives the rest of the line to the columns whose texts are longest for their width.
void share_out_rest(const std::vector<ColumnWidths>& columns, std::size_t width, Layout& layout) {
  for (std::size_t used = line_width(layout); used < width; ++used) {
    std::size_t neediest = columns.size();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (layout[i] == 0 || layout[i] >= columns[i].natural) continue;
      if (neediest == columns.size() ||
          columns[i].natural * layout[neediest] > columns[neediest].natural * layout[i])
        neediest = i;
    }
    if (neediest == columns.size()) return;
    ++layout[neediest];
  }
}

Layout layout_for(const Table& table, const std::vector<ColumnWidths>& columns, std::size_t width) {
  std::vector<std::size_t> readable, least;
  for (const ColumnWidths& column : columns) {
    readable.push_back(column.readable());
    least.push_back(column.least);
  }
  Layout layout = smallest_layout(table, readable, width);
  if (line_width(layout) > width) layout = smallest_layout(table, least, width);
  share_out_rest(columns, width, layout);
  return layout;
}

}  // namespace

std::string fitted_text(const Table& table, std::optional<int> width) {
  if (!width) return to_text(table);
  const auto most = static_cast<std::size_t>(std::max(*width, 1));
  std::vector<ColumnWidths> columns;
  Layout whole;
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    columns.push_back(widths_of_column(table, i));
    whole.push_back(columns.back().natural);
  }
  if (line_width(whole) <= most) return to_text(table);
  const Layout layout = layout_for(table, columns, most);
  Table fitted{.header = {}, .rows = std::vector<std::vector<std::string>>(table.rows.size()), .right = {}};
  std::vector<std::string> left_out;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (layout[i] == 0) {
      if (columns[i].natural > 0) left_out.push_back(table.header[i]);
      continue;
    }
    const auto divided = [&](const std::string& cell) {
      return columns[i].divided ? in_lines(cell, layout[i]) : cell;
    };
    fitted.header.push_back(divided(table.header[i]));
    fitted.right.push_back(!columns[i].divided);
    for (std::size_t row = 0; row < table.rows.size(); ++row)
      fitted.rows[row].push_back(divided(table.rows[row][i]));
  }
  const std::string note =
      left_out.empty() ? ""
                       : fmt::format("Not shown: {}. --wide shows every column.", fmt::join(left_out, ", "));
  return to_text(fitted) + (note.empty() ? "" : in_lines(note, most) + "\n");
}

std::string fitted_summary(const nlohmann::json& summary, std::optional<int> width) {
  Table table = summary_table(summary);
  if (!width) return to_text(table);
  const std::vector<std::string> names = short_names(summary.at("cases"));
  bool shorter = false;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    shorter = shorter || names[i] != table.rows[i].front();
    table.rows[i].front() = names[i];
  }
  const std::string note = "Cases have short names here. --wide shows their ids, which other commands take.";
  return fitted_text(table, width) +
         (shorter ? in_lines(note, static_cast<std::size_t>(std::max(*width, 1))) + "\n" : "");
}

}  // namespace speclab
