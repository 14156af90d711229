#include "experiments/merge/shard_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json_text.h"
#include "core/measure/run_result.h"
#include "experiments/metrics/record_files.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kCalibration = "calibration.jsonl";

/// Calls visit(text, where) for each line of a file, except empty lines and a last line without a newline.
/// Returns the number of bytes of such a last line, which was not written completely, or 0.
std::size_t visit_lines(const fs::path& path,
                        const std::function<void(std::string_view, const std::string&)>& visit) {
  if (!path_exists(path)) return 0;
  const std::string text = read_whole_file(path);
  std::size_t begin = 0;
  for (int number = 1;; ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) return text.size() - begin;
    if (end > begin)
      visit(std::string_view(text).substr(begin, end - begin),
            fmt::format("{}: line {}", path.string(), number));
    begin = end + 1;
  }
}

/// As visit_lines(). Notes a line that was not written completely.
void visit_noting(ShardFolder& folder, const fs::path& path,
                  const std::function<void(std::string_view, const std::string&)>& visit) {
  const std::size_t torn = visit_lines(path, visit);
  if (torn > 0)
    folder.notes.push_back(fmt::format(
        "{}: the last line was not written completely; its {} bytes are dropped", path.string(), torn));
}

[[noreturn]] void fail_twice(const std::string& where, const std::string& what, const std::string& first) {
  throw Error({.what = where,
               .got = fmt::format("{} again, as in {}", what, first),
               .expected = "each line once",
               .advice = "Delete one of the two."});
}

/// Two numbers i and n, as calibration rounds and environment.json hold them. Throws Error unless
/// 1 <= i <= n <= kMostLines.
std::pair<int, int> shard_pair(const json& value, const std::string& where) {
  if (value.is_array() && value.size() == 2 && value[0].is_number_integer() && value[1].is_number_integer()) {
    const auto i = value[0].get<std::int64_t>(), n = value[1].get<std::int64_t>();
    if (1 <= i && i <= n && n <= static_cast<std::int64_t>(kMostLines))
      return {static_cast<int>(i), static_cast<int>(n)};
  }
  throw Error({.what = where,
               .got = fmt::format("\"shard\": {}", value.dump()),
               .expected = "[i, n] with 1 <= i <= n",
               .advice = "results/SCHEMA.md describes the record."});
}

void read_case(ShardFolder& folder, const ShardPlan& plan, const std::string& id, const fs::path& path,
               std::map<int, std::string>& orders) {
  std::vector<ShardLine>& lines = folder.lines[id];
  std::map<LineKey, std::string> places;
  visit_noting(folder, path, [&](std::string_view text, const std::string& where) {
    const LineRecord line = line_from_json(parse_json(text, where), where);
    if (line.case_id != id) {
      throw Error({.what = where + ": case",
                   .got = line.case_id,
                   .expected = id + ", the case of this file",
                   .advice = "Move the line to the file of its case, or delete it."});
    }
    const LineKey key = key_of(line);
    plan.require_line(where, key);
    plan.require_order(where, line.repeat, line.order);
    const std::string name =
        fmt::format("prompt {}, seed {}, repeat {}", line.prompt, line.seed, line.repeat);
    if (const auto [first, is_new] = places.emplace(key, where); !is_new)
      fail_twice(where, name, first->second);
    if (const auto [first, is_new] = orders.emplace(line.order, where); !is_new)
      fail_twice(where, fmt::format("\"order\": {}", line.order), first->second);
    folder.holds.insert(plan.shard_of(line.prompt));
    lines.push_back({key, line.order, !line.error.empty(), std::string(text)});
  });
}

void read_cases(ShardFolder& folder, const ShardPlan& plan) {
  std::map<int, std::string> orders;  // place of each line by its order
  std::set<fs::path> known;
  for (const std::string& id : plan.cases()) {
    const fs::path path = find_case_file(folder.path, id);
    known.insert(path.filename());
    read_case(folder, plan, id, path, orders);
  }
  for (const fs::path& file : folder_entries(folder.path / "cases")) {
    if (known.contains(file.filename())) continue;
    throw Error({.what = file.string(),
                 .got = "a file of no case",
                 .expected = "the files of the cases of config.json",
                 .advice = "The file belongs to another run. Take it out of the folder."});
  }
}

void read_rounds(ShardFolder& folder, const ShardPlan& plan) {
  const fs::path path = folder.path / kCalibration;
  visit_noting(folder, path, [&](std::string_view text, const std::string& where) {
    const json round = parse_json(text, where);
    const auto [i, n] = shard_pair(round.value("shard", json({1, 1})), where);
    const int number = round.at("round").get<int>();
    if (n != plan.shards()) {
      throw Error({.what = where,
                   .got = fmt::format("a round of shard {}/{}", i, n),
                   .expected = fmt::format("rounds of {} shards", plan.shards()),
                   .advice = "The folder holds lines of two divisions of the run. Measure the shard again."});
    }
    if (number < 0 || number >= plan.rounds_of(i)) {
      throw Error(
          {.what = where,
           .got = fmt::format("round {} of shard {}/{}", number, i, n),
           .expected = fmt::format("the {} rounds that the config plans, counted from 0", plan.rounds_of(i)),
           .advice = "The line belongs to another run. Take it out of the folder."});
    }
    if (!folder.rounds.emplace(std::pair(i, number), std::string(text)).second)
      fail_twice(where, fmt::format("round {} of shard {}/{}", number, i, n), "an earlier line");
    folder.holds.insert(i);
  });
}

void read_teacher(ShardFolder& folder, const ShardPlan& plan) {
  const fs::path path = folder.path / "teacher.jsonl";
  folder.has_teacher = path_exists(path);
  std::map<EstimateKey, std::string> places;
  visit_noting(folder, path, [&](std::string_view text, const std::string& where) {
    const json line = parse_json(text, where);
    ShardText out{.kind = line.at("kind").get<std::string>(),
                  .case_id = line.at("case").get<std::string>(),
                  .prompt = line.at("prompt").get<std::string>(),
                  .seed = line.at("seed").get<std::uint64_t>(),
                  .text = std::string(text)};
    plan.require_text(where, out.case_id, out.prompt, out.seed);
    if (out.kind == "failed") {  // each attempt has added such a line
      out.kind = line.at("estimate").get<std::string>();
    } else if (const auto [first, is_new] =
                   places.emplace(EstimateKey(out.kind, out.case_id, out.prompt, out.seed), where);
               !is_new) {
      fail_twice(where,
                 fmt::format("{} of {}, prompt {}, seed {}", out.kind, out.case_id, out.prompt, out.seed),
                 first->second);
    }
    folder.teacher.push_back(std::move(out));
  });
}

void read_shard_bounds(ShardFolder& folder, const ShardPlan& plan) {
  std::set<std::tuple<std::string, std::string, std::uint64_t>> known;
  visit_noting(folder, folder.path / "bounds.jsonl", [&](std::string_view text, const std::string& where) {
    const json line = parse_json(text, where);
    ShardText out{.kind = "",
                  .case_id = line.at("case").get<std::string>(),
                  .prompt = line.at("prompt").get<std::string>(),
                  .seed = line.at("seed").get<std::uint64_t>(),
                  .text = std::string(text)};
    plan.require_text(where, out.case_id, out.prompt, out.seed);
    if (known.emplace(out.case_id, out.prompt, out.seed).second) folder.bounds.push_back(std::move(out));
  });
}

/// The number of shards according to the first calibration round; absent without rounds.
std::optional<int> shards_of_rounds(const fs::path& path) {
  std::optional<int> shards;
  visit_lines(path, [&](std::string_view text, const std::string& where) {
    if (shards) return;
    const json round = parse_json(text, where);
    shards = shard_pair(round.is_object() ? round.value("shard", json({1, 1})) : round, where).second;
  });
  return shards;
}

}  // namespace

ShardFolder open_shard_folder(const fs::path& path) {
  if (!path_exists(path / "config.json")) {
    throw Error({.what = path.string(),
                 .got = "no run",
                 .expected = "a folder that speclab run --shard i/n wrote, with config.json",
                 .advice = ""});
  }
  ShardFolder folder;
  folder.path = path;
  folder.config = read_run_config(path);
  folder.environment = read_run_environment(path);
  const auto by_rounds = shards_of_rounds(path / kCalibration);
  if (const auto found = folder.environment.find("shard"); found != folder.environment.end()) {
    const auto [i, n] = shard_pair(*found, (path / "environment.json").string());
    if (by_rounds && *by_rounds != n) {
      throw Error({.what = path.string(),
                   .got = fmt::format("a run in {} shards by environment.json, in {} by {}", n, *by_rounds,
                                      kCalibration),
                   .expected = "one division of the run",
                   .advice = "Measure the shard again."});
    }
    folder.shards = n;
    folder.holds.insert(i);
  } else {
    folder.shards = by_rounds.value_or(1);
  }
  return folder;
}

void read_shard_lines(ShardFolder& folder, const ShardPlan& plan) {
  read_cases(folder, plan);
  read_rounds(folder, plan);
  read_teacher(folder, plan);
  read_shard_bounds(folder, plan);
  if (plan.shards() == 1) folder.holds.insert(1);
}

}  // namespace speclab
