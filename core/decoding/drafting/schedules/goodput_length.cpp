#include "core/decoding/drafting/schedules/goodput_length.h"

#include <cstddef>
#include <utility>

#include "core/base/error.h"

namespace speclab {

GoodputLength::GoodputLength(std::vector<double> step_ns, double memory)
    : step_ns_(std::move(step_ns)), memory_(memory) {
  SPECLAB_CHECK(step_ns_.size() >= 2, "a goodput without lengths");
}

double GoodputLength::acceptance() const {
  constexpr double kFirstGuess = .6, kGuessWeight = 1;
  return share_.over(kFirstGuess, kGuessWeight);
}

int GoodputLength::choose() const {
  const double a = acceptance();
  double tokens = 1, power = 1, most = -1;
  std::size_t best = 1;
  for (std::size_t n = 1; n < step_ns_.size(); ++n) {
    power *= a;
    tokens += power;
    const double goodput = tokens / step_ns_[n];
    if (goodput > most) best = n, most = goodput;
  }
  return static_cast<int>(best);
}

void GoodputLength::observe(int drafted, int accepted) {
  share_.fade(memory_);
  share_.seen += accepted + (accepted < drafted ? 1 : 0);
  share_.accepted += accepted;
}

}  // namespace speclab
