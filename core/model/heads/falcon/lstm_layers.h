#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model/heads/head_runner.h"

namespace speclab {

/// Layers of an LSTM (Hochreiter and Schmidhuber 1997), which read one position of several sequences at a
/// time. For each layer, with the input x, the output h and the cell c of the previous position (h = c = 0 at
/// the start), and s the logistic function:
///
///     i = s(W_i [x; h] + b_i),  f = s(W_f [x; h] + b_f),  g = tanh(W_g [x; h] + b_g),
///     o = s(W_o [x; h] + b_o),  c' = f c + i g,           h' = o tanh c'.
///
/// The next layer reads h'. Tensors of layer l: NAME.l.i.weight [d, inputs + d] and NAME.l.i.bias [d], and
/// the same for f, g and o. (PyTorch has one matrix for x and one for h, each with the rows of all four
/// gates, and two biases. The bias here is the sum of the two.)
class LstmLayers {
 public:
  /// `inputs`: the widths of the vectors that are the input of layer 0, one after the other. Throws Error
  /// like HeadFile.
  LstmLayers(const HeadFile& file, Backend& backend, const std::string& name, const std::vector<int>& inputs,
             int width, int layers);

  /// h and c of each layer, [sequences, d].
  struct State {
    std::vector<HeadRows> h, c;
    const HeadRows& output() const { return h.back(); }
  };
  /// Makes the state of sequences that have read no position yet.
  void start(HeadRunner& runner, int sequences, State& state) const;
  /// Copies the states of these sequences, in this order. `to` must not be `from`.
  static void select(HeadRunner& runner, const State& from, std::span<const std::int32_t> sequences,
                     State& to);
  /// Reads the next position of each sequence. inputs: [sequences, width of the input].
  void step(HeadRunner& runner, std::span<const HeadRows* const> inputs, State& state);

 private:
  struct Layer {
    HeadLinear input, forget, update, output;  // i, f, g, o
  };
  void logistic(HeadRunner& runner, HeadRows& x) const;
  void tanh(HeadRunner& runner, HeadRows& x) const;
  void multiply(HeadRunner& runner, const HeadRows& gate, const HeadRows& x, HeadRows& to);

  int width_;
  std::vector<Layer> layers_;
  Buffer<float> half_;  // [d]
  std::vector<const HeadRows*> inputs_;
  std::vector<std::int32_t> order_;
  HeadRows i_, f_, g_, o_, stacked_, paired_, kept_, added_;
};

}  // namespace speclab
