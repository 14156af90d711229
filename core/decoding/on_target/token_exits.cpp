#include "core/decoding/on_target/token_exits.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/model/heads/head_runner.h"

namespace speclab {
namespace {

double cosine(std::span<const float> a, std::span<const float> b) {
  double both = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], y = b[i];
    both += x * y, of_a += x * x, of_b += y * y;
  }
  return of_a > 0 && of_b > 0 ? both / std::sqrt(of_a * of_b) : 0;
}

}  // namespace

// The way of a slot's new row through the exits.
struct TokenExits::Way {
  std::unique_ptr<HeadRunner> heads;  // with the rule `similarity`
  HeadRows state_row, logits_row;
  Token best = -1;                          // at the exit before
  std::vector<float> state, state_before;   // [hidden]
  std::vector<std::int32_t> parents, node;  // of the feed in progress
  Tap tap;
};

TokenExits::TokenExits(const ExitSettings& settings, const Resources& resources)
    : settings_(settings), resources_(resources) {
  const std::vector<int>& exits = settings_.exits;
  SPECLAB_CHECK(!exits.empty() && exits.front() > 0 &&
                    std::ranges::adjacent_find(exits, std::greater_equal<>()) == exits.end() &&
                    exits.back() < static_cast<int>(resources_.target->layers().size()),
                "{} exits that do not ascend within the layers of the target", exits.size());
  for (int i = 0; i < resources_.batch; ++i) ways_.push_back(std::make_unique<Way>());
}

TokenExits::~TokenExits() = default;

void TokenExits::begin(const Sequence& sequence) {
  Way& way = *ways_[static_cast<std::size_t>(sequence.slot)];
  if (settings_.when == ExitWhen::similarity && !way.heads) way.heads = resources_.open_heads();
}

void TokenExits::run(std::span<const Row> rows) {
  waiting_.clear();
  for (const Row& row : rows) waiting_.push_back(&row);
  for (std::size_t level = 0; !waiting_.empty(); ++level) {
    feeds_.clear();
    for (const Row* row : waiting_) feed(*row, *ways_[static_cast<std::size_t>(row->sequence->slot)], level);
    resources_.target->forward(feeds_);
    std::erase_if(waiting_, [&](const Row* row) {
      return leaves(*row, *ways_[static_cast<std::size_t>(row->sequence->slot)], level);
    });
  }
}

// Adds the feed that brings a row to exit number `level`.
void TokenExits::feed(const Row& row, Way& way, std::size_t level) {
  Session& session = resources_.target_session(*row.sequence);
  const auto flying = static_cast<std::size_t>(session.in_flight());
  const int exit = settings_.exits[level];
  std::size_t first = row.tokens.size() - 1;
  Feed next;
  if (level == 0) {
    // Rows that an earlier step left in flight do not belong to this draft.
    next.continues = first > 0;
    next.layers = LayerPart::until(exit);
    SPECLAB_CHECK(first == 0 || first == flying, "{} tokens of a draft, but {} rows in flight", first,
                  flying);
  } else {
    const int before = settings_.exits[level - 1];
    first = static_cast<std::size_t>(std::ranges::find(session.exits_in_flight(), before) -
                                     session.exits_in_flight().begin());
    next.layers = LayerPart::between(before, exit);
  }
  const auto count = static_cast<std::int32_t>(row.tokens.size() - first);
  way.parents.resize(static_cast<std::size_t>(count));
  std::iota(way.parents.begin(), way.parents.end(), static_cast<std::int32_t>(first) - 1);
  way.node.assign(1, count - 1);
  next.session = &session;
  next.tokens = row.tokens.subspan(first);
  next.parents = way.parents;
  if (settings_.when == ExitWhen::similarity) {
    way.state_before.swap(way.state);
    way.state.resize(static_cast<std::size_t>(resources_.target->config().hidden));
    const int layer = resources_.target->layers()[static_cast<std::size_t>(exit) - 1] + 1;
    way.tap = {layer, way.state.data(), way.node, Memory::kHost};
    next.taps = {&way.tap, 1};
  } else {
    next.rows = way.node;
    next.logits = row.logits;
  }
  feeds_.push_back(next);
}

bool TokenExits::leaves(const Row& row, Way& way, std::size_t level) {
  const std::span<const float> logits(row.logits,
                                      static_cast<std::size_t>(resources_.target->config().head_rows()));
  bool enough = level + 1 == settings_.exits.size();
  switch (settings_.when) {
    case ExitWhen::probability:
      if (enough) break;
      soft_.assign_logits(logits, {.temperature = 1, .top_k = 0, .top_p = 1}, {},
                          resources_.target->config().vocab);
      enough = soft_.prob(soft_.argmax()) >= settings_.threshold;
      break;
    case ExitWhen::agreement: {
      const auto best = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
      enough = enough || (level > 0 && best == way.best);
      way.best = best;
      break;
    }
    case ExitWhen::similarity:
      enough = enough || (level > 0 && cosine(way.state, way.state_before) >= settings_.threshold);
      if (enough) apply_head(row, way);
      break;
  }
  return enough;
}

void TokenExits::apply_head(const Row& row, Way& way) {
  way.heads->put(way.state.data(), 1, resources_.target->config().hidden, way.state_row);
  way.heads->logits(way.state_row, FinalNorm::kApply, way.logits_row);
  way.heads->get(way.logits_row, row.logits);
}

}  // namespace speclab
