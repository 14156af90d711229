#pragma once

#include <span>
#include <string>
#include <string_view>

namespace speclab {

/// Levenshtein distance in bytes: insertions, deletions and substitutions, and swaps of neighbours, cost 1
/// each.
int edit_distance(std::string_view a, std::string_view b);

/// The known name that was most likely meant; empty when none is near (more than a third of the longer one is
/// wrong). Ties go to the earlier name.
std::string nearest_name(std::string_view name, std::span<const std::string_view> known);
std::string nearest_name(std::string_view name, std::span<const std::string> known);

/// Advice for an unknown name: "Did you mean \"gamma\"?", or "Known are: a, b, c." when none is near.
std::string suggest(std::string_view name, std::span<const std::string> known);

}  // namespace speclab
