#pragma once

#include <cstdint>
#include <functional>
#include <span>

// Taps return hidden states of a forward besides its logits, for drafters that read them (Medusa, Hydra,
// EAGLE).
//
// A hidden state is named by its layer, as in output_hidden_states of transformers: layer l is the residual
// stream after the first l decoder layers, so layer 0 is the output of the embedding. In a forward that
// skips layers, layer l is the stream after all layers with a number below l that the forward runs.

namespace speclab {

/// Stands for the state after the final norm, which the output head reads. transformers returns this state as
/// the last entry.
inline constexpr int kFinalNorm = -1;

/// The memory that a pointer belongs to. Both values mean the same memory if Backend::host_memory() is true.
enum class Memory : std::uint8_t { kHost, kBackend };

/// Asks a forward for the hidden states of one layer. Taps do not change the bits of logits, and the bits of
/// a node's states do not depend on what else is fed.
struct Tap {
  int layer = kFinalNorm;               ///< 0 .. ModelConfig::layers, or kFinalNorm
  float* out = nullptr;                 ///< [nodes, hidden]
  std::span<const std::int32_t> nodes;  ///< nodes of the feed, in the order of `out`; empty: all
  /// With kBackend, `out` is in the backend's memory and nothing is downloaded; Session::fetch_states() can
  /// fetch rows to the host later.
  Memory memory = Memory::kHost;
};

/// The hidden states of one chunk of a prompt.
struct PromptStates {
  int begin = 0;  ///< first token of the chunk, counted from the start of the prefill
  int count = 0;
  std::span<const float* const>
      layers;  ///< for each entry of PromptTaps::layers: [count, hidden], on the host
};

/// Asks a prefill for the hidden states of all its tokens. They come chunk by chunk, in order; only one chunk
/// is in memory at a time.
struct PromptTaps {
  std::span<const int> layers;                    ///< as Tap::layer
  std::function<void(const PromptStates&)> take;  ///< called after each chunk; the states are valid until it
                                                  ///< returns
};

}  // namespace speclab
