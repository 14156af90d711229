// Compares the suffix automaton with a scan of the text.
#include "core/decoding/drafting/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace speclab::suffix_automaton_test {
namespace {

using Match = SuffixAutomaton::Match;

struct Scan {
  std::vector<Token> text;

  // The number of occurrences of a string, and the token after each.
  int count(TokenSpan string, std::map<Token, int>* followers = nullptr) const {
    int found = 0;
    for (std::size_t at = 0; at + string.size() <= text.size(); ++at) {
      if (!std::equal(string.begin(), string.end(), text.begin() + static_cast<std::ptrdiff_t>(at))) continue;
      ++found;
      const std::size_t after = at + string.size();
      if (followers != nullptr && after < text.size() && text[after] >= 0) ++(*followers)[text[after]];
    }
    return found;
  }
  // The longest suffix of `query`, of at most `depth` tokens, that occurs at least `times` times.
  TokenSpan longest(TokenSpan query, int depth, int times) const {
    std::size_t length = std::min(query.size(), static_cast<std::size_t>(depth));
    while (length > 0 && count(query.last(length)) < times) --length;
    return query.last(length);
  }
};

// Checks all results for the string of a match.
void expect_same(const SuffixAutomaton& automaton, Match match, TokenSpan string, const Scan& scan) {
  ASSERT_EQ(match.length, static_cast<int>(string.size()));
  if (string.empty()) return;
  std::map<Token, int> followers;
  ASSERT_EQ(static_cast<int>(automaton.count(match.state)), scan.count(string, &followers));
  if (match.length == automaton.depth()) return;  // continuations of longer strings are not counted
  std::vector<SuffixAutomaton::Child> children;
  automaton.children(match.state, 1000, children);
  ASSERT_EQ(children.size(), followers.size());
  for (const auto& child : children) ASSERT_EQ(static_cast<int>(child.count), followers[child.token]);
  const auto best = automaton.best_child(match.state);
  if (followers.empty()) {
    ASSERT_EQ(best.state, SuffixAutomaton::kNone);
    return;
  }
  const auto most = std::max_element(followers.begin(), followers.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  ASSERT_EQ(static_cast<int>(best.count), most->second);
  ASSERT_EQ(followers[best.token], most->second);
}

void check(const std::vector<Token>& text, int depth, std::mt19937& random, int alphabet) {
  SuffixAutomaton automaton(depth);
  Scan scan;
  Match in_query;
  std::vector<Token> query;
  for (const Token token : text) {
    automaton.append(token);
    scan.text.push_back(token);
    Match match = automaton.repeated_suffix();
    TokenSpan string = scan.longest(scan.text, depth, 2);
    if (token >= 0 && std::find(string.begin(), string.end(), -1) == string.end()) {
      expect_same(automaton, match, string, scan);
    }
    // Matches another text while the automaton grows.
    query.push_back(static_cast<Token>(random() % static_cast<unsigned>(alphabet)));
    in_query = automaton.extend(in_query, query.back());
    // Tokens that were added since may allow a longer match. A match is that of the text at its time.
    string = TokenSpan(query).last(static_cast<std::size_t>(in_query.length));
    expect_same(automaton, automaton.suffix(in_query, in_query.length), string, scan);
    // Shorter strings.
    for (match = in_query; match.length > 0;) {
      const int count = static_cast<int>(automaton.count(automaton.suffix(match, match.length).state));
      match = automaton.more_frequent(match);
      string = string.last(static_cast<std::size_t>(match.length));
      expect_same(automaton, match, string, scan);
      if (match.length > 0) {
        ASSERT_GT(static_cast<int>(automaton.count(match.state)), count);
      }
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
  // On a finished text the match is the longest possible one.
  in_query = {};
  query.clear();
  for (int i = 0; i < 100; ++i) {
    query.push_back(static_cast<Token>(random() % static_cast<unsigned>(alphabet)));
    in_query = automaton.extend(in_query, query.back());
    expect_same(automaton, in_query, scan.longest(query, depth, 1), scan);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_LE(automaton.states(), 2 * text.size() + 1);
  EXPECT_LE(automaton.edges(), 2 * text.size() + 1);
}

TEST(SuffixAutomaton, SaysWhatAScanSays) {
  std::mt19937 random(1);
  for (const int alphabet : {1, 2, 3, 20}) {
    for (const int depth : {2, 5, 64}) {
      std::vector<Token> text(160);
      for (Token& token : text) token = static_cast<Token>(random() % static_cast<unsigned>(alphabet));
      check(text, depth, random, alphabet);
      ASSERT_FALSE(HasFatalFailure()) << alphabet << " " << depth;
    }
  }
}

TEST(SuffixAutomaton, RepeatedPassagesAndDocuments) {
  std::mt19937 random(2);
  std::vector<Token> passage(25), text;
  for (Token& token : passage) token = static_cast<Token>(random() % 6);
  for (int i = 0; i < 8; ++i) {
    text.insert(text.end(), passage.begin(), passage.end());
    text.push_back(i % 2 == 0 ? -1 : static_cast<Token>(random() % 6));
  }
  check(text, 9, random, 6);
  check(text, 64, random, 6);
}

TEST(SuffixAutomaton, ReservedMemoryIsEnoughAndClearedIsNew) {
  std::mt19937 random(3);
  SuffixAutomaton automaton(16);
  automaton.reserve(4000);
  const std::size_t bytes = automaton.bytes();
  for (int round = 0; round < 3; ++round) {
    automaton.clear();
    Scan scan;
    for (int i = 0; i < 4000; ++i) {
      scan.text.push_back(static_cast<Token>(round == 2 ? 7 : random() % (round == 0 ? 2 : 300)));
      automaton.append(scan.text.back());
    }
    EXPECT_EQ(automaton.bytes(), bytes);
    expect_same(automaton, automaton.repeated_suffix(), scan.longest(scan.text, 16, 2), scan);
  }
}

}  // namespace
}  // namespace speclab::suffix_automaton_test
