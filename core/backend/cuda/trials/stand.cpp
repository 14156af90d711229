#include <algorithm>

#include "core/backend/cuda/trials/trials.h"

namespace speclab::cuda {

double Stand::time(const std::function<void(int)>& launch) const {
  launch(0);  // the first launch of a kernel loads its code
  const double once = batch(1, launch);
  return simulated() ? once : batch(std::clamp(static_cast<int>(2e-3 / once), 1, 500), launch);
}

double Stand::batch(int count, const std::function<void(int)>& launch) const {
  timer_->begin();
  for (int i = 0; i < count; ++i) launch(i);
  return timer_->end() / count;
}

}  // namespace speclab::cuda
