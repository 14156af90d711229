#include "core/decoding/drafting/suffix_automaton.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr Token kBegin = std::numeric_limits<Token>::min();

// A block stores the continuations of a branch. A block of up to four slots is a list: the most frequent
// continuation first, free slots last. A larger block holds the number of its continuations, then the most
// frequent one, and then a hash table (open addressing) of all of them. The key of a continuation is its last
// token.
constexpr std::uint32_t kTableLog = 3;
constexpr std::uint32_t kTableHead = 2;

std::uint32_t block_size(std::uint32_t log) { return (1u << log) + (log < kTableLog ? 0 : kTableHead); }

std::uint32_t slot_of(Token token, std::uint32_t log) {
  return (static_cast<std::uint32_t>(token) * 0x9e3779b9u) >> (32 - log);
}

// Growing by an eighth copies each entry at most nine times on average, and leaves little memory unused.
template <class T>
void make_room(std::vector<T>& vector, std::size_t more) {
  const std::size_t wanted = vector.size() + more;
  if (wanted > vector.capacity()) vector.reserve(wanted + wanted / 8 + 16);
}

}  // namespace

SuffixAutomaton::SuffixAutomaton(int depth) : depth_(depth) {
  SPECLAB_CHECK(depth >= 2, "depth {}", depth);
  clear();
}

void SuffixAutomaton::reserve(std::size_t tokens) {
  text_.reserve(tokens + 1);
  links_.reserve(tokens + 2);
  // A text of n tokens has at most 2n states and 3n transitions (Blumer et al. 1985). n of the states are
  // prefixes, and n of the transitions lead from one prefix to the next. That leaves n branches and 2n stored
  // continuations. A block and the smaller blocks that it replaced have fewer than five slots for each
  // continuation.
  branches_.reserve(tokens + 1);
  pool_.reserve(10 * tokens);
}

void SuffixAutomaton::clear() {
  text_.assign(1, kBegin);
  links_.assign(2, kRoot);
  branches_.assign(1, Branch());
  pool_.clear();
  free_.fill(kNone);
  edges_ = 0;
  suffix_ = kRoot;
}

// Returns the place where a branch stores its continuation by `token`; null when it has none.
template <class Self>
auto* SuffixAutomaton::find(Self& self, State branch, Token token) {
  auto& from = self.branches_[branch];
  decltype(&from.edges) none = nullptr;
  if (from.block_log == 0)
    return from.edges != kNone && self.last_token(from.edges) == token ? &from.edges : none;
  auto* block = &self.pool_[from.edges];
  const std::uint32_t slots = 1u << from.block_log;
  if (from.block_log < kTableLog) {
    for (std::uint32_t i = 0; i < slots && block[i] != kNone; ++i) {
      if (self.last_token(block[i]) == token) return &block[i];
    }
    return none;
  }
  block += kTableHead;
  for (std::uint32_t i = slot_of(token, from.block_log); block[i] != kNone; i = (i + 1) & (slots - 1)) {
    if (self.last_token(block[i]) == token) return &block[i];
  }
  return none;
}

// Returns the place where a branch stores its most frequent continuation. That continuation is a separator
// only if nothing else follows.
template <class Self>
auto* SuffixAutomaton::first(Self& self, State branch) {
  auto& from = self.branches_[branch];
  return from.block_log == 0 ? &from.edges : &self.pool_[from.edges + (from.block_log < kTableLog ? 0 : 1)];
}

SuffixAutomaton::State SuffixAutomaton::next(State from, Token token) const {
  if (is_prefix(from)) {
    const std::uint32_t at = from & ~kPrefix;
    return at < text_.size() && text_[at] == token ? from + 1 : kNone;
  }
  const State* edge = find(*this, from, token);
  return edge == nullptr ? kNone : *edge;
}

std::uint32_t SuffixAutomaton::new_block(std::uint32_t log) {
  const std::uint32_t size = block_size(log);
  std::uint32_t block = free_[log];
  if (block != kNone) {
    free_[log] = pool_[block];
    std::fill_n(pool_.begin() + block, size, kNone);
  } else {
    block = static_cast<std::uint32_t>(pool_.size());
    make_room(pool_, size);
    pool_.resize(pool_.size() + size, kNone);
  }
  if (log >= kTableLog) pool_[block] = 0;
  return block;
}

// Adds a continuation to a block that has room.
void SuffixAutomaton::put(std::uint32_t block, std::uint32_t log, State to) {
  if (log < kTableLog) {
    while (pool_[block] != kNone) ++block;
    pool_[block] = to;
    return;
  }
  if (pool_[block]++ == 0) pool_[block + 1] = to;
  State* slots = &pool_[block + kTableHead];
  std::uint32_t i = slot_of(last_token(to), log);
  while (slots[i] != kNone) i = (i + 1) & ((1u << log) - 1);
  slots[i] = to;
}

void SuffixAutomaton::grow_block(Branch& branch) {
  const std::uint32_t log = branch.block_log, old = branch.edges;
  const std::uint32_t block = new_block(log + 1);
  const std::uint32_t head = log < kTableLog ? 0 : kTableHead;
  if (head > 0) put(block, log + 1, pool_[old + 1]);  // the most frequent one stays first
  for (std::uint32_t i = 0; i < (1u << log); ++i) {
    const State to = pool_[old + head + i];
    if (to != kNone && (head == 0 || to != pool_[old + 1])) put(block, log + 1, to);
  }
  pool_[old] = free_[log];
  free_[log] = old;
  branch.edges = block;
  branch.block_log = log + 1;
}

void SuffixAutomaton::add_edge(State from, State to, Token token) {
  ++edges_;
  Branch& branch = branches_[from];
  if (branch.block_log == 0) {
    if (branch.edges == kNone) {
      branch.edges = to;
      return;
    }
    const State other = branch.edges;
    branch.edges = new_block(1);
    branch.block_log = 1;
    put(branch.edges, 1, other);
  } else if (branch.block_log < kTableLog) {
    if (pool_[branch.edges + (1u << branch.block_log) - 1] != kNone) grow_block(branch);
  } else if (pool_[branch.edges] == (7u << branch.block_log) / 8) {
    grow_block(branch);
  }
  put(branch.edges, branch.block_log, to);
  if (token >= 0 && last_token(*first(*this, from)) < 0) prefer(from, to);
}

// Makes a continuation the first one of its branch.
void SuffixAutomaton::prefer(State branch, State to) {
  State* best = first(*this, branch);
  if (branches_[branch].block_log < kTableLog) {
    State* old = best;
    while (*old != to) ++old;
    *old = *best;
  }
  *best = to;
}

// If the branch's continuation by `token` leads to `from`, makes it lead to `to`. Otherwise returns false.
bool SuffixAutomaton::redirect(State branch, Token token, State from, State to) {
  State* edge = find(*this, branch, token);
  if (edge == nullptr || *edge != from) return false;
  *edge = to;
  State* best = first(*this, branch);
  if (*best == from) *best = to;
  return true;
}

// Takes the longest string of the class `state`. Returns the class of its suffix of `length` tokens.
SuffixAutomaton::State SuffixAutomaton::class_of(State state, std::uint32_t length) const {
  for (;;) {
    if (state == kRoot) return state;
    const State shorter = link(state);
    if (branches_[shorter].length < length) return state;
    state = shorter;
  }
}

// Moves those strings of a class that have at most `length` tokens into a new class. Returns the new class.
// At this point the strings of both classes still end at the same positions, so the new class starts with
// copies of the count and the continuations.
SuffixAutomaton::State SuffixAutomaton::split(State state, std::uint32_t length) {
  const auto shorter = static_cast<State>(branches_.size());
  make_room(branches_, 1);
  Branch branch;
  branch.link = link(state);
  branch.count = count(state);
  branch.length = length;
  branch.end = end(state);
  if (is_prefix(state)) {
    const std::uint32_t at = state & ~kPrefix;
    if (at < text_.size()) branch.edges = state + 1, ++edges_;
  } else {
    const Branch& whole = branches_[state];
    branch.edges = whole.edges;
    branch.block_log = whole.block_log;
    if (whole.block_log > 0) {  // a copy of the block, slot by slot
      const std::uint32_t size = block_size(whole.block_log);
      branch.edges = new_block(whole.block_log);
      std::copy_n(pool_.begin() + whole.edges, size, pool_.begin() + branch.edges);
      edges_ += whole.block_log < kTableLog ? size - std::count(pool_.begin() + whole.edges,
                                                                pool_.begin() + whole.edges + size, kNone)
                                            : pool_[whole.edges];
    } else {
      edges_ += whole.edges != kNone;
    }
  }
  branches_.push_back(branch);
  return shorter;
}

void SuffixAutomaton::append(Token token) {
  SPECLAB_CHECK(text_.size() < kMostTokens, "{} tokens", text_.size());
  const State before = kPrefix | static_cast<State>(text_.size());
  const State whole = before + 1;
  make_room(text_, 1);
  make_room(links_, 1);
  text_.push_back(token);
  links_.push_back(kRoot);

  // The strings of the class link(before) occur more than once, and so do their suffixes. So `at` is always a
  // branch.
  State at = link(before);
  State longer = kNone;
  for (; at != kNone; at = branches_[at].link) {
    longer = next(at, token);
    if (longer != kNone) break;
    add_edge(at, whole, token);
  }
  if (longer != kNone && length(longer) == branches_[at].length + 1u) {
    links_.back() = longer;
  } else if (longer != kNone) {
    const State shorter = split(longer, branches_[at].length + 1u);
    while (at != kNone && redirect(at, token, longer, shorter)) at = branches_[at].link;
    (is_prefix(longer) ? links_[longer & ~kPrefix] : branches_[longer].link) = shorter;
    links_.back() = shorter;
  }
  count_suffixes(token);
}

// Counts one more occurrence of each suffix of at most depth_ tokens. The text has just grown by `token`, so
// each of these suffixes is a suffix of the previous text, followed by `token`. So `token` may now be the
// most frequent continuation of that suffix of the previous text.
void SuffixAutomaton::count_suffixes(Token token) {
  const State old_suffix = suffix_;
  const auto longest = static_cast<std::uint32_t>(std::min(text().size(), static_cast<std::size_t>(depth_)));
  suffix_ = class_of(next(old_suffix, token), longest);
  for (State s = suffix_; s != kRoot; s = link(s)) {
    if (!is_prefix(s)) ++branches_[s].count;
  }
  if (token < 0) return;
  State child = suffix_;
  for (State s = class_of(old_suffix, longest - 1); s != kNone; s = link(s)) {
    child = class_of(child, std::min(length(s), longest - 1) + 1);
    if (is_prefix(s)) continue;
    const State best = *first(*this, s);
    if (best != child && count(child) > count(best)) prefer(s, child);
  }
}

SuffixAutomaton::Match SuffixAutomaton::repeated_suffix() const {
  if (suffix_ == kRoot) return {};
  if (count(suffix_) >= 2)
    return {suffix_, static_cast<int>(std::min(text().size(), static_cast<std::size_t>(depth_)))};
  const State shorter = link(suffix_);
  return {shorter, static_cast<int>(length(shorter))};
}

SuffixAutomaton::Match SuffixAutomaton::extend(Match match, Token token) const {
  if (token < 0) return {};
  State state = class_of(match.state, static_cast<std::uint32_t>(match.length));
  for (;;) {
    const State to = next(state, token);
    if (to != kNone) {
      const int length = std::min(match.length + 1, depth_);
      return {class_of(to, static_cast<std::uint32_t>(length)), length};
    }
    if (state == kRoot) return {};
    state = link(state);
    match.length = static_cast<int>(length(state));
  }
}

SuffixAutomaton::Match SuffixAutomaton::more_frequent(Match match) const {
  if (match.state == kRoot) return match;
  const State shorter = link(suffix(match, match.length).state);
  return {shorter, static_cast<int>(length(shorter))};
}

SuffixAutomaton::Match SuffixAutomaton::suffix(Match match, int length) const {
  return {class_of(match.state, static_cast<std::uint32_t>(length)), length};
}

SuffixAutomaton::Child SuffixAutomaton::best_child(State state) const {
  State best = kNone;
  if (!is_prefix(state)) {
    best = *first(*this, state);
  } else if ((state & ~kPrefix) < text_.size()) {
    best = state + 1;
  }
  if (best == kNone || last_token(best) < 0) return {-1, kNone, 0};
  return {last_token(best), best, count(best)};
}

void SuffixAutomaton::children(State state, int limit, std::vector<Child>& out) const {
  out.clear();
  const Child best = best_child(state);
  if (best.state == kNone) return;
  out.push_back(best);
  if (is_prefix(state) || branches_[state].block_log == 0) return;
  const Branch& branch = branches_[state];
  const std::uint32_t head = branch.block_log < kTableLog ? 0 : kTableHead;
  for (std::uint32_t i = 0; i < (1u << branch.block_log) && limit > 0; ++i) {
    const State to = pool_[branch.edges + head + i];
    if (to == kNone || to == best.state) continue;
    const Token token = last_token(to);
    if (token < 0) continue;
    out.push_back({token, to, count(to)});
    --limit;
  }
}

std::size_t SuffixAutomaton::bytes() const {
  return text_.capacity() * sizeof(Token) + links_.capacity() * sizeof(State) +
         branches_.capacity() * sizeof(Branch) + pool_.capacity() * sizeof(State);
}

}  // namespace speclab
