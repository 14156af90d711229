#pragma once

#include <span>
#include <string>

namespace speclab {

/// Finds the one case that `wanted` names and returns its id. `wanted` is an id, or a part of exactly one id,
/// such as "distilled/gamma=1". Whole parts between slashes take precedence: "gamma=1" finds the case
/// "a/gamma=1" although "a/gamma=16" contains it, too. Throws Error if no case or several cases match. The
/// message begins with `command` and names candidates.
std::string match_case(const std::string& wanted, std::span<const std::string> ids,
                       const std::string& command);

}  // namespace speclab
