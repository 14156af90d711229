#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/model/net/model.h"

namespace speclab {

struct RopeBuffers;

/// One sequence on a model: its KV cache and how much of it is committed. Rows of the last forward stay in
/// flight until commit() keeps a path of them; rewind() drops committed positions. Rows that did not run
/// through all layers can only be finished or dropped, see LayerPart.
class Session {
 public:
  const Model& model() const { return *model_; }
  int length() const { return length_; }  ///< committed positions C; the next token fed has position C
  int capacity() const { return capacity_; }
  /// Rows that are neither committed nor dropped: of the last forward, and of those that it continued.
  int in_flight() const { return static_cast<int>(parents_.size()); }
  std::span<const std::int32_t> parents_in_flight() const { return parents_; }  ///< as in Feed

  /// Appends and commits tokens (causal chain, in chunks). With logits != nullptr the last row's logits,
  /// [head_rows]. With taps the hidden states of all tokens, chunk by chunk. Throws Error when they do not
  /// fit. Rows have the bits of decoded ones, unless Backend::prompt_rows has another way for so many.
  void prefill(TokenSpan tokens, float* logits = nullptr, const PromptTaps* taps = nullptr);
  /// The same with the input of the first layer in place of tokens (see Feed::embeddings), [n, hidden].
  void prefill_embeddings(const float* embeddings, int n, Memory memory = Memory::kHost,
                          float* logits = nullptr, const PromptTaps* taps = nullptr);
  /// Forward of this sequence alone; see Feed. Drops what was in flight.
  void forward(TokenSpan tokens, std::span<const std::int32_t> parents, std::span<const std::int32_t> rows,
               float* logits, std::span<const Tap> taps = {});
  /// Brings rows of `states` to the host: the memory of the backend that a tap of this session wrote to.
  /// out: [rows, hidden]. Counted in work().
  void fetch_states(const float* states, std::span<const std::int32_t> rows, float* out);
  /// Keeps the given nodes in flight, in order: a path from a root, each the child of the one before it.
  /// Their rows move to positions C, C+1, ...; everything else in flight is dropped. All layers have run for
  /// them.
  void commit(std::span<const int> path);
  /// The host's side of a forward that was queued (Model::forward of QueuedRows): rows with these parents are
  /// in flight, as after a forward of a Feed, `wanted` of them with logits.
  void follow(std::span<const std::int32_t> parents, bool continues, int wanted);
  /// The host's side of a commit of `count` nodes that the device did; what else is in flight is dropped.
  void follow_commit(int count);
  /// Drops committed positions from `length` on (and what is in flight).
  void rewind(int length);
  /// An independent copy of the sequence, cache included.
  std::unique_ptr<Session> fork() const;
  /// Becomes a copy of what `other`, a session of the same model, has committed. Throws Error when it does
  /// not fit.
  void copy(const Session& other);

  const KvStore& cache() const { return kv_; }
  /// All work of this session since it was opened.
  const Work& work() const { return work_; }

 private:
  Session(std::shared_ptr<const Model> model, int capacity, int scratch);
  void check_room(std::int64_t tokens, int after) const;
  struct PromptRun;
  void prefill(const PromptRun& run);
  // What runs for rows that come in flight. run: indices of the layers; wanted: rows with logits; the rest as
  // in Feed.
  struct Flight {
    std::span<const int> run;
    int wanted = 0;
    bool continues = false;
    int after = 0;
    LayerPart part = {};
    const CacheView* view = nullptr;
  };
  // Rows come in flight, their work is counted; returns how many were there before. Where the part is the
  // rest of an early exit, the rows in flight go on.
  int fly(std::span<const std::int32_t> parents, const Flight& flight);
  void check_continued(const Flight& flight) const;
  void check_rest(std::span<const std::int32_t> parents, const Flight& flight) const;
  void copy_exit_rows(const Session& from);
  Model::Ran count(int begin, int end, const Flight& flight) const;
  void drop_flight();
  std::shared_ptr<const Model> model_;
  KvStore kv_;
  std::shared_ptr<const std::vector<RopeBuffers>>
      ropes_;  // for all positions that it can have; see Model::Weights
  int capacity_;
  int scratch_;
  int length_ = 0;
  std::vector<std::int32_t> parents_, depths_;  // of the rows in flight; row i is in slot length_ + i
  std::vector<std::int32_t> moved_from_,
      moved_to_;  // slots of a commit; members because a step allocates nothing
  Buffer<std::int32_t> fetched_rows_;
  Buffer<float> fetched_;
  // What ran for the rows in flight.
  std::vector<int> ran_;     // indices of the layers
  int exit_ = 0;             // their hidden states at this layer are in exit_rows_; 0: they are not
  bool viewed_ = false;      // with a view of part of the cache
  Buffer<float> exit_rows_;  // [scratch, hidden]; empty until an early exit
  Work work_;
  friend class Model;
};

}  // namespace speclab
