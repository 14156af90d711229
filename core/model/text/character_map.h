#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace speclab {

/// Longest replacement text of a normalisation rule, in bytes. Without a limit, a file of a megabyte could
/// turn a short text into a terabyte.
inline constexpr std::size_t kMaxReplacementBytes = 255;

/// Checks the normalisation rules of a SentencePiece model (Kudo and Richardson 2018), which files call
/// "precompiled_charsmap". They consist of the size of a trie in bytes, the trie, and texts, each with a NUL
/// byte at its end. The trie is a double array (Aoe 1989) in the layout of darts-clone
/// (https://github.com/s-yata/darts-clone); its values are offsets of texts. Throws Error naming `where`
/// unless every link and every text lies inside the map (its readers follow links unchecked) and every text
/// is UTF-8 of at most kMaxReplacementBytes bytes.
void check_character_map(std::string_view map, const std::string& where);

/// Applies these rules as the normalizer "Precompiled" of Hugging Face's `tokenizers` does (its package
/// spm_precompiled 0.1). A rule replaces one text, its key. Unlike SentencePiece, the normalizer goes through
/// the text by extended grapheme clusters. If a cluster of at most five bytes begins with one or more keys,
/// the rule with the shortest of them replaces the whole cluster; bytes after the key are lost. In all other
/// clusters the same is done with each character alone. Immutable.
class CharacterMap {
 public:
  /// Throws Error naming `where` for bad rules.
  static CharacterMap from_bytes(std::string bytes, const std::string& where);
  /// Like from_bytes(), but reads base64 (RFC 4648, with padding), the form in tokenizer.json.
  static CharacterMap from_base64(std::string_view text, const std::string& where);

  /// Normalises a text. Takes and returns valid UTF-8.
  std::string normalize(std::string_view text) const;

 private:
  explicit CharacterMap(std::string bytes) : bytes_(std::move(bytes)) {}
  std::optional<std::string_view> replacement(std::string_view part) const;
  void append(std::string& out, std::string_view character) const;
  std::string bytes_;
};

}  // namespace speclab
