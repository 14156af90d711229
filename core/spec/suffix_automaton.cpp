#include "core/spec/suffix_automaton.h"

#include <algorithm>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::size_t kSmallestTable = 64;

std::size_t hash(std::uint32_t from, Token token) {
  const std::uint64_t key = (std::uint64_t{from} << 32) | static_cast<std::uint32_t>(token);
  return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> 29);
}

}  // namespace

SuffixAutomaton::SuffixAutomaton(int depth) : depth_(depth) {
  SPECLAB_CHECK(depth >= 2, "depth {}", depth);
  clear();
}

void SuffixAutomaton::reserve(std::size_t tokens) {
  text_.reserve(tokens);
  prefixes_.reserve(tokens + 1);
  branches_.reserve(tokens);   // states <= 2n,
  edges_.reserve(2 * tokens);  // transitions <= 3n, of which n are implied (Blumer et al. 1985)
  std::size_t slots = kSmallestTable;
  while (slots * 3 / 4 <= 2 * tokens) slots *= 2;
  if (slots > table_.size()) resize_table(slots);
}

void SuffixAutomaton::clear() {
  text_.clear();
  prefixes_.assign(1, Node());
  branches_.clear();
  edges_.clear();
  if (table_.empty()) table_.resize(kSmallestTable);
  std::fill(table_.begin(), table_.end(), kNone);
  suffix_ = kRoot;
}

// Where the edge is, or the free slot where it would be.
std::size_t SuffixAutomaton::slot(State from, Token token) const {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = hash(from, token) & mask;
  for (; table_[at] != kNone; at = (at + 1) & mask) {
    const Edge& edge = edges_[table_[at]];
    if (edge.from == from && last_token(edge.to) == token) break;
  }
  return at;
}

SuffixAutomaton::State SuffixAutomaton::next(State from, Token token) const {
  if (follows_text(from) && text_[from] == token) return from + 1;
  if (node(from).edges == kNone) return kNone;
  const std::uint32_t edge = table_[slot(from, token)];
  return edge == kNone ? kNone : edges_[edge].to;
}

void SuffixAutomaton::add_edge(State from, State to, Token token) {
  if (edges_.size() + 1 > table_.size() * 3 / 4) resize_table(table_.size() * 2);
  const std::size_t at = slot(from, token);
  table_[at] = static_cast<std::uint32_t>(edges_.size());
  edges_.push_back({from, to, node(from).edges});
  node(from).edges = table_[at];
}

void SuffixAutomaton::resize_table(std::size_t slots) {
  table_.assign(slots, kNone);
  for (std::uint32_t edge = 0; edge < edges_.size(); ++edge)
    table_[slot(edges_[edge].from, last_token(edges_[edge].to))] = edge;
}

// Of the classes that the suffixes of `state` belong to, that of its suffix of this length.
SuffixAutomaton::State SuffixAutomaton::class_of(State state, std::uint32_t length) const {
  while (state != kRoot && this->length(node(state).link) >= length) state = node(state).link;
  return state;
}

// Takes the strings of up to `length` tokens out of a class. They end where the others end, so far.
SuffixAutomaton::State SuffixAutomaton::split(State state, std::uint32_t length) {
  const State shorter = kBranch | static_cast<State>(branches_.size());
  const std::uint32_t end = state & kBranch ? branches_[state & ~kBranch].end : state - 1;
  Branch branch{node(state), length, end};
  branch.node.edges = kNone;
  branches_.push_back(branch);
  if (follows_text(state)) add_edge(shorter, state + 1, text_[state]);
  for (std::uint32_t edge = node(state).edges; edge != kNone; edge = edges_[edge].next) {
    const State to = edges_[edge].to;
    add_edge(shorter, to, last_token(to));
  }
  return shorter;
}

void SuffixAutomaton::append(Token token) {
  SPECLAB_CHECK(text_.size() < kBranch - 1, "{} tokens", text_.size());
  const State before = static_cast<State>(text_.size());
  const State whole = before + 1;
  text_.push_back(token);
  prefixes_.emplace_back();

  State at = prefixes_[before].link;
  for (; at != kNone && next(at, token) == kNone; at = node(at).link) add_edge(at, whole, token);
  if (at == kNone) {
    prefixes_[whole].link = kRoot;
  } else {
    const State longer = next(at, token);
    if (length(at) + 1 == length(longer)) {
      prefixes_[whole].link = longer;
    } else {
      const State shorter = split(longer, length(at) + 1);
      // What follows these most often is put right by count_suffixes: `shorter` now has one occurrence more.
      for (; at != kNone && next(at, token) == longer; at = node(at).link)
        edges_[table_[slot(at, token)]].to = shorter;
      node(longer).link = shorter;
      prefixes_[whole].link = shorter;
    }
  }
  count_suffixes(before, token);
}

// One more occurrence of each suffix, and so of a continuation of each suffix of the text before.
void SuffixAutomaton::count_suffixes(State before, Token token) {
  const State old_suffix = before == kRoot ? kRoot : suffix_;
  const auto longest = static_cast<std::uint32_t>(std::min<std::size_t>(text_.size(), depth_));
  suffix_ = class_of(next(old_suffix, token), longest);
  for (State s = suffix_; s != kRoot; s = node(s).link) ++node(s).count;
  if (token < 0) return;
  State child = suffix_;
  for (State s = class_of(old_suffix, longest - 1); s != kNone; s = node(s).link) {
    child = class_of(child, std::min(length(s), longest - 1) + 1);
    const State best = node(s).best;
    if (best == kNone || node(child).count > node(best).count) node(s).best = child;
  }
}

SuffixAutomaton::Match SuffixAutomaton::repeated_suffix() const {
  if (text_.empty()) return {};
  if (node(suffix_).count >= 2)
    return {suffix_, static_cast<int>(std::min<std::size_t>(text_.size(), depth_))};
  const State link = node(suffix_).link;
  return {link, static_cast<int>(length(link))};
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
    state = node(state).link;
    match.length = static_cast<int>(length(state));
  }
}

SuffixAutomaton::Match SuffixAutomaton::more_frequent(Match match) const {
  if (match.state == kRoot) return match;
  const State link = node(last(match, match.length).state).link;
  return {link, static_cast<int>(length(link))};
}

SuffixAutomaton::Match SuffixAutomaton::last(Match match, int length) const {
  return {class_of(match.state, static_cast<std::uint32_t>(length)), length};
}

SuffixAutomaton::Child SuffixAutomaton::best_child(State state) const {
  const State best = node(state).best;
  return best == kNone ? Child{-1, kNone, 0} : Child{last_token(best), best, node(best).count};
}

void SuffixAutomaton::children(State state, int limit, std::vector<Child>& out) const {
  out.clear();
  const State best = node(state).best;
  if (best == kNone) return;
  const auto add = [&](State to) {
    const Token token = last_token(to);
    if (token >= 0) out.push_back({token, to, node(to).count});
  };
  add(best);
  if (follows_text(state) && state + 1 != best) add(state + 1);
  for (std::uint32_t edge = node(state).edges; edge != kNone && limit > 0;
       edge = edges_[edge].next, --limit) {
    if (edges_[edge].to != best) add(edges_[edge].to);
  }
}

std::size_t SuffixAutomaton::bytes() const {
  return text_.capacity() * sizeof(Token) + prefixes_.capacity() * sizeof(Node) +
         branches_.capacity() * sizeof(Branch) + edges_.capacity() * sizeof(Edge) +
         table_.capacity() * sizeof(std::uint32_t);
}

}  // namespace speclab
