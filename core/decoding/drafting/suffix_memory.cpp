#include "core/decoding/drafting/suffix_memory.h"

#include <algorithm>
#include <utility>

namespace speclab {

SuffixMemory::SuffixMemory(int depth, Remember remember, std::size_t budget_tokens,
                           const Resources& resources)
    : remember_(remember) {
  if (remember != Remember::nothing) store_ = std::make_unique<SuffixStore>(depth, budget_tokens);
  for (int i = 0; i < resources.batch; ++i) {
    slots_.push_back(std::make_unique<Slot>(depth));
    slots_.back()->own.reserve(static_cast<std::size_t>(resources.capacity) + 1);
  }
}

void SuffixMemory::begin(const Sequence& sequence) {
  Slot& slot = *slots_[static_cast<std::size_t>(sequence.slot)];
  if (store_) remember(slot, sequence);
  if (sequence.turn == 0) slot.cleared = cleared_;
  slot.own.clear();
  for (const Token token : sequence.tokens) slot.own.append(token);
  slot.prompt_length = sequence.prompt_length;
  if (store_) {
    slot.matches = store_->match(sequence.tokens);
    slot.version = store_->version();
  }
}

void SuffixMemory::remember(Slot& slot, const Sequence& next) {
  const TokenSpan text = slot.own.text();
  if (!text.empty() && may_share(slot) && (next.turn == 0 || remember_ == Remember::outputs)) {
    const auto skip = static_cast<std::size_t>(remember_ == Remember::outputs ? slot.prompt_length : 0);
    store_->add(text.subspan(std::min(skip, text.size())));
  }
  if (next.turn > 0) return;
  std::uint64_t name = 1469598103934665603u;  // FNV-1a
  for (const Token token : TokenSpan(next.tokens).first(static_cast<std::size_t>(next.prompt_length)))
    name = (name ^ static_cast<std::uint32_t>(token)) * 1099511628211u;
  if (seen_.insert(name).second) return;
  store_->clear();
  seen_ = {name};
  ++cleared_;
}

void SuffixMemory::catch_up(const Sequence& sequence) {
  Slot& slot = *slots_[static_cast<std::size_t>(sequence.slot)];
  const bool current = store_ && slot.version == store_->version();
  for (std::size_t at = slot.own.text().size(); at < sequence.tokens.size(); ++at) {
    slot.own.append(sequence.tokens[at]);
    if (current) store_->extend(slot.matches, sequence.tokens[at]);
  }
  if (store_ && !current) {  // another slot has changed the store
    slot.matches = store_->match(sequence.tokens);
    slot.version = store_->version();
  }
}

void SuffixMemory::from_text(const Sequence& sequence, const SuffixSpeculationOptions& options,
                             SuffixSpeculation& best) {
  catch_up(sequence);
  const SuffixAutomaton& own = slots_[static_cast<std::size_t>(sequence.slot)]->own;
  best.clear();
  best.run(own, own.repeated_suffix(), true, sequence.depth_limit, options);
}

void SuffixMemory::from_earlier(const Sequence& sequence, const SuffixSpeculationOptions& options,
                                SuffixSpeculation& best) {
  catch_up(sequence);
  const Slot& slot = *slots_[static_cast<std::size_t>(sequence.slot)];
  best.clear();
  for (int i = 0; store_ && may_share(slot) && i < SuffixStore::kParts; ++i) {
    part_.run(store_->part(i), slot.matches[static_cast<std::size_t>(i)], false, sequence.depth_limit,
              options);
    if (part_.score() > best.score()) std::swap(best, part_);
  }
}

SuffixMemory::From SuffixMemory::speculate(const Sequence& sequence, const SuffixSpeculationOptions& options,
                                           SuffixSpeculation& best) {
  from_text(sequence, options, best);
  from_earlier(sequence, options, earlier_);
  if (earlier_.score() > best.score()) {
    std::swap(best, earlier_);
    return From::earlier;
  }
  return best.nodes().empty() ? From::nowhere : From::text;
}

}  // namespace speclab
