#include "core/model/heads/learned_inputs.h"

#include <cstddef>
#include <numeric>
#include <span>

#include "core/base/error.h"

namespace speclab {

LearnedInputs::LearnedInputs(const HeadFile& file, const std::string& name, int count, const Model& target)
    : table_(file.linear(target.backend(), name, {target.config().hidden}, count, Bias::kNone).parts.front()),
      numbers_(static_cast<std::size_t>(count)) {
  std::iota(numbers_.begin(), numbers_.end(), 0);
}

void LearnedInputs::after(HeadRunner& runner, Token pending, int learned, HeadRows& to) {
  SPECLAB_CHECK(learned >= 0 && learned <= count(), "{} of {} learned inputs", learned, count());
  if (learned == 0) {
    runner.embed({&pending, 1}, to);
    return;
  }
  runner.embed({&pending, 1}, embedded_);
  runner.gather(table_, std::span<const Token>(numbers_).first(static_cast<std::size_t>(learned)), learned_);
  const HeadRows* const parts[] = {&embedded_, &learned_};
  runner.stack(parts, to);
}

}  // namespace speclab
