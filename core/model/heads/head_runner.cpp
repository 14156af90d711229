#include "core/model/heads/head_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace speclab {
namespace {

std::size_t bytes_of(const HeadRows& rows) {
  return static_cast<std::size_t>(rows.rows()) * static_cast<std::size_t>(rows.width()) * sizeof(float);
}

}  // namespace

HeadRunner::HeadRunner(std::shared_ptr<const Model> target) : target_(std::move(target)) {}

float* HeadRunner::room(HeadRows& rows, int count, int width) const {
  rows.rows_ = count;
  rows.width_ = width;
  return backend().room(rows.buffer_, static_cast<std::size_t>(count) * static_cast<std::size_t>(width));
}

void HeadRunner::put(const float* host, int count, int width, HeadRows& to) const {
  float* there = room(to, count, width);
  backend().upload(host, bytes_of(to), there);
}

void HeadRunner::get(const HeadRows& from, float* host) {
  backend().download(from.data(), bytes_of(from), host);
  ++work_.calls;
}

void HeadRunner::embed(TokenSpan tokens, HeadRows& to) const {
  target_->embed(tokens, room(to, static_cast<int>(tokens.size()), target_->config().hidden),
                 Memory::kBackend);
}

void HeadRunner::gather(const PackedMatrix& table, TokenSpan tokens, HeadRows& to) {
  for (const Token token : tokens)
    SPECLAB_CHECK(token >= 0 && token < table.out, "token {} of a table of {} rows", token, table.out);
  const int count = static_cast<int>(tokens.size());
  float* there = room(to, count, table.in);
  backend().gather(table, backend().stage(tokens, staged_), count, there);
}

void HeadRunner::select(const HeadRows& from, std::span<const std::int32_t> rows, HeadRows& to) {
  SPECLAB_CHECK(&from != &to, "{} rows selected into themselves", rows.size());
  for (const std::int32_t row : rows)
    SPECLAB_CHECK(row >= 0 && row < from.rows(), "row {} of {}", row, from.rows());
  const int count = static_cast<int>(rows.size());
  float* there = room(to, count, from.width());
  backend().copy_rows(from.data(), backend().stage(rows, staged_), count, from.width(), there);
}

void HeadRunner::stack(std::span<const HeadRows* const> parts, HeadRows& to) {
  int rows = 0, most = 0;
  const int width = parts.front()->width();
  for (const HeadRows* part : parts) {
    SPECLAB_CHECK(part != &to && part->width() == width, "rows of {} stacked below rows of {}", part->width(),
                  width);
    rows += part->rows();
    most = std::max(most, part->rows());
  }
  order_.resize(static_cast<std::size_t>(most));
  std::iota(order_.begin(), order_.end(), 0);
  float* there = room(to, rows, width);
  const std::int32_t* const order = backend().stage(order_, staged_);
  for (const HeadRows* part : parts) {
    backend().copy_rows(part->data(), order, part->rows(), width, there);
    there += static_cast<std::ptrdiff_t>(part->rows()) * width;
  }
}

void HeadRunner::linear(const HeadLinear& layer, std::span<const HeadRows* const> inputs, HeadRows& y) {
  SPECLAB_CHECK(inputs.size() == layer.parts.size(), "{} inputs of a linear layer of {}", inputs.size(),
                layer.parts.size());
  const int rows = inputs[0]->rows();
  float* out = room(y, rows, layer.out());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const PackedMatrix& part = layer.parts[i];
    SPECLAB_CHECK(inputs[i]->rows() == rows && inputs[i]->width() == part.in && inputs[i] != &y,
                  "input {} of a linear layer: [{}, {}], expected [{}, {}]", i, inputs[i]->rows(),
                  inputs[i]->width(), rows, part.in);
    backend().linear(part, inputs[i]->data(), rows, out, i > 0);
    const double weights = static_cast<double>(part.in) * part.out;
    work_.flops += 2 * rows * weights;
    work_.weight_bytes += sizeof(Bf16) * weights;
  }
  if (!layer.bias.empty()) backend().add_bias(layer.bias.data(), rows, layer.out(), out);
}

void HeadRunner::norm(const HeadNorm& norm, HeadRows& x) const {
  SPECLAB_CHECK(x.width() == norm.width(), "a norm of {} on rows of {}", norm.width(), x.width());
  if (norm.kind == NormKind::kLayer) {
    backend().layer_norm(x.data(), norm.weight.data(), norm.bias.data(), norm.eps, x.rows(), x.width(),
                         x.data());
    return;
  }
  backend().rms_norm(x.data(), norm.weight.data(), norm.eps, x.rows(), x.width(), x.data());
  if (!norm.bias.empty()) backend().add_bias(norm.bias.data(), x.rows(), x.width(), x.data());
}

void HeadRunner::activate(Activation function, HeadRows& x) const {
  backend().activate(function, false, x.data(), x.rows(), x.width(), x.data());
}

void HeadRunner::add(const HeadRows& x, HeadRows& y) const {
  SPECLAB_CHECK(x.rows() == y.rows() && x.width() == y.width(), "[{}, {}] added to [{}, {}]", x.rows(),
                x.width(), y.rows(), y.width());
  backend().add(x.data(), x.rows(), x.width(), y.data());
}

void HeadRunner::scale(float factor, HeadRows& x) const {
  backend().scale(factor, x.rows(), x.width(), x.data());
}

void HeadRunner::logits(const HeadRows& states, FinalNorm norm, HeadRows& to) {
  SPECLAB_CHECK(states.width() == target_->config().hidden, "states of {} for an output head over {}",
                states.width(), target_->config().hidden);
  target_->head(states.data(), states.rows(), norm, room(to, states.rows(), target_->config().head_rows()),
                Memory::kBackend);
  work_ += target_->head_work(states.rows());
}

}  // namespace speclab
