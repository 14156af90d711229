#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/measure/recorder.h"

namespace speclab {

/// The on-disk record of a run (results/SCHEMA.md says what each name means). This is the only code that
/// writes or reads it.
inline constexpr int kSchemaVersion = 1;

/// A forward of the target over so many rows.
struct TimedForward {
  int rows = 0;
  std::int64_t ns = 0;
};

/// What must be equal between a line and the autoregressive line of the same prompt and seed: nothing
/// (another sample of the same law, or a lossy rule), the token ids, or ids and the logits rows behind them.
enum class Promise { nothing, ids, rows };

/// One line of cases/<file>.jsonl: one decoding of one prompt (all of its turns) under one case.
struct LineRecord {
  std::string case_id;
  std::string prompt;
  std::string category;
  std::uint64_t seed = 0;
  int repeat = 0;
  int order = 0;                ///< running number within the run
  int calibration_rounds = -1;  ///< measured before it; -1: nobody kept that
  std::vector<TimedForward>
      drift;          ///< the calibration's between its steps (calibration/drift_every), in order
  std::string error;  ///< not empty: the line failed and has no numbers
  std::vector<GenerationRecord> turns;  ///< one for each turn of the prompt
  std::vector<std::string> pieces;      ///< text of each token of all turns; repeat 0 only
  std::string text;                     ///< answers joined by U+241E; repeat 0 only
  /// Not known of records older than this field: those hold what the runner found, in the next two.
  std::optional<Promise> promise;
  /// How the line stands to its reference; null where nothing is promised. load_run fills them in from both
  /// lines.
  std::optional<bool> matches_reference;
  std::optional<int> first_divergence;
  /// What the management library of a GPU said of it while the line was decoded; an object of
  /// results/SCHEMA.md, or null.
  nlohmann::json gpu;

  std::vector<Token> tokens() const;              ///< of all turns
  std::vector<std::uint32_t> row_hashes() const;  ///< of all turns
  std::int64_t decode_ns() const;
  std::int64_t cpu_ns() const;
  std::int64_t prefill_ns() const;  ///< target and draft
};

nlohmann::json to_json(const LineRecord& line);
/// Throws Error naming `where` when a field is missing or has another type, and when output_hash or
/// logits_hash is not that of the line's tokens or row_hashes.
LineRecord line_from_json(const nlohmann::json& json, const std::string& where);

/// SHA-256 of ids as little-endian int32, 64 hex digits.
std::string output_hash(TokenSpan tokens);

/// The file of a case: "a/b=1" -> "a__b=1.jsonl". Two ids never share one: an underscore beside another one
/// or beside a slash and every byte outside [A-Za-z0-9._=+,-] become %XX, and a name too long for a file
/// keeps its first 200 bytes, then "~" and 32 digits of the id's SHA-256.
std::string case_file_name(std::string_view case_id);
/// FOLDER/cases/ and that name; where only a file stands that an older version named after this id, that one.
std::filesystem::path find_case_file(const std::filesystem::path& folder, const std::string& case_id);

/// The finished lines of a file, in order; a last line without its newline is dropped. No file: no lines.
/// Throws Error with file and line number when a finished line cannot be read.
std::vector<LineRecord> read_case_file(const std::filesystem::path& path);
/// The lines of a case in a run folder. Throws Error, too, for a line of another case and for two lines of
/// one prompt, seed and repeat.
std::vector<LineRecord> read_case_lines(const std::filesystem::path& folder, const std::string& case_id);
/// The finished lines of any file of one JSON object per line.
std::vector<nlohmann::json> read_json_lines(const std::filesystem::path& path);

/// Appends lines to one file; each is one write at the file's end (O_APPEND). Opening drops a torn last line.
/// When a write fails (full disk), what was written of that line is taken back, the finished lines stay, and
/// Error is thrown. The process must hold the run folder (FolderLock).
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

/// Writes beside the file and renames, so that a reader never sees half of it; a device or a pipe is written
/// directly. Throws Error when it cannot.
void write_file(const std::filesystem::path& path, std::string_view text);
void write_json_file(const std::filesystem::path& path, const nlohmann::json& json);
/// Reads and parses; throws Error when the file is missing or is not JSON (line and column).
nlohmann::json read_json_file(const std::filesystem::path& path);

}  // namespace speclab
