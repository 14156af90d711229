#include "core/model/net/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/model/net/session.h"
#include "core/model/net/transformer.h"
#include "core/model/net/weights.h"

namespace speclab {
namespace {

std::int64_t layer_parameters(const ModelConfig& c) {
  return std::int64_t{c.hidden} * (2 * c.query_width() + 2 * c.kv_width()) +
         (c.gated ? 3 : 2) * std::int64_t{c.hidden} * c.ffn;
}

}  // namespace

Model::Model(std::shared_ptr<const Weights> weights, std::vector<int> layers,
             std::shared_ptr<Backend> backend)
    : weights_(std::move(weights)),
      backend_(std::move(backend)),
      layers_(std::move(layers)),
      workspace_(std::make_unique<Workspace>()) {
  all_.resize(layers_.size());
  std::iota(all_.begin(), all_.end(), 0);
}

Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const Checkpoint& checkpoint, std::shared_ptr<Backend> backend,
                                         const Options& options) {
  auto weights = std::make_shared<const Weights>(checkpoint, backend, options.target.get());
  checkpoint.require_unchanged();
  std::vector<int> all(static_cast<std::size_t>(weights->config.layers));
  std::iota(all.begin(), all.end(), 0);
  const std::shared_ptr<const Model> model(new Model(std::move(weights), std::move(all), std::move(backend)));
  return options.layers.empty() ? model : with_layers(model, options.layers);
}

std::shared_ptr<const Model> Model::with_layers(std::shared_ptr<const Model> model, std::vector<int> layers) {
  const int have = model->config().layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] >= have || (i > 0 && layers[i] <= layers[i - 1])) {
      throw Error({fmt::format("layers of a layer-skip draft of {}", model->name()),
                   fmt::format("[{}]", fmt::join(layers, ", ")),
                   fmt::format("ascending numbers from 0 to {}, each once", have - 1), ""});
    }
  }
  if (layers.empty())
    throw Error(
        {fmt::format("layers of a layer-skip draft of {}", model->name()), "none", "at least one", ""});
  return std::shared_ptr<const Model>(new Model(model->weights_, std::move(layers), model->backend_));
}

std::shared_ptr<const Model> Model::on_backend(std::shared_ptr<const Model> model,
                                               std::shared_ptr<Backend> backend) {
  SPECLAB_CHECK(backend->numerics_class() == model->backend().numerics_class(),
                "{} moved from numerics class {} to {}", model->name(), model->backend().numerics_class(),
                backend->numerics_class());
  return std::shared_ptr<const Model>(new Model(model->weights_, model->layers_, std::move(backend)));
}

bool Model::same_function_as(const Model& other) const {
  return weights_ == other.weights_ && layers_ == other.layers_;
}

const ModelConfig& Model::config() const { return weights_->config; }
Backend& Model::backend() const { return *backend_; }
std::shared_ptr<Backend> Model::shared_backend() const { return backend_; }
std::span<const int> Model::layers() const { return layers_; }
const std::string& Model::embedding_sha256() const { return weights_->embedding_sha256(); }
std::uint64_t Model::embedding_bytes() const {
  return config().embedding_of_target && !weights_->embedding_beside_target ? 0 : weights_->embedding.bytes;
}
const std::optional<Tokenizer>& Model::tokenizer() const { return weights_->tokenizer; }
const std::string& Model::tokenizer_sha256() const { return weights_->tokenizer_sha256; }

std::string Model::name() const {
  if (layers_.size() == weights_->layers.size()) return config().name;
  return fmt::format("{}[{} of {} layers]", config().name, layers_.size(), weights_->layers.size());
}

std::uint64_t Model::weight_bytes() const {
  return static_cast<std::uint64_t>(work(1, 1, 0, 1).weight_bytes);
}

Work Model::work(std::int64_t n, std::int64_t m, std::int64_t committed, std::int64_t keys,
                 std::int64_t layer_keys) const {
  Ran ran{all_, true, n, m, keys, layer_keys};
  if (layer_keys < 0) ran.layer_keys = static_cast<std::int64_t>(layers_.size()) * keys;
  // A layer reads the committed positions that the first row sees. No other row sees more of them.
  for (const int layer : layers_) {
    const std::int64_t window = config().window(layer);
    ran.cached += window > 0 ? std::min(committed, window - 1) : committed;
  }
  return work(ran);
}

Work Model::work(const Ran& ran) const {
  const ModelConfig& c = config();
  const auto layers = static_cast<std::int64_t>(ran.layers.size());
  const std::int64_t projection =
      ran.embedded && weights_->embed_projection.out > 0 ? std::int64_t{c.hidden} * c.embedding_dim : 0;
  const std::int64_t beside = std::int64_t{c.beside} * (c.query_width() + 2 * c.kv_width());
  const std::int64_t body = layers * layer_parameters(c) + projection + beside;
  const std::int64_t head = std::int64_t{c.head_rows()} * c.hidden;
  const double kv_position = 2.0 * static_cast<double>(c.kv_width()) * backend_->kv_number_bytes();
  Work work;
  work.calls = 1;
  work.rows = ran.n;
  work.logit_rows = ran.m;
  work.keys = ran.keys;
  work.flops = 2.0 * static_cast<double>(ran.n * body + ran.m * head) +
               4.0 * static_cast<double>(c.query_width() * ran.layer_keys);
  work.weight_bytes = sizeof(Bf16) * static_cast<double>(body + (ran.m > 0 ? head : 0));
  // Rows write and read their own keys and values in each layer.
  work.kv_bytes = kv_position * static_cast<double>(layers * 2 * ran.n + ran.cached);
  return work;
}

std::shared_ptr<const std::vector<RopeBuffers>> Model::rope_tables(int positions, bool long_divisors) const {
  return weights_->rope_tables(positions, long_divisors);
}

std::unique_ptr<Session> Model::open(int capacity, int scratch) const {
  constexpr int kMost =
      (1 << 30) - 128;  // a file may state a context at which sums of positions and rows overflow
  if (capacity > kMost) {
    throw Error({fmt::format("positions for a sequence on {}", name()), std::to_string(capacity),
                 fmt::format("at most {}", kMost), "Shorten the prompt or ask for fewer tokens."});
  }
  if (capacity > config().context && config().layers > 0) {
    throw Error({fmt::format("positions for a sequence on {}", name()), std::to_string(capacity),
                 fmt::format("at most its context of {}", config().context),
                 "Shorten the prompt or ask for fewer tokens."});
  }
  SPECLAB_CHECK(capacity > 0 && scratch > 0 && scratch <= kMost, "capacity {}, scratch {}", capacity,
                scratch);
  return std::unique_ptr<Session>(new Session(shared_from_this(), capacity, scratch));
}

}  // namespace speclab
