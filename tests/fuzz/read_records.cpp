#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "core/base/sha256.h"
#include "core/measure/run_result.h"
#include "experiments/metrics/metrics.h"
#include "experiments/metrics/run_data.h"
#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/reading.h"

namespace speclab::fuzz {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The files besides the lines of a run of two cases over one prompt.
const fs::path& run_folder() {
  static const fs::path folder = [] {
    const fs::path path = scratch_folder() / "run";
    fs::create_directories(path / "cases");
    json plain = {{"id", "autoregressive"}, {"strategy", "autoregressive"}, {"draft", nullptr},
                  {"reference", nullptr},   {"verify", "one_pass"},         {"rule", "rejection"},
                  {"loss_class", "L2"},     {"axes", json::object()},       {"options", json::object()}};
    json drafting = plain;
    drafting.update({{"id", "drafting"},
                     {"strategy", "speculative_sampling"},
                     {"draft", "d"},
                     {"reference", "autoregressive"}});
    drafting["options"] = {{"gamma", 2}, {"schedule", "constant"}};
    write_json_file(path / "config.json", {{"name", "f"},
                                           {"description", ""},
                                           {"prompts", {{{"id", "p"}, {"category", "chat"}}}},
                                           {"seeds", {1, 2}},
                                           {"repeats", 2},
                                           {"cases", {plain, drafting}}});
    write_json_file(path / "environment.json", json::object());
    return path;
  }();
  return folder;
}

template <class Number>
void renew_hash(json& line, const char* values, const char* hash) {
  try {
    const auto numbers = line.at(values).get<std::vector<Number>>();
    line[hash] = sha256_hex(std::as_bytes(std::span(numbers)));
  } catch (const json::exception&) {  // the reader finds it too
  }
}

/// Makes the lines those of one case and corrects their hashes, so that a changed token passes that check.
/// Lines that are no JSON stay unchanged.
std::string lines_of(std::string_view text, const char* id) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    bool deep = false;  // such a line is refused, and dump() would recurse too deep
    json line = json::parse(
        text.substr(0, end), [&](int depth, json::parse_event_t, json&) { return !(deep |= depth > 100); },
        false);
    if (!deep && line.is_object() && line.value("case", json()) == "drafting") {
      line["case"] = id;
      if (line.contains("output_hash")) renew_hash<Token>(line, "tokens", "output_hash");
      if (line.contains("logits_hash")) renew_hash<std::uint32_t>(line, "row_hashes", "logits_hash");
      out += line.dump();
    } else {
      out += text.substr(0, end);
    }
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
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
  for (const char* id : {"autoregressive", "drafting"})
    write(folder / "cases" / case_file_name(id), lines_of(lines, id));
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
      quick.intervals = false;  // otherwise 2,000 resamples each
      touch(bytes_of(compute_metrics(quick).dump()));
    }
  });
}

}  // namespace speclab::fuzz
