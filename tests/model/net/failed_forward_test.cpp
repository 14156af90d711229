#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend/cuda/runtime/cuda_backend.h"
#include "core/base/error.h"
#include "tests/model/net/session_life.h"

// A forward that begins and then fails leaves no rows in flight.

namespace speclab::failed_forward_test {
namespace {

using namespace speclab::fixtures;

/// A simulated GPU that can be told to fail when rows are fetched from it.
class FailingBackend final : public cuda::CudaBackend {
 public:
  FailingBackend() : CudaBackend({.simulated = true}, CudaKernels::kLaunches) {}
  void download(const void* from, std::size_t bytes, void* host) override {
    if (fails) throw Error({"the device", "no answer", "the logits", ""});
    CudaBackend::download(from, bytes, host);
  }
  bool fails = false;
};

TEST(FailedForward, LeavesNoRowsInFlight) {
  TempDir dir;
  write_huggingface(dir.path(), random_llama(tiny_shape(), 3));
  const auto backend = std::make_shared<FailingBackend>();
  const auto model = Model::load(Checkpoint::open(dir.path()), backend, {});
  const auto first = model->open(20), second = model->open(20);
  for (const auto& session : {first.get(), second.get()}) session->prefill(std::vector<Token>{1, 2, 3});
  const auto width = static_cast<std::size_t>(model->config().head_rows());
  std::vector<float> logits(width), expected(width);
  const std::vector<Token> token{4};
  const std::vector<std::int32_t> root{-1}, child{0}, row{0};
  first->forward(token, root, row, expected.data());

  // Rows are added to those of the first session, and the second session has its first ones.
  std::vector<Feed> feeds{{first.get(), token, child, row, logits.data()},
                          {second.get(), token, root, row, logits.data()}};
  feeds[0].continues = true;
  backend->fails = true;
  EXPECT_THROW(model->forward(feeds), Error);
  backend->fails = false;
  EXPECT_EQ(first->in_flight(), 0);
  EXPECT_EQ(second->in_flight(), 0);
  EXPECT_EQ(first->length(), 3);
  EXPECT_THROW(first->commit(std::vector<int>{0}), Bug) << "there is nothing to commit";

  // The sessions can be used again.
  for (const auto& session : {first.get(), second.get()}) {
    session->forward(token, root, row, logits.data());
    EXPECT_EQ(logits, expected);
    EXPECT_EQ(session->in_flight(), 1);
  }
}

// What is refused changes nothing, also if it is refused in the second of two feeds.
TEST(FailedForward, ARefusedTreeKeepsTheRowsBefore) {
  TempDir dir;
  write_huggingface(dir.path(), random_llama(tiny_shape(), 3));
  const auto model = Model::load(Checkpoint::open(dir.path()), make_cpu_backend({1, "f32"}), {});
  const auto first = model->open(20), second = model->open(20);
  const std::vector<Token> token{4}, two{4, 5};
  const std::vector<std::int32_t> root{-1}, child{0}, wrong{0, 7};
  for (const auto& session : {first.get(), second.get()}) session->forward(token, root, {}, nullptr);
  std::vector<Feed> feeds{{first.get(), token, root, {}}, {second.get(), two, wrong, {}}};
  feeds[1].continues = true;
  EXPECT_THROW(model->forward(feeds), Bug);  // row 2 cannot have parent 7
  EXPECT_EQ(first->in_flight(), 0) << "its rows were added and not computed";
  EXPECT_EQ(second->in_flight(), 1);
  second->commit(std::vector<int>{0});
  EXPECT_EQ(second->length(), 1);
}

}  // namespace
}  // namespace speclab::failed_forward_test
