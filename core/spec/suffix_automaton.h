#pragma once

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
/// Memory: a prefix of the text is a state of 16 bytes whose own continuation, length and position are
/// implied by its number; branching classes take 24 bytes, edges off the text itself 12 and a slot in a hash
/// table. 10^7 tokens of program text had 1.55 states and 1.01 such edges
/// a token: 53 bytes a token in use, 81 with what growing vectors keep in reserve.
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
  TokenSpan text() const { return text_; }
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
    return state == kRoot ? static_cast<std::uint32_t>(text_.size()) : node(state).count;
  }
  /// What follows a string most often; state kNone when nothing does. O(1). Among equals the earlier winner.
  Child best_child(State state) const;
  /// What follows a string: the most frequent one, then at most `limit` others in no order. For a class with
  /// more of them than that (few tokens that occur everywhere) the newest ones.
  void children(State state, int limit, std::vector<Child>& out) const;

  /// States of both kinds, edges that are kept, and bytes in use and in reserve.
  std::size_t states() const { return prefixes_.size() + branches_.size(); }
  std::size_t edges() const { return edges_.size(); }
  std::size_t bytes() const;

 private:
  struct Node {
    State link = kNone;
    std::uint32_t count = 0;
    State best = kNone;           // most frequent continuation
    std::uint32_t edges = kNone;  // list in edges_
  };
  struct Branch {  // a class whose longest string is no prefix of the text
    Node node;
    std::uint32_t length;
    std::uint32_t end;  // position of the last token of one occurrence
  };
  struct Edge {
    State from, to;
    std::uint32_t next;
  };
  static constexpr State kBranch = 0x80000000;

  const Node& node(State s) const { return s & kBranch ? branches_[s & ~kBranch].node : prefixes_[s]; }
  Node& node(State s) { return s & kBranch ? branches_[s & ~kBranch].node : prefixes_[s]; }
  std::uint32_t length(State s) const { return s & kBranch ? branches_[s & ~kBranch].length : s; }
  Token last_token(State s) const { return text_[s & kBranch ? branches_[s & ~kBranch].end : s - 1]; }
  bool follows_text(State s) const { return !(s & kBranch) && s < text_.size(); }  // has its own continuation

  State next(State from, Token token) const;
  std::size_t slot(State from, Token token) const;
  void add_edge(State from, State to, Token token);
  void resize_table(std::size_t slots);
  State split(State state, std::uint32_t length);
  State class_of(State state, std::uint32_t length) const;
  void count_suffixes(State before, Token token);

  int depth_;
  std::vector<Token> text_;
  std::vector<Node> prefixes_;  // [text + 1]: state i is the prefix of i tokens
  std::vector<Branch> branches_;
  std::vector<Edge> edges_;  // all but those from a prefix to the next one
  std::vector<std::uint32_t> table_;
  State suffix_ = kRoot;  // class of the last min(depth, size) tokens
};

}  // namespace speclab
