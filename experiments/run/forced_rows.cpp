#include "experiments/run/forced_rows.h"

#include <algorithm>
#include <vector>

#include "core/model/net/session.h"

namespace speclab {
namespace {

constexpr int kChunk = 32;  ///< rows of logits held at a time

}  // namespace

void forced_rows(const Model& model, TokenSpan context, TokenSpan text, const RowVisitor& visit) {
  std::vector<Token> all(context.begin(), context.end());
  all.insert(all.end(), text.begin(), text.end());
  const auto session = model.open(static_cast<int>(all.size()), 128);
  const std::size_t width = static_cast<std::size_t>(model.config().head_rows());
  std::vector<float> logits(kChunk * width);
  std::vector<std::int32_t> parents(kChunk), rows(kChunk);
  std::vector<int> path(kChunk);
  for (int i = 0; i < kChunk; ++i) parents[i] = i - 1, rows[i] = i, path[i] = i;
  if (context.size() > 1) session->prefill(context.first(context.size() - 1));
  for (std::size_t done = 0; done < text.size();) {
    const std::size_t count = std::min<std::size_t>(kChunk, text.size() - done);
    session->forward(TokenSpan(all).subspan(context.size() - 1 + done, count),
                     std::span(parents).first(count), std::span(rows).first(count), logits.data());
    for (std::size_t i = 0; i < count; ++i)
      visit(done + i, std::span<const float>(logits).subspan(i * width, width));
    session->commit(std::span(path).first(count));
    done += count;
  }
}

}  // namespace speclab
