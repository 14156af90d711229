#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/model/net/model.h"

namespace speclab {

struct RopeBuffers;

/// One sequence on a model, with its KV cache. Rows of the last forward stay in flight (neither committed nor
/// dropped) until commit() keeps a path of them, or until another call drops them. rewind() drops committed
/// positions. Rows in flight that have not run through all layers cannot be committed, see LayerPart.
class Session {
 public:
  const Model& model() const { return *model_; }
  int length() const { return length_; }  ///< committed positions C; the next token fed has position C
  int capacity() const { return capacity_; }
  /// Number of rows in flight: those of the last forward and of the forwards that it continued.
  int in_flight() const { return static_cast<int>(parents_.size()); }
  std::span<const std::int32_t> parents_in_flight() const { return parents_; }  ///< as in Feed
  /// For each row in flight the layer at which it stopped (LayerPart::until, between); 0: it did not stop.
  /// These numbers never increase from one row to the next.
  std::span<const int> exits_in_flight() const { return exits_; }

  /// Appends and commits tokens, as a causal chain in chunks. `logits`, if not null, gets the last row's
  /// logits, [head_rows]. `taps` get the hidden states of all tokens, chunk by chunk. Throws Error when the
  /// tokens do not fit. The rows have the same bits as decoded rows, unless the backend computes that many
  /// rows by another method (Backend::prompt_rows).
  void prefill(TokenSpan tokens, float* logits = nullptr, const PromptTaps* taps = nullptr);
  /// Like prefill(), but takes the input of the first layer, [n, hidden], instead of tokens (see
  /// Feed::embeddings).
  void prefill_embeddings(const float* embeddings, int n, Memory memory = Memory::kHost,
                          float* logits = nullptr, const PromptTaps* taps = nullptr);
  /// Runs a forward of this sequence alone, see Feed. Rows that were in flight before are dropped.
  void forward(TokenSpan tokens, std::span<const std::int32_t> parents, std::span<const std::int32_t> rows,
               float* logits, std::span<const Tap> taps = {});
  /// Downloads rows of `states`, which a tap of this session wrote to the backend's memory. out: [rows,
  /// hidden]. The bytes are counted in work().
  void fetch_states(const float* states, std::span<const std::int32_t> rows, float* out);
  /// Commits a path of nodes in flight. The path starts at a root, and each node is a child of the one before
  /// it. Their rows move to positions C, C+1, ...; all other rows in flight are dropped. The nodes must have
  /// run through all layers.
  void commit(std::span<const int> path);
  /// Records on the host a forward that was queued (Model::forward of QueuedRows). Afterwards rows with these
  /// parents are in flight, as after a forward of a Feed. `wanted` of them have logits.
  void follow(std::span<const std::int32_t> parents, bool continues, int wanted);
  /// Records on the host that the device committed `count` nodes. All other rows in flight are dropped.
  void follow_commit(int count);
  /// Drops committed positions from `length` on, and all rows in flight.
  void rewind(int length);
  /// An independent copy of the sequence, including its cache.
  std::unique_ptr<Session> fork() const;
  /// Replaces this sequence by the committed positions of `other`, a session of a model with the same weights
  /// and layers (Model::same_function_as). Throws Error when they do not fit. With LongRoPE both sessions
  /// must use the same divisors.
  void copy(const Session& other);

  const KvStore& cache() const { return kv_; }
  /// All work of this session since it was opened.
  const Work& work() const { return work_; }
  /// Forwards that ran as a recorded graph (DeviceProgram::records_forwards).
  int replayed_forwards() const { return replayed_; }

 private:
  Session(std::shared_ptr<const Model> model, int capacity, int scratch);
  void check_room(std::int64_t tokens, int after) const;
  struct PromptRun;
  void prefill(const PromptRun& run);
  // Describes how a forward runs its new rows. `run` are the indices of the layers, `wanted` is the number of
  // rows with logits, and `part` is Feed::layers. The other members are as in Feed.
  struct Flight {
    std::span<const int> run;
    int wanted = 0;
    bool continues = false;
    int after = 0;
    LayerPart part = {};
    const CacheView* view = nullptr;
  };
  // Adds rows in flight and counts their work. Returns how many rows in flight come before the added ones.
  // The rest of an early exit adds no rows; it returns how many rows come before the rows that go on.
  int fly(std::span<const std::int32_t> parents, const Flight& flight);
  void check_continued(const Flight& flight) const;
  // Returns the number of the first row that goes on.
  int check_rest(std::span<const std::int32_t> parents, const Flight& flight) const;
  void copy_exit_rows(const Session& from);
  Model::Ran count(int begin, int end, const Flight& flight) const;
  void drop_flight();
  std::shared_ptr<const Model> model_;
  KvStore kv_;
  std::shared_ptr<const std::vector<RopeBuffers>> ropes_;  // tables for all positions, see Model::Weights
  int capacity_;
  int scratch_;
  int length_ = 0;
  std::vector<std::int32_t> parents_, depths_;  // [rows in flight]; row i is in slot length_ + i
  std::vector<std::int32_t> moved_from_,
      moved_to_;  // slots that a commit moves; kept as members so that steps do not allocate
  Buffer<std::int32_t> fetched_rows_;
  Buffer<float> fetched_;
  // What has run for the rows in flight.
  std::vector<int> ran_;     // indices of the layers of the last forward; after LayerPart::from(): all layers
  std::vector<int> exits_;   // [rows in flight]; if > 0, the hidden state of the row is in exit_rows_
  bool viewed_ = false;      // whether any row in flight ran with a CacheView
  Buffer<float> exit_rows_;  // [scratch, hidden]; empty until an early exit
  Work work_;
  std::shared_ptr<Model::Recorded> recorded_;  // null before the first forward that Model::repeats() accepts
  int replayed_ = 0;
  friend class Model;
};

}  // namespace speclab
