#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Finds stop strings in a text that grows token by token. It looks only at the new bytes and at those bytes
/// before them that may belong to the same match.
class StopStrings {
 public:
  void reset(const std::vector<std::string>& stops) {
    stops_ = &stops;
    tail_.clear();
    longest_ = 0;
    for (const std::string& stop : stops) longest_ = std::max(longest_, stop.size());
  }
  bool active() const { return longest_ > 0; }
  /// Appends a token. True: the text now contains a stop string.
  bool push(Token token, const std::function<void(Token, std::string&)>& bytes) {
    bytes(token, tail_);
    for (const std::string& stop : *stops_) {
      if (!stop.empty() && tail_.find(stop) != std::string::npos) return true;
    }
    if (tail_.size() >= longest_)
      tail_.erase(0, tail_.size() - (longest_ - 1));  // a match may end in the next token
    return false;
  }

 private:
  const std::vector<std::string>* stops_ = nullptr;
  std::string tail_;
  std::size_t longest_ = 0;
};

}  // namespace speclab
