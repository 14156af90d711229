#include "core/measure/run_result.h"
#include "experiments/metrics.h"
#include "experiments/run_data.h"
#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/reading.h"

namespace speclab::fuzz {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// What a run of two cases over one prompt leaves beside its lines.
const fs::path& run_folder() {
  static const fs::path folder = [] {
    const fs::path path = scratch_folder() / "run";
    fs::create_directories(path / "cases");
    const json plain = {{"id", "autoregressive"},
                        {"strategy", "autoregressive"},
                        {"draft", nullptr},
                        {"reference", nullptr},
                        {"options", json::object()}};
    const json drafting = {{"id", "drafting"},
                           {"strategy", "speculative_sampling"},
                           {"draft", "d"},
                           {"reference", "autoregressive"},
                           {"options", {{"gamma", 2}, {"schedule", "constant"}}}};
    write_json_file(path / "config.json", {{"prompts", {{{"id", "p"}, {"category", "chat"}}}},
                                           {"seeds", {1}},
                                           {"repeats", 2},
                                           {"cases", {plain, drafting}}});
    write_json_file(path / "environment.json", json::object());
    return path;
  }();
  return folder;
}

}  // namespace

bool read_record(std::string_view input) {
  const fs::path& folder = run_folder();
  const auto part = [&] {
    const std::size_t zero = std::min(input.find('\0'), input.size());
    const std::string_view text = input.substr(0, zero);
    input.remove_prefix(std::min(zero + 1, input.size()));
    return text;
  };
  const std::string_view lines = part();
  for (const char* id : {"autoregressive", "drafting"}) write(folder / "cases" / case_file_name(id), lines);
  write(folder / "calibration.jsonl", part());
  write(folder / "teacher.jsonl", part());
  return accepted([&] {
    for (const LineRecord& line : read_case_file(folder / "cases/drafting.jsonl")) {
      const json written = to_json(line);
      require(to_json(line_from_json(written, "f")) == written, "a line that does not come back as it was");
    }
    const RunData run = load_run(folder);
    for (const auto& data : run.cases) {
      CaseData quick = *data;
      quick.intervals = false;  // else 2,000 resamples of each
      touch(bytes_of(compute_metrics(quick).dump()));
    }
  });
}

}  // namespace speclab::fuzz
