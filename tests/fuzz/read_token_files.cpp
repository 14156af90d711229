#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/sha256.h"
#include "core/decoding/drafting/datastore.h"
#include "core/decoding/drafting/ngrams/ngram_estimate.h"
#include "tests/fuzz/entry_points.h"
#include "tests/fuzz/reading.h"

namespace speclab::fuzz {
namespace {

constexpr std::size_t kHeadBytes = 208, kChecksumBytes = 64;  // of a TokenFile; the checksum ends its header

/// Corrects the checksum, because a malicious file has a valid one too.
std::string with_checksum(std::string_view input) {
  std::string file(input);
  if (file.size() < kHeadBytes) return file;
  char* checksum = file.data() + kHeadBytes - kChecksumBytes;
  std::memset(checksum, 0, kChecksumBytes);
  sha256_hex(file).copy(checksum, kChecksumBytes);
  return file;
}

void use(const Datastore& store) {
  std::vector<Token> text;
  for (std::size_t i = 0; i < std::min<std::size_t>(store.tokens(), 64); ++i) {
    // There are as many suffixes as tokens that are not separators, so entry i may not exist; find gives
    // those that do.
    const Datastore::Range all = store.find({});
    if (i >= all.size()) break;
    text.push_back(store.token(i, 0));
    require(text.back() >= -1 && text.back() < store.vocab(), "a token outside the vocabulary");
    const Datastore::Range found = store.find_suffix(text, 1, Datastore::kDepth);
    for (std::size_t entry = found.first; entry < std::min(found.last, found.first + 8); ++entry) {
      for (int offset = 0; offset < Datastore::kDepth; ++offset) store.token(entry, offset);
    }
  }
}

void use(const NgramFile& file) {
  constexpr int kMostVocab = 256;  // a larger vocabulary would only take more time
  if (file.vocab() > kMostVocab) return;
  std::vector<Token> context;
  for (int token = 0; token < std::min(file.vocab(), 8); ++token)
    context.push_back((5 * token + 1) % file.vocab());
  for (const NgramSmoothing smoothing :
       {NgramSmoothing::katz, NgramSmoothing::kneser_ney, NgramSmoothing::modified_kneser_ney}) {
    for (int order = 1; order <= file.order(); ++order) {
      NgramEstimate<NgramFile> estimate(file.vocab(), order, smoothing);
      estimate.freeze(file);
      std::vector<double> law(static_cast<std::size_t>(file.vocab()));
      for (std::size_t length = 0; length <= context.size(); ++length) {
        estimate.condition(file, TokenSpan(context).first(length));
        estimate.probabilities(law);
        double sum = 0;
        for (const double p : law) {
          require(p >= 0 && p < 1 + 1e-9, "a probability that is none");
          sum += p;
        }
        require(std::abs(sum - 1) < 1e-6, "a law that does not sum to one");
        require(estimate.best() >= 0, "no best token");
      }
    }
  }
}

}  // namespace

bool read_datastore(std::string_view input) {
  const MemoryFile file(with_checksum(input));
  return accepted([&] { use(Datastore::open(file.path())); });
}

bool read_ngram_model(std::string_view input) {
  const MemoryFile file(with_checksum(input));
  return accepted([&] { use(NgramFile::open(file.path())); });
}

}  // namespace speclab::fuzz
