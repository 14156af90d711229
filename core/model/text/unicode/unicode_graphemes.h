#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/model/text/unicode/unicode.h"

/// Extended grapheme clusters (Unicode Standard Annex 29): what a reader takes for one character.
namespace speclab::unicode {

/// What the rules of the annex tell apart: Grapheme_Cluster_Break and, for GB9c, Indic_Conjunct_Break. The
/// numbers stand in the generated table, except for the last five, which are found by arithmetic.
enum class GraphemeClass : std::uint8_t {
  kOther,
  kControl,
  kExtend,                  ///< of both properties
  kExtendOutsideConjuncts,  ///< of the first only
  kLinker,                  ///< extends and joins consonants
  kJoiner,                  ///< U+200D
  kSpacingMark,
  kPrepend,
  kPictograph,  ///< Extended_Pictographic
  kConsonant,
  kLeading,   ///< Hangul L
  kVowel,     ///< Hangul V
  kTrailing,  ///< Hangul T
  kCarriageReturn,
  kLineFeed,
  kRegional,
  kSyllable,        ///< Hangul LV
  kClosedSyllable,  ///< Hangul LVT
};

/// Runs of equal class, the number of a GraphemeClass each; in ascending order, the first at 0
/// (unicode_grapheme_tables.cpp, generated).
std::span<const ClassRun> grapheme_runs();

/// Bytes of the first cluster of a valid UTF-8 text that is not empty.
std::size_t first_grapheme(std::string_view text);

}  // namespace speclab::unicode
