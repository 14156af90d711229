// Rules that choose the target's own token at the node and accept the child that equals it. They are lossless
// for any draft. The target's token depends only on the row and on the coins of its position. So the text
// with speculation equals the text without it.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/decoding/rules/rules.h"

namespace speclab::rules {
namespace {

using Chooser = Token (*)(const TargetRow&, const Coins&, std::int64_t, const RuleOptions&);

Token coupled_target(const TargetRow& row, const Coins& coins, std::int64_t position,
                     const RuleOptions& options) {
  return row.p->sample_coupled_list(coins, position, options.streams);
}

/// P(target and draft choose the same token), when the draft uses one of K streams of noise and the target
/// the largest of all K.
///
/// With one stream it is sum_x 1 / sum_y max(p_y / p_x, q_y / q_x) (Daliri, Musco, Suresh 2024) = sum_x p_x /
/// D(p_x / q_x) with D(s) = sum_y max(p_y, s q_y). With K streams, D(s) = K - 1 + sum_y max(p_y, s q_y). The
/// target's token may also come from one of the K - 1 other streams. Let S be its arrival there. Let s S be
/// its arrival in the draft's race, which is its noise there divided by q_x. The integral over S adds
///     sum_x (K - 1) p_x q_x * integral of ds / D(s)^2 over s from p_x / q_x to infinity.
/// D is linear in s between two neighbouring ratios p_y / q_y. So one pass over the tokens in order of p / q,
/// from the largest, is enough. A radix sort orders them by the float ratio.
double coupling_mass(const Distribution& p, const Distribution& q, int streams) {
  if (p.one_hot() || q.one_hot()) return agreement(p, q);
  struct Entry {
    std::uint32_t key;  // bits of p / q: ordered like the ratio, which is not negative
    Token token;
  };
  thread_local std::vector<Entry> entries, sorted;
  const std::span<const float> wp = p.weights(), wq = q.weights();
  const double to_p = 1 / p.sum(), to_q = 1 / q.sum();
  const float to_ratio = static_cast<float>(to_p / to_q);
  entries.clear();
  for (std::size_t x = 0; x < wp.size(); ++x) {
    if (wp[x] <= 0 && wq[x] <= 0) continue;
    const float ratio = wq[x] > 0 ? wp[x] / wq[x] * to_ratio : std::numeric_limits<float>::infinity();
    entries.push_back({std::bit_cast<std::uint32_t>(ratio), static_cast<Token>(x)});
  }
  sorted.resize(entries.size());
  std::array<std::array<std::uint32_t, 2048>, 3> starts{};
  for (const Entry& e : entries) {
    for (int digit = 0; digit < 3; ++digit) ++starts[digit][(e.key >> (11 * digit)) & 2047];
  }
  for (int digit = 0; digit < 3; ++digit) {
    std::uint32_t before = 0;
    for (std::uint32_t& start : starts[digit]) before += std::exchange(start, before);
    for (const Entry& e : entries) sorted[starts[digit][(e.key >> (11 * digit)) & 2047]++] = e;
    entries.swap(sorted);
  }
  // D(s) = base + s q_below: tokens with a ratio below s count with s q, the others with p.
  const double others = streams - 1;
  double base = others, q_below = 1, mass = 0;
  double last = 0, d_last = 0, integral = 0;  // the previous ratio, D at it, and the integral from it on
  for (auto e = entries.rbegin(); e != entries.rend(); ++e) {
    const double px = static_cast<double>(wp[static_cast<std::size_t>(e->token)]) * to_p;
    const double qx = static_cast<double>(wq[static_cast<std::size_t>(e->token)]) * to_q;
    if (px > 0 && qx > 0) {
      const double s = px / qx, d = base + s * std::max(q_below, qx);
      if (others > 0) {
        integral =
            d_last == 0 ? 1 / (d * std::max(q_below, qx)) : integral + std::max(last - s, 0.0) / (d * d_last);
        last = s;
        d_last = d;
      }
      mass += px / d + others * px * qx * integral;
    }
    base += px;
    q_below -= qx;
  }
  return std::min(mass, 1.0);
}

/// Expected acceptance of a child: the probability that the target's token equals the child's, given that the
/// target's token is none of the tokens that failed before. It is the mean over the draw of the child. For
/// coupled siblings after the first, this assumes independent draws. That is an approximation: with one
/// stream, siblings share the noise; with several, the target uses the largest noise of all streams.
template <bool kCoupled>
double match_mass(const Distribution& p, const Distribution* q, Token token,
                  std::span<const NodeTest::Child> failed, int streams) {
  if (failed.empty()) {
    if (q == nullptr) return p.prob(token);
    return kCoupled ? coupling_mass(p, *q, streams) : agreement(p, *q);
  }
  double gone = 0;  // mass of p on tokens that failed
  double mass = q != nullptr ? agreement(p, *q) : p.prob(token);
  for (std::size_t i = 0; i < failed.size(); ++i) {
    const Token x = failed[i].token;
    const auto same = [x](const NodeTest::Child& c) { return c.token == x; };
    if (std::any_of(failed.begin(), failed.begin() + static_cast<std::ptrdiff_t>(i), same))
      continue;  // a duplicate
    gone += p.prob(x);
    mass -= p.prob(x) * (q != nullptr ? q->prob(x) : (x == token ? 1 : 0));
  }
  return gone < 1 ? std::clamp(mass / (1 - gone), 0.0, 1.0) : 0;
}

template <Chooser kChoose, bool kCoupled>
void test(const NodeTest& node, const RuleOptions& options, NodeVerdict& out) {
  const Token chosen = kChoose(node.row, *node.coins, node.position, options);
  out.accepted = out.correction = -1;
  out.expected.clear();
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const auto [token, q] = node.children[i];
    out.expected.push_back(node.want_expected ? match_mass<kCoupled>(*node.row.p, q, token,
                                                                     node.children.first(i), options.streams)
                                              : -1);
    if (token == chosen) {
      out.accepted = static_cast<int>(i);
      return;
    }
  }
  out.correction = chosen;
}

template <bool kCoupled>
double expected(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions& options) {
  return match_mass<kCoupled>(*row.p, q, one_hot, {}, options.streams);
}

void test_exact(const NodeTest& node, const RuleOptions&, NodeVerdict& out) {
  const Token best = node.row.p->argmax();
  out.accepted = out.correction = -1;
  out.expected.clear();
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const auto [token, q] = node.children[i];
    out.expected.push_back(q != nullptr ? q->prob(best) : (token == best ? 1 : 0));
    if (token == best) {
      out.accepted = static_cast<int>(i);
      return;
    }
  }
  out.correction = best;
}

double expected_exact(const TargetRow& row, const Distribution* q, Token one_hot, const RuleOptions&) {
  const Token best = row.p->argmax();
  return q != nullptr ? q->prob(best) : (one_hot == best ? 1 : 0);
}

void law_exact(const TargetRow& row, const Distribution*, Token, const RuleOptions&,
               std::vector<double>& law) {
  law.assign(static_cast<std::size_t>(row.p->vocab()), 0.0);
  law[static_cast<std::size_t>(row.p->argmax())] = 1;
}

template <AcceptRule kRule>
DeviceRule on_device(const RuleOptions&, const SamplingParams&) {
  return {.rule = kRule};
}

LossClass always_greedy(const RuleOptions&, const SamplingParams&) { return LossClass::l2; }

constexpr std::array<const RuleOption*, 1> kCoupledOptions = {&kStreams};

const std::array<AcceptanceRule, 3> kRules = {{
    {"exact",
     "accept when x = argmax p, else emit argmax p: greedy decoding, whatever the temperature",
     "Stern et al. 2018 (blockwise parallel decoding); greedy verification",
     always_greedy,
     {},
     test_exact,
     greedy_target,
     expected_exact,
     law_exact,
     on_device<AcceptRule::kExact>},
    {.name = "sample_match",
     .summary = "draw s from p; accept when x = s, else emit s",
     .source = "Hugging Face assisted generation without draft logits",
     .loss = lossless,
     .options = {},
     .test = test<sample_target, false>,
     .bonus = sample_target,
     .expected = expected<false>,
     .output_law = law_of_target,
     .device_form = on_device<AcceptRule::kSampleMatch>,
     .accepts_what_it_emits = true,
     .chain_law = ChainLaw::sample_match},
    {.name = "coupled",
     .summary =
         "sample_match with s = argmax log p + Gumbel(position), the noise that the draft was drawn with",
     .source = "Daliri, Musco, Suresh 2024 (coupling without communication); several streams: Rowan et al. "
               "2025 (arXiv 2506.05632)",
     .loss = lossless,
     .options = kCoupledOptions,
     .test = test<coupled_target, true>,
     .bonus = coupled_target,
     .expected = expected<true>,
     .output_law = law_of_target,
     .device_form = on_device<AcceptRule::kCoupled>,
     .coins = CoinUse::gumbel,
     .chain_law = ChainLaw::coupled},
}};

}  // namespace

std::span<const AcceptanceRule> match() { return kRules; }

}  // namespace speclab::rules
