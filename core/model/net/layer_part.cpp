#include "core/model/net/layer_part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"

namespace speclab {

void LayerPart::indices(std::span<const int> layers, const std::string& model, std::vector<int>& out) const {
  out.clear();
  const int count = static_cast<int>(layers.size());
  if (kind_ == Kind::kOnly) {
    const auto fail = [&](const std::string& got) {
      throw Error({fmt::format("layers of a forward of {}", model), got,
                   fmt::format("at least one of [{}], ascending, each once", fmt::join(layers, ", ")), ""});
    };
    if (only_.empty()) fail("none");
    auto at = layers.begin();
    for (const int layer : only_) {
      at = std::find(at, layers.end(), layer);
      if (at == layers.end()) fail(fmt::format("[{}]", fmt::join(only_, ", ")));
      out.push_back(static_cast<int>(at++ - layers.begin()));
    }
    return;
  }
  const auto check = [&](int exit, int least) {
    if (exit >= least && exit < count) return;
    throw Error({fmt::format("early exit of {}", model), fmt::format("after {} layers", exit),
                 fmt::format("after {} to {} of its {} layers", least, count - 1, count), ""});
  };
  if (kind_ == Kind::kFrom || kind_ == Kind::kBetween) check(begin_, 1);
  if (kind_ == Kind::kUntil || kind_ == Kind::kBetween) check(end_, begin_ + 1);
  for (int i = begin_; i < (end_ > 0 ? end_ : count); ++i) out.push_back(i);
}

}  // namespace speclab
