#include "experiments/run/overlap/overlap_timer.h"

#include <set>
#include <span>
#include <thread>

#include "core/measure/clock.h"

namespace speclab {
namespace {

constexpr int kAlone = 3;                 // drafted tokens that are timed while the target waits
constexpr int kLeastBeside = 3;           // least number of drafted tokens during the forwards of one size
constexpr int kMostForwards = 64;         // most forwards of one size in a measurement
constexpr std::size_t kMostTimes = 1024;  // most timed tokens during the forwards of one size

}  // namespace

OverlapTimer::OverlapTimer(const std::shared_ptr<const Model>& target,
                           const std::shared_ptr<const Model>& draft, std::string_view strategy,
                           const Setting& setting)
    : setting_(setting),
      models_(divide_threads(target, draft, strategy)),
      target_(*models_.target, setting.context, setting.most_rows),
      draft_(*models_.draft, setting.context, 1),
      side_([this] { draft_on(); }) {
  drafted_.reserve(kMostTimes);
}

OverlapTimer::DraftedAt OverlapTimer::draft_token() {
  const ModelConfig& config = models_.draft->config();
  DraftedAt at;
  at.begun = wall_now_ns();
  draft_.time(1);
  at.computed = wall_now_ns();
  q_.assign_logits(draft_.logits(), setting_.sampling, config.head_ids, config.vocab);
  ++position_;
  if (setting_.coupled) q_.sample_coupled(coins_, position_);
  else q_.sample(coins_, {.position = position_, .purpose = Purpose::draft, .draw = 1});
  at.ended = wall_now_ns();
  return at;
}

void OverlapTimer::draft_on() {
  while (!stop_.load()) {
    const DraftedAt at = draft_token();
    if (drafted_.size() < kMostTimes) drafted_.push_back(at);
    done_.fetch_add(1);
  }
}

// The means of the tokens that were drafted from beginning to end in this time. If there are none, the means
// of all tokens.
OverlapTimer::DraftMeans OverlapTimer::means_between(std::int64_t begun, std::int64_t ended) const {
  DraftMeans within, all;
  double count = 0;
  for (const DraftedAt& at : drafted_) {
    const auto token = static_cast<double>(at.ended - at.begun);
    const auto draw = static_cast<double>(at.ended - at.computed);
    all.token += token;
    all.draw += draw;
    if (at.begun < begun || at.ended > ended) continue;
    within.token += token;
    within.draw += draw;
    ++count;
  }
  if (count > 0) return {within.token / count, within.draw / count};
  const auto of_all = static_cast<double>(drafted_.size());
  return {all.token / of_all, all.draw / of_all};
}

// Times forwards of `rows` rows while tokens are drafted. Returns the mean times of the tokens that were
// drafted meanwhile.
OverlapTimer::DraftMeans OverlapTimer::draft_beside(int rows, OverlapTimes& out) {
  stop_ = false;
  done_ = 0;
  drafted_.clear();
  std::int64_t begun = 0, ended = 0;
  double sum = 0;
  int forwards = 0;
  side_.start();
  {
    // Ends the other thread's work, also if a forward throws.
    struct Stop {
      OverlapTimer& timer;
      ~Stop() {
        timer.stop_ = true;
        timer.side_.wait();
      }
    } stop{*this};
    while (done_.load() == 0) std::this_thread::yield();
    begun = wall_now_ns();
    while (forwards == 0 || (done_.load() < 1 + kLeastBeside && forwards < kMostForwards)) {
      sum += target_.time(rows).host_ns;
      ++forwards;
    }
    ended = wall_now_ns();
  }
  out.target_ns[rows] = sum / forwards;
  return means_between(begun, ended);
}

OverlapTimes OverlapTimer::measure() {
  OverlapTimes out;
  draft_token();  // the first one is not timed
  for (int i = 0; i < kAlone; ++i) {
    const DraftedAt at = draft_token();
    out.draft_alone_ns += static_cast<double>(at.ended - at.begun) / kAlone;
  }
  const std::set<int> sizes = {1, (setting_.most_rows + 1) / 2, setting_.most_rows};
  for (const int rows : sizes) {
    const DraftMeans means = draft_beside(rows, out);
    out.draft_ns += means.token / static_cast<double>(sizes.size());
    out.draft_draw_ns += means.draw / static_cast<double>(sizes.size());
  }
  return out;
}

}  // namespace speclab
