#include "core/decoding/drafting/schedules/roc_threshold.h"

#include <algorithm>
#include <limits>

namespace speclab {

void RocThreshold::begin() {
  value_ = first_;
  draft_.clear();
  samples_.clear();
  accepted_ = 0;
}

void RocThreshold::insert(double confidence, bool accepted) {
  const auto at =
      std::upper_bound(samples_.begin(), samples_.end(), confidence,
                       [](double value, const Sample& sample) { return value > sample.confidence; });
  samples_.insert(at, {confidence, accepted});
  accepted_ += accepted ? 1 : 0;
}

void RocThreshold::observe(int accepted) {
  const std::size_t drafted = draft_.size(), kept = std::min(static_cast<std::size_t>(accepted), drafted);
  for (std::size_t i = 0; i < kept; ++i) insert(draft_[i], true);
  if (kept < drafted) insert(draft_[kept], false);

  const auto all = static_cast<std::int64_t>(samples_.size()), rejected = all - accepted_;
  if (all < least_samples_ || accepted_ == 0 || rejected == 0) return;
  std::int64_t above_accepted = 0, above_rejected = 0, least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    ++(samples_[i].accepted ? above_accepted : above_rejected);
    if (i + 1 < samples_.size() && samples_[i + 1].confidence == samples_[i].confidence) continue;
    // FPR + 3 FNR, multiplied by accepted_ * rejected.
    const std::int64_t cost = above_rejected * accepted_ + 3 * (accepted_ - above_accepted) * rejected;
    if (cost >= least) continue;
    least = cost;
    value_ = samples_[i].confidence;
  }
}

}  // namespace speclab
