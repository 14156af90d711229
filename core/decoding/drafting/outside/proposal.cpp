#include "core/decoding/drafting/outside/proposal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/decoding/drafting/outside/message.h"

namespace speclab::outside {
namespace {

constexpr std::int32_t kChain = 0, kTree = 1;  // the form of a proposal

/// Checks one proposal.
class Check {
 public:
  Check(const Proposal& proposal, int vocab, int depth, const std::string& where)
      : proposal_(proposal), vocab_(vocab), depth_(depth), where_(where) {}

  void whole() const {
    for (std::size_t i = 0; i < proposal_.tokens.size(); ++i) {
      const Token token = proposal_.tokens[i];
      if (token < 0 || token >= vocab_)
        fail(fmt::format("token {} at place {}", token, i), fmt::format("ids from 0 to {}", vocab_ - 1));
    }
    if (proposal_.tree) parents();
    for (int i = 0; i < proposal_.row_count; ++i) row(i);
  }

  [[noreturn]] void fail(std::string got, std::string expected) const {
    throw Error({where_, std::move(got), std::move(expected), "Correct the proposer."});
  }

 private:
  void parents() const {
    std::vector<int> depths;
    for (std::size_t i = 0; i < proposal_.parents.size(); ++i) {
      const std::int32_t parent = proposal_.parents[i];
      if (parent < -1 || parent >= static_cast<std::int32_t>(i))
        fail(fmt::format("parent {} of the token at place {}", parent, i),
             "-1 or the place of an earlier token");
      depths.push_back(parent < 0 ? 1 : depths[static_cast<std::size_t>(parent)] + 1);
      if (depths.back() > depth_)
        fail(fmt::format("a token at depth {}", depths.back()), fmt::format("a depth of at most {}", depth_));
    }
  }

  void row(int i) const {
    const std::span<const float> q = proposal_.row(i, vocab_);
    double sum = 0;
    for (std::size_t x = 0; x < q.size(); ++x) {
      if (!std::isfinite(q[x]) || q[x] < 0)
        fail(fmt::format("q({}) = {} in row {}", x, q[x], i), "finite probabilities of at least 0");
      sum += static_cast<double>(q[x]);
    }
    if (std::abs(sum - 1) > kRowTolerance)
      fail(fmt::format("row {} with the sum {}", i, sum), fmt::format("a sum of 1 within {}", kRowTolerance));
    const auto place = static_cast<std::size_t>(i);
    if (place < proposal_.tokens.size() && q[static_cast<std::size_t>(proposal_.tokens[place])] <= 0)
      fail(fmt::format("token {} with q = 0 in row {}", proposal_.tokens[place], i), "a token with q > 0");
  }

  const Proposal& proposal_;
  int vocab_, depth_;
  const std::string& where_;
};

}  // namespace

std::size_t most_bytes(int vocab, int depth) {
  const std::size_t numbers = 3 + 2 * static_cast<std::size_t>(std::max(Proposal::kMostTokens, depth)) +
                              static_cast<std::size_t>(depth) * static_cast<std::size_t>(vocab);
  return numbers * sizeof(float);
}

void read_proposal(std::string_view bytes, int vocab, int depth, const std::string& where, Proposal& out) {
  Reader reader(bytes);
  const std::int32_t form = reader.number(), tokens = reader.number(), rows = reader.number();
  const Check check(out, vocab, depth, where);
  if (form != kChain && form != kTree) check.fail(fmt::format("form {}", form), "0 (chain) or 1 (tree)");
  out.tree = form == kTree;
  out.row_count = 0;  // until the rows are read
  const int most = out.tree ? Proposal::kMostTokens : depth;
  if (tokens < 0 || tokens > most)
    check.fail(fmt::format("{} tokens", tokens), fmt::format("at most {}", most));
  const bool of_all = rows == tokens, alone = rows == 1 && tokens == 0;
  if (rows != 0 && (out.tree || !(of_all || alone)))
    check.fail(fmt::format("{} rows for a {} of {} tokens", rows, out.tree ? "tree" : "chain", tokens),
               "no rows; or, for a chain, one for each token, or one row and no tokens");
  reader.numbers(static_cast<std::size_t>(tokens), out.tokens);
  out.parents.clear();
  if (out.tree) reader.numbers(static_cast<std::size_t>(tokens), out.parents);
  reader.numbers(static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab), out.rows);
  out.row_count = rows;
  if (reader.left() > 0) check.fail(fmt::format("{} bytes too many", reader.left()), "no more bytes");
  check.whole();
}

}  // namespace speclab::outside
