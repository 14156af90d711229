#include "core/spec/prefill_cache.h"

#include <algorithm>

#include "core/measure/clock.h"

namespace speclab {

const PrefillCache::Prefilled& PrefillCache::prefill(const Model& target, TokenSpan prompt, int turn, int capacity) {
  const auto index = static_cast<std::size_t>(turn);
  if (turns_.size() <= index) turns_.resize(index + 1);
  Prefilled& last = turns_[index];
  const bool fits = last.session && &last.session->model() == &target && last.session->capacity() == capacity;
  if (fits && std::ranges::equal(last.prompt, prompt)) return last;

  if (!fits) last.session = target.open(capacity);
  last.prompt.clear();  // not there should the prefill fail
  last.logits.resize(static_cast<std::size_t>(target.config().head_rows()));
  const Work before = last.session->work();
  const std::int64_t begun = wall_now_ns();
  last.session->rewind(0);
  last.session->prefill(prompt, last.logits.data());
  last.ns = wall_now_ns() - begun;
  last.work = last.session->work() - before;
  last.prompt.assign(prompt.begin(), prompt.end());
  return last;
}

}  // namespace speclab
