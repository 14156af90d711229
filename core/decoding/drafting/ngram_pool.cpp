#include "core/decoding/drafting/ngram_pool.h"

#include <algorithm>

#include "core/base/error.h"

namespace speclab {

NgramPool::NgramPool(int vocab, int length, int per_key, Order order)
    : length_(length), per_key_(per_key), order_(order), lists_(static_cast<std::size_t>(vocab)) {
  SPECLAB_CHECK(vocab > 0 && length >= 1 && per_key >= kUnbounded,
                "a vocabulary of {}, {} tokens after a key, {} continuations per key", vocab, length,
                per_key);
}

void NgramPool::reserve(std::size_t ngrams) {
  links_.reserve(ngrams);
  tokens_.reserve(ngrams * static_cast<std::size_t>(length_));
  used_keys_.reserve(std::min(ngrams, lists_.size()));
}

void NgramPool::clear() {
  for (const Token key : used_keys_) lists_[static_cast<std::size_t>(key)] = List();
  used_keys_.clear();
  links_.clear();
  tokens_.clear();
}

bool NgramPool::insert(Token key, TokenSpan continuation) {
  SPECLAB_CHECK(key >= 0 && static_cast<std::size_t>(key) < lists_.size(), "key {} of {}", key,
                lists_.size());
  SPECLAB_CHECK(static_cast<int>(continuation.size()) == length_, "a continuation of {} tokens, expected {}",
                continuation.size(), length_);
  if (per_key_ == 0) return false;
  List& list = lists_[static_cast<std::size_t>(key)];
  for (std::int32_t entry = list.last; entry >= 0; entry = links_[static_cast<std::size_t>(entry)].before) {
    if (!std::ranges::equal(this->continuation(entry), continuation)) continue;
    if (order_ == Order::lru && entry != list.last) {
      unlink(list, entry);
      append(list, entry);
    }
    return false;
  }
  if (list.count == 0) used_keys_.push_back(key);
  std::int32_t entry = list.first;
  if (list.count == per_key_) {
    unlink(list, entry);
    std::ranges::copy(continuation, tokens_.begin() + static_cast<std::ptrdiff_t>(entry) *
                                                          static_cast<std::ptrdiff_t>(length_));
  } else {
    entry = static_cast<std::int32_t>(links_.size());
    links_.emplace_back();
    tokens_.insert(tokens_.end(), continuation.begin(), continuation.end());
  }
  append(list, entry);
  return true;
}

void NgramPool::append(List& list, std::int32_t entry) {
  links_[static_cast<std::size_t>(entry)] = {list.last, -1};
  (list.last >= 0 ? links_[static_cast<std::size_t>(list.last)].after : list.first) = entry;
  list.last = entry;
  ++list.count;
}

void NgramPool::unlink(List& list, std::int32_t entry) {
  const Link link = links_[static_cast<std::size_t>(entry)];
  (link.before >= 0 ? links_[static_cast<std::size_t>(link.before)].after : list.first) = link.after;
  (link.after >= 0 ? links_[static_cast<std::size_t>(link.after)].before : list.last) = link.before;
  --list.count;
}

}  // namespace speclab
