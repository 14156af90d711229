#include "experiments/analysis/compare/typical_steps.h"

#include <algorithm>
#include <ranges>
#include <span>

#include "core/measure/stats.h"
#include "experiments/metrics/metrics_detail.h"

namespace speclab {
namespace {

PartTimes parts_of(const PhaseTimes& times) {
  return {.draft = static_cast<double>(times[Phase::draft]),
          .target = static_cast<double>(times[Phase::target]),
          .overhead = static_cast<double>(times[Phase::accept] + times[Phase::other])};
}

bool take_the_same_steps(const LineRecord& a, const LineRecord& b) {
  return std::ranges::equal(a.turns, b.turns, [](const GenerationRecord& x, const GenerationRecord& y) {
    return std::ranges::equal(x.steps, y.steps, [](const StepRecord& s, const StepRecord& t) {
      return s.emitted == t.emitted && s.rows == t.rows && s.drafted.size() == t.drafted.size();
    });
  });
}

/// The median of a part over several times of the same span.
double median_part(std::span<const PartTimes> times, double PartTimes::* part) {
  std::vector<double> values;
  for (const PartTimes& one : times) values.push_back(one.*part);
  return stats::median(values);
}

PartTimes median_times(std::span<const PartTimes> times) {
  return {.draft = median_part(times, &PartTimes::draft),
          .target = median_part(times, &PartTimes::target),
          .overhead = median_part(times, &PartTimes::overhead)};
}

/// The part of the decode time that belongs to no step.
double time_between_steps(const LineRecord& line) {
  std::int64_t ns = line.decode_ns();
  for (const GenerationRecord& turn : line.turns) {
    for (const StepRecord& step : turn.steps) ns -= step.times.total();
  }
  return static_cast<double>(ns);
}

/// The typical text of several repeats that take the same steps.
TypicalText typical_text(std::span<const LineRecord> repeats) {
  TypicalText text;
  const LineRecord& first = repeats.front();
  text.tokens = emitted_tokens(first);
  std::vector<PartTimes> times(repeats.size());
  for (std::size_t turn = 0; turn < first.turns.size(); ++turn) {
    text.ids.push_back(first.turns[turn].tokens);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < first.turns[turn].steps.size(); ++i) {
      for (std::size_t r = 0; r < repeats.size(); ++r)
        times[r] = parts_of(repeats[r].turns[turn].steps[i].times);
      const StepRecord& step = first.turns[turn].steps[i];
      text.steps.push_back({.turn = turn,
                            .begin = begin,
                            .emitted = step.emitted,
                            .rows = step.rows,
                            .drafted = step.drafted.size(),
                            .times = median_times(times)});
      text.times += text.steps.back().times;
      begin += static_cast<std::size_t>(step.emitted);
    }
  }
  for (std::size_t r = 0; r < repeats.size(); ++r) times[r] = {.overhead = time_between_steps(repeats[r])};
  text.times += median_times(times);
  return text;
}

}  // namespace

PartTimes& PartTimes::operator+=(const PartTimes& other) {
  draft += other.draft;
  target += other.target;
  overhead += other.overhead;
  return *this;
}

std::map<TextKey, TypicalText> typical_texts(const CaseData& data) {
  std::map<TextKey, TypicalText> texts;
  for (std::size_t i = 0; i < data.prompts.size(); ++i) {
    for (const std::vector<LineRecord>& repeats : *data.lines[i]) {
      const bool same = std::all_of(repeats.begin(), repeats.end(), [&](const LineRecord& line) {
        return take_the_same_steps(line, repeats.front());
      });
      std::span<const LineRecord> used = repeats;
      if (!same) {
        std::vector<std::pair<std::int64_t, std::size_t>> by_time;
        for (std::size_t r = 0; r < repeats.size(); ++r) by_time.emplace_back(repeats[r].decode_ns(), r);
        std::sort(by_time.begin(), by_time.end());
        used = used.subspan(by_time[by_time.size() / 2].second, 1);
      }
      texts.emplace(TextKey(data.prompts[i], repeats.front().seed), typical_text(used));
    }
  }
  return texts;
}

}  // namespace speclab
