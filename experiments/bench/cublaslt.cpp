// cuBLASLt beside our linear layers, with the fastest of the algorithms that it proposes.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <vector>

#include "core/backend/cuda/runtime/cublaslt.h"
#include "experiments/bench/bench.h"

namespace speclab::bench {
namespace {

/// One product, its weights from memory each time.
class Product {
 public:
  Product(cuda::Gpu& gpu, cuda::CublasLt& library, int out, int in, int rows)
      : gpu_(gpu), library_(library), timer_(gpu), out_(out), in_(in), rows_(rows) {
    stride_ = elements(out, in);
    copies_ = std::clamp<std::size_t>((std::size_t{256} << 20) / (2 * stride_), 1, 96);
    weights_ = random(copies_ * stride_);
    x_ = random(elements(rows, in));
    y_ = gpu.allocate(4 * elements(rows, out));
    int fastest = 0;
    double best = 0;
    for (int i = 0; i < library.proposals(out, in, rows); ++i) {
      library.choose(out, in, rows, i);
      const double seconds = time();
      if (best == 0 || seconds < best) best = seconds, fastest = i;
    }
    library.choose(out, in, rows, fastest);
  }

  double time() {
    const double once = batch(1);
    return batch(std::clamp(static_cast<int>(2e-3 / once), 1, 500));
  }

 private:
  static std::size_t elements(int a, int b) {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
  }
  std::shared_ptr<void> random(std::size_t count) const {
    std::vector<std::uint16_t> part(std::min<std::size_t>(count, std::size_t{1} << 19));
    for (std::size_t i = 0; i < part.size(); ++i)
      part[i] = float_to_bf16(
          static_cast<float>(static_cast<std::uint32_t>(i) * 2654435761u >> 16) * 0x1p-22f - 0x1p-7f);
    std::shared_ptr<void> memory = gpu_.allocate(2 * count);
    for (std::size_t at = 0; at < count; at += part.size())
      gpu_.upload(part.data(), 2 * std::min(part.size(), count - at),
                  static_cast<std::uint16_t*>(memory.get()) + at);
    return memory;
  }
  double batch(int count) {
    timer_.begin();
    for (int i = 0; i < count; ++i) {
      const auto* weights =
          static_cast<const std::uint16_t*>(weights_.get()) + static_cast<std::size_t>(i) % copies_ * stride_;
      library_.product({weights, static_cast<const std::uint16_t*>(x_.get()), static_cast<float*>(y_.get()),
                        out_, in_, rows_, false});
    }
    return timer_.end() / count;
  }

  cuda::Gpu& gpu_;
  cuda::CublasLt& library_;
  cuda::GpuTimer timer_;
  int out_, in_, rows_;
  std::shared_ptr<void> weights_, x_, y_;
  std::size_t copies_ = 1, stride_ = 0;
};

void measure(benchmark::State& state, int device, int out, int in, int rows) {
  static cuda::Gpu gpu(device);
  static cuda::CublasLt library(gpu);
  Product product(gpu, library, out, in, rows);
  for (auto _ : state) state.SetIterationTime(product.time());
}

}  // namespace

void add_cublaslt(const Setting& setting, int device, const std::vector<std::pair<int, int>>& shapes,
                  const std::vector<int>& rows) {
  for (const auto& [out, in] : shapes) {
    for (const int n : rows) {
      add(
          fmt::format("cuda/cublaslt/rows:{}/out:{}/in:{}", n, out, in),
          [=, out = out, in = in](benchmark::State& state) {
            try {
              measure(state, device, out, in, n);
            } catch (const std::exception& problem) {
              state.SkipWithError(problem.what());
            }
            count_work(state, setting, 2.0 * out * in, 2.0 * out * in * n);
          },
          Clock::kManual)
          ->Iterations(1)
          ->Repetitions(kDeviceRepeats);
    }
  }
}

}  // namespace speclab::bench
