#include "core/model/heads/residual_block.h"

#include <vector>

#include "core/base/error.h"

namespace speclab {

ResidualBlock::ResidualBlock(const HeadFile& file, Backend& backend, const std::string& name,
                             std::span<const int> inputs, int out) {
  const std::vector<int> widths(inputs.begin(), inputs.end());
  SPECLAB_CHECK(widths.size() > 1 || widths.front() == out, "a residual of {} in {}", widths.front(), out);
  linear_ = file.linear(backend, name + ".linear", widths, out, Bias::kPresent);
  if (widths.size() > 1)
    residual_ = file.linear(backend, name + ".res_connection", widths, out, Bias::kPresent);
}

void ResidualBlock::run(HeadRunner& runner, std::span<const HeadRows* const> inputs, HeadRows& y,
                        HeadRows& scratch) const {
  runner.linear(linear_, inputs, y);
  runner.activate(Activation::kSilu, y);
  if (residual_.parts.empty()) {
    runner.add(*inputs.front(), y);
    return;
  }
  runner.linear(residual_, inputs, scratch);
  runner.add(scratch, y);
}

}  // namespace speclab
