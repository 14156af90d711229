#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/model/net/model_config.h"

// Reads the JSON files of a Hugging Face directory. Internal to Checkpoint.

namespace speclab {

/// Limits of file sizes. A parsed value takes up to twenty times the memory of its text, so the limits bound
/// the memory. Real files are smaller: config.json and generation_config.json have a few kB, the index of the
/// largest models has 9 MB, and a tokenizer_config.json has up to 1 MB.
constexpr std::size_t kMostConfigBytes = std::size_t{1} << 20, kMostJsonBytes = std::size_t{16} << 20;

/// Reads a file. Throws Error with line and column for bad JSON, and for a file of more than `most_bytes`.
nlohmann::json read_checkpoint_json(const std::filesystem::path& path,
                                    std::size_t most_bytes = kMostJsonBytes);

/// Reads typed members of a JSON object, which must outlive this reader. A null value counts as absent, as in
/// transformers. Throws Error naming file and member for a value of the wrong type or out of range.
class ConfigValues {
 public:
  ConfigValues(const nlohmann::json& json, std::string where);

  bool has(const char* key) const;
  bool states(const char* key) const;  ///< whether the key is there, even with null
  std::string name(const char* key) const { return where_ + ": " + key; }
  const std::string& where() const { return where_; }
  const nlohmann::json& json() const { return json_; }
  const nlohmann::json& at(const char* key) const;
  int integer(const char* key, std::int64_t least, std::int64_t most) const;
  int integer_or(const char* key, int absent, std::int64_t least, std::int64_t most) const;
  /// A positive number within the range of a float.
  float positive(const char* key) const;
  bool flag_or(const char* key, bool absent) const;
  std::string text_or(const char* key, std::string absent) const;
  ConfigValues object(const char* key) const { return {at(key), name(key)}; }

  /// Throws Error for a member that cannot be used: its value, or its default if it is absent, is wrong.
  [[noreturn]] void refuse(const char* key, std::string expected, std::string advice) const;

 private:
  const nlohmann::json& json_;
  std::string where_;
};

/// Reads config.json of a decoder of a known family (huggingface_family.h), of a draft (`speclab_draft`) or
/// of a table (`speclab_table`: a model with only an embedding and an output head). Throws Error for other
/// architectures, for anything that our forward pass does not compute, and for missing or impossible values.
/// The token ids of a draft's reduced output head are not in config.json but among the tensors.
ModelConfig read_huggingface_config(const std::filesystem::path& directory);

}  // namespace speclab
