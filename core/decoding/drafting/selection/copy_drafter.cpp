#include "core/decoding/drafting/selection/copy_drafter.h"

#include "core/base/error.h"

namespace speclab {
namespace {

constexpr int kLongestMatch = 64;

}  // namespace

CopyDrafter::CopyDrafter(Settings settings)
    : settings_(settings), index_(kLongestMatch), copies_(static_cast<std::size_t>(settings.length)) {
  SPECLAB_CHECK(settings.length >= 1 && settings.least_match >= 1, "copies of {} tokens after a match of {}",
                settings.length, settings.least_match);
  index_.reserve(static_cast<std::size_t>(settings.capacity) + 1);
  // After m matching tokens a copy has at most length * (m - least_match + 1) tokens.
  options_.length = settings.length;
  options_.factor = settings.length;
  options_.offset = -settings.length * (settings.least_match - 1);
  options_.min_probability = 0;
}

void CopyDrafter::begin(TokenSpan text) {
  index_.clear();
  for (const Token token : text) index_.append(token);
  first_ = text.size() - 1;
  make_copy();
}

void CopyDrafter::read(TokenSpan text, const Score& score) {
  const std::size_t length = copies_.size();
  for (std::size_t at = index_.text().size(); at < text.size(); ++at) {
    index_.append(text[at]);
    if (settings_.scores && at >= first_ + length) {
      const std::vector<Token>& copy = copies_[place_of(at)];  // made `length` tokens ago
      acceptance_.clear();
      bool right = true;
      for (std::size_t i = 0; i < copy.size(); ++i) {
        right = right && copy[i] == text[at - length + 1 + i];
        acceptance_.push_back(right ? 1 : 0);
      }
      if (!copy.empty()) score(acceptance_);
    }
    if (settings_.scores || at + 1 == text.size()) make_copy();
  }
}

void CopyDrafter::make_copy() {
  speculation_.run(index_, index_.repeated_suffix(), true, settings_.length, options_);
  std::vector<Token>& copy = copies_[place_of(index_.text().size() - 1)];
  copy.clear();
  for (const SuffixSpeculation::Node& node : speculation_.nodes()) copy.push_back(node.token);
}

}  // namespace speclab
