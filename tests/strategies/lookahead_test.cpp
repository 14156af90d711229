#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "core/base/error.h"
#include "tests/spec/loop_fixture.h"

namespace speclab {
namespace {

using namespace speclab::fixtures;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kVocab = 20;

// The target of the strategy under test is a function: what token follows a text. Steps are taken by hand, so
// that every tree and every row can be looked at.
class ByHand {
 public:
  using Oracle = std::function<Token(const std::vector<Token>& text)>;

  ByHand(const json& options, std::vector<Token> prompt, Oracle oracle, int capacity = 200)
      : oracle_(std::move(oracle)), capacity_(capacity) {
    static const ModelPtr target = load_tiny(markov_table(kVocab, std::vector<float>(kVocab * kVocab, 0)));
    Resources resources;
    resources.target = target;
    resources.capacity = capacity;
    strategy_ = choose("lookahead", options).make(resources);
    begin(std::move(prompt));
  }

  void begin(std::vector<Token> prompt) {
    sequence_.tokens = std::move(prompt);
    sequence_.prompt_length = static_cast<int>(sequence_.tokens.size());
    sequence_.tokens.push_back(oracle_(sequence_.tokens));
    strategy_->begin(sequence_);
  }

  /// One step of greedy decoding; returns how many tokens it emitted.
  int step() {
    sequence_.probe_limit = sequence_.depth_limit = static_cast<int>(capacity_ - 1 - sequence_.position());
    draft.reset(sequence_.tokens.back());
    const Sequence* sequences[] = {&sequence_};
    Draft* drafts[] = {&draft};
    strategy_->draft(sequences, drafts);
    const TokenTree& tree = draft.tree;
    EXPECT_LE(tree.size(), strategy_->max_nodes() > 0 ? strategy_->max_nodes() : 128);
    EXPECT_LE(tree.max_depth(), sequence_.depth_limit);
    EXPECT_LE(tree.max_probe_depth(), sequence_.probe_limit);
    best.clear();
    row_of_.clear();
    logits_.clear();
    std::vector<int> path;
    for (int node = 0; node < tree.size(); ++node) {
      std::vector<Token> seen = sequence_.tokens;
      tree.path_to(node, path);
      for (const int at : path) seen.push_back(tree.token(at));
      best.push_back(oracle_(seen));
      row_of_.push_back(tree.wants_row(node) ? static_cast<std::int32_t>(logits_.size() / kVocab) : -1);
      if (!tree.wants_row(node)) continue;
      logits_.resize(logits_.size() + kVocab, 0);
      logits_[logits_.size() - kVocab + static_cast<std::size_t>(best.back())] = 1;
    }
    acceptance_.path.clear();
    std::vector<int> children;
    for (int node = 0;;) {
      tree.children(node, children);
      const auto found = std::find_if(children.begin(), children.end(),
                                      [&](int child) { return tree.token(child) == best[node]; });
      if (found == children.end()) {
        acceptance_.next = best[node];
        break;
      }
      node = *found;
      acceptance_.path.push_back(node);
    }
    for (const int node : acceptance_.path) sequence_.tokens.push_back(tree.token(node));
    sequence_.tokens.push_back(acceptance_.next);
    const int emitted = static_cast<int>(acceptance_.path.size()) + 1;
    const Outcome outcome{&draft, &acceptance_, emitted, {logits_.data(), row_of_, kVocab}};
    strategy_->observe(sequences, {&outcome, 1});
    return emitted;
  }

  /// Tokens on the way to each leaf among the candidates.
  std::set<std::vector<Token>> guesses() const {
    std::set<std::vector<Token>> out;
    std::vector<int> path, children;
    for (int node = 1; node <= draft.tree.drafted(); ++node) {
      draft.tree.children(node, children);
      if (!children.empty()) continue;
      draft.tree.path_to(node, path);
      std::vector<Token> tokens;
      for (const int at : path) tokens.push_back(draft.tree.token(at));
      out.insert(tokens);
    }
    return out;
  }

  const std::vector<Token>& text() const { return sequence_.tokens; }
  Sequence& sequence() { return sequence_; }
  Draft draft;
  std::vector<Token> best;  // of every node of the last step

 private:
  Oracle oracle_;
  int capacity_;
  std::unique_ptr<Strategy> strategy_;
  Sequence sequence_;
  Acceptance acceptance_;
  std::vector<std::int32_t> row_of_;
  std::vector<float> logits_;
};

Token plus_one(const std::vector<Token>& text) {
  return (text.back() + 1) % kVocab;
}

// Hard to guess: depends on three tokens and the length.
Token scrambled(const std::vector<Token>& text) {
  std::uint32_t hash = static_cast<std::uint32_t>(text.size() % 5);
  for (std::size_t i = text.size() > 3 ? text.size() - 3 : 0; i < text.size(); ++i)
    hash = hash * 31 + static_cast<std::uint32_t>(text[i]) * 7 + 3;
  return static_cast<Token>(hash / 3 % kVocab);
}

// Easy: one of a few phrases, chosen by the token before.
Token phrases(const std::vector<Token>& text) {
  const Token last = text.back();
  return last % 4 == 3 ? static_cast<Token>((text.size() * 4) % kVocab) : last + 1;
}

// Every row sees one token at each offset before its own: level 0 is a chain, and column i of level j hangs
// on column i of level j - 1 and stands at offset i + j.
void expect_window(const TokenTree& tree, int width, int levels) {
  ASSERT_EQ(tree.size() - 1 - tree.drafted(), levels * width - 1);
  int node = tree.drafted() + 1;
  std::vector<int> above{0};
  for (int level = 0; level < levels; ++level) {
    const NodeKind kind = level == levels - 1 ? NodeKind::probe : NodeKind::relay;
    for (int i = level == 0 ? 1 : 0; i < width; ++i, ++node) {
      const auto column = static_cast<std::size_t>(i);
      EXPECT_EQ(tree.parent(node), level == 0 ? above.back() : above[column]);
      EXPECT_EQ(tree.depth(node), i + level);
      EXPECT_EQ(tree.kind(node), kind);
      if (level == 0)
        above.push_back(node);
      else
        above[column] = node;
    }
  }
}

TEST(Lookahead, WarmUpAndWindowHaveTheSizesOfThePaper) {
  for (const int W : {1, 2, 5, 9}) {
    for (const int N : {2, 3, 4, 7}) {
      for (const int G : {0, 1, 6}) {
        ByHand hand({{"W", W}, {"N", N}, {"G", G}}, {3, 1, 4, 1, 5, 9, 2, 6}, phrases);
        for (int i = 0; i < 25; ++i) {
          hand.step();
          const int filled =
              std::min(i + 1, N - 1);  // N - 2 steps fill a level each, W + N - 3 tokens at first
          expect_window(hand.draft.tree, W + N - 1 - filled, filled);
          if (filled < N - 1) {
            EXPECT_EQ(hand.draft.tree.drafted(), 0) << "no guesses while the window fills";
          } else {
            EXPECT_LE(hand.draft.tree.size(), (W + G) * (N - 1));
          }
          EXPECT_LE(hand.draft.tree.drafted(), G * (N - 1));
        }
      }
    }
  }
}

// The next window is the old one without its first level, and the predictions are the new last one: by hand,
// from the rows alone (Algorithm 2 of the paper).
TEST(Lookahead, TheWindowMovesOnByOneLevel) {
  const int W = 4, N = 4;
  ByHand hand({{"W", W}, {"N", N}, {"G", 4}}, {3, 1, 4, 1, 5, 9, 2, 6}, phrases);
  for (int i = 0; i < 3; ++i) hand.step();
  for (int i = 0; i < 20; ++i) {
    const auto level = [&](int j, int column) {  // node of the last step
      if (j == 0 && column == 0) return 0;
      return hand.draft.tree.drafted() + (j == 0 ? column : W - 1 + (j - 1) * W + column + 1);
    };
    std::vector<std::vector<Token>> wanted(N - 1);
    for (int j = 1; j < N - 1; ++j) {
      for (int c = 0; c < W; ++c)
        wanted[static_cast<std::size_t>(j - 1)].push_back(hand.draft.tree.token(level(j, c)));
    }
    for (int c = 0; c < W; ++c) wanted[N - 2].push_back(hand.best[static_cast<std::size_t>(level(N - 2, c))]);
    hand.step();
    for (int j = 0; j < N - 1; ++j) {
      for (int c = j == 0 ? 1 : 0; c < W; ++c)
        EXPECT_EQ(hand.draft.tree.token(level(j, c)),
                  wanted[static_cast<std::size_t>(j)][static_cast<std::size_t>(c)])
            << i << j << c;
    }
  }
}

// Steps whose guesses are not the n-grams that the window has spelled behind the pending token so far, by
// hand.
int misspelled(int W, const json& more) {
  json options = {{"W", W}, {"N", 3}, {"G", -1}};
  options.update(more);
  ByHand hand(options, {3, 1, 4, 1, 5}, phrases);
  std::map<Token, std::set<std::vector<Token>>> seen;
  int wrong = 0;
  for (int i = 0; i < 40; ++i) {
    const Token pending = hand.text().back();
    hand.step();
    wrong += hand.guesses() != seen[pending] ? 1 : 0;
    const TokenTree& tree = hand.draft.tree;
    if (i == 0) continue;  // warming up
    EXPECT_EQ(tree.size() - 1 - tree.drafted(), (W - 1) + W);
    const int first = tree.drafted();
    for (int c = 0; c < W; ++c) {
      const Token key = c == 0 ? tree.token(0) : tree.token(first + c);
      const int last = first + W - 1 + c + 1;
      seen[key].insert({tree.token(last), hand.best[static_cast<std::size_t>(last)]});
    }
  }
  EXPECT_GT(seen.size(), 2u);
  return wrong;
}

TEST(Lookahead, GuessesAreTheNgramsThatTheWindowSpelled) {
  EXPECT_EQ(misspelled(3, json::object()), 0);
  EXPECT_EQ(misspelled(1, json::object()), 0);
}

// llama.cpp keys the first column by what its window holds there, not by the pending token.
TEST(Lookahead, TheFirstColumnIsKeyedByThePendingToken) {
  EXPECT_GT(misspelled(1, {{"emulate", "llama_cpp"}}), 0);
}

TEST(Lookahead, AFullMatchGivesNTokens) {
  const std::vector<Token> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto most = [&](const json& more) {
    json options = {{"W", 4}, {"N", 4}, {"G", 4}};
    options.update(more);
    ByHand hand(options, prompt, plus_one);
    int most = 0;
    for (int i = 0; i < 30; ++i) most = std::max(most, hand.step());
    return most;
  };
  EXPECT_EQ(most(json::object()), 4);
  EXPECT_EQ(most({{"full_match_bonus", false}}), 3);
  EXPECT_EQ(most({{"emulate", "lade"}}), 3);  // stops one short
  EXPECT_EQ(most({{"emulate", "llama_cpp"}}), 4);
}

TEST(Lookahead, BigramsWork) {  // an index past the window in the original
  ByHand hand({{"W", 4}, {"N", 2}, {"G", 4}}, {1, 2, 3}, plus_one);
  int most = 0;
  for (int i = 0; i < 30; ++i) {
    most = std::max(most, hand.step());
    EXPECT_EQ(hand.draft.tree.size() - 1 - hand.draft.tree.drafted(), 3);
  }
  EXPECT_EQ(most, 2);
  try {
    Resources resources;
    resources.target = tiny_target();
    choose("lookahead", {{"N", 2}, {"emulate", "lade"}}).make(resources);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("N of at least 3"));
  }
}

TEST(Lookahead, TheTextItselfGoesIntoThePool) {
  // Two phrases by turns that no window of one column sees coming.
  const std::vector<Token> prompt{5, 6, 7, 8, 1, 2, 3, 4, 5};
  ByHand hand({{"W", 0}, {"N", 3}, {"G", 4}, {"pool_from_prompt", true}}, prompt,
              [](const std::vector<Token>& text) { return static_cast<Token>((text.size() * 3) % 17); });
  const auto grams = [&](Token key) {
    std::set<std::vector<Token>> out;
    const auto& text = hand.text();
    for (std::size_t i = 0; i + 2 < text.size(); ++i) {
      if (text[i] == key) out.insert({text[i + 1], text[i + 2]});
    }
    return out;
  };
  for (int i = 0; i < 25; ++i) {
    const auto wanted = grams(hand.text().back());
    hand.step();
    EXPECT_EQ(hand.guesses(), wanted);
    EXPECT_EQ(hand.draft.tree.size(), 1 + hand.draft.tree.drafted());
  }
}

// The original appends the last of the accepted tokens once for each of them to the list that its n-grams of
// the text are cut from.
TEST(Lookahead, NgramsOfTheTextAreThoseOfTheText) {
  const auto wrong = [](const json& more) {
    json options = {{"W", 3}, {"N", 4}, {"G", 16}, {"pool_from_prompt", true}};
    options.update(more);
    ByHand hand(options, {1, 2, 3, 4, 5, 6}, plus_one);
    int wrong = 0;
    for (int i = 0; i < 40; ++i) {
      hand.step();
      for (const auto& guess : hand.guesses()) {
        for (std::size_t k = 1; k < guess.size(); ++k) wrong += guess[k] == guess[k - 1] ? 1 : 0;
      }
    }
    return wrong;
  };
  EXPECT_EQ(wrong({{"full_match_bonus", false}}), 0);
  EXPECT_GT(wrong({{"emulate", "lade"}}), 0);
}

// After an accepted token the last level of llama.cpp's window is its new first one; ours is what the rows
// said.
TEST(Lookahead, LlamaCppFillsTheLastLevelFromTheFirst) {
  const int W = 4, N = 4;
  const auto repeated = [&](const char* emulate) {
    ByHand hand({{"W", W}, {"N", N}, {"G", 4}, {"emulate", emulate}, {"forward", "accepted"}},
                {1, 2, 3, 4, 5, 6}, phrases);
    int same = 0, looked = 0;
    for (int i = 0; i < 40; ++i) {
      if (hand.step() < 2 || i < 4) continue;
      hand.step();
      ++looked;
      const int first = hand.draft.tree.drafted();
      bool all = true;
      for (int c = 1; c < W; ++c)
        all = all &&
              hand.draft.tree.token(first + W - 1 + (N - 3) * W + c + 1) == hand.draft.tree.token(first + c);
      same += all ? 1 : 0;
    }
    EXPECT_GT(looked, 0);
    return static_cast<double>(same) / looked;
  };
  EXPECT_EQ(repeated("llama_cpp"), 1);
  EXPECT_LT(repeated("none"), 1);
}

// The two implementations that are emulated as lists of tokens, without trees: what a step emits follows from them alone.
// Level 0 of `levels` has no place for the pending token in lade, and one that nobody fills in llama.cpp.
struct Naive {
  int W, N, G;
  bool lade;
  std::vector<Token> text;
  std::vector<std::vector<Token>> levels;
  std::map<Token, std::vector<std::vector<Token>>> pool;  // the newest last

  Naive(int w, int n, int g, bool is_lade, const std::vector<Token>& prompt)
      : W(w), N(n), G(g), lade(is_lade), text(prompt) {
    const auto draw = [&](int i) { return prompt[static_cast<std::size_t>(i) % prompt.size()]; };
    if (lade) {
      levels.resize(1);
      for (int i = 0; i < W + N - 3; ++i) levels[0].push_back(draw(i));
    } else {
      levels.resize(static_cast<std::size_t>(N - 1));
      for (int i = 0; i < W * (N - 1); ++i) levels[static_cast<std::size_t>(i / W)].push_back(draw(i));
    }
  }

  int step(const ByHand::Oracle& oracle) {
    const std::size_t filled = levels.size(), skip = lade ? 0 : 1;
    const std::size_t columns = lade ? levels[0].size() + 1 : levels[0].size();
    std::vector<Token> predicted;
    for (std::size_t i = 0; i < columns; ++i) {
      std::vector<Token> seen = text;
      for (std::size_t k = 0; k < i; ++k) seen.push_back(levels[0][k + skip]);
      for (std::size_t j = 1; j < filled; ++j) seen.push_back(levels[j][i]);
      predicted.push_back(oracle(seen));
    }
    const Token pending = text.back();
    text.push_back(oracle(text));
    if (filled < static_cast<std::size_t>(N - 1)) {  // lade: a level more, a column less
      for (auto& level : levels) level.erase(level.begin());
      predicted.erase(predicted.begin());
      levels.push_back(predicted);
      return 1;
    }
    // lade's index stops at the last token of a guess, whether that is right or not.
    const std::size_t longest = static_cast<std::size_t>(lade ? N - 2 : N - 1);
    std::vector<Token> hits;
    for (const auto& guess : pool[pending]) {
      std::vector<Token> so_far(text.begin(), text.end() - 1);
      std::size_t right = 0;
      while (right < longest && oracle(so_far) == guess[right]) so_far.push_back(guess[right++]);
      if (right > hits.size()) hits.assign(guess.begin(), guess.begin() + static_cast<std::ptrdiff_t>(right));
    }
    if (!hits.empty()) {
      text.pop_back();
      text.insert(text.end(), hits.begin(), hits.end());
      text.push_back(oracle(text));
    }
    for (std::size_t i = 0; i < columns; ++i) {
      std::vector<Token> ngram;
      for (std::size_t j = 1; j < filled; ++j) ngram.push_back(levels[j][i]);
      ngram.push_back(predicted[i]);
      auto& list = pool[lade ? (i == 0 ? pending : levels[0][i - 1]) : levels[0][i]];
      const auto found = std::find(list.begin(), list.end(), ngram);
      if (found != list.end()) {
        if (!lade) continue;
        list.erase(found);
      }
      list.push_back(ngram);
      if (static_cast<int>(list.size()) > G) list.erase(list.begin());
    }
    for (std::size_t v = 0; v <= (lade ? 0 : hits.size()); ++v) {
      levels.erase(levels.begin());
      levels.push_back(v == 0 ? predicted : levels[0]);
    }
    if (lade) levels[0].erase(levels[0].begin());
    return static_cast<int>(hits.size()) + 1;
  }
};

TEST(Lookahead, EmulatesTheStepsOfOthers) {
  std::mt19937 random(23);
  std::map<std::string, int> bonus;
  for (int trial = 0; trial < 60; ++trial) {
    const int W = static_cast<int>(1 + random() % 8), N = static_cast<int>(3 + random() % 4),
              G = static_cast<int>(1 + random() % 6);
    const std::string emulate = trial % 2 == 0 ? "lade" : "llama_cpp";
    const ByHand::Oracle oracle = trial % 3 == 0 ? plus_one : trial % 3 == 1 ? phrases : scrambled;
    std::vector<Token> prompt(2 + random() % 12);
    for (Token& token : prompt) token = static_cast<Token>(random() % kVocab);
    const json options = {{"W", W}, {"N", N}, {"G", G}, {"emulate", emulate}, {"initial", "prompt"}};
    ByHand hand(options, prompt, oracle, 400);
    Naive naive(W, N, G, emulate == "lade", hand.text());
    for (int i = 0; i < 40; ++i) {
      const int emitted = hand.step();
      ASSERT_EQ(naive.step(oracle), emitted) << options << " step " << i;
      ASSERT_EQ(naive.text, hand.text());
      bonus[emulate] += emitted - 1;
    }
  }
  EXPECT_GT(bonus["lade"], 100);
  EXPECT_GT(bonus["llama_cpp"], 100);
}

TEST(Lookahead, GuessesOfAStepCanBeFewerThanThePoolHolds) {
  ByHand all({{"W", 6}, {"N", 3}, {"G", 8}}, {3, 1, 4, 1, 5}, scrambled),
      few({{"W", 6}, {"N", 3}, {"G", 8}, {"V", 1}}, {3, 1, 4, 1, 5}, scrambled);
  std::size_t most_all = 0, most_few = 0;
  for (int i = 0; i < 60; ++i) {
    all.step();
    few.step();
    most_all = std::max(most_all, all.guesses().size());
    most_few = std::max(most_few, few.guesses().size());
  }
  EXPECT_GT(most_all, 1u);
  EXPECT_EQ(most_few, 1u);
}

TEST(Lookahead, EqualBeginningsShareTheirNodes) {
  ByHand hand({{"W", 8}, {"N", 4}, {"G", 8}}, {3, 1, 4, 1, 5}, phrases, 400);
  for (int i = 0; i < 60; ++i) {
    hand.step();
    const TokenTree& tree = hand.draft.tree;
    std::set<std::pair<int, Token>> children;
    for (int node = 1; node <= tree.drafted(); ++node)
      EXPECT_TRUE(children.insert({tree.parent(node), tree.token(node)}).second);
  }
}

TEST(Lookahead, NothingPassesTheEndOfTheContext) {
  for (const int W : {0, 1, 4, 20}) {
    ByHand hand({{"W", W}, {"N", 5}, {"G", 6}, {"pool_from_prompt", true}}, {1, 2, 3, 4, 5, 6}, scrambled,
                30);
    int least = 99;
    while (hand.sequence().position() < 30) {  // step() checks the depths
      hand.step();
      least = std::min(least, hand.draft.tree.size() - hand.draft.tree.drafted());
    }
    EXPECT_LE(least, 3);
  }
}

TEST(Lookahead, EndTokensDoNotEnterTheWindow) {
  // The text goes 1 2 1 2; whatever is no part of it is followed by 9.
  const auto alternating = [](const std::vector<Token>& text) {
    const Token last = text.back(), before = text[text.size() - 2];
    return last + before == 3 ? before : Token(9);
  };
  const std::vector<Token> eos{9};
  for (const bool ends : {false, true}) {
    ByHand hand({{"W", 5}, {"N", 3}, {"G", 6}}, {1, 2, 1, 2}, alternating);
    if (ends) hand.sequence().eos = eos;
    int seen = 0;
    for (int i = 0; i < 30; ++i) {
      hand.step();
      for (const Token token : hand.draft.tree.tokens()) seen += token == 9 ? 1 : 0;
    }
    EXPECT_EQ(seen > 0, !ends);
  }
}

TEST(Lookahead, ThePoolIsForgottenUnlessItIsKept) {
  for (const bool keep : {false, true}) {
    ByHand hand({{"W", 0}, {"N", 3}, {"G", 8}, {"pool_from_prompt", true}, {"keep_pool", keep}}, {1, 2, 3, 4},
                plus_one);
    hand.step();
    hand.begin({19, 0});  // 0 -> 1
    hand.step();
    EXPECT_EQ(hand.guesses().size(), keep ? 1u : 0u);
  }
}

TEST(Lookahead, TheWindowCanTakeOverTheNewestGuess) {
  ByHand hand({{"W", 4}, {"N", 3}, {"G", 8}, {"pool_from_prompt", true}, {"window_from_pool", true}},
              {1, 2, 3, 4, 1, 2, 3, 4},
              [](const std::vector<Token>& text) { return static_cast<Token>(text.back() % 4 + 1); });
  for (int i = 0; i < 8; ++i) {
    hand.step();
    const TokenTree& tree = hand.draft.tree;
    const int first = tree.drafted();
    EXPECT_EQ(tree.token(first + 1), tree.token(0) % 4 + 1);
    EXPECT_EQ(tree.token(first + 2), tree.token(first + 1) % 4 + 1);
  }
}

// ---- with a real forward ----

json random_options(std::mt19937& random) {
  const auto one_of = [&](auto... values) {
    const std::vector<json> all{json(values)...};
    return all[random() % all.size()];
  };
  const int W = static_cast<int>(1 + random() % 9), N = static_cast<int>(2 + random() % 5);
  return {{"W", W},
          {"N", N},
          {"G", static_cast<int>(random() % 9) - 1},
          {"V", one_of(0, 1, 3)},
          {"full_match_bonus", one_of(true, false)},
          {"forward", one_of("one", "accepted")},
          {"pool_from_prompt", one_of(true, false)},
          {"evict", one_of("lru", "fifo")},
          {"initial", one_of("random", "prompt")},
          {"window_from_pool", one_of(true, false)},
          {"accept_window", one_of(true, false)},
          {"keep_pool", one_of(true, false)}};
}

// Whatever the options and wherever the context ends: the rows that a row sees stand at offsets 0, 1, ... up to its own,
// each once, and the window is fed at the offsets that it has within the context, no others.
TEST(Lookahead, EveryRowSeesOneTokenAtEachOffset) {
  std::mt19937 random(19);
  for (int trial = 0; trial < 40; ++trial) {
    const json options = random_options(random);
    const int W = options["W"], N = options["N"];
    SCOPED_TRACE(options.dump());
    ByHand hand(options, std::vector<Token>(1 + random() % 6, static_cast<Token>(random() % kVocab)),
                trial % 2 == 0 ? phrases : scrambled, 40);
    for (int i = 0; hand.sequence().position() < 39; ++i) {
      const int limit = static_cast<int>(39 - hand.sequence().position());
      hand.step();
      const TokenTree& tree = hand.draft.tree;
      const int levels = std::min(i + 1, N - 1), width = W + N - 1 - levels;
      const bool offered = options["accept_window"] && levels == N - 1;  // level 0 is among the candidates
      std::multiset<int> wanted, fed, wanted_probes, probes;
      for (int level = 0; level < levels; ++level) {
        for (int column = 0; column < width && column + level <= limit; ++column) {
          if (level == 0 && (column == 0 || offered)) continue;
          wanted.insert(column + level);
          if (level == levels - 1) wanted_probes.insert(column + level);
        }
      }
      std::vector<int> path;
      for (int node = 0; node < tree.size(); ++node) {
        tree.path_to(node, path);
        ASSERT_EQ(static_cast<int>(path.size()), tree.depth(node));
        for (std::size_t k = 0; k < path.size(); ++k)
          EXPECT_EQ(tree.depth(path[k]), static_cast<int>(k) + 1);
        EXPECT_LE(tree.depth(node), limit);
        EXPECT_EQ(tree.kind(node) == NodeKind::candidate, node <= tree.drafted());
        if (node > tree.drafted()) fed.insert(tree.depth(node));
        if (tree.kind(node) == NodeKind::probe) probes.insert(tree.depth(node));
      }
      EXPECT_EQ(fed, wanted);
      EXPECT_EQ(probes, wanted_probes);
    }
  }
}

// llama.cpp draws the window's tokens as it draws the text's; they are best tokens here, so that n-grams repeat.
TEST(LookaheadRun, TheWindowIsGreedyWhereTheTextIsSampled) {
  const std::size_t W = 5;
  const GenerationRecord record = Decode{.target = tiny_target(3),
                                         .strategy = choose("lookahead", {{"W", W}, {"N", 4}, {"G", 4}}),
                                         .options = {{"max_tokens", 30}, {"temperature", 1}}}
                                      .run();
  ASSERT_GE(record.steps.size(), 12u);
  for (std::size_t step = 2; step + 1 < 12; ++step) {  // warm, and probes are recorded
    const auto &now = record.steps[step].probes, &next = record.steps[step + 1].probes;
    ASSERT_EQ(now.size(), (W - 1) + 2 * W);
    ASSERT_EQ(next.size(), now.size());
    for (std::size_t column = 1; column <= W; ++column)
      EXPECT_EQ(next[next.size() - column].id, now[now.size() - column].best) << step << " " << column;
  }
}

TEST(LookaheadRun, GreedyTextAndRowsWithRandomOptions) {
  const ModelPtr target = tiny_target(3);
  std::mt19937 random(11);
  int accepted = 0;
  for (const std::vector<Token>& prompt : {std::vector<Token>{7}, {3, 1, 4, 1, 5, 9, 2, 6, 3, 1}}) {
    Decode plain{.target = target, .options = {{"max_tokens", 60}}, .prompt = prompt};
    const GenerationRecord expected = plain.run();
    for (int i = 0; i < 20; ++i) {
      json options = random_options(random);
      if (i >= 16)
        options.update({{"N", 4}, {"accept_window", false}, {"emulate", i % 2 == 0 ? "lade" : "llama_cpp"}});
      Decode decode = plain;
      decode.strategy = choose("lookahead", options);
      const GenerationRecord record = decode.run();
      EXPECT_EQ(record.tokens, expected.tokens) << options;
      EXPECT_EQ(record.row_hashes, expected.row_hashes) << options;
      accepted += total(record, &StepRecord::accepted);
    }
  }
  EXPECT_GT(accepted, 50);
}

// Steps divided over devices: text, rows and steps are those of one device, greedy or sampled; each device
// feeds again what the step before accepted.
TEST(LookaheadRun, DividedOverDevices) {
  const ModelPtr target = tiny_target(3);
  for (const json& options :
       {json{{"W", 7}, {"N", 4}, {"G", 6}, {"pool_from_prompt", true}}, json{{"W", 2}, {"N", 3}, {"G", 1}},
        json{{"W", 0}, {"N", 4}, {"G", 3}, {"pool_from_prompt", true}},
        json{{"W", 5}, {"N", 2}, {"G", 4}, {"accept_window", true}, {"forward", "accepted"}}}) {
    for (const double temperature : {0., .5}) {
      Decode decode{.target = target,
                    .strategy = choose("lookahead", options),
                    .options = {{"max_tokens", 60}, {"temperature", temperature}},
                    .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 3, 1}};
      const GenerationRecord whole = decode.run();
      EXPECT_TRUE(whole.steps[0].parts.empty());
      if (temperature == 0) {
        EXPECT_GT(total(whole, &StepRecord::accepted), 0) << options;
      }
      for (const int devices : {2, 3, 8}) {
        SCOPED_TRACE(fmt::format("{} at {} over {}", options.dump(), temperature, devices));
        decode.loop.devices = devices;
        const GenerationRecord divided = decode.run();
        EXPECT_EQ(divided.tokens, whole.tokens);
        EXPECT_EQ(divided.row_hashes, whole.row_hashes);
        EXPECT_EQ(divided.target.calls, devices * static_cast<std::int64_t>(divided.steps.size()));
        EXPECT_EQ(divided.target.rows, total(divided, &StepRecord::rows));
        ASSERT_EQ(divided.steps.size(), whole.steps.size());
        int again = 0;
        for (std::size_t i = 0; i < whole.steps.size(); ++i) {
          const StepRecord& step = divided.steps[i];
          ASSERT_EQ(step.parts.size(), static_cast<std::size_t>(devices));
          int rows = 0;
          for (const DevicePart& part : step.parts) {
            EXPECT_GE(part.rows, again + 1)
                << "everybody feeds the pending token and what was accepted before it";
            EXPECT_LE(part.rows, again + whole.steps[i].rows);
            EXPECT_GT(part.ns, 0);
            rows += part.rows;
          }
          EXPECT_EQ(rows, step.rows);
          EXPECT_GE(rows, whole.steps[i].rows + devices - 1 + again * devices);
          again = step.accepted;
        }
      }
    }
  }
}

TEST(LookaheadRun, EndOfTheContextAndEndTokensInsideAGuess) {
  Shape shape = tiny_shape();
  shape.context = 40;
  const ModelPtr target = load_tiny(random_llama(shape, 3));
  Decode plain{.target = target, .options = {{"max_tokens", 100}}, .prompt = {3, 1, 4}};
  const GenerationRecord expected = plain.run();
  EXPECT_EQ(expected.finish, Finish::context);
  const json options = {{"W", 6}, {"N", 4}, {"G", 6}, {"pool_from_prompt", true}};
  Decode decode = plain;
  decode.strategy = choose("lookahead", options);
  EXPECT_EQ(decode.run().tokens, expected.tokens);
  for (std::size_t i = 1; i < expected.tokens.size(); ++i) {
    plain.eos = decode.eos = {expected.tokens[i]};
    const GenerationRecord short_text = plain.run(), record = decode.run();
    EXPECT_EQ(record.tokens, short_text.tokens);
    EXPECT_EQ(record.finish, short_text.finish);
  }
}

TEST(LookaheadRun, RowsThatNobodyReadsAreNotComputed) {
  Decode decode{.target = tiny_target(3),
                .strategy = choose("lookahead", {{"W", 6}, {"N", 5}, {"G", 0}}),
                .options = {{"max_tokens", 40}}};
  const GenerationRecord record = decode.run();
  // Warm: 1 + 5 + 3 * 6 rows, of which the root and the last level have logits.
  EXPECT_EQ(record.steps.back().rows, 24);
  EXPECT_EQ(record.steps.back().drafted.size(), 0u);
  EXPECT_LT(record.target.logit_rows, static_cast<std::int64_t>(record.steps.size()) * 11);
  ASSERT_EQ(record.steps[6].probes.size(), 23u);
  EXPECT_EQ(record.steps[6].probes[0].best, -1);
  EXPECT_GE(record.steps[6].probes[22].best, 0);
  EXPECT_TRUE(record.steps[20].probes.empty());
}

}  // namespace
}  // namespace speclab
