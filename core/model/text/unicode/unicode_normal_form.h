#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// Canonical composition (NFC, Unicode Standard Annex 15), for tokenizers that normalise before they split.
namespace speclab::unicode {

/// A code point with its full canonical decomposition. Hangul syllables are not
/// listed, because they are computed.
struct Decomposition {
  std::uint32_t code_point;
  bool composes;      ///< NFC composes the code point from its parts; false for singletons and composition
                      ///< exclusions
  char32_t parts[4];  ///< 0 after the last part
};

/// Code points from `first` to just before the next run have this canonical combining class.
struct CombiningRun {
  std::uint32_t first;
  std::uint8_t combining_class;
};

/// In ascending order (unicode_normal_form_tables.cpp, generated).
std::span<const Decomposition> decompositions();
/// In ascending order, the first at 0.
std::span<const CombiningRun> combining_runs();

/// NFC of a valid UTF-8 text, with the character data of the generated tables. O(n log n).
std::string to_nfc(std::string_view text);

}  // namespace speclab::unicode
