#include "core/decoding/drafting/suffix_store.h"

#include <algorithm>

namespace speclab {
namespace {

constexpr Token kEndOfDocument = -1;

}  // namespace

SuffixStore::SuffixStore(int depth, std::size_t budget_tokens)
    : budget_(std::max<std::size_t>(budget_tokens / kParts, 2)),
      parts_{SuffixAutomaton(depth), SuffixAutomaton(depth)} {}

void SuffixStore::add(TokenSpan document) {
  ++version_;
  document = document.last(std::min(document.size(), budget_ - 1));
  if (parts_[young_].text().size() + document.size() + 1 > budget_) {
    young_ = 1 - young_;
    parts_[young_].clear();
  }
  for (const Token token : document) parts_[young_].append(token);
  parts_[young_].append(kEndOfDocument);
}

void SuffixStore::clear() {
  ++version_;
  for (SuffixAutomaton& part : parts_) part.clear();
}

void SuffixStore::extend(Matches& matches, Token token) const {
  for (int i = 0; i < kParts; ++i) matches[i] = part(i).extend(matches[i], token);
}

SuffixStore::Matches SuffixStore::match(TokenSpan text) const {
  Matches matches;
  const auto depth = static_cast<std::size_t>(parts_[0].depth());
  for (const Token token : text.last(std::min(text.size(), depth))) extend(matches, token);
  return matches;
}

}  // namespace speclab
