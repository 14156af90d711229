#include "core/decoding/drafting/draft.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr std::size_t kMostSources = 6;  // memory is reserved for this many sources of one tree and for as
                                         // many reviews, so that steps do not allocate
constexpr std::size_t kMostCopiedToo = 128;  // the same for Draft::copied_too

}  // namespace

void Draft::reset(Token pending) {
  tree.reset(pending);
  q_of.assign(1, kOneHot);
  confidence.assign(1, -1.0f);
  entropy.assign(1, -1.0f);
  top.clear();
  top_width = 0;
  predicted.clear();
  q_used = 0;
  rests_.clear();
  taken_.clear();
  thin_row_ = kOneHot;
  thin_weights_.clear();
  copies_used_ = 0;
  source = {};
  contributions.clear();
  contributions.reserve(kMostSources);
  reviews.clear();
  reviews.reserve(kMostSources);
  pool_size = -1;
  ended_by_schedule = false;
  root_confidence = -1;
  tree_number = -1;
  evidence = 0;
  must_keep = 0;
  copies_ignore_draws = false;
  copied_too.clear();
  copied_too.reserve(kMostCopiedToo);
  ahead.reset();
}

void Draft::swap(Draft& other) {
  std::swap(tree, other.tree);
  q_of.swap(other.q_of);
  q.swap(other.q);
  std::swap(q_used, other.q_used);
  std::swap(source, other.source);
  contributions.swap(other.contributions);
  reviews.swap(other.reviews);
  std::swap(pool_size, other.pool_size);
  std::swap(ended_by_schedule, other.ended_by_schedule);
  std::swap(root_confidence, other.root_confidence);
  std::swap(tree_number, other.tree_number);
  confidence.swap(other.confidence);
  entropy.swap(other.entropy);
  top.swap(other.top);
  std::swap(top_width, other.top_width);
  predicted.swap(other.predicted);
  std::swap(evidence, other.evidence);
  std::swap(must_keep, other.must_keep);
  std::swap(copies_ignore_draws, other.copies_ignore_draws);
  copied_too.swap(other.copied_too);
  std::swap(ahead, other.ahead);
  rests_.swap(other.rests_);
  taken_.swap(other.taken_);
  std::swap(thin_row_, other.thin_row_);
  std::swap(thin_first_, other.thin_first_);
  std::swap(thin_sum_, other.thin_sum_);
  thin_weights_.swap(other.thin_weights_);
  copies_.swap(other.copies_);  // std::swap() would allocate, because a moved deque does
  std::swap(copies_used_, other.copies_used_);
  moved_.swap(other.moved_);
}

int Draft::add(Token token, int parent, int q_index, float token_confidence, float row_entropy) {
  SPECLAB_CHECK(q_index == kOneHot || (q_index >= 0 && q_index < q_used), "q {} of {}", q_index, q_used);
  const int node = tree.add(token, parent);
  if (q_index != kOneHot && q_index == thin_row_) {
    q_index = kOneHot - 1 - static_cast<int>(rests_.size());
    rests_.push_back({thin_row_, thin_first_, static_cast<int>(thin_weights_.size()),
                      q[static_cast<std::size_t>(thin_row_)].sum()});
  }
  q_of.push_back(q_index);
  confidence.push_back(token_confidence);
  entropy.push_back(row_entropy);
  return node;
}

void Draft::set_top(int node, std::span<const float> probabilities) {
  const auto width = probabilities.size(), at = static_cast<std::size_t>(node);
  SPECLAB_CHECK(
      node > 0 && node < tree.size() && width > 0 && (top.empty() || top_width == static_cast<int>(width)),
      "{} probabilities of node {} of {}, where others have {}", width, node, tree.size(), top_width);
  top_width = static_cast<int>(width);
  top.resize(std::max(top.size(), (at + 1) * width));
  std::ranges::copy(probabilities, top.begin() + static_cast<std::ptrdiff_t>(at * width));
}

void Draft::set_predicted(int node, float acceptance) {
  SPECLAB_CHECK(node > 0 && node < tree.size(), "a prediction for node {} of {}", node, tree.size());
  const auto at = static_cast<std::size_t>(node);
  predicted.resize(std::max(predicted.size(), at + 1), -1.0f);
  predicted[at] = acceptance;
}

void Draft::add_review(std::string_view reviewer, std::string_view source, bool kept) {
  auto found = std::ranges::find_if(
      reviews, [&](const Review& review) { return review.reviewer == reviewer && review.source == source; });
  if (found == reviews.end()) {
    reviews.push_back({reviewer, source, 0, 0});
    found = reviews.end() - 1;
  }
  ++found->tested;
  found->kept += kept ? 1 : 0;
}

int Draft::add_probe(Token token, int parent, NodeKind kind) {
  SPECLAB_CHECK(kind != NodeKind::candidate, "add_probe() got token {} as a candidate", token);
  const int node = tree.add(token, parent, kind);
  q_of.push_back(kOneHot);
  confidence.push_back(-1.0f);
  entropy.push_back(-1.0f);
  return node;
}

void Draft::keep(std::span<const char> keep) {
  tree.keep(keep, moved_);
  const auto width = static_cast<std::size_t>(top_width);
  if (width > 0) top.resize(moved_.size() * width);
  if (!predicted.empty()) predicted.resize(moved_.size(), -1.0f);
  std::size_t next = 0, left = 0;
  for (std::size_t node = 1; node < moved_.size(); ++node) {
    if (moved_[node] == 0) continue;
    const auto to = static_cast<std::size_t>(moved_[node]);
    q_of[to] = q_of[node];
    confidence[to] = confidence[node];
    entropy[to] = entropy[node];
    for (std::size_t i = 0; i < width; ++i) top[to * width + i] = top[node * width + i];
    if (!predicted.empty()) predicted[to] = predicted[node];
    while (next + 1 < contributions.size() && contributions[next + 1].first <= static_cast<int>(node)) ++next;
    if (next < contributions.size() &&
        (left == 0 || contributions[left - 1].source != contributions[next].source))
      contributions[left++] = {moved_[node], contributions[next].source};  // left <= next
  }
  for (int& node : copied_too) node = moved_[static_cast<std::size_t>(node)];
  std::erase(copied_too, 0);
  q_of.resize(static_cast<std::size_t>(tree.size()));
  confidence.resize(static_cast<std::size_t>(tree.size()));
  entropy.resize(static_cast<std::size_t>(tree.size()));
  if (width > 0) top.resize(static_cast<std::size_t>(tree.size()) * width);
  if (!predicted.empty()) predicted.resize(static_cast<std::size_t>(tree.size()));
  contributions.resize(left);
  if (tree.drafted() == 0) source = {};
}

bool Draft::take_out(int row, Token token) {
  SPECLAB_CHECK(row >= 0 && row < q_used && (thin_row_ == kOneHot || thin_row_ == row),
                "a token of row {} of {}, while row {} lacks tokens", row, q_used, thin_row_);
  Distribution& from = q[static_cast<std::size_t>(row)];
  if (thin_row_ == kOneHot) {
    thin_row_ = row;
    thin_first_ = static_cast<int>(taken_.size());
    thin_sum_ = from.sum();
  }
  thin_weights_.push_back(from.take_out(token));
  taken_.push_back(token);
  return from.sum() > 0;
}

void Draft::put_back() {
  if (thin_row_ == kOneHot) return;
  for (std::size_t i = thin_weights_.size(); i-- > 0;)
    q[static_cast<std::size_t>(thin_row_)].put_back(taken_[static_cast<std::size_t>(thin_first_) + i],
                                                    thin_weights_[i], thin_sum_);
  thin_weights_.clear();
  thin_row_ = kOneHot;
}

const Distribution* Draft::q_at(int node) const {
  const int index = q_of[static_cast<std::size_t>(node)];
  if (index == kOneHot) return nullptr;
  if (index >= 0) return &q[static_cast<std::size_t>(index)];
  SPECLAB_CHECK(thin_row_ == kOneHot, "the row of node {} while row {} lacks tokens", node, thin_row_);
  const Rest& rest = rests_[static_cast<std::size_t>(kOneHot - 1 - index)];
  if (rest.copy < 0) {
    if (copies_used_ == copies_.size()) copies_.emplace_back();
    rest.copy = static_cast<int>(copies_used_);
    copies_[copies_used_++].assign_without(
        q[static_cast<std::size_t>(rest.row)],
        std::span(taken_).subspan(static_cast<std::size_t>(rest.first), static_cast<std::size_t>(rest.count)),
        rest.sum);
  }
  return &copies_[static_cast<std::size_t>(rest.copy)];
}

Distribution& Draft::new_q(int* index) {
  if (q_used == static_cast<int>(q.size())) q.emplace_back();
  *index = q_used;
  return q[q_used++];
}

}  // namespace speclab
