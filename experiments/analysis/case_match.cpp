#include "experiments/analysis/case_match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/base/nearest.h"

namespace speclab {

std::string match_case(const std::string& wanted, std::span<const std::string> ids,
                       const std::string& command) {
  if (std::find(ids.begin(), ids.end(), wanted) != ids.end()) return wanted;
  std::vector<std::string> whole, part;
  for (const std::string& id : ids) {
    if (("/" + id + "/").find("/" + wanted + "/") != std::string::npos) whole.push_back(id);
    if (id.find(wanted) != std::string::npos) part.push_back(id);
  }
  const std::vector<std::string>& found = whole.empty() ? part : whole;
  if (found.size() == 1) return found.front();
  if (found.empty() || wanted.empty())
    throw Error({command, fmt::format("no case \"{}\"", wanted), "the id of a case, or a part of one id",
                 suggest(wanted, ids)});
  throw Error({command, fmt::format("\"{}\", a part of {} case ids", wanted, found.size()),
               "a part of one id", fmt::format("The candidates: {}.", fmt::join(found, ", "))});
}

}  // namespace speclab
