#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/backend/cuda/runtime/cuda_backend.h"
#include "core/backend/cuda_kernels.h"
#include "core/backend/device_program.h"
#include "core/decoding/registry.h"
#include "tests/model/net/target_model.h"
#include "tests/on_device/on_device.h"
#include "tests/decoding/loop/loop_fixture.h"

// Persistent kernels on the device: a forward in one launch has the bits of a forward with a launch per
// kernel.

namespace speclab::on_device::persistent_test {
namespace {

using namespace speclab::fixtures;

/// Backends of the same device, one for each kind of launch, never destroyed (on_device.h).
const std::shared_ptr<Backend>& backend_of(CudaKernels kernels) {
  static auto* const made = new std::map<CudaKernels, std::shared_ptr<Backend>>;
  auto& each = (*made)[kernels];
  if (!each) each = make_cuda_backend({.device = ordinal(), .threads = 0, .simulated = !on_gpu()}, kernels);
  return each;
}

/// Shapes with whole tiles of queries, keys and values, with sums in several slices, and with a narrow draft,
/// so that everything is fused in one case and not in another.
std::vector<Shape> shapes() {
  Shape wide = tiny_shape();
  wide.hidden = wide.embedding_dim = 256;
  wide.heads = 4;
  wide.kv_heads = 2;
  wide.head_dim = 64;
  wide.ffn = 160;
  wide.vocab = 200;
  Shape narrow = tiny_shape();
  narrow.head_dim = 12;
  narrow.tied_head = true;
  narrow.context = 2048;
  std::vector<Shape> all{wide, narrow};
  if (on_gpu()) {
    wide.context = 2048;
    wide.hidden = wide.embedding_dim = 576;
    wide.heads = 9;
    wide.kv_heads = 3;
    wide.ffn = 1536;
    wide.vocab = 49152;
    wide.layers = 6;
    all.push_back(wide);
  }
  return all;
}

class OnDevicePersistent : public OnDevice {
 protected:
  static std::vector<float> logits_of(const Model& model, int context,
                                      const std::vector<std::int32_t>& parents) {
    const auto session = model.open(context + 40);
    std::vector<Token> prompt(static_cast<std::size_t>(context)), tokens(parents.size());
    for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<Token>((7 * i + 3) % 60);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>((5 * i + 1) % 60);
    session->prefill(prompt);
    std::vector<std::int32_t> rows(parents.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> logits(rows.size() * static_cast<std::size_t>(model.config().head_rows()));
    session->forward(tokens, parents, rows, logits.data());
    return logits;
  }

  /// A chain of gamma tokens drafted by the first layer of the target.
  static Decode drafted_by_a_layer(const TinyModel& tiny, CudaKernels kernels, int gamma, json options) {
    const ModelPtr target = load_tiny_on(backend_of(kernels), tiny);
    return {.target = target,
            .draft = Model::with_layers(target, {0}),
            .strategy = choose("speculative_sampling", {{"gamma", gamma}}),
            .options = std::move(options)};
  }
  static void expect_same(const GenerationRecord& record, const GenerationRecord& expected) {
    EXPECT_EQ(record.tokens, expected.tokens);
    EXPECT_EQ(record.row_hashes, expected.row_hashes);
  }
};

TEST_F(OnDevicePersistent, RowsHaveTheBitsOfLaunches) {
  for (const Shape& shape : shapes()) {
    const TinyModel tiny = random_llama(shape, 5);
    const ModelPtr launches = load_tiny_on(backend_of(CudaKernels::kLaunches), tiny),
                   persistent = load_tiny_on(backend_of(CudaKernels::kPersistent), tiny);
    const auto compare = [&](int context, const std::vector<std::int32_t>& parents) {
      EXPECT_EQ(logits_of(*persistent, context, parents), logits_of(*launches, context, parents))
          << shape.hidden << " wide, behind " << context << " rows of parents "
          << testing::PrintToString(parents);
    };
    const std::vector<int> contexts =
        on_gpu() ? std::vector<int>{1, 127, 128, 129, 1000, 1500} : std::vector<int>{3, 126};
    for (const int context : contexts) {
      if (context + 40 > shape.context) continue;
      for (const int rows :
           on_gpu() ? std::vector<int>{1, 2, 3, 4, 5, 7, 8, 9, 16, 17} : std::vector<int>{1, 5, 9}) {
        std::vector<std::int32_t> chain(static_cast<std::size_t>(rows));
        std::iota(chain.begin(), chain.end(), -1);
        compare(context, chain);
      }
      compare(context, {-1, 0, 0, 1, 2, 2, 4});
    }
  }
}

// Repeats launches with the same table in the same place: no launch uses stale data of the one before.
TEST_F(OnDevicePersistent, DecodingIsThatOfLaunches) {
  for (const Shape& shape : shapes()) {
    const TinyModel tiny = random_llama(shape, 6);
    const auto run = [&](CudaKernels kernels) {
      return drafted_by_a_layer(tiny, kernels, 3, {{"max_tokens", size(12, 200)}, {"temperature", 1}}).run();
    };
    const GenerationRecord launches = run(CudaKernels::kLaunches);
    expect_same(run(CudaKernels::kPersistent), launches);
    if (on_gpu() || shape.hidden <= 100) expect_same(run(CudaKernels::kAuto), launches);
  }
}

// Whole steps on the device: a drafted chain is one launch, the target forward another. They are queued one
// by one, as graphs, and as a loop.
TEST_F(OnDevicePersistent, TheDevicesOwnLoopIsThatOfLaunches) {
  const TinyModel tiny = random_llama(shapes().front(), 7);
  const auto run = [&](CudaKernels kernels, json options, const char* graph) {
    options.update({{"max_tokens", size(9, 200)}, {"device_loop", "on"}, {"device_graph", graph}});
    return drafted_by_a_layer(tiny, kernels, 2, options).run();
  };
  for (const json& options :
       {json{{"temperature", 0}}, json{{"temperature", 1}}, json{{"temperature", 1}, {"coins", "gumbel"}}}) {
    if (!on_gpu() && options != json{{"temperature", 1}}) continue;
    const GenerationRecord launches = run(CudaKernels::kLaunches, options, "off");
    for (const char* graph : {"off", "round", "loop"}) {
      if (!on_gpu() && std::string(graph) == "round") continue;  // the same launches as in the loop
      SCOPED_TRACE(options.dump() + ", graph " + graph);
      const GenerationRecord record = run(CudaKernels::kPersistent, options, graph);
      expect_same(record, launches);
      EXPECT_EQ(record.planned_steps, static_cast<int>(record.steps.size()));
    }
  }
}

// What changes from one forward to the next is in memory of the device, so a text needs no new table until it
// reaches the next split of attention.
TEST_F(OnDevicePersistent, ATextNeedsOneTablePerSplit) {
  const TinyModel tiny = random_llama(shapes().front(), 3);
  const ModelPtr target = load_tiny_on(backend_of(CudaKernels::kPersistent), tiny);
  const auto& backend = dynamic_cast<const cuda::CudaBackend&>(*backend_of(CudaKernels::kPersistent));
  const auto tables = [&](int prompt, int tokens) {
    Decode decode{.target = target,
                  .strategy = choose("autoregressive"),
                  .options = {{"max_tokens", tokens}, {"temperature", 0}, {"device_loop", "off"}}};
    decode.prompt.assign(static_cast<std::size_t>(prompt), 7);
    const std::uint64_t before = backend.launcher().uploaded_tables();
    EXPECT_EQ(decode.run().tokens.size(), static_cast<std::size_t>(tokens));
    return backend.launcher().uploaded_tables() - before;
  };
  tables(20, 4);  // buffers grow
  EXPECT_LE(tables(20, 12), 1u);
  const std::uint64_t of_two_splits = tables(120, 18);
  EXPECT_GE(of_two_splits, 1u);
  EXPECT_LE(of_two_splits, 2u);
}

// A vocabulary whose rows have several blocks. They meet in memory that every launch, task and round of a
// loop leaves as it was.
TEST_F(OnDevicePersistent, RowsOfSeveralBlocks) {
  Shape shape = tiny_shape();
  shape.vocab = size(4300, 50000);
  shape.layers = 1;
  const TinyModel tiny = random_llama(shape, 9);
  const auto run = [&](CudaKernels kernels, json options, const char* loop, const char* graph) {
    options.update({{"max_tokens", size(5, 100)}, {"device_loop", loop}, {"device_graph", graph}});
    return drafted_by_a_layer(tiny, kernels, 2, options).run();
  };
  for (const json& options :
       {json{{"temperature", 0}}, json{{"temperature", 1}}, json{{"temperature", 1}, {"coins", "gumbel"}}}) {
    SCOPED_TRACE(options.dump());
    const GenerationRecord host = run(CudaKernels::kLaunches, options, "off", "off");
    expect_same(run(CudaKernels::kLaunches, options, "on", "off"), host);
    const GenerationRecord record = run(CudaKernels::kPersistent, options, "on", "loop");
    expect_same(record, host);
    EXPECT_EQ(record.planned_steps, static_cast<int>(record.steps.size()));
  }
}

// Drafts of the host with another size in every step: the verifying forward is one launch, and the ring holds
// its verdict.
TEST_F(OnDevicePersistent, VerdictsOnTheDeviceAreThoseOfLaunches) {
  const TinyModel tiny = random_llama(shapes().front(), 7);
  const auto run = [&](CudaKernels kernels, const char* graph) {
    Decode copies = drafted_by_a_layer(
        tiny, kernels, 2,
        {{"max_tokens", size(9, 200)}, {"temperature", 0}, {"device_loop", "on"}, {"device_graph", graph}});
    copies.strategy = choose("prompt_lookup", {{"ngram_min", 1}, {"candidates", 2}, {"length", 3}});
    copies.prompt = {3, 1, 4, 3, 1, 5, 3, 1};
    return copies.run();
  };
  const GenerationRecord launches = run(CudaKernels::kLaunches, "off");
  EXPECT_GT(drafted(launches), 0);
  for (const char* graph : {"off", "round"}) {
    SCOPED_TRACE(graph);
    const GenerationRecord record = run(CudaKernels::kPersistent, graph);
    expect_same(record, launches);
    EXPECT_EQ(record.verified_steps, static_cast<int>(record.steps.size()));
  }
}

// The launches that a recording sees, and memory that is freed while operations wait.
TEST_F(OnDevicePersistent, EnoughOperationsInARowAreOneLaunch) {
  Backend& backend = *backend_of(CudaKernels::kPersistent);
  const std::vector<float> ones(300, 1);
  const Buffer<float> x = backend.keep(ones), y = backend.keep(ones);
  const auto add = [&](int times) {
    for (int i = 0; i < times; ++i) backend.add(x.data(), 1, 300, y.data());
  };
  const auto kernels = [&](const std::function<void()>& operations) {
    const auto graph = backend.device_program()->record(false, operations);
    std::vector<std::string> names;
    for (const GraphNode& node : graph->nodes) names.emplace_back(node.kernel);
    backend.device_program()->replay(*graph);
    return names;
  };
  using testing::ElementsAre;
  EXPECT_THAT(kernels([&] { add(8); }), ElementsAre("persistent"));
  EXPECT_THAT(kernels([&] { add(2); }), ElementsAre("elementwise", "elementwise"));
  EXPECT_THAT(kernels([&] { add(8), backend.soft_cap(1000, 1, 300, x.data()), add(9); }),
              ElementsAre("persistent", "elementwise", "persistent"));
  add(5);
  {
    const Buffer<float> z = backend.keep(ones);  // needs memory, so waiting operations are launched
    for (int i = 0; i < 10; ++i) backend.add(z.data(), 1, 300, y.data());
    EXPECT_FALSE(backend.idle());  // only submit() launches them
    EXPECT_FALSE(backend.idle());
    backend.submit();  // z must outlive the operations
    EXPECT_TRUE(on_gpu() || backend.idle());
  }
  Buffer<float> grows = backend.allocate_buffer<float>(300);
  backend.add(x.data(), 1, 300, grows.data());
  EXPECT_FALSE(backend.idle());
  backend.room(grows, 600);  // waiting operations are launched before their memory is freed
  EXPECT_TRUE(on_gpu() || backend.idle());
  float sum = 0;
  backend.download(y.data() + 299, sizeof sum, &sum);
  EXPECT_TRUE(backend.idle());
  EXPECT_NEAR(sum, 1 + 8 + 2 + 8 + 9 + 5 + 10, 1e-3);
}

TEST_F(OnDevicePersistent, TheShippedDraftAndItsTarget) {
  if (!on_gpu()) GTEST_SKIP() << "too large for the simulated GPU";
  if (!std::filesystem::exists(target_file())) GTEST_SKIP() << "there is no target";
  const auto run = [](CudaKernels kernels) {
    const ModelPtr target = Model::load(Checkpoint::open(target_file()), backend_of(kernels), {});
    const ModelPtr draft = Model::load(
        Checkpoint::open(std::filesystem::path(SPECLAB_SOURCE_DIR) / "models/draft/smollm2-135m-instruct"),
        backend_of(kernels), {{}, target});
    return Decode{
        .target = target,
        .draft = draft,
        .strategy = choose("speculative_sampling", {{"gamma", 4}}),
        .options = {{"max_tokens", 100}},
        .prompt = target->tokenizer()->encode("The quick brown fox jumps over the lazy dog. The quick brown")}
        .run();
  };
  expect_same(run(CudaKernels::kPersistent), run(CudaKernels::kLaunches));
}

}  // namespace
}  // namespace speclab::on_device::persistent_test
