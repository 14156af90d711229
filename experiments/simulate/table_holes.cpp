#include "experiments/simulate/table_holes.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>

#include "core/base/files.h"
#include "core/measure/run_result.h"
#include "experiments/metrics/fed_rows.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The largest ratio of neighbouring numbers of rows that counts as no hole: draft models are measured at 1,
/// 2, 4, 8, ... rows.
constexpr int kMostRatio = 2;

/// The keys of {"<rows>": time} in ascending order. Other keys are left out, because open_device() refuses
/// them.
std::vector<int> rows_in(const json& times) {
  std::vector<int> rows;
  if (!times.is_object()) return rows;
  for (const auto& [key, time] : times.items()) {
    int number = 0;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (problem == std::errc() && end == key.data() + key.size() && number >= 1) rows.push_back(number);
  }
  std::ranges::sort(rows);
  return rows;
}

/// The measured rows of one context of a table: {"target_us": ..., "drafts_us": {name: ...}}.
std::map<std::string, std::vector<int>> rows_of_context(const json& context) {
  std::map<std::string, std::vector<int>> rows = {{"", rows_in(context.value("target_us", json()))}};
  const json drafts = context.value("drafts_us", json::object());
  for (const auto& [name, times] : drafts.items()) rows[name] = rows_in(times);
  return rows;
}

std::map<std::string, std::vector<int>> rows_of_calibration(const json& calibration) {
  std::map<std::string, std::vector<int>> rows = {{"", rows_in(calibration.value("t_n_ns", json()))}};
  const json drafts = calibration.value("drafts", json::object());
  for (const auto& [name, draft] : drafts.items()) rows[name] = rows_in(draft.value("n_ns", json()));
  return rows;
}

std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return both;
}

}  // namespace

std::map<std::string, int> largest_forwards(const RunData& run, int batch) {
  std::map<std::string, int> largest;
  const auto need = [&](const std::string& model, std::size_t rows) {
    int& most = largest[model];
    most = std::max(most, static_cast<int>(rows) * batch);
  };
  for (const auto& data : run.cases) {
    if (!data->reference) continue;
    need("", 1);
    for (const FedRows& prompt : fed_rows(*data))
      need("", prompt.rows.empty() ? std::size_t{1} : prompt.rows.size() - 1);
    const std::vector<std::string> names = draft_names(data->config);
    const std::vector<Work> works =
        names.size() == 1 ? std::vector<Work>{draft_work(*data)} : work_by_draft(*data);
    for (std::size_t i = 0; i < std::min(names.size(), works.size()); ++i) {
      if (works[i].calls == 0) continue;
      const double rows = static_cast<double>(works[i].rows) / static_cast<double>(works[i].calls);
      need(names[i], static_cast<std::size_t>(std::ceil(std::max(1.0, rows))));
    }
  }
  return largest;
}

std::map<std::string, std::vector<int>> measured_rows_of(const json& device) {
  if (!device.is_object()) return {};
  if (const json calibration = device.value("calibration", json()); calibration.is_object())
    return rows_of_calibration(calibration);
  if (device.value("kind", json()) != "table") return {};
  const json contexts = device.value("contexts", json());
  if (!contexts.is_array() || contexts.empty()) return rows_of_context(device);
  std::map<std::string, std::vector<int>> rows = rows_of_context(contexts.front());
  for (const json& context : contexts) {
    const auto more = rows_of_context(context);
    for (auto& [name, own] : rows) {
      const auto found = more.find(name);
      own = found == more.end() ? std::vector<int>() : common(own, found->second);
    }
  }
  return rows;
}

json device_content(const std::string& name) {
  std::error_code ignored;
  const fs::path path = name;
  if (fs::is_directory(path, ignored)) return read_json_file(path / "summary.json");
  const fs::path listed = fs::path("configs/devices") / (name + ".json");
  return read_json_file(path_exists(path) ? path : listed);
}

std::vector<std::string> hole_notes(const std::map<std::string, std::vector<int>>& measured,
                                    const std::map<std::string, int>& largest) {
  std::vector<std::string> notes;
  for (const auto& [model, most] : largest) {
    const auto found = measured.find(model);
    if (found == measured.end() || found->second.empty()) continue;
    const std::vector<int>& rows = found->second;
    const std::string name = model.empty() ? "the target" : "the draft " + model;
    for (std::size_t i = 1; i < rows.size(); ++i) {
      if (rows[i] > kMostRatio * rows[i - 1] && rows[i] > rows[i - 1] + 1 && most > rows[i - 1])
        notes.push_back(
            fmt::format("The device has no times of {} between {} and {} rows. They are interpolated.", name,
                        rows[i - 1], rows[i]));
    }
    if (most > rows.back())
      notes.push_back(
          fmt::format("The device has no times of {} above {} rows. Times of up to {} rows are extrapolated.",
                      name, rows.back(), most));
  }
  return notes;
}

}  // namespace speclab
