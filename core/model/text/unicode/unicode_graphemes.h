#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/model/text/unicode/unicode.h"

/// Extended grapheme clusters (Unicode Standard Annex 29): sequences that a reader sees as one character.
namespace speclab::unicode {

/// The character classes in the rules of the annex: Grapheme_Cluster_Break and, for
/// GB9c, Indic_Conjunct_Break. The generated table contains their numbers, except for
/// the last five, which are computed.
enum class GraphemeClass : std::uint8_t {
  kOther,
  kControl,
  kExtend,                  ///< Extend in both properties
  kExtendOutsideConjuncts,  ///< Extend only in the first property
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

/// Runs of equal GraphemeClass in ascending order, the first at 0 (unicode_grapheme_tables.cpp, generated).
std::span<const ClassRun> grapheme_runs();

/// Length in bytes of the first cluster of a valid UTF-8 text, which must not be empty.
std::size_t first_grapheme(std::string_view text);

}  // namespace speclab::unicode
