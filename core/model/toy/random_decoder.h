#pragma once

#include <cstdint>

#include "core/model/files/checkpoint.h"

namespace speclab::toy {

/// Sizes of a decoder with random weights. The defaults are those of a small model with real proportions.
struct DecoderSizes {
  int hidden = 256, layers = 2, heads = 4, kv_heads = 2, head_dim = 64, ffn = 512, vocab = 1024;
  int context = 512;
};

/// Opens a decoder of Llama's form with random weights, without leaving files behind. The matrices of the
/// layers keep the variance of their input. Logits have a standard deviation of about 4, so that most rows
/// have a clear maximum. The decoder has no tokenizer. Equal sizes and seeds give equal weights on every
/// machine. Throws Error if temporary files cannot be written.
Checkpoint open_random_decoder(const DecoderSizes& sizes, std::uint64_t seed);

}  // namespace speclab::toy
