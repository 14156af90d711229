#include "core/model/heads/falcon/lstm_layers.h"

#include <fmt/format.h>

#include <cstddef>

#include "core/base/error.h"

namespace speclab {

LstmLayers::LstmLayers(const HeadFile& file, Backend& backend, const std::string& name,
                       const std::vector<int>& inputs, int width, int layers)
    : width_(width), half_(backend.keep(std::vector<float>(static_cast<std::size_t>(width), .5f))) {
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<int> widths = layer == 0 ? inputs : std::vector<int>{width};
    widths.push_back(width);
    const auto gate = [&](const char* of) {
      return file.linear(backend, fmt::format("{}.{}.{}", name, layer, of), widths, width, Bias::kPresent);
    };
    layers_.push_back({gate("i"), gate("f"), gate("g"), gate("o")});
  }
}

void LstmLayers::start(HeadRunner& runner, int sequences, State& state) const {
  state.h.resize(layers_.size());
  state.c.resize(layers_.size());
  const std::vector<float> zeros(static_cast<std::size_t>(sequences) * static_cast<std::size_t>(width_));
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    runner.put(zeros.data(), sequences, width_, state.h[layer]);
    runner.put(zeros.data(), sequences, width_, state.c[layer]);
  }
}

void LstmLayers::select(HeadRunner& runner, const State& from, std::span<const std::int32_t> sequences,
                        State& to) {
  to.h.resize(from.h.size());
  to.c.resize(from.c.size());
  for (std::size_t layer = 0; layer < from.h.size(); ++layer) {
    runner.select(from.h[layer], sequences, to.h[layer]);
    runner.select(from.c[layer], sequences, to.c[layer]);
  }
}

void LstmLayers::step(HeadRunner& runner, std::span<const HeadRows* const> inputs, State& state) {
  inputs_.assign(inputs.begin(), inputs.end());
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const Layer& of = layers_[layer];
    HeadRows &h = state.h[layer], &c = state.c[layer];
    inputs_.push_back(&h);
    runner.linear(of.input, inputs_, i_);
    runner.linear(of.forget, inputs_, f_);
    runner.linear(of.update, inputs_, g_);
    runner.linear(of.output, inputs_, o_);
    logistic(runner, i_);
    logistic(runner, f_);
    tanh(runner, g_);
    logistic(runner, o_);
    multiply(runner, f_, c, kept_);
    multiply(runner, i_, g_, added_);
    runner.add(added_, kept_);
    const HeadRows* const cell[] = {&kept_};
    runner.stack(cell, c);
    tanh(runner, kept_);
    multiply(runner, o_, kept_, h);
    inputs_.assign(1, &h);
  }
}

// 1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2
void LstmLayers::logistic(HeadRunner& runner, HeadRows& x) const {
  runner.scale(.5f, x);
  tanh(runner, x);
  runner.scale(.5f, x);
  runner.backend().add_bias(half_.data(), x.rows(), x.width(), x.data());
}

void LstmLayers::tanh(HeadRunner& runner, HeadRows& x) const {
  runner.backend().soft_cap(1, x.rows(), x.width(), x.data());
}

// to = gate * x. A gate is not negative, so the gated activation ReLU(gate) * x computes the product. The
// activation reads rows of 2 d numbers: the gate of a sequence, then x of the sequence.
void LstmLayers::multiply(HeadRunner& runner, const HeadRows& gate, const HeadRows& x, HeadRows& to) {
  const int rows = gate.rows();
  SPECLAB_CHECK(x.rows() == rows && x.width() == width_ && gate.width() == width_, "[{}, {}] times [{}, {}]",
                rows, gate.width(), x.rows(), x.width());
  const HeadRows* const parts[] = {&gate, &x};
  runner.stack(parts, stacked_);
  order_.clear();
  for (int row = 0; row < rows; ++row) {
    order_.push_back(row);
    order_.push_back(rows + row);
  }
  runner.select(stacked_, order_, paired_);
  float* const out = runner.room(to, rows, width_);
  runner.backend().activate(Activation::kRelu, true, paired_.data(), rows, width_, out);
}

}  // namespace speclab
