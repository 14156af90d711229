#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace speclab {

/// A longer text of a rule is refused: else a file of a megabyte could make a terabyte of a short text.
inline constexpr std::size_t kMaxReplacementBytes = 255;

/// Normalisation rules of a SentencePiece model (Kudo and Richardson 2018), "precompiled_charsmap": the
/// number of bytes of a trie, the trie, and texts that end with a NUL byte. The trie is a double array (Aoe
/// 1989) in the layout of darts-clone (https://github.com/s-yata/darts-clone); its values are places of
/// texts. Throws Error at `where` unless every link and every text lies inside: the readers follow them
/// without looking.
void check_character_map(std::string_view map, const std::string& where);

/// Such rules as the normalizer "Precompiled" of Hugging Face's `tokenizers` (its package spm_precompiled
/// 0.1) applies them, which is not how SentencePiece does: it goes through the text by extended grapheme
/// clusters. One of at most five bytes that begins with a rule becomes the text of that rule, of several
/// rules of the shortest, and what else there is in the cluster is lost. In all others the same is done
/// character by character. Immutable.
class CharacterMap {
 public:
  /// Throws Error at `where`.
  static CharacterMap from_bytes(std::string bytes, const std::string& where);
  /// The bytes as base64 (RFC 4648, with padding), as tokenizer.json has them.
  static CharacterMap from_base64(std::string_view text, const std::string& where);

  /// Of a valid UTF-8 text; valid UTF-8.
  std::string normalize(std::string_view text) const;

 private:
  explicit CharacterMap(std::string bytes) : bytes_(std::move(bytes)) {}
  std::optional<std::string_view> replacement(std::string_view part) const;
  void append(std::string& out, std::string_view character) const;
  std::string bytes_;
};

}  // namespace speclab
