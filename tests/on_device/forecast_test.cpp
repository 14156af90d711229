#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/backend/cuda/kernels/linear/linear.h"
#include "core/backend/cuda_kernels.h"
#include "experiments/run/forward_times.h"
#include "tests/decoding/loop/loop_fixture.h"
#include "tests/on_device/on_device.h"

// Times by the device's clock, and the launches on which the forecast of results/gpu/forecast.json counts
// (scripts/gpu_check/forecast.py).

namespace speclab::on_device::forecast_test {
namespace {

using namespace speclab::fixtures;
using nlohmann::json;
using Counts = std::map<std::string, int>;

json forecast() {
  std::ifstream file(std::string(SPECLAB_SOURCE_DIR) + "/results/gpu/forecast.json");
  return json::parse(file);
}

/// A shape whose layers are as in the shapes of the forecast: whole heads in whole tiles, and a gate that
/// meets what it gates.
TinyModel model_of(int layers) {
  Shape shape = tiny_shape();
  shape.hidden = shape.embedding_dim = 256;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 64;
  shape.ffn = 160;
  shape.vocab = 200;
  shape.layers = layers;
  return random_llama(shape, 5);
}

const std::shared_ptr<Backend>& persistent() {
  static const auto* const made = new std::shared_ptr<Backend>(make_cuda_backend(
      {.device = ordinal(), .threads = 0, .simulated = !on_gpu()}, CudaKernels::kPersistent));
  return *made;
}

class OnDeviceForecast : public OnDevice {
 protected:
  static Counts kernels_of(const std::shared_ptr<Backend>& where, int layers, int rows) {
    ForwardTimer timer(*load_tiny_on(where, model_of(layers)), 4, rows);
    for (int time = 0; time < 2; ++time) timer.time(rows);  // the first one also makes room for buffers
    return with_products(timer.kernels());
  }
  /// The counts, with all kernels of linear layers as "linear". A fused launch has the name of its kernel.
  static Counts with_products(Counts counts) {
    for (const char* kernel : {"linear_few", "linear_many"}) {
      counts["linear"] += counts[kernel];
      counts.erase(kernel);
    }
    if (counts["linear"] == 0) counts.erase("linear");
    return counts;
  }
};

TEST_F(OnDeviceForecast, ItsLaunchesAreThoseOfTheProgram) {
  const json launches = forecast()["launches"];
  for (const int layers : {1, 3}) {
    for (const int rows : {1, 2}) {
      Counts expected = launches["forward"].get<Counts>();
      for (const auto& [kernel, count] : launches["layer"][rows == 1 ? "one_row" : "few_rows"].get<Counts>())
        expected[kernel] += layers * count;
      EXPECT_EQ(kernels_of(backend(), layers, rows), expected)
          << layers << " layers, " << rows
          << " rows. Change LAYER_KERNELS and FORWARD_KERNELS of forecast.py.";
    }
    const json& tasks = launches["persistent_tasks"];
    EXPECT_EQ(kernels_of(persistent(), layers, 1),
              (Counts{{"persistent", 1},
                      {"persistent task", layers * tasks["layer"].get<int>() + tasks["forward"].get<int>()}}))
        << layers << " layers. Change PERSISTENT_TASKS of forecast.py.";
  }
}

// Otherwise a layer of such a shape has one launch more than the forecast counts.
TEST_F(OnDeviceForecast, InItsShapesAGateMeetsWhatItGates) {
  const json shapes = forecast()["shapes"];
  EXPECT_EQ(shapes.size(), 4u);
  for (const auto& [name, shape] : shapes.items())
    EXPECT_TRUE(cuda::can_activate(2 * shape["ffn"].get<int>(), shape["hidden"].get<int>())) << name;
}

/// Notes what had reached the host when the measured part ended.
class WatchedTimer final : public DeviceTimer {
 public:
  explicit WatchedTimer(const std::vector<float>& logits) : logits_(logits) {}
  void begin() override { ++begun; }
  void stop() override {
    ++stopped;
    for (const float logit : logits_) downloaded += !std::isnan(logit);
  }
  double seconds() override { return 0; }
  int begun = 0, stopped = 0, downloaded = 0;

 private:
  const std::vector<float>& logits_;
};

TEST_F(OnDeviceForecast, TheMeasuredPartEndsBeforeTheDownload) {
  const auto model = load_tiny_on(backend(), model_of(1));
  const auto session = model->open(16);
  const std::vector<Token> tokens = {1, 2};
  const std::vector<std::int32_t> parents = {-1, 0}, rows = {0, 1};
  std::vector<float> logits(2 * static_cast<std::size_t>(model->config().head_rows()), std::nanf(""));
  WatchedTimer timer(logits);
  Feed feed{session.get(), tokens, parents, rows, logits.data()};
  feed.timer = &timer;
  model->forward({&feed, 1});
  EXPECT_EQ(timer.begun, 1);
  EXPECT_EQ(timer.stopped, 1);
  EXPECT_EQ(timer.downloaded, 0);
  for (const float logit : logits) EXPECT_FALSE(std::isnan(logit));
}

TEST_F(OnDeviceForecast, AForwardHasATimeOnTheDeviceAndOneWithTheDownload) {
  const auto model = load_tiny_on(backend(), model_of(2));
  ForwardTimer timer(*model, 4, 3);
  for (const int rows : {3, 1, 3}) {
    const ForwardTime time = timer.time(rows);
    ASSERT_TRUE(time.device_ns);
    EXPECT_GT(*time.device_ns, 0);
    EXPECT_LT(*time.device_ns, time.host_ns);
    EXPECT_EQ(time.computed_ns(), *time.device_ns);
  }
  const ForwardSamples samples = sample_forwards(*model, 4, {1, 2}, 3);
  EXPECT_EQ(samples.host.at(2).size(), 3u);
  EXPECT_EQ(samples.device.at(2).size(), 3u);
  EXPECT_EQ(with_products(samples.kernels.at(1)).at("linear"), 2 * 4 + 1);
  ForwardTimer on_host(*load_tiny_on(cpu(), model_of(2)), 4, 1);
  const ForwardTime time = on_host.time(1);
  EXPECT_FALSE(time.device_ns);
  EXPECT_EQ(time.computed_ns(), time.host_ns);
  EXPECT_TRUE(on_host.kernels().empty());
  EXPECT_EQ(cpu()->make_timer(), nullptr);
}

}  // namespace
}  // namespace speclab::on_device::forecast_test
