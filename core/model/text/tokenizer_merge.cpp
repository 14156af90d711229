#include "core/model/text/tokenizer_merge.h"

#include <algorithm>
#include <bit>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

std::uint64_t pair_of(Token left, Token right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

/// A node of a doubly linked list of symbols. Merging a pair keeps the left node and unlinks the right one.
struct MergeNode {
  Token token;
  std::int32_t previous, next;  // -1 at the ends
  bool alive;
};

/// A heap entry. It stays in the heap when its pair disappears. merge() then skips it: its left node is no
/// longer alive, has no next node, or forms a pair that does not give `merged`.
struct Candidate {
  std::int32_t rank, position;
  Token merged;
};

struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  }
};

}  // namespace

MergeTable::MergeTable(std::size_t rules) : slots_(std::bit_ceil(2 * rules + 2), Slot{kEmpty, {0, 0}}) {}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
  mixed ^= mixed >> 32;
  std::size_t at = static_cast<std::size_t>(mixed) & mask;
  while (slots_[at].pair != pair && slots_[at].pair != kEmpty) at = (at + 1) & mask;
  return at;
}

bool MergeTable::add(Token left, Token right, Token merged) {
  SPECLAB_CHECK(2 * (static_cast<std::size_t>(rules_) + 1) <= slots_.size(),
                "the table was made for fewer than {} rules", rules_ + 1);
  Slot& slot = slots_[slot_of(pair_of(left, right))];
  if (slot.pair != kEmpty) return false;
  slot = {pair_of(left, right), {rules_++, merged}};
  return true;
}

const MergeTable::Rule* MergeTable::find(Token left, Token right) const {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  return slot.pair == kEmpty ? nullptr : &slot.rule;
}

void MergeTable::merge(std::vector<Token>& symbols) const {
  if (symbols.size() < 2) return;
  const auto count = static_cast<std::int32_t>(symbols.size());
  // Kept between calls, because encoding calls this once per word.
  thread_local std::vector<MergeNode> nodes;
  thread_local std::vector<Candidate> heap;
  nodes.clear(), heap.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    nodes.push_back({symbols[i], i - 1, i + 1 < count ? i + 1 : -1, true});
    if (i + 1 == count) break;
    if (const Rule* rule = find(symbols[i], symbols[i + 1])) heap.push_back({rule->rank, i, rule->merged});
  }
  std::make_heap(heap.begin(), heap.end(), Later{});
  const auto offer = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0) return;
    const Rule* rule = find(nodes[left].token, nodes[right].token);
    if (rule == nullptr) return;
    heap.push_back({rule->rank, left, rule->merged});
    std::push_heap(heap.begin(), heap.end(), Later{});
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), Later{});
    const Candidate best = heap.back();
    heap.pop_back();
    MergeNode& left = nodes[best.position];
    if (!left.alive || left.next < 0) continue;
    MergeNode& right = nodes[left.next];
    const Rule* rule = find(left.token, right.token);
    if (rule == nullptr || rule->merged != best.merged) continue;  // the pair is gone
    left.token = best.merged;
    right.alive = false;
    left.next = right.next;
    if (left.next >= 0) nodes[left.next].previous = best.position;
    offer(left.previous, best.position);
    offer(best.position, left.next);
  }
  symbols.clear();
  for (std::int32_t i = 0; i >= 0; i = nodes[i].next) symbols.push_back(nodes[i].token);
  constexpr std::size_t kKeep = 1 << 16;
  if (nodes.capacity() <= kKeep) return;
  nodes = std::vector<MergeNode>();  // "= {}" would keep the memory
  heap = std::vector<Candidate>();
}

}  // namespace speclab
