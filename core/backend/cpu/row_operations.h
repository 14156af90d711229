#pragma once

#include "core/backend/backend.h"

// One row of the operations that only some families of models have. As in kernels.h: Highway, any vector
// width gives the same bits, and a row does not know of others.

namespace speclab::cpu {

/// out = (x - mean) / sqrt(variance + eps) * weight + bias; out may be x.
void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, int d, float* out);
/// out = f(x), times `up` unless that is null.
void activate_row(Activation f, const float* x, const float* up, int n, float* out);
/// y += x
void add_row(const float* x, int n, float* y);
/// out = x, and the largest of each row, which may be any number where the row holds NaN. All `rows` in one
/// call: one for each took three times as long. x [rows, width] with rows x_stride apart, and so on;
/// largest[row * largest_stride].
void copy_noting(const float* x, int x_stride, int rows, int width, float* out, int out_stride,
                 float* largest, int largest_stride);
/// x = cap * tanh(x / cap)
void soft_cap_row(float cap, int n, float* x);

/// out = x as bf16, to nearest and ties to even, as float_to_bf16()
void round_row(const float* x, int n, Bf16* out);

}  // namespace speclab::cpu
