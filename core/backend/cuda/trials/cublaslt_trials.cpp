#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/backend/cuda/runtime/cublaslt.h"
#include "core/backend/cuda/trials/trials.h"
#include "core/base/bf16.h"

namespace speclab::cuda {
namespace {

/// One matrix product to be timed. Launches use copies of the weights in turn, as many as fit into 256 MiB
/// (at least 1, at most 96). So a launch reads the weights from memory and not from a cache.
class Product {
 public:
  Product(Gpu& gpu, CublasLt& library, int out, int in, int rows)
      : gpu_(gpu), library_(library), timer_(gpu.make_timer()), out_(out), in_(in), rows_(rows) {
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
    batch(1);  // the first launch of a kernel loads its code
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
    timer_->begin();
    for (int i = 0; i < count; ++i) {
      const auto* weights =
          static_cast<const std::uint16_t*>(weights_.get()) + static_cast<std::size_t>(i) % copies_ * stride_;
      library_.product({weights, static_cast<const std::uint16_t*>(x_.get()), static_cast<float*>(y_.get()),
                        out_, in_, rows_, false});
    }
    return timer_->end() / count;
  }

  Gpu& gpu_;
  CublasLt& library_;
  std::unique_ptr<DeviceTimer> timer_;
  int out_, in_, rows_;
  std::shared_ptr<void> weights_, x_, y_;
  std::size_t copies_ = 1, stride_ = 0;
};

double measure(int ordinal, int out, int in, int rows) {
  static Gpu gpu(ordinal);
  static CublasLt library(gpu);
  return Product(gpu, library, out, in, rows).time();
}

}  // namespace

void add_cublaslt_trials(int ordinal, const Shapes& shapes, const std::vector<int>& rows,
                         std::vector<KernelTrial>& trials) {
  for (const auto& [out, in] : shapes) {
    for (const int n : rows) {
      trials.push_back({.name = fmt::format("cublaslt/rows:{}/out:{}/in:{}", n, out, in),
                        .bytes = 2.0 * out * in,
                        .flops = 2.0 * out * in * n,
                        .optional = true,
                        .ready = [=, out = out, in = in] {
                          return KernelTrial::Ready{[=] { return measure(ordinal, out, in, n); }, ""};
                        }});
    }
  }
}

}  // namespace speclab::cuda
