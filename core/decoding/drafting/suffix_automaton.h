#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/token.h"

namespace speclab {

/// Indexes all substrings of a growing text and how often each one occurs: a suffix automaton (Blumer et
/// al. 1985). A state is a class of strings that end at the same positions. Each string of a class is a
/// suffix of the longest one. The next shorter suffixes belong to another class, which `link` names.
/// Appending a token takes O(1) amortised, plus one count for each class among the suffixes of at most
/// `depth` tokens (a handful in real text, never more than `depth`).
///
/// Strings of up to `depth` tokens are counted; longer ones have a state but no count. Negative tokens
/// separate documents and are never offered as a continuation.
///
/// Memory. The text begins with a special token that never occurs again. So each prefix occurs once and is a
/// class of its own, and its length, position, count and only continuation follow from its number. A prefix
/// takes 4 bytes for its link and 4 for its token. All other classes are branches of 20 bytes. A branch
/// stores its continuations with the most frequent one first. It stores a single continuation inside its 20
/// bytes, a few in a list, and many in a table; lists and tables take 4 bytes per slot. Vectors grow by an
/// eighth. For 10^7 tokens of C and C++ headers, each token took 1.60 states, .84 stored continuations and
/// 22.8 bytes, unused capacity included (`speclab_bench --benchmark_filter=copies/index --text FILE`).
class SuffixAutomaton {
 public:
  using State = std::uint32_t;
  static constexpr State kRoot = 0;           ///< the empty string
  static constexpr State kNone = 0xffffffff;  ///< no state

  /// A string of the text: the string of `length` tokens in the class `state`.
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

  /// Reserves memory for any text of this many tokens. Up to this length append() does not allocate.
  void reserve(std::size_t tokens);
  void clear();  ///< keeps the memory
  void append(Token token);

  int depth() const { return depth_; }
  TokenSpan text() const { return TokenSpan(text_).subspan(1); }
  /// The longest suffix of the text, of at most `depth` tokens, that also occurs earlier in it; may be empty.
  Match repeated_suffix() const;

  /// The match of any text is the longest suffix of that text, of at most `depth` tokens, that occurs in the
  /// indexed text. Given the match of a text, returns the match of that text followed by `token`; for
  /// a negative token, the empty match. O(1) amortised over the tokens of a text. A match stays valid when
  /// the automaton grows.
  Match extend(Match match, Token token) const;
  /// The longest suffix of the string that occurs more often than the string itself.
  Match more_frequent(Match match) const;
  /// The suffix of `length` tokens of the string, which must have at least as many.
  Match suffix(Match match, int length) const;

  /// Number of occurrences of a string; for the empty string the number of tokens of the text.
  std::uint32_t count(State state) const {
    if (is_prefix(state)) return length(link(state)) < static_cast<std::uint32_t>(depth_) ? 1 : 0;
    return state == kRoot ? static_cast<std::uint32_t>(text().size()) : branches_[state].count;
  }
  /// The most frequent continuation of a string; state kNone when there is none. Among equally frequent ones,
  /// returns the one that reached the count first. O(1).
  Child best_child(State state) const;
  /// The continuations of a string: the most frequent one, then at most
  /// `limit` others in no particular order.
  void children(State state, int limit, std::vector<Child>& out) const;

  /// Number of states of both kinds, of stored continuations, and bytes including unused capacity.
  std::size_t states() const { return text().size() + branches_.size(); }
  std::size_t edges() const { return edges_; }
  std::size_t bytes() const;

 private:
  struct Branch {
    State link = kNone;
    std::uint32_t count = 0;
    std::uint32_t edges = kNone;  // the only continuation, or the index in pool_ of the block that holds all
    std::uint32_t length : 27 = 0;    // length of the longest string
    std::uint32_t block_log : 5 = 0;  // log2 of the number of slots of the block; 0: no block
    std::uint32_t end = 0;            // position of the last token of one occurrence
  };
  static_assert(sizeof(Branch) == 20);
  static constexpr State kPrefix =
      0x80000000;  // kPrefix | length is a prefix; all other states are branches, 0 is the root
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
  std::vector<Token> text_;   // the special first token, then the text
  std::vector<State> links_;  // [size of text_ + 1], links of the prefixes
  std::vector<Branch> branches_;
  std::vector<State> pool_;             // blocks of continuations
  std::array<std::uint32_t, 32> free_;  // heads of the lists of free blocks, one for each size
  std::size_t edges_ = 0;
  State suffix_ = kRoot;  // class of the last min(depth, size) tokens
};

}  // namespace speclab
