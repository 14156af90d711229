#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/measure/work.h"
#include "core/model/heads/head_file.h"
#include "core/model/net/model.h"

namespace speclab {

/// Rows of numbers in a backend's memory, [rows, width]. The memory grows to the largest content and stays.
class HeadRows {
 public:
  int rows() const { return rows_; }
  int width() const { return width_; }
  /// The numbers, for taps and feeds with Memory::kBackend and for operations of the backend.
  float* data() const { return buffer_.data(); }

 private:
  friend class HeadRunner;
  int rows_ = 0, width_ = 0;
  Buffer<float> buffer_;
};

/// Computes the modules of a trained head on the backend of its target, and counts their work. Rows stay in
/// the backend's memory between put() and get(). The bits of a row do not depend on other rows. In these
/// examples h are hidden states, e embeddings and l logits:
///
///   Medusa:  put(states, h); linear(block, {&h}, y); activate(kSilu, y); add(h, y); linear(head, {&y}, l)
///   Hydra:   embed(tokens, e); linear(mlp, {&h, &e}, y); activate(kSilu, y); linear(head, {&y}, l)
///   EAGLE:   embed(tokens, e); linear(fc, {&e, &h}, x);
///            a forward of HeadFile::decoder_layers() from x.data() with a tap into room(y, ...);
///            logits(y, FinalNorm::kDone, l)
class HeadRunner {
 public:
  explicit HeadRunner(std::shared_ptr<const Model> target);

  const Model& target() const { return *target_; }
  Backend& backend() const { return target_->backend(); }

  /// Makes room for rows that a tap will write. The contents are undefined.
  float* room(HeadRows& rows, int count, int width) const;
  /// Uploads rows, [count, width].
  void put(const float* host, int count, int width, HeadRows& to) const;
  /// Downloads rows, [rows, width]. Waits for all earlier operations, and counts as one call in work().
  void get(const HeadRows& from, float* host);
  /// Calls Model::embed() of the target.
  void embed(TokenSpan tokens, HeadRows& to) const;
  /// Copies rows of a table of the head, such as an embedding of its own: to[i] = table[tokens[i]].
  void gather(const PackedMatrix& table, TokenSpan tokens, HeadRows& to);
  /// Copies the given rows of `from`, in this order. `to` must not be `from`.
  void select(const HeadRows& from, std::span<const std::int32_t> rows, HeadRows& to);
  /// Copies the rows of several HeadRows of one width, one after the other. `to` must be none of them.
  void stack(std::span<const HeadRows* const> parts, HeadRows& to);

  /// y = W x + b. The inputs must have the widths that the layer was read with, and equal numbers of rows.
  /// `y` must not be one of the inputs.
  void linear(const HeadLinear& layer, std::span<const HeadRows* const> inputs, HeadRows& y);
  void linear(const HeadLinear& layer, std::initializer_list<const HeadRows*> inputs, HeadRows& y) {
    linear(layer, std::span(inputs.begin(), inputs.size()), y);
  }
  void norm(const HeadNorm& norm, HeadRows& x) const;     ///< in place
  void activate(Activation function, HeadRows& x) const;  ///< in place
  void add(const HeadRows& x, HeadRows& y) const;         ///< y += x
  void scale(float factor, HeadRows& x) const;            ///< x *= factor
  /// Applies the target's output head, see Model::head().
  void logits(const HeadRows& states, FinalNorm norm, HeadRows& to);

  /// Adds the work of operations that the caller ran on the backend itself, such as attention.
  void count(const Work& work) { work_ += work; }
  /// All work since construction. `calls` counts get(). Norms, activations, sums and copies are not counted.
  /// Forwards of decoder layers are counted by their session.
  const Work& work() const { return work_; }

 private:
  std::shared_ptr<const Model> target_;
  Buffer<std::int32_t> staged_;
  std::vector<std::int32_t> order_;  // 0, 1, ..., for stack()
  Work work_;
};

}  // namespace speclab
