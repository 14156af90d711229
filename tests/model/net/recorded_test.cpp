#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "core/backend/attention_reader.h"
#include "core/backend/cuda/runtime/cuda_backend.h"
#include "tests/model/net/session_life.h"

// Forwards that are recorded once and replayed have the bits of forwards that are launched kernel by kernel.

namespace speclab::recorded_test {
namespace {

using namespace speclab::fixtures;

std::shared_ptr<const Model> tiny_on(CudaKernels kernels) {
  TempDir dir;
  Shape shape = tiny_shape();
  shape.context = 600;
  write_huggingface(dir.path(), random_llama(shape, 3));
  return Model::load(Checkpoint::open(dir.path()), make_cuda_backend({.simulated = true}, kernels), {});
}

/// One or two sessions of one model, with forwards of several sizes.
class Sessions {
 public:
  Sessions(CudaKernels kernels, int prompt, std::size_t sessions)
      : model_(tiny_on(kernels)), sessions_(sessions) {
    for (auto& session : sessions_) {
      session = model_->open(prompt + 60);
      session->prefill(std::vector<Token>(static_cast<std::size_t>(prompt), 5));
    }
  }
  Session& session(std::size_t which) { return *sessions_[which]; }
  const Model& model() const { return *model_; }
  /// Feeds a tree, keeps its logits, and commits its path 0, 1, .. length - 1.
  void feed(std::size_t which, const std::vector<std::int32_t>& parents, int length) {
    Session& session = *sessions_[which];
    std::vector<Token> tokens(parents.size());
    std::vector<std::int32_t> rows(parents.size());
    for (std::size_t i = 0; i < parents.size(); ++i)
      tokens[i] = static_cast<Token>((3 * logits.size() + i) % 50), rows[i] = static_cast<std::int32_t>(i);
    logits.emplace_back(rows.size() * static_cast<std::size_t>(model_->config().head_rows()));
    session.forward(tokens, parents, rows, logits.back().data());
    std::vector<int> path(static_cast<std::size_t>(length));
    std::iota(path.begin(), path.end(), 0);
    session.commit(path);
  }
  std::vector<std::vector<float>> logits;

 private:
  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

TEST(RecordedForwards, HaveTheBitsOfLaunches) {
  Sessions launches(CudaKernels::kLaunches, 20, 2), graphs(CudaKernels::kGraphs, 20, 2);
  const std::vector<std::int32_t> one{-1}, tree{-1, 0, 0, 1, 3};
  for (Sessions* both : {&launches, &graphs}) {
    for (int step = 0; step < 4; ++step) {
      both->feed(0, one, 1);
      both->feed(1, tree, 2);
      both->feed(0, tree, 2);
      if (step == 1) {  // more rows than before: the workspace moves
        const auto other = both->model().open(100);
        other->prefill(std::vector<Token>(90, 7));
      }
    }
  }
  EXPECT_EQ(graphs.logits, launches.logits);
  EXPECT_EQ(launches.session(0).replayed_forwards() + launches.session(1).replayed_forwards(), 0);
  // Each kind of forward runs once before it is recorded, and once more after the array of numbers has moved.
  EXPECT_EQ(graphs.session(0).replayed_forwards(), 2 * 2);
  EXPECT_EQ(graphs.session(1).replayed_forwards(), 2);
}

// A session keeps 64 graphs. If 64 sizes come again and again, all of them are replayed.
TEST(RecordedForwards, AsManySizesAsASessionKeeps) {
  Sessions graphs(CudaKernels::kGraphs, 4, 1);
  Session& session = graphs.session(0);
  std::vector<float> logits(11 * static_cast<std::size_t>(graphs.model().config().head_rows()));
  const auto forward = [&](int n, int wanted) {
    const std::vector<Token> tokens(static_cast<std::size_t>(n), 3);
    std::vector<std::int32_t> parents(tokens.size()), rows(static_cast<std::size_t>(wanted));
    std::iota(parents.begin(), parents.end(), -1);
    std::iota(rows.begin(), rows.end(), 0);
    session.forward(tokens, parents, rows, logits.data());
    session.commit({});
  };
  const auto all_sizes = [&] {
    int sizes = 0;
    for (int n = 11; n >= 1; --n) {
      for (int wanted = n; wanted >= 1 && sizes < 64; --wanted, ++sizes) forward(n, wanted);
    }
  };
  all_sizes();
  EXPECT_EQ(session.replayed_forwards(), 0);
  all_sizes();
  all_sizes();
  EXPECT_EQ(session.replayed_forwards(), 2 * 64);
}

// The bound of the committed keys doubles at 256.
TEST(RecordedForwards, CrossTheirBound) {
  Sessions launches(CudaKernels::kLaunches, 253, 1), graphs(CudaKernels::kGraphs, 253, 1);
  for (Sessions* both : {&launches, &graphs}) {
    for (int step = 0; step < 7; ++step) both->feed(0, {-1}, 1);
  }
  EXPECT_EQ(graphs.logits, launches.logits);
  EXPECT_EQ(graphs.session(0).replayed_forwards(), 5);
}

// A draft feeds the tokens of a chain one by one, each as a continuation of the ones before. Here the chain
// crosses a split of attention.
TEST(RecordedForwards, ContinueOthers) {
  Sessions launches(CudaKernels::kLaunches, 124, 1), graphs(CudaKernels::kGraphs, 124, 1);
  std::vector<float> all[2];
  for (const int which : {0, 1}) {
    Sessions& both = which == 0 ? launches : graphs;
    const auto vocab = static_cast<std::size_t>(both.model().config().head_rows());
    for (const std::int32_t length : {1, 1, 3, 3}) {
      std::vector<int> path;
      for (std::int32_t i = 0; i < length; ++i) {
        const Token token = 7 * i + length;
        const std::int32_t parent = i - 1, row = 0;
        std::vector<float> logits(vocab);
        Feed feed{&both.session(0), {&token, 1}, {&parent, 1}, {&row, 1}, logits.data()};
        feed.continues = i > 0;
        both.model().forward({&feed, 1});
        all[which].insert(all[which].end(), logits.begin(), logits.end());
        if (i < 2) path.push_back(i);
      }
      both.session(0).commit(path);
    }
  }
  EXPECT_EQ(all[1], all[0]);
  EXPECT_EQ(graphs.session(0).replayed_forwards(), 3 + 1 + 1);
}

/// A simulated GPU whose backend tells the attention. No backend of a device does so today.
class ReadingBackend final : public cuda::CudaBackend, public AttentionReader {
 public:
  ReadingBackend() : CudaBackend({.simulated = true}, CudaKernels::kGraphs) {}
  void read_attention(const float*, int, const KvStore&, int, const RowsInFlight& rows, const AttentionForm&,
                      float*) override {
    committed.push_back(rows.committed);
  }
  std::vector<int> committed;
};

// A replay would neither read the attention nor know the number of committed keys.
TEST(RecordedForwards, AttentionIsReadInEveryForward) {
  TempDir dir;
  write_huggingface(dir.path(), random_llama(tiny_shape(), 3));
  const auto backend = std::make_shared<ReadingBackend>();
  const auto model = Model::load(Checkpoint::open(dir.path()), backend, {});
  const auto session = model->open(40);
  session->prefill(std::vector<Token>(20, 5));
  std::vector<float> logits(static_cast<std::size_t>(model->config().head_rows())), mass(2 * 300);
  for (int step = 0; step < 4; ++step) {
    const Token token = 3;
    const std::int32_t root = -1, row = 0;
    Feed feed{session.get(), {&token, 1}, {&root, 1}, {&row, 1}, logits.data()};
    feed.attention = mass.data();
    backend->committed.clear();
    model->forward({&feed, 1});
    EXPECT_EQ(backend->committed, std::vector<int>(model->layers().size(), 20 + step));
    session->commit(std::vector<int>{0});
  }
  EXPECT_EQ(session->replayed_forwards(), 0);
}

class RecordedLife : public ::testing::TestWithParam<std::size_t> {};

TEST_P(RecordedLife, RowsHaveTheBitsOfAFreshPrefill) {
  Life life("host-simt-graphs", GetParam(), 1, 7);
  for (int step = 0; step < 6; ++step)
    ASSERT_TRUE(life.step()) << kLifeModels[GetParam()] << ", step " << step;
}
INSTANTIATE_TEST_SUITE_P(Models, RecordedLife, ::testing::Values(0, 2, 6, 8, 12));

}  // namespace
}  // namespace speclab::recorded_test
