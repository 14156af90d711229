#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/decoding/loop/loop_fixture.h"

/// Runs lookahead decoding step by step, for its tests.
namespace speclab::fixtures {

/// Vocabulary of the target of LookaheadByHand.
inline constexpr int kHandVocab = 20;

/// Runs the strategy with a target that is a function from a text to its next token. The test calls each step
/// itself, so it can look at every tree and every row.
class LookaheadByHand {
 public:
  using Oracle = std::function<Token(const std::vector<Token>& text)>;

  LookaheadByHand(const json& options, std::vector<Token> prompt, Oracle oracle, int capacity = 200)
      : oracle_(std::move(oracle)), capacity_(capacity) {
    static const ModelPtr target =
        load_tiny(markov_table(kHandVocab, std::vector<float>(kHandVocab * kHandVocab, 0)));
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
      row_of_.push_back(tree.wants_row(node) ? static_cast<std::int32_t>(logits_.size() / kHandVocab) : -1);
      if (!tree.wants_row(node)) continue;
      logits_.resize(logits_.size() + kHandVocab, 0);
      logits_[logits_.size() - kHandVocab + static_cast<std::size_t>(best.back())] = 1;
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
    const Outcome outcome{&draft, &acceptance_, emitted, {logits_.data(), row_of_, kHandVocab}};
    strategy_->observe(sequences, {&outcome, 1});
    return emitted;
  }

  /// The guesses of the draft: for each candidate without children, the tokens of the path to it.
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
  std::vector<Token> best;  // best token of every node of the last step

 private:
  Oracle oracle_;
  int capacity_;
  std::unique_ptr<Strategy> strategy_;
  Sequence sequence_;
  Acceptance acceptance_;
  std::vector<std::int32_t> row_of_;
  std::vector<float> logits_;
};

inline Token plus_one(const std::vector<Token>& text) { return (text.back() + 1) % kHandVocab; }

/// A text that is hard to guess: a token depends on the three tokens before it and on the length.
inline Token scrambled(const std::vector<Token>& text) {
  std::uint32_t hash = static_cast<std::uint32_t>(text.size() % 5);
  for (std::size_t i = text.size() > 3 ? text.size() - 3 : 0; i < text.size(); ++i)
    hash = hash * 31 + static_cast<std::uint32_t>(text[i]) * 7 + 3;
  return static_cast<Token>(hash / 3 % kHandVocab);
}

/// A text that is easy to guess: phrases of four tokens. The length of the text chooses the next phrase.
inline Token phrases(const std::vector<Token>& text) {
  const Token last = text.back();
  return last % 4 == 3 ? static_cast<Token>((text.size() * 4) % kHandVocab) : last + 1;
}

inline json random_lookahead_options(std::mt19937& random) {
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

}  // namespace speclab::fixtures
