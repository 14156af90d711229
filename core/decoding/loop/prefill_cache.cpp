#include "core/decoding/loop/prefill_cache.h"

#include <algorithm>

#include "core/measure/clock.h"

namespace speclab {

PrefillCost timed_prefill(Session& session, TokenSpan prompt, float* logits, const PromptTaps* taps) {
  const Work before = session.work();
  const std::int64_t begun = wall_now_ns();
  session.rewind(0);
  session.prefill(prompt, logits, taps);
  const std::int64_t ns = wall_now_ns() - begun;
  return {ns, session.work() - before};
}

const PrefillCache::Prefilled& PrefillCache::prefill(const Model& target, TokenSpan prompt, int turn,
                                                     int capacity) {
  const auto index = static_cast<std::size_t>(turn);
  if (turns_.size() <= index) turns_.resize(index + 1);
  Prefilled& last = turns_[index];
  const bool fits =
      last.session && last.session->model().same_function_as(target) && last.session->capacity() == capacity;
  if (fits && std::ranges::equal(last.prompt, prompt)) return last;

  if (!fits) last.session = target.open(capacity);
  last.prompt.clear();  // if the prefill fails, this entry holds no prompt
  last.logits.resize(static_cast<std::size_t>(target.config().head_rows()));
  last.cost = timed_prefill(*last.session, prompt, last.logits.data());
  last.prompt.assign(prompt.begin(), prompt.end());
  return last;
}

}  // namespace speclab
