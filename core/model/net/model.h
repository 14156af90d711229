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

/// Tokens of one sequence for one forward: a forest in topological order whose roots follow the committed
/// tokens.
struct Feed {
  Session* session = nullptr;
  TokenSpan tokens;                       ///< [n]
  std::span<const std::int32_t> parents;  ///< [n], parents[i] < i; -1: a root, at position session->length()
  std::span<const std::int32_t> rows;     ///< nodes whose logits are wanted, ascending
  float* logits = nullptr;                ///< out, [rows.size(), head_rows]; may be null when rows is empty
  std::span<const Tap> taps = {};         ///< out, optional: hidden states
  /// Out, optional: the largest of each kMaximumOf logits, [rows.size(), maxima_of(head_rows)]. Empty where
  /// nobody noted them: on a backend that does not, and where the logits are no plain product (a soft cap,
  /// rows of the head that are masked).
  std::vector<float>* maxima = nullptr;
  /// Rows of the same session in the feeds before this one, which count as committed: a prompt in several
  /// feeds.
  int after = 0;
  /// True: what is in flight stays, these rows come behind it, and parents count from the first row in
  /// flight: a tree can be fed level by level.
  bool continues = false;
  /// Not null: the input of the first layer is here, [n, hidden], in place of what Model::embed() gives for
  /// the tokens. A learned position embedding is still added. `tokens` is empty then, and n is
  /// parents.size().
  const float* embeddings = nullptr;
  Memory embeddings_in = Memory::kHost;
  /// The layers to run. All feeds of a forward have the same part.
  LayerPart layers = {};
  /// The committed positions that these rows attend to; null: all.
  const CacheView* view = nullptr;

  int size() const { return static_cast<int>(parents.size()); }
};

/// Whether vectors for the output head still have to go through the final norm.
enum class FinalNorm : std::uint8_t { kApply, kDone };

/// Weights of one decoder on a backend, immutable after loading and shared by its sessions.
class Model : public std::enable_shared_from_this<Model> {
 public:
  struct Options {
    /// Layers to run, ascending, each once; empty = all. A subset is a layer-skip draft.
    std::vector<int> layers;
    /// For a draft: its target, whose vocabulary it must share and whose embedding it may read.
    std::shared_ptr<const Model> target;
  };
  /// Packs all weights as bf16. Throws Error when a draft does not belong to the given target (a vocabulary
  /// of another size, token ids that stand for other tokens, the hash of an embedding or tokenizer that the
  /// draft is bound to) or needs one and has none. Files may differ as long as the ids agree; ids that only
  /// one of them knows do no harm.
  static std::shared_ptr<const Model> load(const Checkpoint& checkpoint, std::shared_ptr<Backend> backend,
                                           const Options& options);
  /// The same weights (shared, not copied) with some layers left out.
  static std::shared_ptr<const Model> with_layers(std::shared_ptr<const Model> model,
                                                  std::vector<int> layers);
  ~Model();

  const ModelConfig& config() const;
  Backend& backend() const;
  std::shared_ptr<Backend> shared_backend() const;
  std::span<const int> layers() const;  ///< that it runs
  std::string name() const;  ///< for records: the configuration's name, with "layers=..." for a subset
  /// Of the bf16 embedding, row-major (a twin's: of the original one); computed once on first use.
  const std::string& embedding_sha256() const;
  /// Of the embedding in memory, when it is not that which the target itself reads: a draft that shares the
  /// embedding of a twin has the original one beside it.
  std::uint64_t embedding_bytes() const;
  std::uint64_t weight_bytes()
      const;  ///< read by a forward with at least one logits row (embedding gather excluded)
  /// Of the checkpoint, when it has one.
  const std::optional<Tokenizer>& tokenizer() const;
  /// Of that tokenizer; empty without.
  const std::string& tokenizer_sha256() const;
  /// Cost of one forward of n rows of one sequence with `committed` cached positions, m rows with logits,
  /// `keys` visible keys in all (a causal chain has n * committed + n (n + 1) / 2; norms, RoPE and softmax
  /// are not counted). layer_keys: the same summed over the layers, where those with a window see fewer;
  /// default: all see all.
  Work work(std::int64_t n, std::int64_t m, std::int64_t committed, std::int64_t keys,
            std::int64_t layer_keys = -1) const;

  /// A sequence with room for `capacity` positions plus `scratch` rows in flight. Throws Error when capacity
  /// exceeds the context. A model with LongRoPE turns by the capacity (Rope::long_divisors): compare sessions
  /// of one capacity.
  std::unique_ptr<Session> open(int capacity, int scratch = 128) const;

  /// One forward for all sequences together: rows are bit-identical whatever else is fed.
  void forward(std::span<const Feed> feeds) const;
  /// Queues a forward of rows that the backend knows and the host need not (core/backend/plan.h). logits:
  /// memory of the backend, [wanted_count, head_rows]. The session's length and work stay as they are: see
  /// Session::follow().
  void forward(Session& session, const QueuedRows& rows, float* logits) const;
  /// What the tokens become before the first layer: embedding, projection and scale, but no learned position
  /// embedding. out: [tokens, hidden]. Throws Error for a token that the embedding does not have.
  void embed(TokenSpan tokens, float* out, Memory memory = Memory::kHost) const;
  /// The output head on vectors of the caller's own: states [n, hidden], logits [n, head_rows], both in the
  /// same memory. With kDone the vectors are what the head reads (a tap of kFinalNorm); with kApply they are
  /// a residual stream (a tap of the last layer). Logits have the bits that a forward with these states
  /// gives.
  void head(const float* states, int n, FinalNorm norm, float* logits, Memory memory = Memory::kHost) const;
  /// Work of head() for n rows. embed() reads a few rows of a table and counts as none.
  Work head_work(std::int64_t n) const;
  /// The feeds of one prompt. Products of all their rows may take the backend's way for prompts, which has
  /// bits of its own.
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
  std::vector<int> layers_, all_;         // all_: indices into layers_
  std::unique_ptr<Workspace> workspace_;  // buffers of a forward: one forward at a time on a model
  friend class Session;
};

}  // namespace speclab
