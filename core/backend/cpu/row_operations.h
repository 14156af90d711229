#pragma once

#include "core/backend/backend.h"

// More operations on one row or a few rows, besides those in kernels.h. Most of them use Highway, too. Every
// vector width gives the same bits, and the result of a row does not depend on other rows.

namespace speclab::cpu {

/// out = (x - mean) / sqrt(variance + eps) * weight + bias; out may be x.
void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, int d, float* out);
/// out = f(x), or f(x) * up if `up` is not null.
void activate_row(Activation f, const float* x, const float* up, int n, float* out);
/// y += x
void add_row(const float* x, int n, float* y);
/// Copies x to out and finds the largest number of each row (any number if the row holds NaN). A single call
/// does all rows, because one call per row took three times as long. Rows of x [rows, width] are x_stride
/// apart, those of out are out_stride apart. The largest number of a row goes to largest[row *
/// largest_stride].
void copy_noting(const float* x, int x_stride, int rows, int width, float* out, int out_stride,
                 float* largest, int largest_stride);
/// x = cap * tanh(x / cap)
void soft_cap_row(float cap, int n, float* x);

/// out = x rounded to bf16, to nearest, ties to even, like float_to_bf16()
void round_row(const float* x, int n, Bf16* out);

}  // namespace speclab::cpu
