#include "core/backend/backend.h"

#include "core/backend/device_timer.h"
#include "core/base/error.h"

namespace speclab {

Buffer<float> Backend::keep(std::vector<float> numbers) {
  const std::size_t size = numbers.size();
  if (size == 0) return {};
  if (host_memory()) {
    auto kept = std::make_shared<std::vector<float>>(std::move(numbers));
    float* data = kept->data();
    return {std::move(kept), data, size};
  }
  Buffer<float> buffer = allocate_buffer<float>(size);
  upload(numbers.data(), size * sizeof(float), buffer.data());
  return buffer;
}

std::shared_ptr<Backend> Backend::beside(int) const { return nullptr; }

const std::int32_t* Backend::stage(std::span<const std::int32_t> numbers, Buffer<std::int32_t>& buffer) {
  if (host_memory()) return numbers.data();
  std::int32_t* copy = room(buffer, numbers.size());
  upload(numbers.data(), numbers.size_bytes(), copy);
  return copy;
}

void Backend::submit() {}
bool Backend::idle() { return true; }
std::unique_ptr<DeviceTimer> Backend::make_timer() { return nullptr; }

bool Backend::linear_noting(const PackedMatrix&, const float*, int, float*, float*) { return false; }
void Backend::prompt_linear(const PackedMatrix&, const float*, int, float*, bool) {
  throw Bug(fmt::format("prompt_linear() called on backend {}, which does not have it", name()));
}

void Backend::norm_linear(const NormForm& norm, const float* x, const PackedMatrix& w, int n, float* scratch,
                          float* y) {
  if (norm.layer) layer_norm(x, norm.weight, norm.bias, norm.eps, n, w.in, scratch);
  else rms_norm(x, norm.weight, norm.eps, n, w.in, scratch);
  linear(w, scratch, n, y, false);
}

void Backend::activate_linear(Activation f, bool gated, const float* x, const PackedMatrix& w, int n,
                              float* scratch, float* y, bool accumulate) {
  if (gated && f == Activation::kSilu) silu_multiply(x, n, w.in, scratch);
  else activate(f, gated, x, n, w.in, scratch);
  linear(w, scratch, n, y, accumulate);
}

void Backend::feed_forward(const NormForm& norm, const float* x, const FeedForward& form, int n,
                           float* normed, float* raised, float* activated, float* y, bool accumulate) {
  if (norm.weight == nullptr) linear(*form.up, x, n, raised, false);
  else norm_linear(norm, x, *form.up, n, normed, raised);
  if (form.up_bias != nullptr) add_bias(form.up_bias, n, form.up->out, raised);
  activate_linear(form.function, form.gated, raised, *form.down, n, activated, y, accumulate);
}

void Backend::attention_linear(const float* qkv, int heads, const KvStore& kv, int layer,
                               const RowsInFlight& rows, const AttentionForm& form, const PackedMatrix& w,
                               float* scratch, float* y, bool accumulate) {
  attention(qkv, heads, kv, layer, rows, scratch, form);
  linear(w, scratch, rows.n, y, accumulate);
}

}  // namespace speclab
