#include "core/decoding/drafting/draft_model.h"

#include <algorithm>
#include <numeric>

namespace speclab {
namespace {

// catch_up() leaves at most this many missing tokens for the forward. If more are missing, because
// the drafter was not used for many steps, it prefills the others first.
constexpr int kLongestCatchUp = 32;

}  // namespace

void DraftSampling::fields(OptionVisitor& visit) {
  visit("draft_temperature", temperature, Range<double>{-1, 100},
        "temperature of the draft; -1: the target's");
  visit("draft_top_k", top_k, Range<int>{-1, 1 << 30}, "top-k of the draft, 0 = all; -1: the target's");
  visit("draft_top_p", top_p, Range<double>{-1, 1}, "top-p of the draft; -1: the target's");
}

SamplingParams DraftSampling::over(const SamplingParams& target) const {
  return {temperature < 0 ? target.temperature : temperature, top_k < 0 ? target.top_k : top_k,
          top_p < 0 ? target.top_p : top_p};
}

void DraftCache::begin(const Sequence& sequence, const Resources& resources) {
  if (!session_) session_ = resources.open_draft();
  session_->rewind(0);
  cached_.clear();
  flying_.clear();
  if (sequence.position() > session_->capacity()) return;  // room() is not positive, so nothing is drafted
  keep_prefilled(TokenSpan(sequence.tokens.data(), sequence.tokens.size() - 1));
}

void DraftCache::keep_prefilled(TokenSpan tokens) {
  session_->prefill(tokens);
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
}

void DraftCache::catch_up(const Sequence& sequence, std::vector<Token>& feed) {
  catch_up(sequence.tokens, static_cast<std::size_t>(sequence.prompt_length),
           feed);  // the prompt never changes
}

void DraftCache::catch_up(TokenSpan text, std::size_t unchanged, std::vector<Token>& feed) {
  // The last token is always fed, for its logits.
  const std::size_t most = std::min(cached_.size(), text.size() - 1);
  std::size_t kept = std::min(most, unchanged);
  while (kept < most && cached_[kept] == text[kept]) ++kept;
  path_.clear();
  if (kept == cached_.size()) {
    const std::span<const std::int32_t> parents = session_->parents_in_flight();
    for (int node = 0, last = -1; node < static_cast<int>(flying_.size()) && kept + 1 < text.size(); ++node) {
      const auto at = static_cast<std::size_t>(node);
      if (parents[at] != last || flying_[at] != text[kept]) continue;
      path_.push_back(last = node);
      cached_.push_back(text[kept++]);
    }
  }
  flying_.clear();
  if (!path_.empty()) session_->commit(path_);
  if (static_cast<int>(kept) < session_->length()) session_->rewind(static_cast<int>(kept));
  cached_.resize(kept);
  if (text.size() - kept > kLongestCatchUp) {
    const std::size_t until = text.size() - kLongestCatchUp;
    keep_prefilled(TokenSpan(text.data() + kept, until - kept));
    kept = until;
  }
  feed.assign(text.begin() + static_cast<std::ptrdiff_t>(kept), text.end());
}

void DraftCache::keep(TokenSpan fed) {
  path_.resize(fed.size());
  std::iota(path_.begin(), path_.end(), 0);
  session_->commit(path_);
  cached_.insert(cached_.end(), fed.begin(), fed.end());
}

// Sets q to the uniform distribution over the draft's tokens that were not taken. Returns false if there is
// none.
bool SiblingDraw::assign_rest(Distribution& q, std::span<const Token> ids, int vocab) {
  if (taken_.size() >= (ids.empty() ? static_cast<std::size_t>(vocab) : ids.size())) return false;
  rest_.assign(static_cast<std::size_t>(vocab), ids.empty() ? 1 : 0);
  for (const Token id : ids) rest_[static_cast<std::size_t>(id)] = 1;
  for (const Token token : taken_) rest_[static_cast<std::size_t>(token)] = 0;
  q.assign_weights(rest_);
  return true;
}

void SiblingDraw::add(Draft& draft, int parent, int count, std::span<const float> logits,
                      const SamplingParams& sampling, std::span<const Token> ids, int vocab, const Draw& draw,
                      bool uniform_rest) {
  uniform_rest = uniform_rest && sampling.temperature > 0;
  best_.clear();
  taken_.clear();
  const auto by_logit = [&] {
    if (best_.empty()) {
      first_entries(logits, {}, static_cast<std::size_t>(count), scratch_, best_);
      std::sort(best_.begin(), best_.end(), comes_first);
    }
    for (const TopEntry& entry : best_) {
      const Token token = ids.empty() ? entry.index : ids[static_cast<std::size_t>(entry.index)];
      if (std::find(taken_.begin(), taken_.end(), token) == taken_.end()) return token;
    }
    return Token{-1};
  };
  int index = Draft::kOneHot;
  draft.new_q(&index).assign_logits(logits, sampling, ids, vocab);
  for (int child = 0; child < count; ++child) {
    if (child > 0 && index != Draft::kOneHot) {
      const bool left =
          !draft.q[static_cast<std::size_t>(index)].one_hot() && draft.take_out(index, taken_.back());
      if (!left) {
        draft.put_back();
        index = Draft::kOneHot;
        if (uniform_rest && !assign_rest(draft.new_q(&index), ids, vocab)) {
          --draft.q_used;
          index = Draft::kOneHot;
        }
      }
    }
    const Distribution* q = index == Draft::kOneHot ? nullptr : &draft.q[static_cast<std::size_t>(index)];
    const Token token = q != nullptr ? draw(*q) : by_logit();
    if (token < 0) break;
    draft.add(token, parent, index,
              q == nullptr || q->one_hot() ? -1.0f : static_cast<float>(q->prob(token)));
    taken_.push_back(token);
  }
  draft.put_back();
}

}  // namespace speclab
