#include "core/simulate/timelines/event_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <queue>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/theory/domain.h"

namespace speclab::simulate {
namespace {

struct Event {
  double time = 0;
  int device = 0;          ///< whose forward ends; the draft model is device 0
  std::int64_t order = 0;  ///< of the launch
  std::int64_t fed = 0;    ///< target forwards: drafted tokens that the target has seen at the end

  /// For a queue whose top is the largest element: the earliest event is the largest.
  bool operator<(const Event& other) const {
    return std::tuple(time, device > 0, order) > std::tuple(other.time, other.device > 0, other.order);
  }
};

void require_setting(const TimelineSetting& setting) {
  theory::require_positive("draft time", setting.draft);
  const bool free_running = setting.timeline == Timeline::amusd || setting.timeline == Timeline::dsi;
  if (setting.tokens >= 1 && setting.servers >= 1 && !(free_running && setting.draft > setting.verify.at(1)))
    return;
  throw Error({.what = fmt::format("the timeline {}", to_string(setting.timeline)),
               .got = fmt::format("{} tokens, {} servers, a draft time of {}", setting.tokens,
                                  setting.servers, setting.draft),
               .expected = "at least one token and server; amusd and dsi: a draft no slower than the target",
               .advice = ""});
}

/// The state of a timeline. All counts of drafted tokens begin anew with restart().
class Player {
 public:
  Player(const TimelineSetting& setting, const std::function<bool()>& accept, std::int64_t tokens,
         std::size_t most_segments)
      : setting_(setting), accept_(accept), wanted_(tokens), most_segments_(most_segments) {
    busy_.resize(setting.timeline == Timeline::dsi ? static_cast<std::size_t>(setting.servers) : 1);
  }

  TimelineRun play() {
    restart();
    while (out_.tokens < wanted_) {
      launch();
      SPECLAB_CHECK(!events_.empty(), "no forward is under way at {}", now_);
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      if (event.device == 0) {
        drafting_ = false;
        ++drafted_;
      } else {
        busy_[static_cast<std::size_t>(event.device) - 1] = 0;
        ended_.insert(std::ranges::upper_bound(ended_, event.fed), event.fed);
      }
      judge();
    }
    out_.time = now_;
    return std::move(out_);
  }

 private:
  /// Drops all drafted tokens and all forwards under way.
  void restart() {
    for (const Open& open : open_) {
      TimelineSegment& segment = out_.segments[open.segment];
      segment.end = std::min(segment.end, now_);
      segment.wasted = true;
    }
    open_.clear();
    events_ = {};
    ended_.clear();
    std::ranges::fill(busy_, char{0});
    drafting_ = false;
    drafted_ = judged_ = launches_ = 0;
    fed_ = -1;
  }

  /// Whether the draft model drafts another token now.
  bool may_draft() const {
    switch (setting_.timeline) {
      case Timeline::serial: return drafted_ < setting_.tokens;
      case Timeline::pearl: return drafted_ < setting_.tokens * launches_;  // one launch a round
      case Timeline::post_verify: return drafted_ < at_launch();
      case Timeline::amusd:
      case Timeline::dsi: break;
    }
    return true;
  }

  /// Post-verify: how many tokens are drafted when the next target forward is launched. Each target
  /// forward judges the tokens that it feeds and one more.
  std::int64_t at_launch() const { return setting_.tokens + (setting_.tokens + 1) * launches_; }

  /// How many drafted tokens the next target forward has seen when it ends; -1: no launch now.
  std::int64_t next_feed() const {
    const bool idle = std::ranges::find(busy_, 1) == busy_.end();
    switch (setting_.timeline) {
      case Timeline::serial: return idle && launches_ == 0 && drafted_ == setting_.tokens ? drafted_ : -1;
      case Timeline::pearl:
        return idle && ended_.empty() && drafted_ == setting_.tokens * launches_ ? drafted_ : -1;
      case Timeline::post_verify: return idle && ended_.empty() && drafted_ == at_launch() ? drafted_ : -1;
      case Timeline::amusd: return idle && ended_.empty() && drafted_ > fed_ ? drafted_ : -1;
      case Timeline::dsi: break;
    }
    const bool has_server = std::ranges::find(busy_, 0) != busy_.end();
    const std::int64_t feed = setting_.tokens * launches_;
    return has_server && drafted_ >= feed ? feed : -1;
  }

  void launch() {
    for (std::int64_t feed = next_feed(); feed >= 0; feed = next_feed()) {
      // The first target forward after a restart also feeds the pending token (the correction or the bonus).
      const auto rows = static_cast<int>(fed_ < 0 ? feed + 1 : feed - fed_);
      const auto free = std::ranges::find(busy_, 0);
      *free = 1;
      const auto device = static_cast<int>(free - busy_.begin()) + 1;
      ++launches_;
      fed_ = feed;
      ++out_.target_forwards;
      start({now_ + setting_.verify.at(rows), device, 0, feed}, rows);
    }
    if (!drafting_ && may_draft()) {
      drafting_ = true;
      ++out_.draft_forwards;
      start({now_ + setting_.draft, 0, 0, 0}, 1);
    }
  }

  void start(Event event, int rows) {
    event.order = ++order_;
    events_.push(event);
    if (out_.segments.size() >= most_segments_) return;
    open_.push_back({out_.segments.size(), drafted_ + 1});
    out_.segments.push_back({event.device, now_, event.time, rows, false});
  }

  /// Judges every token that an ended target forward can judge.
  void judge() {
    while (!ended_.empty()) {
      const bool serial = setting_.timeline == Timeline::serial;
      const std::int64_t limit = serial ? ended_.front() : ended_.front() + 1;
      const bool in_rounds =
          setting_.timeline == Timeline::pearl || setting_.timeline == Timeline::post_verify;
      const bool round_ended = !in_rounds || !may_draft();
      const bool in_order = setting_.timeline != Timeline::dsi ||
                            ended_.front() == (judged_ == 0 ? 0 : judged_ - 1 + setting_.tokens);
      if (drafted_ < limit || !round_ended || !in_order) return;
      ended_.erase(ended_.begin());
      while (judged_ < limit) {
        ++judged_;
        ++out_.tokens;
        if (!accept_()) {
          keep(judged_ - 1);
          return restart();
        }
      }
      if (serial) {
        ++out_.tokens;  // the bonus
        keep(judged_);
        return restart();
      }
      keep(judged_);
    }
  }

  /// Closes the segments that can no longer be wasted: target forwards that ended, and the draft forwards of
  /// the first `accepted` tokens.
  void keep(std::int64_t accepted) {
    std::erase_if(open_, [&](const Open& open) {
      const TimelineSegment& segment = out_.segments[open.segment];
      return segment.device > 0 ? segment.end <= now_ : open.token <= accepted;
    });
  }

  /// A segment whose tokens may still be dropped.
  struct Open {
    std::size_t segment = 0;
    std::int64_t token = 0;  ///< which drafted token, counted from 1 (only for draft forwards)
  };

  const TimelineSetting& setting_;
  const std::function<bool()>& accept_;
  const std::int64_t wanted_;
  const std::size_t most_segments_;
  TimelineRun out_;
  std::priority_queue<Event> events_;
  std::vector<char> busy_;           ///< [servers] 1 while a forward is under way
  std::vector<std::int64_t> ended_;  ///< `fed` of ended target forwards whose tokens are not judged yet
  std::vector<Open> open_;
  double now_ = 0;
  std::int64_t order_ = 0;
  // Since the last restart():
  bool drafting_ = false;
  std::int64_t drafted_ = 0, judged_ = 0, launches_ = 0;
  std::int64_t fed_ = -1;  ///< drafted tokens that launched target forwards feed; -1: none is launched yet
};

}  // namespace

std::string_view to_string(Timeline timeline) {
  switch (timeline) {
    case Timeline::serial: return "serial";
    case Timeline::pearl: return "pearl";
    case Timeline::post_verify: return "post_verify";
    case Timeline::amusd: return "amusd";
    case Timeline::dsi: break;
  }
  return "dsi";
}

TimelineRun play_timeline(const TimelineSetting& setting, const std::function<bool()>& accept,
                          std::int64_t tokens, std::size_t most_segments) {
  require_setting(setting);
  return Player(setting, accept, tokens, most_segments).play();
}

}  // namespace speclab::simulate
