#pragma once

#include <functional>
#include <random>
#include <string>
#include <string_view>

/// Mutations that know the formats, so that most inputs pass the first checks of their readers.
namespace speclab::fuzz {

using Random = std::mt19937_64;
/// A random number of 0 .. n - 1.
inline std::size_t below(Random& random, std::size_t n) { return static_cast<std::size_t>(random() % n); }
/// Changes some bytes of a leaf (a name, a number, a text), with libFuzzer's own mutation if it is linked.
using MutateBytes = std::function<void(std::string&)>;

/// Changes an input of the entry point with this name (entry_points.h). Never fails: an input of another
/// format is replaced by a small valid one or changed bytewise.
[[gnu::visibility("default")]] std::string mutate(std::string_view entry_point, std::string input,
                                                  Random& random, const MutateBytes& bytes);

/// Makes one change of a JSON text: replaces values by extreme ones or by others of the text, or erases,
/// repeats, renames or nests members and elements.
std::string mutate_json(const std::string& text, Random& random, const MutateBytes& bytes);
/// Changes header entries, shapes, offsets, types and data. Most of the time lengths are corrected, so that
/// they agree.
std::string mutate_safetensors(const std::string& file, Random& random, const MutateBytes& bytes);
/// Changes metadata (types, lengths, keys), tensor descriptions, alignment, counts and data.
std::string mutate_gguf(const std::string& file, Random& random, const MutateBytes& bytes);

/// Changes a tokenizer.model of SentencePiece: fields of its messages, pieces, the units of its character
/// map.
std::string mutate_sentencepiece(const std::string& file, Random& random, const MutateBytes& bytes);

/// Changes a TokenFile (core/decoding/drafting/token_file.h): entries of its sections, their sizes and the
/// header, but not its checksum.
std::string mutate_token_file(const std::string& file, Random& random, const MutateBytes& bytes);

/// For tests: changes, cuts, repeats or inserts one to four bytes.
void mutate_plain(std::string& bytes, Random& random);

}  // namespace speclab::fuzz
