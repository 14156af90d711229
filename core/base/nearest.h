#pragma once

#include <span>
#include <string>
#include <string_view>

namespace speclab {

/// Edit distance in bytes. Insertions, deletions, substitutions and swaps of neighbours cost 1 each.
int edit_distance(std::string_view a, std::string_view b);

/// Returns the known name nearest to a misspelt one, or an empty string when the distance exceeds a third of
/// the longer name. Ties go to the earlier name.
std::string nearest_name(std::string_view name, std::span<const std::string_view> known);
std::string nearest_name(std::string_view name, std::span<const std::string> known);

/// Advice for an unknown name: "Did you mean \"gamma\"?", or "Known are: a, b, c." when none is near. If
/// `known` is empty, says that there is nothing to choose from.
std::string suggest(std::string_view name, std::span<const std::string> known);

}  // namespace speclab
