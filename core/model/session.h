#pragma once

#include <memory>
#include <span>

#include "core/model/model.h"

namespace speclab {

/// One sequence on a model: its KV cache and how much of it is committed. Rows of the last forward stay in flight
/// until commit() keeps a path of them; rewind() drops committed positions.
class Session {
 public:
  ~Session();
  const Model& model() const;
  int length() const;    ///< committed positions C; the next token fed has position C
  int capacity() const;
  int in_flight() const; ///< rows of the last forward that are neither committed nor dropped

  /// Appends and commits tokens (causal chain, in chunks). With logits != nullptr the last row's logits, [head_rows].
  /// Throws Error when they do not fit.
  void prefill(TokenSpan tokens, float* logits = nullptr, float* hidden = nullptr);
  /// Forward of this sequence alone; see Feed. Drops what was in flight.
  void forward(TokenSpan tokens, std::span<const std::int32_t> parents, std::span<const std::int32_t> rows, float* logits,
               float* hidden = nullptr);
  /// Keeps the given nodes of the last forward, in order: a path from a root, each the child of the one before it.
  /// Their rows move to positions C, C+1, ...; everything else in flight is dropped.
  void commit(std::span<const int> path);
  /// Drops committed positions from `length` on (and what is in flight).
  void rewind(int length);
  /// An independent copy of the sequence, cache included.
  std::unique_ptr<Session> fork() const;

  /// All work of this session since it was opened.
  const Work& work() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  friend class Model;
};

}  // namespace speclab
