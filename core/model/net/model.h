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
class Session;
struct QueuedRows;
struct RopeBuffers;

/// The input of one sequence to a forward: tokens as a forest in topological order, whose
/// roots follow the committed tokens.
struct Feed {
  Session* session = nullptr;
  TokenSpan tokens;                       ///< [n]
  std::span<const std::int32_t> parents;  ///< [n], parents[i] < i; -1: a root, at position session->length()
  std::span<const std::int32_t> rows;     ///< nodes whose logits are computed, ascending
  float* logits = nullptr;                ///< out, [rows.size(), head_rows]; may be null when rows is empty
  std::span<const Tap> taps = {};         ///< out, optional: hidden states
  /// Out, optional: the largest of each kMaximumOf logits, [rows.size(),
  /// maxima_of(head_rows)]. Empty if the backend does not note them, and if the logits are no
  /// plain product (a soft cap, masked rows of the head).
  std::vector<float>* maxima = nullptr;
  /// Number of rows of the same session in earlier feeds of this forward, which count as committed. For a
  /// prompt in several feeds.
  int after = 0;
  /// If true, the rows in flight stay, these rows are added after them, and parents count from the first row
  /// in flight. So a tree can be fed level by level.
  bool continues = false;
  /// If not null, the input of the first layer, [n, hidden], instead of the result of Model::embed(). A
  /// learned position embedding is still added. `tokens` is then empty, and n is parents.size().
  const float* embeddings = nullptr;
  Memory embeddings_in = Memory::kHost;
  /// The layers to run. All feeds of a forward must have the same part.
  LayerPart layers = {};
  /// The committed positions that these rows attend to; null: all.
  const CacheView* view = nullptr;

  int size() const { return static_cast<int>(parents.size()); }
};

/// Whether vectors for the output head still need the final norm, or have it.
enum class FinalNorm : std::uint8_t { kApply, kDone };

/// A decoder: its weights on a backend and its forward pass. Immutable after
/// loading, and shared by its sessions.
class Model : public std::enable_shared_from_this<Model> {
 public:
  struct Options {
    /// Layers to run, ascending, each once; empty = all. A subset is a layer-skip draft.
    std::vector<int> layers;
    /// For a draft: its target, whose vocabulary it must share and whose embedding it may read.
    std::shared_ptr<const Model> target;
  };
  /// Loads a model and packs all weights as bf16. Throws Error when a draft does not match its target
  /// (another vocabulary size, other tokens for the same ids, another embedding or tokenizer than the draft
  /// is bound to by hash), and when a draft needs a target and has none. The tokenizer files may differ if
  /// the ids agree; ids that only one of them has are ignored.
  static std::shared_ptr<const Model> load(const Checkpoint& checkpoint, std::shared_ptr<Backend> backend,
                                           const Options& options);
  /// The same weights (shared, not copied) with some layers left out.
  static std::shared_ptr<const Model> with_layers(std::shared_ptr<const Model> model,
                                                  std::vector<int> layers);
  ~Model();

  const ModelConfig& config() const;
  Backend& backend() const;
  std::shared_ptr<Backend> shared_backend() const;
  std::span<const int> layers() const;  ///< the layers that this model runs
  std::string name() const;  ///< for records: the configuration's name, with "layers=..." for a subset
  /// SHA-256 of the bf16 embedding, row-major; for a twin that of the original's.
  /// Computed once, at the first call.
  const std::string& embedding_sha256() const;
  /// Memory of the embedding, if the target does not read it itself: a draft that shares the embedding of a
  /// twin keeps the original's in memory.
  std::uint64_t embedding_bytes() const;
  std::uint64_t weight_bytes()
      const;  ///< bytes that a forward with at least one logits row reads (without gathering embeddings)
  /// The checkpoint's tokenizer, if it has one.
  const std::optional<Tokenizer>& tokenizer() const;
  /// SHA-256 of the tokenizer; empty without one.
  const std::string& tokenizer_sha256() const;
  /// Work of one forward of n rows of one sequence with `committed` cached positions, m rows with logits, and
  /// `keys` visible keys in total (n * committed + n (n + 1) / 2 for a causal chain). Norms, RoPE and softmax
  /// are not counted. `layer_keys` is the sum of visible keys over the layers, which is smaller with windows;
  /// by default all layers see all keys.
  Work work(std::int64_t n, std::int64_t m, std::int64_t committed, std::int64_t keys,
            std::int64_t layer_keys = -1) const;

  /// Opens a sequence with room for `capacity` positions plus `scratch` rows in flight. Throws Error when the
  /// capacity exceeds the context. With LongRoPE the rotation depends on the capacity (Rope::long_divisors),
  /// so compare only sessions of equal capacity.
  std::unique_ptr<Session> open(int capacity, int scratch = 128) const;

  /// One forward for all sequences together. The bits of a row do not depend on what else is fed.
  void forward(std::span<const Feed> feeds) const;
  /// Queues a forward of rows that only the backend needs to know (core/backend/plan.h). `logits` is in the
  /// backend's memory, [wanted_count, head_rows]. Does not change the session's length and work, see
  /// Session::follow().
  void forward(Session& session, const QueuedRows& rows, float* logits) const;
  /// Computes the input of the first layer for tokens: embedding, projection and scale, without a learned
  /// position embedding. out: [tokens, hidden]. Throws Error for a token without an embedding row.
  void embed(TokenSpan tokens, float* out, Memory memory = Memory::kHost) const;
  /// Applies the output head to the caller's vectors: states [n, hidden], logits [n, head_rows], both in the
  /// same memory. With kDone the vectors have the final norm (a tap of kFinalNorm); with kApply they are a
  /// residual stream (a tap of the last layer). The logits have the bits of a forward with these states.
  void head(const float* states, int n, FinalNorm norm, float* logits, Memory memory = Memory::kHost) const;
  /// Work of head() for n rows. embed() reads only a few rows of a table and is not counted.
  Work head_work(std::int64_t n) const;
  /// One forward for the feeds of a prompt. The backend may compute products of many rows in another way,
  /// with other bits (Backend::prompt_rows).
  void forward_prompt(std::span<const Feed> feeds) const;

 private:
  struct Weights;
  struct Workspace;
  struct Inputs;
  struct Placed;
  struct TappedRows;
  struct EmbeddedRows;
  struct Ran;
  Model(std::shared_ptr<const Weights> weights, std::vector<int> layers);
  std::shared_ptr<const std::vector<RopeBuffers>> rope_tables(int positions, bool long_divisors) const;
  void forward(std::span<const Feed> feeds, bool prompt) const;
  const float* compute(const Inputs& in, std::span<const Placed> sequences, float* logits) const;
  std::size_t list_tapped_rows(const Feed& feed, std::int32_t first, std::size_t at) const;
  void place_taps(std::span<const Feed> feeds, const std::int32_t* rows, std::size_t count) const;
  void deliver_taps(std::span<const Feed> feeds) const;
  void check_token(Token token) const;
  void embed_tokens(const Token* tokens, int n, bool prompt, float* x) const;
  void embed_inputs(const Inputs& in, float* x) const;
  void normalise(const float* states, int n, float* out) const;
  void compute_logits(const float* normed, int n, bool maxima, float* logits) const;
  void lay_out_views(std::span<const Feed> feeds, std::size_t positions) const;
  void check_taps_of_rest(const Feed& feed) const;
  void resume(const Inputs& in, std::span<const Placed> sequences, float* x) const;
  void keep_exit_rows(const Inputs& in, std::span<const Placed> sequences, const float* x) const;
  Work work(const Ran& ran) const;
  std::shared_ptr<const Weights> weights_;
  std::vector<int> layers_, all_;         // all_: all indices into layers_
  std::unique_ptr<Workspace> workspace_;  // buffers of a forward; only one forward at a time on a model
  friend class Session;
};

}  // namespace speclab
