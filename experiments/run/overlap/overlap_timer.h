#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "core/decoding/ahead/divided_models.h"
#include "core/decoding/ahead/side_thread.h"
#include "core/decoding/rows/coins.h"
#include "core/decoding/rows/distribution.h"
#include "experiments/run/forward_times.h"

namespace speclab {

/// Mean times in ns of the forwards of two models that work at the same time.
struct OverlapTimes {
  std::map<int, double> target_ns;  ///< by rows: a forward of the target while the draft model works
  double draft_ns = 0;              ///< a drafted token (forward and draw) while the target works
  double draft_draw_ns = 0;         ///< the part of draft_ns after the forward: the draw of the token
  double draft_alone_ns = 0;        ///< a drafted token (forward and draw) while the target waits
};

/// Times the forwards of a target and a draft model on divided threads (divide_threads), each while the other
/// works. This is how they work in a case that drafts ahead. Two forwards that run side by side share memory
/// and caches, so each of them takes longer than alone.
class OverlapTimer {
 public:
  struct Setting {
    int context = 1;          ///< committed tokens of both models
    int most_rows = 1;        ///< rows of the largest target forward
    SamplingParams sampling;  ///< how the draft's tokens are drawn
    bool coupled = false;     ///< with Gumbel noise
  };
  /// Throws Error like divide_threads() and ForwardTimer. `strategy` is for the message.
  OverlapTimer(const std::shared_ptr<const Model>& target, const std::shared_ptr<const Model>& draft,
               std::string_view strategy, const Setting& setting);

  /// Measures once. The target's forwards have 1 row, `most_rows` rows, and half as many.
  OverlapTimes measure();

 private:
  /// When a token was drafted, in ns of the wall clock.
  struct DraftedAt {
    std::int64_t begun = 0, computed = 0, ended = 0;  ///< `computed`: the end of the forward
  };
  /// Mean times of drafted tokens in ns.
  struct DraftMeans {
    double token = 0, draw = 0;
  };
  DraftedAt draft_token();
  void draft_on();  ///< on the side thread: drafts until told to stop
  DraftMeans draft_beside(int rows, OverlapTimes& out);
  DraftMeans means_between(std::int64_t begun, std::int64_t ended) const;

  Setting setting_;
  DividedModels models_;
  ForwardTimer target_, draft_;
  Distribution q_;
  Coins coins_{1, 1};
  std::int64_t position_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> done_{0};        ///< tokens that the side thread has drafted since it was started
  std::vector<DraftedAt> drafted_;  ///< these tokens
  SideThread side_;                 ///< last, because its thread uses the members above
};

}  // namespace speclab
