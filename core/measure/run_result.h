#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure/machine_probes.h"
#include "core/measure/recorder.h"

namespace speclab {

// Writes and reads the files of a run's record, for all C++ code. results/SCHEMA.md explains each name.

/// The version of the format. It is the field schema_version in every line of a case, config.json,
/// environment.json, summary.json and targets.json.
inline constexpr int kSchemaVersion = 1;

/// Time of one target forward over `rows` tokens.
struct TimedForward {
  int rows = 0;
  std::int64_t ns = 0;
};

/// What a line must have in common with its reference, the autoregressive line of the same prompt and seed.
/// `nothing`: the text is another sample of the same distribution, or the rule is lossy. `ids`: the token ids
/// are equal. `rows`: the token ids and the logits rows that they came from are equal.
enum class Promise { nothing, ids, rows };

/// One line of cases/<file>.jsonl: a prompt (all of its turns) decoded under one case (method and options).
struct LineRecord {
  std::string case_id;
  std::string prompt;
  std::string category;
  std::uint64_t seed = 0;
  int repeat = 0;
  int order = 0;                ///< number of the line in the order planned for the whole run
  int calibration_rounds = -1;  ///< number of calibration rounds before this line; -1: not recorded
  /// Speed of the machine before, during and after this line (calibration/probe_every), in order.
  std::vector<ProbeTimes> probes;
  std::vector<TimedForward> drift;      ///< older records: forwards timed between this line's steps
  std::string error;                    ///< not empty: the line failed and has no numbers
  std::vector<GenerationRecord> turns;  ///< one for each turn of the prompt
  std::vector<std::string> pieces;      ///< text of each token of all turns; repeat 0 only
  std::string text;                     ///< answers joined by U+241E; repeat 0 only
  /// What this line must have in common with its reference. Absent in records that are older than this field.
  std::optional<Promise> promise;
  /// Comparison of the line with its reference; both fields are absent when nothing is promised. load_run()
  /// computes them from the two lines. In older records, which have no promise, they hold what the runner
  /// found.
  std::optional<bool> matches_reference;
  std::optional<int> first_divergence;  ///< index of the first token or logits row that differs, if any
  /// State of the GPU while the line was decoded, as the GPU's management library (NVML) reports it; null
  /// without NVML. results/SCHEMA.md lists the fields.
  nlohmann::json gpu;

  std::vector<Token> tokens() const;              ///< of all turns
  std::vector<std::uint32_t> row_hashes() const;  ///< of all turns
  std::vector<float> row_entropies() const;       ///< of all turns
  std::int64_t decode_ns() const;
  std::int64_t cpu_ns() const;
  std::int64_t prefill_ns() const;  ///< target and draft
};

nlohmann::json to_json(const LineRecord& line);
/// Throws Error that names `where` when a field is missing or has the wrong type, and when output_hash or
/// logits_hash does not match the line's tokens or row_hashes.
LineRecord line_from_json(const nlohmann::json& json, const std::string& where);

/// SHA-256 of the ids as little-endian int32; 64 hex digits.
std::string output_hash(TokenSpan tokens);

/// Returns the name of a case's file: "a/b=1" -> "a__b=1.jsonl". Two ids never share a name. A slash becomes
/// "__". An underscore next to another one or to a slash becomes %5F, and every byte outside
/// [A-Za-z0-9._=+,-] becomes %XX. A name that is too long for a file keeps its first 200 bytes, then
/// "~" and 32 digits of the id's SHA-256.
std::string case_file_name(std::string_view case_id);
/// Returns the path of a case's file: FOLDER/cases/ and case_file_name(). Older versions gave some files
/// another name. If only a file with that older name exists, and its first line is of this case, returns the
/// path of that file.
std::filesystem::path find_case_file(const std::filesystem::path& folder, const std::string& case_id);

/// Reads the finished lines of a file, in order; empty when there is no file. A last line without its newline
/// is dropped. Throws Error with file and line number when a finished line cannot be read.
std::vector<LineRecord> read_case_file(const std::filesystem::path& path);
/// Reads the lines of a case in a run folder. Also throws Error for a line of another case, and for two lines
/// with the same prompt, seed and repeat.
std::vector<LineRecord> read_case_lines(const std::filesystem::path& folder, const std::string& case_id);
/// Reads the finished lines of any file with one JSON object per line.
std::vector<nlohmann::json> read_json_lines(const std::filesystem::path& path);

/// Appends lines to one file. Each line is one write at the file's end (O_APPEND). Opening drops a last line
/// that has no newline, because it was not written completely. When a write fails (full disk), the part of
/// the line that was written is removed, the finished lines stay, and Error is thrown. The process must hold
/// the lock of the run folder (FolderLock).
class JsonLinesWriter {
 public:
  explicit JsonLinesWriter(std::filesystem::path path);
  ~JsonLinesWriter();
  JsonLinesWriter(JsonLinesWriter&& other) noexcept;
  JsonLinesWriter(const JsonLinesWriter&) = delete;
  JsonLinesWriter& operator=(const JsonLinesWriter&) = delete;
  void append(const nlohmann::json& line);

 private:
  std::filesystem::path path_;
  int file_ = -1;
  std::int64_t size_ = 0;
};

/// Replaces a file in one go. It writes a temporary file and renames it, so that a reader never sees half of
/// a file. If the path is a device or a pipe, it writes there without a temporary file. Throws Error on
/// failure.
void write_file(const std::filesystem::path& path, std::string_view text);
void write_json_file(const std::filesystem::path& path, const nlohmann::json& json);
/// Reads and parses a file. Throws Error when it is missing or not JSON (with line and column).
nlohmann::json read_json_file(const std::filesystem::path& path);

}  // namespace speclab
