#include "core/decoding/rows/processors.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"

namespace speclab {
namespace {

// Returns the index of a token's entry in the row, or -1 when the vocabulary lacks the token.
int row_of(Token token, std::span<const Token> ids, std::size_t rows) {
  if (ids.empty()) return token >= 0 && static_cast<std::size_t>(token) < rows ? token : -1;
  const auto found = std::lower_bound(ids.begin(), ids.end(), token);
  return found != ids.end() && *found == token ? static_cast<int>(found - ids.begin()) : -1;
}

}  // namespace

LogitsProcessors::LogitsProcessors(Options options, int prompt_length)
    : options_(std::move(options)), prompt_length_(prompt_length) {}

bool LogitsProcessors::active() const {
  return options_.repetition_penalty != 1 || (options_.min_length > 0 && !options_.eos.empty()) ||
         !options_.banned.empty();
}

void LogitsProcessors::apply(std::span<const float> logits, std::span<const Token> ids, TokenSpan context,
                             TokenSpan path, std::span<float> out) const {
  SPECLAB_CHECK(out.size() == logits.size() && (ids.empty() || ids.size() == logits.size()), "rows {} {} {}",
                logits.size(), out.size(), ids.size());
  std::copy(logits.begin(), logits.end(), out.begin());
  if (options_.repetition_penalty != 1) {
    // Reads from the original row, so a token that occurs often is penalised only once.
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    const auto penalise = [&](TokenSpan tokens) {
      for (const Token token : tokens) {
        const int row = row_of(token, ids, logits.size());
        if (row >= 0) out[row] = logits[row] > 0 ? logits[row] / penalty : logits[row] * penalty;
      }
    };
    penalise(context);
    penalise(path);
  }
  const auto ban = [&](const std::vector<Token>& tokens) {
    for (const Token token : tokens) {
      const int row = row_of(token, ids, logits.size());
      if (row >= 0) out[row] = -std::numeric_limits<float>::infinity();
    }
  };
  const auto emitted = static_cast<std::int64_t>(context.size() + path.size()) - prompt_length_;
  if (emitted < options_.min_length) ban(options_.eos);
  ban(options_.banned);
}

}  // namespace speclab
