// The two ends of the decoder: the input of the first layer, and the output head after the last layer.
#include <limits>

#include "core/base/error.h"
#include "core/model/net/transformer.h"

namespace speclab {

// Computes embedding, projection and scale of tokens that are in the backend's memory.
void Model::embed_tokens(const Token* tokens, int n, bool prompt, float* x) const {
  const Weights& w = *weights_;
  const ModelConfig& c = w.config;
  Backend& device = backend();
  if (w.embed_projection.out > 0) {
    float* embedded = device.room(workspace_->embedded,
                                  static_cast<std::size_t>(n) * static_cast<std::size_t>(c.embedding_dim));
    device.gather(w.embedding, tokens, n, embedded);
    if (prompt) device.prompt_linear(w.embed_projection, embedded, n, x, false);
    else device.linear(w.embed_projection, embedded, n, x, false);
  } else {
    device.gather(w.embedding, tokens, n, x);
  }
  if (c.embedding_scale != 1) device.scale(c.embedding_scale, n, c.hidden, x);
}

// Computes the input of the first layer.
void Model::embed_inputs(const Inputs& in, float* x) const {
  const Weights& w = *weights_;
  const ModelConfig& c = w.config;
  Backend& device = backend();
  const auto width = static_cast<std::size_t>(c.hidden);
  int given = 0;
  for (const EmbeddedRows& rows : in.embedded) given += rows.count;
  if (given < in.n) embed_tokens(in.tokens, in.n, in.prompt, x);
  for (const EmbeddedRows& rows : in.embedded) {
    float* to = x + static_cast<std::size_t>(rows.first) * width;
    if (rows.rows != nullptr) device.copy_rows(rows.from, rows.rows, rows.count, c.hidden, to);
    else device.upload(rows.from, static_cast<std::size_t>(rows.count) * width * sizeof(float), to);
  }
  if (c.position_rows > 0) {
    float* embedded = device.room(workspace_->branch, static_cast<std::size_t>(in.n) * width);
    device.gather(w.positions, in.position_rows, in.n, embedded);
    device.add(embedded, in.n, c.hidden, x);
  }
}

// Applies the final norm. `out` may equal `states`. Without a final norm it does nothing, so `out` must then
// equal `states`.
void Model::normalise(const float* states, int n, float* out) const {
  const Weights& w = *weights_;
  const ModelConfig& c = w.config;
  if (!c.final_norm) return;
  const float *weight = w.final_norm.weight.data(), *bias = w.final_norm.bias.data();
  if (c.norm == NormKind::kRms) backend().rms_norm(states, weight, c.norm_eps, n, c.hidden, out);
  else backend().layer_norm(states, weight, bias, c.norm_eps, n, c.hidden, out);
}

// Computes logits. Workspace::noted then says whether block maxima are in the workspace. They are there if
// they are wanted, the backend can note them, and the logits do not change after the product.
void Model::compute_logits(const float* normed, int n, bool maxima, float* logits) const {
  const Weights& w = *weights_;
  const ModelConfig& c = w.config;
  Backend& device = backend();
  Workspace& s = *workspace_;
  const int width = c.head_rows();
  SPECLAB_CHECK(w.head.out > 0, "logits of {}, which has no output head", name());
  // Masks and soft caps after the product would invalidate the maxima.
  const bool plain = c.logit_soft_cap == 0 && w.masked_rows == 0;
  const std::size_t blocks = static_cast<std::size_t>(n) * static_cast<std::size_t>(maxima_of(width));
  s.noted = maxima && plain && device.linear_noting(w.head, normed, n, logits, device.room(s.maxima, blocks));
  if (!s.noted) device.linear(w.head, normed, n, logits, false);
  if (c.logit_soft_cap > 0) device.soft_cap(c.logit_soft_cap, n, width, logits);
  if (w.masked_rows > 0)
    device.fill_columns(-std::numeric_limits<float>::infinity(), width - w.masked_rows, n, width, logits);
}

void Model::embed(TokenSpan tokens, float* out, Memory memory) const {
  const Weights& w = *weights_;
  Backend& device = backend();
  for (const Token token : tokens) check_token(token);
  if (tokens.empty()) return;
  const int n = static_cast<int>(tokens.size());
  const std::size_t size = tokens.size() * static_cast<std::size_t>(w.config.hidden);
  const bool in_place = memory == Memory::kBackend || device.host_memory();
  float* x = in_place ? out : device.room(workspace_->residual, size);
  embed_tokens(device.stage(tokens, workspace_->token_ids), n, false, x);
  if (!in_place) device.download(x, size * sizeof(float), out);
}

void Model::head(const float* states, int n, FinalNorm norm, float* logits, Memory memory) const {
  const ModelConfig& c = config();
  Backend& device = backend();
  Workspace& s = *workspace_;
  if (n == 0) return;
  const auto rows = static_cast<std::size_t>(n);
  const std::size_t in = rows * static_cast<std::size_t>(c.hidden),
                    out = rows * static_cast<std::size_t>(c.head_rows());
  const bool in_place = memory == Memory::kBackend || device.host_memory();
  if (!in_place) {
    float* there = device.room(s.wanted, in);
    device.upload(states, in * sizeof(float), there);
    states = there;
  }
  if (norm == FinalNorm::kApply && c.final_norm) {
    float* normed = device.room(s.wanted, in);
    normalise(states, n, normed);
    states = normed;
  }
  float* to = in_place ? logits : device.room(s.logits, out);
  compute_logits(states, n, false, to);
  if (!in_place) device.download(to, out * sizeof(float), logits);
}

Work Model::head_work(std::int64_t n) const { return work(0, n, 0, 0) - work(0, 0, 0, 0); }

void Model::check_token(Token token) const {
  const int have = weights_->embedding.out;
  if (token >= 0 && token < have) return;
  throw Error(
      {"token fed to " + name(), std::to_string(token), "an id from 0 to " + std::to_string(have - 1), ""});
}

}  // namespace speclab
