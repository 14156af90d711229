#pragma once

#include <span>
#include <string>

namespace speclab {

/// Finds the id of the case that `wanted` means: an id, or a part of only one id, such as
/// "distilled/gamma=1". Parts between slashes that match as a whole come first, so that "gamma=1" does not
/// mean "gamma=16". Throws Error with the candidates when no case or several match; the message begins with
/// `command`.
std::string match_case(const std::string& wanted, std::span<const std::string> ids,
                       const std::string& command);

}  // namespace speclab
