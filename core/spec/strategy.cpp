#include "core/spec/strategy.h"

namespace speclab {

void Strategy::observe(std::span<const Sequence* const>, std::span<const Outcome>) {}

}  // namespace speclab
