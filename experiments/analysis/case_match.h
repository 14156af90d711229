#pragma once

#include <span>
#include <string>

namespace speclab {

/// The id of a case from a part of it that only one case has: "distilled/gamma=1". Whole parts between
/// slashes go before others, so that "gamma=1" is not "gamma=16". Throws Error, with the candidates, when no
/// case or several have it; the message begins with `command`.
std::string match_case(const std::string& wanted, std::span<const std::string> ids,
                       const std::string& command);

}  // namespace speclab
