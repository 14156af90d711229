#include "core/decoding/drafting/token_corpus.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace speclab {

TokenCorpus::TokenCorpus(int vocab, std::string tokenizer) : vocab_(vocab), tokenizer_(std::move(tokenizer)) {
  SPECLAB_CHECK(vocab >= 1 && tokenizer_.size() <= 64, "vocabulary {}, hash of {} digits", vocab,
                tokenizer_.size());
}

void TokenCorpus::add(TokenSpan document) {
  for (const Token token : document) {
    if (token < 0 || token >= vocab_) {
      throw Error({"texts", fmt::format("token {}", token), fmt::format("ids from 0 to {}", vocab_ - 1),
                   "Use the tokenizer of the model."});
    }
  }
  if (document.empty()) return;
  text_.insert(text_.end(), document.begin(), document.end());
  text_.push_back(-1);
}

std::vector<std::uint32_t> TokenCorpus::sorted_positions(int depth) const {
  if (text_.empty())
    throw Error(
        {"texts", "no tokens", "at least one document with text", "Pass at least one file with text."});
  if (text_.size() > kMostTokens) {
    throw Error({"texts", fmt::format("{} tokens", text_.size()), fmt::format("at most {}", kMostTokens),
                 "Build several files, each from a part of the texts."});
  }
  // A counting sort by the first token, then a sort of each bucket by the following
  // tokens. Equal entries stay in text order.
  std::vector<std::uint32_t> begins(static_cast<std::size_t>(vocab_) + 1);
  for (const Token token : text_) {
    if (token >= 0) ++begins[static_cast<std::size_t>(token) + 1];
  }
  for (std::size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  std::vector<std::uint32_t> positions(begins.back());
  std::vector<std::uint32_t> next(begins.begin(), begins.end() - 1);
  for (std::size_t at = 0; at < text_.size(); ++at) {
    if (text_[at] >= 0)
      positions[next[static_cast<std::size_t>(text_[at])]++] = static_cast<std::uint32_t>(at);
  }
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    for (std::size_t i = 1; i < static_cast<std::size_t>(depth); ++i) {
      // The text ends with a separator, so the loop stops before the end of the text.
      const Token x = text_[a + i], y = text_[b + i];
      if (x != y) return x < y;
      if (x < 0) break;
    }
    return a < b;
  };
  for (std::size_t token = 0; token + 1 < begins.size(); ++token)
    std::sort(positions.begin() + begins[token], positions.begin() + begins[token + 1], before);
  return positions;
}

}  // namespace speclab
