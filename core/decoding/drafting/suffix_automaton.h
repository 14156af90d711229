#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// All substrings of a growing text, with how often each one occurs: a suffix automaton (Blumer et al. 1985).
/// A state is a class of strings that end at the same positions; they are the suffixes of the longest one
/// down to just above the longest of `link`. Appending a token is O(1) amortised, plus one count for each
/// class among the suffixes of at most `depth` tokens (a handful in real text, never more than `depth`).
///
/// Counts hold for strings of up to `depth` tokens; longer ones have a state but no count. Negative tokens
/// separate documents: they are never offered as a continuation.
///
/// Memory. The text begins with a token of its own that never comes again. So each prefix occurs once, is a
/// class of its own, and its length, position, count and only continuation follow from its number: it keeps a
/// link, 4 bytes beside the 4 of its token. All other classes are branches of 20 bytes, which know their
/// continuations: one in place, few in a list, many in a table of 4 bytes a slot; the most frequent one
/// first. Vectors grow by an eighth. 10^7
/// tokens of C and C++ headers had 1.60 states and .84 kept continuations a token and took 22.8 bytes a token
/// with that reserve (`speclab_bench --benchmark_filter=copies/index --text FILE`).
class SuffixAutomaton {
 public:
  using State = std::uint32_t;
  static constexpr State kRoot = 0;           ///< the empty string
  static constexpr State kNone = 0xffffffff;  ///< no state

  /// A string of the text: the suffix of `length` tokens of the strings of `state`.
  struct Match {
    State state = kRoot;
    int length = 0;
  };
  struct Child {
    Token token;
    State state;
    std::uint32_t count;
  };

  explicit SuffixAutomaton(int depth);

  /// Room for any text of so many tokens: up to there append() does not allocate.
  void reserve(std::size_t tokens);
  void clear();  ///< keeps the memory
  void append(Token token);

  int depth() const { return depth_; }
  TokenSpan text() const { return TokenSpan(text_).subspan(1); }
  /// The longest string of at most `depth` tokens that the text ends with and that occurs before its end too;
  /// or the empty one.
  Match repeated_suffix() const;

  /// The match of a text followed by `token`, given the match of the text: the longest suffix, of at most
  /// `depth` tokens, that occurs here. O(1) amortised over the tokens of a text. A match stays good when the
  /// automaton grows.
  Match extend(Match match, Token token) const;
  /// The longest suffix of the string that occurs more often than it does.
  Match more_frequent(Match match) const;
  /// The suffix of `length` tokens of the string, which has as many or more.
  Match last(Match match, int length) const;

  /// Occurrences of a string; of the empty one, the tokens of the text.
  std::uint32_t count(State state) const {
    if (is_prefix(state)) return length(link(state)) < static_cast<std::uint32_t>(depth_) ? 1 : 0;
    return state == kRoot ? static_cast<std::uint32_t>(text().size()) : branches_[state].count;
  }
  /// What follows a string most often; state kNone when nothing does. O(1). Among equals the earlier winner.
  Child best_child(State state) const;
  /// What follows a string: the most frequent one, then `limit` others at most, in no order.
  void children(State state, int limit, std::vector<Child>& out) const;

  /// States of both kinds, continuations that are kept, and bytes with what growing vectors hold in reserve.
  std::size_t states() const { return text().size() + branches_.size(); }
  std::size_t edges() const { return edges_; }
  std::size_t bytes() const;

 private:
  struct Branch {
    State link = kNone;
    std::uint32_t count = 0;
    std::uint32_t edges = kNone;      // the only continuation; or the block of them, an index into pool_
    std::uint32_t length : 27 = 0;    // of the longest string
    std::uint32_t block_log : 5 = 0;  // of the slots of the block; 0: there is none
    std::uint32_t end = 0;            // position of the last token of one occurrence
  };
  static_assert(sizeof(Branch) == 20);
  static constexpr State kPrefix =
      0x80000000;  // | tokens of text_; all other states are branches, 0 is the root
  static constexpr std::uint32_t kMostTokens = (1u << 27) - 2;

  static bool is_prefix(State s) { return (s & kPrefix) != 0; }
  State link(State s) const { return is_prefix(s) ? links_[s & ~kPrefix] : branches_[s].link; }
  std::uint32_t length(State s) const { return is_prefix(s) ? s & ~kPrefix : branches_[s].length; }
  std::uint32_t end(State s) const { return is_prefix(s) ? (s & ~kPrefix) - 1 : branches_[s].end; }
  Token last_token(State s) const { return text_[end(s)]; }

  template <class Self>
  static auto* find(Self& self, State branch, Token token);
  template <class Self>
  static auto* first(Self& self, State branch);
  State next(State from, Token token) const;
  void add_edge(State branch, State to, Token token);
  bool redirect(State branch, Token token, State from, State to);
  void prefer(State branch, State to);
  std::uint32_t new_block(std::uint32_t log);
  void grow_block(Branch& branch);
  void put(std::uint32_t block, std::uint32_t log, State to);
  State split(State state, std::uint32_t length);
  State class_of(State state, std::uint32_t length) const;
  void count_suffixes(Token token);

  int depth_;
  std::vector<Token> text_;   // behind the token that begins it
  std::vector<State> links_;  // [text_ + 1], of prefixes
  std::vector<Branch> branches_;
  std::vector<State> pool_;             // blocks of continuations
  std::array<std::uint32_t, 32> free_;  // blocks that were outgrown, a chain for each size
  std::size_t edges_ = 0;
  State suffix_ = kRoot;  // class of the last min(depth, size) tokens
};

}  // namespace speclab
