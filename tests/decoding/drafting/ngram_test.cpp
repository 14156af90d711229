// N-gram counts, n-gram files and the laws computed from them, compared with sums by
// hand and with a scan of the texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

#include "core/decoding/drafting/datastore.h"
#include "core/decoding/drafting/ngrams/ngram_estimate.h"
#include "tests/base/error_text.h"
#include "tests/decoding/loop/loop_fixture.h"

namespace speclab::ngram_test {
namespace {

using ::testing::HasSubstr;
using namespace speclab::fixtures;
using Documents = std::vector<std::vector<Token>>;

constexpr NgramSmoothing kAllSmoothings[] = {NgramSmoothing::katz, NgramSmoothing::kneser_ney,
                                             NgramSmoothing::modified_kneser_ney};

NgramCounts counts_of(const Documents& documents, int vocab, int order) {
  NgramCounts counts(vocab, order);
  for (const auto& document : documents) {
    counts.begin_document();
    for (const Token token : document) counts.append(token);
  }
  return counts;
}

Documents random_documents(std::mt19937& random, unsigned alphabet) {
  Documents documents(1 + random() % 4);
  for (auto& document : documents) {
    document.resize(random() % 40);
    for (Token& token : document)
      token = static_cast<Token>(std::min(random() % alphabet, random() % alphabet));
  }
  documents[0].push_back(0);
  return documents;
}

/// Counts by definition, from the texts alone.
class CountingScan {
 public:
  CountingScan(const Documents& documents, int vocab, int order)
      : documents_(documents), vocab_(vocab), order_(order) {}

  int count(const std::vector<Token>& ngram) const { return scan(ngram, nullptr); }
  int left(const std::vector<Token>& ngram) const {
    std::set<Token> before;
    scan(ngram, &before);
    return static_cast<int>(before.size());
  }
  CountsOfCounts numbers(std::size_t length) const {
    std::set<std::vector<Token>> all;
    for (const auto& document : documents_) {
      for (std::size_t at = 0; at + length <= document.size(); ++at)
        all.insert({document.begin() + static_cast<std::ptrdiff_t>(at),
                    document.begin() + static_cast<std::ptrdiff_t>(at + length)});
    }
    CountsOfCounts out;
    for (const auto& ngram : all) {
      const auto c = static_cast<std::uint32_t>(count(ngram)), l = static_cast<std::uint32_t>(left(ngram));
      if (c <= CountsOfCounts::kMost) ++out.by_count[c];
      if (l <= CountsOfCounts::kMost) ++out.by_left[l];
    }
    return out;
  }
  std::vector<double> law(const std::vector<Token>& context, NgramSmoothing smoothing) const {
    std::vector<double> p(static_cast<std::size_t>(vocab_), 1.0 / vocab_);
    for (std::size_t length = 0; length <= context.size(); ++length) {
      std::vector<Token> ngram(context.end() - static_cast<std::ptrdiff_t>(length), context.end());
      const bool katz = smoothing == NgramSmoothing::katz;
      const bool by_count = katz || static_cast<int>(length) + 1 == order_;
      const CountsOfCounts all = numbers(length + 1);
      const NgramDiscounts lost =
          katz ? katz_discounts(all.by_count)
               : kneser_ney_discounts(by_count ? all.by_count : all.by_left,
                                      smoothing == NgramSmoothing::modified_kneser_ney);
      std::vector<std::uint32_t> r;
      double total = 0, all_lost = 0, seen = 0;
      ngram.push_back(0);
      for (Token token = 0; token < vocab_; ++token) {
        ngram.back() = token;
        r.push_back(static_cast<std::uint32_t>(by_count ? count(ngram) : left(ngram)));
        total += r.back();
        if (r.back() > 0) all_lost += lost(r.back()), seen += p[static_cast<std::size_t>(token)];
      }
      if (total == 0) break;
      for (std::size_t x = 0; x < p.size(); ++x) {
        if (!katz) p[x] = all_lost / total * p[x] + (r[x] > 0 ? (r[x] - lost(r[x])) / total : 0);
        else if (1 - seen < 1e-9) p[x] = r[x] > 0 ? (r[x] - lost(r[x])) / (total - all_lost) : 0;
        else p[x] = r[x] > 0 ? (r[x] - lost(r[x])) / total : all_lost / total * p[x] / (1 - seen);
      }
    }
    return p;
  }

 private:
  int scan(const std::vector<Token>& ngram, std::set<Token>* before) const {
    int found = 0;
    for (const auto& document : documents_) {
      for (auto at = document.begin();; ++at) {
        at = std::search(at, document.end(), ngram.begin(), ngram.end());
        if (at == document.end()) break;
        ++found;
        if (before) before->insert(at == document.begin() ? -1 : *(at - 1));
      }
    }
    return found;
  }
  const Documents& documents_;
  int vocab_, order_;
};

TEST(NgramEstimate, KneserNeyByHand) {
  // The text a b a b a c over four tokens.
  const NgramCounts counts = counts_of({{0, 1, 0, 1, 0, 2}}, 4, 2);
  NgramEstimate<NgramCounts> law(4, 2, NgramSmoothing::kneser_ney);
  law.condition(counts, std::vector<Token>{3});
  EXPECT_EQ(law.known(), 0);
  // a follows the beginning and b; b and c follow a. D = 2 / (2 + 2 * 1), so .375 of the mass is uniform.
  EXPECT_DOUBLE_EQ(law.prob(0), .46875);
  EXPECT_DOUBLE_EQ(law.prob(1), .21875);
  EXPECT_DOUBLE_EQ(law.prob(2), .21875);
  EXPECT_DOUBLE_EQ(law.prob(3), .09375);
  law.condition(counts, std::vector<Token>{1, 0});
  EXPECT_EQ(law.known(), 1);
  // ab and ba twice, ac once: D = 1 / (1 + 2 * 2), so .4 / 3 of the mass goes to the lower-order law.
  EXPECT_NEAR(law.prob(0), .0625, 1e-15);
  EXPECT_NEAR(law.prob(1), .6 + .4 / 3 * .21875, 1e-15);
  EXPECT_NEAR(law.prob(2), .8 / 3 + .4 / 3 * .21875, 1e-15);
  EXPECT_NEAR(law.prob(3), .0125, 1e-15);
  EXPECT_EQ(law.best(), 1);
}

TEST(NgramEstimate, KatzByHand) {
  const NgramCounts counts = counts_of({{0, 1, 0, 1, 0, 2}}, 4, 2);
  NgramEstimate<NgramCounts> law(4, 2, NgramSmoothing::katz);
  law.condition(counts, {});
  // With counts 3, 2, 1, n1 = n2 = n3 = 1 has no Good-Turing estimate, so each loses 1/3.
  EXPECT_NEAR(law.prob(0), 8. / 18, 1e-15);
  EXPECT_NEAR(law.prob(1), 5. / 18, 1e-15);
  EXPECT_NEAR(law.prob(2), 2. / 18, 1e-15);
  EXPECT_NEAR(law.prob(3), 3. / 18, 1e-15);
  law.condition(counts, std::vector<Token>{0});
  // Each loses 1/5. The lost mass goes to a and d in the ratio 8 to 3.
  EXPECT_NEAR(law.prob(1), .6, 1e-15);
  EXPECT_NEAR(law.prob(2), .8 / 3, 1e-15);
  EXPECT_NEAR(law.prob(0), .4 / 3 * 8 / 11, 1e-15);
  EXPECT_NEAR(law.prob(3), .4 / 3 * 3 / 11, 1e-15);
}

TEST(NgramEstimate, Discounts) {
  const NgramDiscounts single = kneser_ney_discounts({0, 1000, 400, 220, 140, 0, 0}, false);
  EXPECT_DOUBLE_EQ(single(1), 1000. / 1800);
  EXPECT_DOUBLE_EQ(single(900), 1000. / 1800);
  const NgramDiscounts three = kneser_ney_discounts({0, 1000, 400, 220, 140, 0, 0}, true);
  EXPECT_NEAR(three(1), .5555555555, 1e-9);
  EXPECT_NEAR(three(2), 1.0833333333, 1e-9);
  EXPECT_NEAR(three(3), 1.5858585858, 1e-9);
  EXPECT_NEAR(three(50), 1.5858585858, 1e-9);
  for (const CountNumbers& none : {CountNumbers{0, 5, 4, 0, 2, 0, 0}, CountNumbers{0, 0, 4, 3, 2, 0, 0},
                                   CountNumbers{0, 5, 4, 40, 2, 0, 0}}) {
    const NgramDiscounts fallback = kneser_ney_discounts(none, true);
    EXPECT_EQ(fallback(1), .5);
    EXPECT_EQ(fallback(2), 1);
    EXPECT_EQ(fallback(7), 1.5);
  }
  const NgramDiscounts five = katz_discounts({0, 1000, 400, 220, 140, 100, 70});
  const double keeps[] = {1, .655172413793, .698275862069, .738766980146, .815270935961, .724137931034, 1};
  for (std::uint32_t r = 1; r <= 7; ++r) EXPECT_NEAR(five(r), r * (1 - keeps[std::min(r, 6u)]), 1e-9) << r;
  // With k = 5 and k = 4, r = 4 would gain mass; k = 3 is valid.
  const NgramDiscounts to_three = katz_discounts({0, 120, 40, 24, 13, 15, 5});
  EXPECT_NEAR(to_three(1), 1 - .411764705882, 1e-9);
  EXPECT_NEAR(to_three(2), 2 * (1 - .823529411764), 1e-9);
  EXPECT_NEAR(to_three(3), 3 * (1 - .509803921568), 1e-9);
  EXPECT_EQ(to_three(4), 0);
}

TEST(NgramCounts, CountWhatAScanCounts) {
  std::mt19937 random(5);
  for (const unsigned alphabet : {1u, 3u, 8u}) {
    for (int order = 1; order <= 4; ++order) {
      const Documents documents = random_documents(random, alphabet);
      const NgramCounts counts = counts_of(documents, 9, order);
      const CountingScan scan(documents, 9, order);
      for (int length = 1; length <= order; ++length) {
        const CountsOfCounts expected = scan.numbers(static_cast<std::size_t>(length));
        EXPECT_EQ(counts.counts_of_counts(length).by_count, expected.by_count);
        if (length < order) {
          EXPECT_EQ(counts.counts_of_counts(length).by_left, expected.by_left);
        }
      }
      std::size_t met = 0;
      const std::function<void(NgramCounts::Node, std::vector<Token>&)> walk = [&](auto node,
                                                                                   std::vector<Token>& path) {
        counts.for_each_child(node, [&](Token token, std::uint32_t count, std::uint32_t left) {
          ++met;
          path.push_back(token);
          EXPECT_EQ(count, static_cast<std::uint32_t>(scan.count(path)));
          if (static_cast<int>(path.size()) < order) {
            EXPECT_EQ(left, static_cast<std::uint32_t>(scan.left(path)));
          }
          walk(counts.child(node, token), path);
          path.pop_back();
        });
      };
      std::vector<Token> path;
      walk(NgramCounts::kRoot, path);
      EXPECT_EQ(met, counts.nodes());
      EXPECT_EQ(counts.child(NgramCounts::kRoot, 8), NgramCounts::kNone);
    }
  }
}

// The laws by both tables after every context of up to two tokens, and after the whole texts.
TEST(NgramEstimate, EveryLawIsThatOfAScanAndSumsToOne) {
  TempDir dir;
  const std::string path = (dir.path() / "ngrams").string();
  std::mt19937 random(6);
  constexpr int kVocab = 7;
  for (const unsigned alphabet : {1u, 2u, 4u, 7u}) {
    for (int order = 1; order <= 3; ++order) {
      const Documents documents = random_documents(random, alphabet);
      const NgramCounts counts = counts_of(documents, kVocab, order);
      NgramFile::Builder builder(kVocab, "");
      for (const auto& document : documents) builder.add(document);
      builder.write(path, order);
      const NgramFile file = NgramFile::open(path);
      const CountingScan scan(documents, kVocab, order);
      for (const NgramSmoothing smoothing : kAllSmoothings) {
        NgramEstimate<NgramCounts> by_text(kVocab, order, smoothing);
        NgramEstimate<NgramFile> by_file(kVocab, order, smoothing);
        by_file.freeze(file);
        for (Token context = 0; context < kVocab * kVocab; ++context) {
          const std::vector<Token> both{context / kVocab, context % kVocab};
          const std::vector<Token> used(both.end() - std::min(2, order - 1), both.end());
          const std::vector<double> expected = scan.law(used, smoothing);
          by_text.condition(counts, both);
          by_file.condition(file, both);
          std::vector<double> law(kVocab), of_file(kVocab);
          std::vector<float> logs(kVocab);
          by_text.probabilities(law);
          by_file.probabilities(of_file);
          by_file.log_probabilities(logs);
          EXPECT_NEAR(std::accumulate(law.begin(), law.end(), 0.0), 1, 1e-12);
          for (std::size_t x = 0; x < law.size(); ++x) {
            ASSERT_NEAR(law[x], expected[x], 1e-12) << alphabet << ' ' << order;
            ASSERT_NEAR(of_file[x], expected[x], 1e-12) << alphabet << ' ' << order;
            EXPECT_EQ(by_text.prob(static_cast<Token>(x)), law[x]);
            EXPECT_NEAR(std::exp(logs[x]), expected[x], 1e-6);
          }
          EXPECT_EQ(by_text.best(), std::max_element(law.begin(), law.end()) - law.begin());
          EXPECT_EQ(by_file.best(), std::max_element(of_file.begin(), of_file.end()) - of_file.begin());
          EXPECT_EQ(by_text.known(), by_file.known());
        }
      }
    }
  }
}

TEST(NgramEstimate, ALowerOrderOfAFileHasTheCountsOfThatOrder) {
  TempDir dir;
  std::mt19937 random(7);
  const Documents documents = random_documents(random, 4);
  const auto write = [&](const std::string& name, int order) {
    NgramFile::Builder builder(5, "");
    for (const auto& document : documents) builder.add(document);
    builder.write(dir.path() / name, order);
    return NgramFile::open(dir.path() / name);
  };
  const NgramFile four = write("four", 4), two = write("two", 2);
  EXPECT_EQ(four.order(), 4);
  for (const NgramSmoothing smoothing : kAllSmoothings) {
    NgramEstimate<NgramFile> a(5, 2, smoothing), b(5, 2, smoothing);
    for (Token token = 0; token < 5; ++token) {
      a.condition(four, {&token, 1});
      b.condition(two, {&token, 1});
      for (Token x = 0; x < 5; ++x) EXPECT_EQ(a.prob(x), b.prob(x));
    }
  }
}

TEST(NgramFile, WhatIsNoNgramModelIsRefused) {
  TempDir dir;
  const std::string path = (dir.path() / "ngrams").string(), hash(64, 'a');
  NgramFile::Builder builder(64, hash);
  builder.add(std::vector<Token>{1, 2, 1, 3});
  builder.add(std::vector<Token>{2});
  builder.write(path, 2);
  const auto open = [&] { NgramFile::open(path).require(64, hash); };
  EXPECT_EQ(message_of(open), "no error");
  EXPECT_EQ(NgramFile::open(path).nodes(1), 3u);
  EXPECT_EQ(NgramFile::open(path).nodes(2), 3u);
  EXPECT_THAT(message_of([&] { NgramFile::open(path).require(65, hash); }), HasSubstr("vocabulary of 64"));
  EXPECT_THAT(message_of([&] { NgramFile::open(path).require(64, std::string(64, 'b')); }),
              HasSubstr("another tokenizer"));
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto with = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return message_of(open);
  };
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(with(good.substr(0, size)), "no error") << size;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char bit : {0x01, 0x40}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ bit);
      EXPECT_NE(with(bad), "no error") << at;
    }
  }
  EXPECT_THAT(with(good.substr(0, good.size() - 4)), HasSubstr("a whole n-gram model"));
  EXPECT_THAT(with(good.substr(0, good.size() - 1) + "x"), HasSubstr("checksum"));
  Datastore::Builder other(64, hash);
  other.add(std::vector<Token>{1, 2});
  other.write(path);
  EXPECT_THAT(message_of(open), HasSubstr("another kind"));
  EXPECT_THAT(message_of([&] { NgramFile::Builder(4, "").write(path, 2); }), HasSubstr("no tokens"));
}

// A malicious file can have a valid checksum, so its contents are checked too.
TEST(NgramFile, ImpossibleNgramsAreRefused) {
  TempDir dir;
  const std::filesystem::path path = dir.path() / "ngrams";
  constexpr TokenFile::Kind kind{{'S', 'P', 'E', 'C', 'N', 'G', 'R', 'M'}, 1, "n-gram model", ""};
  using Level = std::vector<std::array<std::uint32_t, 4>>;  // token, count, left, first child
  const auto error_of = [&](const std::vector<Level>& levels) -> std::string {
    std::vector<std::span<const std::byte>> sections;
    for (const Level& level : levels) sections.push_back(std::as_bytes(std::span(level)));
    TokenFile::write(path, kind, 8, "", sections);
    return message_of([&] { NgramFile::open(path); });
  };
  const Level unigrams{{1, 2, 1, 0}, {3, 1, 1, 1}}, bigrams{{3, 1, 1, 0}, {1, 1, 1, 0}};
  EXPECT_EQ(error_of({unigrams, bigrams}), "no error");
  const auto changed = [](Level level, std::size_t entry, std::size_t field, std::uint32_t value) {
    level[entry][field] = value;
    return level;
  };
  EXPECT_THAT(error_of({}), HasSubstr("no n-grams"));
  EXPECT_THAT(error_of({{}, bigrams}), HasSubstr("invalid n-grams"));
  EXPECT_THAT(error_of({changed(unigrams, 0, 0, 8), bigrams}), HasSubstr("invalid n-grams"));
  EXPECT_THAT(error_of({changed(unigrams, 0, 0, 3), bigrams}), HasSubstr("invalid n-grams"));
  EXPECT_THAT(error_of({changed(unigrams, 0, 0, 0xffffffff), bigrams}), HasSubstr("invalid n-grams"));
  EXPECT_THAT(error_of({changed(unigrams, 0, 1, 0), bigrams}), HasSubstr("invalid n-grams"));
  EXPECT_THAT(error_of({changed(unigrams, 0, 2, 0), bigrams}), HasSubstr("invalid n-grams"));
  EXPECT_THAT(error_of({changed(unigrams, 0, 3, 1), bigrams}), HasSubstr("invalid n-grams"));
  EXPECT_THAT(error_of({changed(unigrams, 1, 3, 3), bigrams}), HasSubstr("invalid n-grams"));
  EXPECT_THAT(error_of({changed(unigrams, 1, 3, 0), bigrams}), HasSubstr("invalid n-grams")) << "3 before 1";
  EXPECT_THAT(error_of({unigrams, changed(bigrams, 1, 3, 1)}), HasSubstr("invalid n-grams"));
}

}  // namespace
}  // namespace speclab::ngram_test
