#include <algorithm>
#include <string>
#include <vector>

#include "core/backend/cuda/runtime/cuda_backend.h"
#include "core/base/error.h"

// The linear layers of CudaBackend.

namespace speclab::cuda {
namespace {

std::size_t at(int row, int width) { return static_cast<std::size_t>(row) * static_cast<std::size_t>(width); }

/// Calls portion(first, rows) for portions of at most kMostRows rows.
template <typename Portion>
void in_portions(int n, const Portion& portion) {
  for (int first = 0; first < n; first += kMostRows) portion(first, std::min(kMostRows, n - first));
}

}  // namespace

// Writes norm(x), or x if there is no norm, to activations_. If the product computes the norm itself, returns
// the arguments of the norm instead.
NormedRow CudaBackend::round_norm(const NormForm& form, const float* x, int rows, int width) {
  const NormOf kind = form.layer ? NormOf::kLayer : NormOf::kRms;
  if (form.weight == nullptr) {
    start("round_rows", RoundRows{x, width, rows, width, activations_.data()});
    return {};
  }
  if (can_norm(rows, width)) return {x, kind, form.weight, form.bias, form.eps};
  Norm norm = norm_of(kind, x, form.weight, form.eps, rows, width);
  norm.x_stride = width;
  norm.bias = form.bias;
  norm.activations = activations_.data();
  start(form.layer ? "layer_norm" : "rms_norm", norm);
  return {};
}

// Returns the arguments of the product W activations_. The caller sets the destination.
Linear CudaBackend::linear_of(const PackedMatrix& w, int rows) const {
  Linear product;
  product.weights = static_cast<const Bf16*>(w.data.get());
  product.out = w.out;
  product.in = w.in;
  product.activations = activations_.data();
  product.rows = rows;
  product.partials = partials_.data();
  product.arrivals = arrivals_.data();
  return product;
}

// Starts the product y (+)= W activations_. If norm.x is not null, the normed row replaces activations_.
void CudaBackend::product(const PackedMatrix& w, int rows, float* y, bool accumulate, const NormedRow& norm) {
  Linear product = linear_of(w, rows);
  product.norm = norm;
  product.y = y;
  product.y_stride = w.out;
  product.accumulate = accumulate;
  start("linear", product);
}

// Allocates the buffers that products with a matrix [out, in] need. They are allocated now so that no buffer
// moves while products run.
void CudaBackend::reserve(int out, int in) {
  const LinearPlan plan = plan_of(out, in, kMostRows);
  room(activations_, activation_elements(kMostRows, in));
  room(activated_, activation_elements(kMostRows, in));
  room(partials_, plan.partials);
  const auto meeting = static_cast<std::size_t>(plan.meeting);
  if (meeting <= arrivals_.size()) return;
  const std::vector<simt::u32> none(meeting);
  upload(none.data(), meeting * sizeof(simt::u32), room(arrivals_, meeting));
}

void CudaBackend::linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate) {
  in_portions(n, [&](int first, int rows) {
    start("round_rows", RoundRows{x + at(first, w.in), w.in, rows, w.in, activations_.data()});
    product(w, rows, y + at(first, w.out), accumulate);
  });
}

void CudaBackend::prompt_linear(const PackedMatrix& w, const float* x, int n, float* y, bool accumulate) {
  SPECLAB_CHECK(n <= prompt_rows_.most && !launcher_.recording(),
                "{} rows of a prompt, at most {} and not in a recording", n, prompt_rows_.most);
  if (n == 0) return;
  simt::u16* weights = room(plain_weights_, at(w.out, w.in));
  simt::u16* plain = room(plain_, at(n, w.in));
  start("unpack_weights", UnpackWeights{static_cast<const Bf16*>(w.data.get()), w.out, w.in, weights});
  start("round_plain", RoundPlain{x, n, w.in, plain});
  const PlainProduct product{weights, plain, y, w.out, w.in, n, accumulate};
  if (library_) library_->product(product), launcher_.separate();
  else plain_product(product);
}

void CudaBackend::norm_linear(const NormForm& form, const float* x, const PackedMatrix& w, int n,
                              float* /*scratch*/, float* y) {
  in_portions(n, [&](int first, int rows) {
    const NormedRow norm = round_norm(form, x + at(first, w.in), rows, w.in);
    product(w, rows, y + at(first, w.out), false, norm);
  });
}

void CudaBackend::feed_forward(const NormForm& norm, const float* x, const FeedForward& form, int n,
                               float* normed, float* raised, float* activated, float* y, bool accumulate) {
  const PackedMatrix& up = *form.up;
  if (!form.gated || !can_activate(up.out, up.in))
    return Backend::feed_forward(norm, x, form, n, normed, raised, activated, y, accumulate);
  in_portions(n, [&](int first, int rows) {
    const NormedRow normed_row = round_norm(norm, x + at(first, up.in), rows, up.in);
    Linear gating = linear_of(up, rows);
    gating.norm = normed_row;
    gating.bias = form.up_bias;
    gating.activated = activated_.data();
    gating.function = form.function;
    start("linear", gating);
    Linear product = linear_of(*form.down, rows);
    product.activations = activated_.data();
    product.y = y + at(first, form.down->out);
    product.y_stride = form.down->out;
    product.accumulate = accumulate;
    start("linear", product);
  });
}

void CudaBackend::activate_linear(Activation f, bool gated, const float* x, const PackedMatrix& w, int n,
                                  float* /*scratch*/, float* y, bool accumulate) {
  in_portions(n, [&](int first, int rows) {
    start("activate", Activate{f, gated, x + at(first, gated ? 2 * w.in : w.in), rows, w.in, nullptr,
                               activations_.data()});
    product(w, rows, y + at(first, w.out), accumulate);
  });
}

void CudaBackend::attention_linear(const float* qkv, int heads, const KvStore& kv, int layer,
                                   const RowsInFlight& rows, const AttentionForm& form, const PackedMatrix& w,
                                   float* scratch, float* y, bool accumulate) {
  if (rows.n > kMostRows)
    return Backend::attention_linear(qkv, heads, kv, layer, rows, form, w, scratch, y, accumulate);
  if (rows.n == 0) return;
  attend(qkv, heads, kv, layer, rows, form, nullptr, activations_.data());
  product(w, rows.n, y, accumulate);
}

}  // namespace speclab::cuda
