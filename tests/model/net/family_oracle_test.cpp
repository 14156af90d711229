#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/model/net/session.h"

// Compares every family with transformers in float32 (scripts/oracle/families.py wrote the models and the
// logits): prefill and cached steps within 1e-4 of the largest logit. The branches of a tree have the bits of
// separate chains.

namespace speclab::family_oracle_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path folder(const std::string& name) {
  return fs::path(SPECLAB_SOURCE_DIR) / "tests/golden/families" / name;
}

std::shared_ptr<const Model> load_family(const std::string& name, int threads = 2,
                                         const char* numerics = "f32") {
  return Model::load(Checkpoint::open(folder(name)), make_cpu_backend({threads, numerics}), {});
}

std::unique_ptr<Session> open(const Model& model, int capacity = 64) {
  return model.open(std::min(capacity, model.config().context));
}

/// Logits of all tokens, in one forward. [tokens, vocab]
std::vector<float> feed(Session& session, TokenSpan tokens, std::span<const std::int32_t> parents) {
  std::vector<std::int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(tokens.size() * static_cast<std::size_t>(session.model().config().vocab));
  session.forward(tokens, parents, rows, logits.data());
  return logits;
}

std::vector<float> chain(Session& session, TokenSpan tokens) {
  std::vector<std::int32_t> parents(tokens.size()), path(tokens.size());
  std::iota(parents.begin(), parents.end(), -1);
  std::iota(path.begin(), path.end(), 0);
  std::vector<float> logits = feed(session, tokens, parents);
  session.commit(path);
  return logits;
}

std::vector<float> steps(Session& session, TokenSpan tokens) {
  std::vector<float> out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<float> row = chain(session, tokens.subspan(i, 1));
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

const std::vector<std::string> kFamilies{"llama",         "llama_linear",
                                         "llama_dynamic", "llama_llama3",
                                         "llama_yarn",    "llama_yarn_ramp",
                                         "mistral",       "qwen2",
                                         "qwen2_windows", "qwen3",
                                         "gpt2",          "opt",
                                         "pythia",        "neox_sequential",
                                         "gemma2",        "gemma3",
                                         "smollm3",       "phi3",
                                         "phi3_longrope", "phi3_longrope_short"};

TEST(FamilyOracle, EveryGoldenModelIsTested) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder(""))) found.push_back(entry.path().filename());
  EXPECT_THAT(found, testing::UnorderedElementsAreArray(kFamilies));
}

class FamilyOracle : public testing::TestWithParam<std::string> {
 protected:
  FamilyOracle() {
    std::ifstream file(folder(GetParam()) / "golden.json");
    golden_ = Json::parse(file);
    tokens_ = golden_["tokens"].get<std::vector<Token>>();
    begin_ = golden_["begin"];
    capacity_ = golden_.value("capacity", capacity_);
  }

  // rows: of positions 0, 1, ...
  void expect_golden(const char* which, std::span<const float> rows, std::size_t vocab) {
    double worst = 0;
    for (const auto& [text, expected] : golden_[which].items()) {
      const std::size_t position = std::stoul(text);
      const auto values = expected.get<std::vector<double>>();
      ASSERT_EQ(values.size(), vocab);
      ASSERT_LE((position + 1) * vocab, rows.size());
      const double largest = std::abs(*std::max_element(
          values.begin(), values.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
      for (std::size_t i = 0; i < vocab; ++i)
        worst = std::max(worst, std::abs(rows[position * vocab + i] - values[i]) / largest);
    }
    EXPECT_LE(worst, 1e-4) << which;
    RecordProperty(std::string(which) + "_worst", std::to_string(worst));
  }

  Json golden_;
  std::vector<Token> tokens_;
  std::size_t begin_;
  int capacity_ = 64;
};

TEST_P(FamilyOracle, LogitsEqualTransformers) {
  const auto model = load_family(GetParam());
  const auto vocab = static_cast<std::size_t>(model->config().vocab);
  const auto whole = open(*model, capacity_), pieces = open(*model, capacity_);
  const std::vector<float> prefill = chain(*whole, tokens_);
  expect_golden("prefill", prefill, vocab);
  std::vector<float> stepped = chain(*pieces, TokenSpan(tokens_).first(begin_));
  const std::vector<float> rest = steps(*pieces, TokenSpan(tokens_).subspan(begin_));
  stepped.insert(stepped.end(), rest.begin(), rest.end());
  expect_golden("steps", stepped, vocab);
  EXPECT_TRUE(same_bits(prefill, stepped));
  for (const int threads : {1, 3}) {
    EXPECT_TRUE(same_bits(prefill, chain(*open(*load_family(GetParam(), threads), capacity_), tokens_)))
        << threads << " threads";
  }
}

// Three branches that diverge at different depths, in mixed order.
TEST_P(FamilyOracle, BranchesOfATreeAreChains) {
  for (const char* numerics : {"f32", "f32-kv16"}) {
    const auto model = load_family(GetParam(), 2, numerics);
    const auto vocab = static_cast<std::size_t>(model->config().vocab);
    const std::vector<std::int32_t> parents{-1, 0, 0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16};
    std::vector<Token> tree(parents.size());
    for (std::size_t i = 0; i < tree.size(); ++i) tree[i] = static_cast<Token>((i * 37 + 5) % vocab);
    const std::size_t committed = 21;
    const auto session = open(*model, capacity_);
    session->prefill(TokenSpan(tokens_).first(committed));
    const std::vector<float> logits = feed(*session, tree, parents);
    for (std::size_t leaf = 0; leaf < tree.size(); ++leaf) {
      std::vector<std::size_t> path;
      for (std::int32_t node = static_cast<std::int32_t>(leaf); node >= 0;
           node = parents[static_cast<std::size_t>(node)])
        path.insert(path.begin(), static_cast<std::size_t>(node));
      std::vector<Token> alone(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(committed));
      for (const std::size_t node : path) alone.push_back(tree[node]);
      const std::vector<float> expected = steps(*open(*model, capacity_), alone);
      for (std::size_t i = 0; i < path.size(); ++i) {
        ASSERT_TRUE(same_bits(std::span(logits).subspan(path[i] * vocab, vocab),
                              std::span(expected).subspan((committed + i) * vocab, vocab)))
            << numerics << " node " << path[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyOracle, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return info.param; });

// --- a draft that skips layers keeps each layer's window and rotation -------------------------------------

std::vector<float> last_row(const Model& model, const std::vector<Token>& tokens) {
  const auto session = open(model);
  std::vector<float> logits(static_cast<std::size_t>(model.config().vocab));
  session->prefill(tokens, logits.data());
  return logits;
}

TEST(FamilyLayers, KeepTheirWindow) {
  const auto model = load_family("gemma3");  // windows of 6 in layers 0 and 1, none in layer 2
  std::vector<Token> tokens(20, 7), other = tokens;
  other[13] = 8;  // the last row sees positions 14 to 19
  const auto sliding = Model::with_layers(model, {1}), full = Model::with_layers(model, {2});
  EXPECT_TRUE(same_bits(last_row(*sliding, tokens), last_row(*sliding, other)));
  EXPECT_FALSE(same_bits(last_row(*full, tokens), last_row(*full, other)));
  other = tokens;
  other[14] = 8;
  EXPECT_FALSE(same_bits(last_row(*sliding, tokens), last_row(*sliding, other)));
}

TEST(FamilyLayers, KeepTheirRotation) {
  const auto model =
      load_family("smollm3");  // layer 1 does not rotate, so it does not see the order of earlier tokens
  const std::vector<Token> tokens{3, 40, 77, 5, 9}, other{77, 3, 5, 40, 9};
  const auto difference = [&](const std::vector<int>& layers) {
    const auto part = Model::with_layers(model, layers);
    const auto a = last_row(*part, tokens), b = last_row(*part, other);
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max<double>(most, std::abs(a[i] - b[i]));
    return most;
  };
  EXPECT_LT(difference({1}), 1e-4);
  EXPECT_GT(difference({0}), 1e-2);
}

// --- LongRoPE: the capacity of the session decides which factors are used -------------------------------------

TEST(FamilyLongRope, SessionsTurnByTheirCapacity) {
  const auto model = load_family("phi3_longrope");  // original context: 44
  std::vector<Token> tokens(30);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>((i * 29 + 3) % 112);
  const auto within = [&](int capacity) { return chain(*open(*model, capacity), tokens); };
  EXPECT_TRUE(same_bits(within(30), within(44)));
  EXPECT_TRUE(same_bits(within(45), within(64)));
  EXPECT_FALSE(same_bits(within(44), within(45)));
  EXPECT_TRUE(same_bits(within(44), chain(*open(*model, 44)->fork(), tokens)));
  const auto small = open(*model, 44), large = open(*model, 45);
  EXPECT_THROW(small->copy(*large), std::logic_error);
}

// --- operations and bytes ---------------------------------------------------------------------------------

TEST(FamilyWork, CountsTwoMatricesOfAnUngatedFeedForward) {
  const auto model = load_family("gpt2");
  const ModelConfig& c = model->config();
  const double layer = 4.0 * c.hidden * c.hidden + 2.0 * c.hidden * c.ffn, head = 1.0 * c.vocab * c.hidden;
  const Work work = model->work(1, 1, 10, 11);
  EXPECT_EQ(c.ffn, 128);
  EXPECT_EQ(work.flops, 2 * (c.layers * layer + head) + 4.0 * c.layers * c.hidden * 11);
  EXPECT_EQ(work.weight_bytes, 2 * (c.layers * layer + head));
  EXPECT_EQ(work.kv_bytes, 2.0 * c.layers * c.hidden * 4 * (10 + 2));
}

TEST(FamilyWork, CountsTheKeysThatAWindowShows) {
  const auto model = load_family("gemma3");  // windows 6, 6, none
  const ModelConfig& c = model->config();
  const auto session = open(*model);
  std::vector<Token> tokens(20, 1);
  session->prefill(tokens);
  const Work before = session->work();
  const std::vector<std::int32_t> parents{-1, 0, 0}, rows{0};
  std::vector<float> logits(static_cast<std::size_t>(c.vocab));
  session->forward(TokenSpan(tokens).first(3), parents, rows, logits.data());
  const Work work = session->work() - before;
  const double layer = c.hidden * (2.0 * c.query_width() + 2.0 * c.kv_width()) + 3.0 * c.hidden * c.ffn;
  const double keys = 2 * (6 + 6 + 6) + (21 + 22 + 22);
  EXPECT_EQ(work.flops, 2 * (3 * c.layers * layer + 1.0 * c.vocab * c.hidden) + 4.0 * c.query_width() * keys);
  EXPECT_EQ(work.kv_bytes, 2.0 * c.kv_width() * 4 * ((5 + 5 + 20) + c.layers * 2 * 3));
  EXPECT_EQ(work.keys, 65);
}

}  // namespace
}  // namespace speclab::family_oracle_test
