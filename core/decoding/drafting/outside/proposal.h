#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/token.h"

namespace speclab::outside {

/// What a proposer proposes after a text: a chain or a tree of tokens. A chain may come with the
/// distributions of its tokens.
struct Proposal {
  static constexpr int kMostTokens = 127;  ///< largest number of tokens of a tree
  bool tree = false;
  std::vector<Token> tokens;
  std::vector<std::int32_t> parents;  ///< tree: [tokens], the place of the parent in `tokens`, -1: the text
  std::vector<float> rows;            ///< [row_count, vocab]
  int row_count = 0;

  std::span<const float> row(int i, int vocab) const {
    return std::span(rows).subspan(static_cast<std::size_t>(i) * static_cast<std::size_t>(vocab),
                                   static_cast<std::size_t>(vocab));
  }
};

inline constexpr double kRowTolerance = 1e-3;  ///< how far the sum of a row may be from 1

/// The largest number of bytes of a proposal.
std::size_t most_bytes(int vocab, int depth);

/// Reads the bytes of a message `proposal` (message.h) and checks them. A chain has at most `depth` tokens. A
/// tree has at most Proposal::kMostTokens tokens and no rows; its depth is at most `depth`. Ids are from 0 to
/// vocab - 1. The entries of a row are finite and not negative, their sum is 1 within kRowTolerance, and the
/// row gives its proposed token a probability above 0. Throws Error if one of these conditions does not hold
/// or the message has another length. The error begins with `where`, unless the message is too short.
void read_proposal(std::string_view bytes, int vocab, int depth, const std::string& where, Proposal& out);

}  // namespace speclab::outside
