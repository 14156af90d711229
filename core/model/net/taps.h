#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace speclab {

/// Hidden states that a forward hands out beside its logits, for drafters that read them (Medusa, Hydra,
/// EAGLE).
///
/// A hidden state is named by its layer, as in output_hidden_states of transformers: layer l is the residual
/// stream after the first l decoder layers of the model, so layer 0 is what the embedding gives. In a forward
/// that runs only some of the layers it is the stream after those of the first l that run.
/// kFinalNorm is the state after the final norm. The output head reads it, and transformers returns it as the
/// last entry.
inline constexpr int kFinalNorm = -1;

/// Which memory a pointer is of. The two are the same where Backend::host_memory() says so.
enum class Memory : std::uint8_t { kHost, kBackend };

/// Asks a forward for the hidden states of one layer. Logits have the same bits with taps and without, and
/// the states of a node have the same bits whatever else is fed.
struct Tap {
  int layer = kFinalNorm;               ///< 0 .. ModelConfig::layers, or kFinalNorm
  float* out = nullptr;                 ///< [nodes, hidden]
  std::span<const std::int32_t> nodes;  ///< of the feed, in the order wanted; empty: all
  /// kBackend: `out` is memory of the backend and nothing is downloaded. Session::fetch_states() brings
  /// chosen rows to the host later.
  Memory memory = Memory::kHost;
};

/// The hidden states of some successive tokens of a prompt.
struct PromptStates {
  int begin = 0;  ///< first token, counted from the first one of the prefill
  int count = 0;
  std::span<const float* const> layers;  ///< one for each of PromptTaps::layers: [count, hidden] on the host
};

/// Asks a prefill for the hidden states of all its tokens. They come chunk by chunk, in order, and only one
/// chunk is held at a time.
struct PromptTaps {
  std::span<const int> layers;                    ///< as Tap::layer
  std::function<void(const PromptStates&)> take;  ///< called after each chunk; the states are valid during it
};

}  // namespace speclab
