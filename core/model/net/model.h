#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/token.h"
#include "core/measure/work.h"
#include "core/model/files/checkpoint.h"
#include "core/model/net/cache_view.h"
#include "core/model/net/layer_part.h"
#include "core/model/net/model_config.h"
#include "core/model/net/taps.h"

namespace speclab {

class Backend;
class DeviceTimer;
struct AttentionForm;
class Session;
struct QueuedRows;
struct RopeBuffers;

/// The input of one sequence to a forward. The tokens form a forest in topological order, whose roots follow
/// the committed tokens.
struct Feed {
  Session* session = nullptr;
  TokenSpan tokens;                       ///< [n]
  std::span<const std::int32_t> parents;  ///< [n], parents[i] < i; -1: a root, at position session->length()
  std::span<const std::int32_t> rows;     ///< numbers in [0, n) of the nodes that need logits, ascending
  float* logits = nullptr;                ///< out, [rows.size(), head_rows]; may be null when rows is empty
  std::span<const Tap> taps = {};         ///< out, optional: hidden states
  /// Out, optional: block maxima, the maximum of each group of kMaximumOf logits of a row, [rows.size(),
  /// maxima_of(head_rows)]. Becomes empty if the backend does not note them during the matrix product of the
  /// output head, or if the logits change after the product (by a soft cap or masked rows of that head).
  std::vector<float>* maxima = nullptr;
  /// Number of rows that earlier feeds of the same forward have for this session. They count as committed.
  /// Used for a prompt that is split into several feeds.
  int after = 0;
  /// If true, the rows in flight (fed, not committed) stay and these rows are added after them. `parents`
  /// then count from the first row in flight. In this way a tree is fed level by level.
  bool continues = false;
  /// If not null, this is the input of the first layer, [n, hidden], and replaces the result of
  /// Model::embed(). A learned position embedding is still added. `tokens` is then empty, and n is
  /// parents.size().
  const float* embeddings = nullptr;
  Memory embeddings_in = Memory::kHost;
  /// The second input of a model with ModelConfig::beside, [n, beside], in the backend's memory; null for
  /// other models. Only with `embeddings`.
  const float* beside = nullptr;
  /// The layers to run. All feeds of a forward must have the same LayerPart.
  LayerPart layers = {};
  /// The committed positions that these rows attend to; null: all.
  const CacheView* view = nullptr;
  /// If not null, measures the forward on the device: from before its first kernel until the logits of its
  /// rows are computed. The time of downloading the logits is not included. Only the first feed of a forward
  /// may have a timer.
  DeviceTimer* timer = nullptr;
  /// Out, optional: the weights of attention on the committed positions, [layers that run, committed], as the
  /// mean over the query heads and the sum over the rows of this feed. The memory is on the host. Allowed
  /// only if Model::reads_attention(), and without a view. Reading the weights is not counted as work.
  float* attention = nullptr;

  int size() const { return static_cast<int>(parents.size()); }
};

/// Says whether vectors for the output head still need the final norm (kApply) or already have it (kDone).
enum class FinalNorm : std::uint8_t { kApply, kDone };

/// A decoder: its weights on a backend and its forward pass. Immutable after
/// loading, and shared by its sessions.
class Model : public std::enable_shared_from_this<Model> {
 public:
  struct Options {
    /// Layers to run, ascending, each once; empty = all. A subset is a layer-skip draft.
    std::vector<int> layers;
    /// For a draft: its target. The draft must share the target's vocabulary and may read its embedding.
    std::shared_ptr<const Model> target;
  };
  /// Loads a model and packs all weights as bf16. Throws Error when a draft needs a target and has none, and
  /// when a draft does not match its target. It does not match if the vocabulary sizes differ (the numbers of
  /// padding rows may differ if both models have a tokenizer), if the same id stands for different tokens, or
  /// if the draft is bound by hash to another embedding or tokenizer. The tokenizer files may differ if the
  /// ids agree; ids that only one of the two files has are ignored.
  static std::shared_ptr<const Model> load(const Checkpoint& checkpoint, std::shared_ptr<Backend> backend,
                                           const Options& options);
  /// The same weights (shared, not copied) with some layers left out.
  static std::shared_ptr<const Model> with_layers(std::shared_ptr<const Model> model,
                                                  std::vector<int> layers);
  /// The same weights (shared, not copied) and layers on another backend, which Backend::beside() of this
  /// model's backend made. Forwards of both models may run at the same time.
  static std::shared_ptr<const Model> on_backend(std::shared_ptr<const Model> model,
                                                 std::shared_ptr<Backend> backend);
  ~Model();

  const ModelConfig& config() const;
  Backend& backend() const;
  std::shared_ptr<Backend> shared_backend() const;
  std::span<const int> layers() const;  ///< the layers that this model runs
  /// Whether both models share their weights and run the same layers. The KV cache of a text is then the
  /// same, and a session of one can be copied into a session of the other.
  bool same_function_as(const Model& other) const;
  bool reads_attention() const;  ///< whether its backend can fill Feed::attention
  std::string name() const;  ///< for records: the configuration's name, with "[N of L layers]" for a subset
  /// SHA-256 of the bf16 embedding, row-major. For an inflated twin (inflate.h), the hash of the original's
  /// embedding. Computed once, at the first call.
  const std::string& embedding_sha256() const;
  /// Bytes of the embedding in memory. 0 for a draft that reads the very matrix of its target. If the target
  /// is a twin, its draft may need a separate matrix with the original's embedding; this matrix then counts.
  std::uint64_t embedding_bytes() const;
  /// Bytes of the matrices that a forward with at least one row of logits multiplies by. Embedding rows,
  /// norms and biases are not counted.
  std::uint64_t weight_bytes() const;
  /// The checkpoint's tokenizer, if it has one.
  const std::optional<Tokenizer>& tokenizer() const;
  /// SHA-256 of the tokenizer; empty without one.
  const std::string& tokenizer_sha256() const;
  /// Computes the work of one forward of one sequence: n rows, m of them with logits, after `committed`
  /// cached positions. `keys` is the number of visible keys, summed over the rows (n * committed + n (n + 1)
  /// / 2 for a causal chain). `layer_keys` is this sum, added up over the layers; windows make it smaller. By
  /// default all layers see all keys. Norms, RoPE and softmax are not counted.
  Work work(std::int64_t n, std::int64_t m, std::int64_t committed, std::int64_t keys,
            std::int64_t layer_keys = -1) const;

  /// Opens a sequence with room for `capacity` positions plus `scratch` rows in flight. Throws Error when the
  /// capacity exceeds 2^30 - 128 or, for a model with layers, its context. With LongRoPE the rotation depends
  /// on the capacity (Rope::long_divisors), so compare only sessions of equal capacity.
  std::unique_ptr<Session> open(int capacity, int scratch = 128) const;

  /// One forward for all sequences together. The bits of a row do not depend on what else is fed. If a feed
  /// is refused, the sessions stay as they were. If the forward fails later, for example because the
  /// device fails, the sessions keep their committed rows and have no rows in flight.
  void forward(std::span<const Feed> feeds) const;
  /// Queues a forward of rows whose tokens and positions only the backend needs to know
  /// (core/backend/plan.h). `logits` is in the backend's memory, [wanted_count, head_rows]. `taps` get the
  /// hidden states of the rows that need logits: Tap::out is in the backend's memory, [wanted_count, hidden],
  /// and Tap::nodes is empty. Does not change the session's length and work; Session::follow() and
  /// follow_commit() do that, and Session::fetch_states() counts the states that come to the host.
  void forward(Session& session, const QueuedRows& rows, float* logits, std::span<const Tap> taps = {}) const;
  /// Computes the input of the first layer for tokens: embedding, projection and scale, without a learned
  /// position embedding. out: [tokens, hidden]. Throws Error for a token without an embedding row.
  void embed(TokenSpan tokens, float* out, Memory memory = Memory::kHost) const;
  /// Applies the output head to the caller's vectors: states [n, hidden], logits [n, head_rows], both in the
  /// same memory. With kDone the vectors already have the final norm (from a tap of kFinalNorm). With kApply
  /// they are a residual stream (from a tap of the last layer). The logits have the same bits as those of a
  /// forward with these states.
  void head(const float* states, int n, FinalNorm norm, float* logits, Memory memory = Memory::kHost) const;
  /// Work of head() for n rows. embed() has no such count, because it usually reads only a few rows of a
  /// table.
  Work head_work(std::int64_t n) const;
  /// One forward for the feeds of a prompt. The backend may compute matrix products of many rows by another
  /// method, which gives other bits (Backend::prompt_rows).
  void forward_prompt(std::span<const Feed> feeds) const;

 private:
  struct Weights;
  struct Workspace;
  struct Inputs;
  struct Placed;
  struct TappedRows;
  struct EmbeddedRows;
  struct Ran;
  struct Recorded;
  Model(std::shared_ptr<const Weights> weights, std::vector<int> layers, std::shared_ptr<Backend> backend);
  std::shared_ptr<const std::vector<RopeBuffers>> rope_tables(int positions, bool long_divisors) const;
  void forward(std::span<const Feed> feeds, bool prompt) const;
  bool repeats(std::span<const Feed> feeds, const Inputs& in) const;
  const float* compute_recorded(const Inputs& in, Placed placed) const;
  const float* compute(const Inputs& in, std::span<const Placed> sequences, float* logits) const;
  std::size_t list_tapped_rows(const Feed& feed, std::int32_t first, std::size_t at) const;
  void place_taps(std::span<const Feed> feeds, const std::int32_t* rows, std::size_t count) const;
  void place_taps(std::span<const Tap> taps, const QueuedRows& rows) const;
  void deliver_taps(std::span<const Feed> feeds) const;
  void check_token(Token token) const;
  void embed_tokens(const Token* tokens, int n, bool prompt, float* x) const;
  void embed_inputs(const Inputs& in, float* x) const;
  void normalise(const float* states, int n, float* out) const;
  void compute_logits(const float* normed, int n, bool maxima, float* logits) const;
  void lay_out_views(std::span<const Feed> feeds, std::size_t positions) const;
  void check_taps_of_rest(const Feed& feed) const;
  void read_attention(const float* qkv, const Placed& placed, std::size_t at_run,
                      const AttentionForm& form) const;
  void resume(const Inputs& in, std::span<const Placed> sequences, float* x) const;
  void keep_exit_rows(const Inputs& in, std::span<const Placed> sequences, const float* x) const;
  Work work(const Ran& ran) const;
  std::shared_ptr<const Weights> weights_;
  std::shared_ptr<Backend> backend_;  // computes the forwards; weights_ may have been packed by another one
  std::vector<int> layers_, all_;     // all_: all indices into layers_
  std::unique_ptr<Workspace> workspace_;  // buffers of a forward; only one forward at a time on a model
  friend class Session;
};

}  // namespace speclab
