#include "core/model/text/tokenizer_unigram.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/model/text/unicode/unicode.h"

namespace speclab {

UnigramModel::UnigramModel(const std::vector<std::pair<std::string, double>>& pieces, Token unk,
                           std::optional<std::array<Token, 256>> byte_tokens)
    : unk_(unk), byte_tokens_(byte_tokens) {
  SPECLAB_CHECK(unk >= 0 && unk < static_cast<Token>(pieces.size()), "unknown token {} of {} pieces", unk,
                pieces.size());
  constexpr double kUnknownPenalty = 10;
  double least = pieces[0].second;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const auto& [text, score] = pieces[id];
    scores_.push_back(score);
    least = std::min(least, score);
    std::uint32_t node = 0;
    for (const char c : text) {
      const auto [child, added] =
          children_.try_emplace(std::uint64_t{node} << 8 | static_cast<std::uint8_t>(c), ends_.size());
      if (added) ends_.push_back(-1);
      node = child->second;
    }
    if (node != 0) ends_[node] = static_cast<Token>(id);
  }
  unk_score_ = least - kUnknownPenalty;
}

Token UnigramModel::find(std::string_view piece) const {
  std::uint32_t node = 0;
  for (const char c : piece) {
    const auto child = children_.find(std::uint64_t{node} << 8 | static_cast<std::uint8_t>(c));
    if (child == children_.end()) return -1;
    node = child->second;
  }
  return ends_[node];
}

void UnigramModel::encode(std::string_view word, std::vector<Token>& out) const {
  struct Best {
    double score = 0;
    std::size_t from = 0;
    Token token = -1;  // -1: not reached
  };
  std::vector<Best> best(word.size() + 1);
  const auto offer = [&](std::size_t from, std::size_t to, Token token, double score) {
    const double sum = score + best[from].score;
    if (best[to].token < 0 || sum > best[to].score) best[to] = {sum, from, token};
  };
  for (std::size_t from = 0; from < word.size();) {
    const auto length = static_cast<std::size_t>(unicode::decode_one(word.substr(from)).length);
    bool single = false;  // the character itself is a piece
    std::uint32_t node = 0;
    for (std::size_t at = from; at < word.size(); ++at) {
      const auto child = children_.find(std::uint64_t{node} << 8 | static_cast<std::uint8_t>(word[at]));
      if (child == children_.end()) break;
      node = child->second;
      const Token token = ends_[node];
      if (token < 0) continue;
      offer(from, at + 1, token, scores_[static_cast<std::size_t>(token)]);
      single = single || at + 1 - from == length;
    }
    if (!single) offer(from, from + length, unk_, unk_score_);
    from += length;
  }
  std::vector<std::pair<std::size_t, Token>> steps;  // start and token of each piece, the last piece first
  for (std::size_t to = word.size(); to > 0; to = best[to].from) {
    if (best[to].token == unk_ && !steps.empty() && steps.back().second == unk_) {
      steps.back().first = best[to].from;
    } else {
      steps.emplace_back(best[to].from, best[to].token);
    }
  }
  std::ranges::reverse(steps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t end = i + 1 < steps.size() ? steps[i + 1].first : word.size();
    const std::string_view text = word.substr(steps[i].first, end - steps[i].first);
    const auto byte_token = [&](char byte) { return (*byte_tokens_)[static_cast<std::uint8_t>(byte)]; };
    if (steps[i].second == unk_ && byte_tokens_ &&
        find(text) != unk_ &&  // unless it is written out as "<unk>"
        std::ranges::all_of(text, [&](char byte) { return byte_token(byte) >= 0; })) {
      for (const char byte : text) out.push_back(byte_token(byte));
    } else {
      out.push_back(steps[i].second);
    }
  }
}

}  // namespace speclab
