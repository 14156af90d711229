#include "core/model/net/weights.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/base/error.h"
#include "core/model/net/rope_table.h"
#include "core/model/text/tokenizer.h"

namespace speclab {
namespace {

struct Part {
  std::string tensor;  // "": zeros
  int rows;
};

/// A part of the columns of a tensor.
struct Columns {
  int first = 0;
  int of = 0;  // number of columns of the tensor; 0: all of them are taken
};

// Packs `in` columns of several equally wide tensors as one matrix; the tensors' rows follow one another.
PackedMatrix pack(const Checkpoint& checkpoint, Backend& backend, const std::vector<Part>& parts, int in,
                  Columns columns = {}) {
  int out = 0;
  for (const Part& part : parts) out += part.rows;
  PackedMatrix packed = backend.pack(out, in, [&](int begin, int end, Bf16* rows) {
    int base = 0;
    for (const Part& part : parts) {
      const int from = std::max(begin, base), to = std::min(end, base + part.rows);
      if (from < to) {
        const auto width = static_cast<std::size_t>(in);
        const std::span<Bf16> part_rows(rows + static_cast<std::size_t>(from - begin) * width,
                                        static_cast<std::size_t>(to - from) * width);
        if (part.tensor.empty()) {
          std::fill(part_rows.begin(), part_rows.end(), Bf16{});
        } else if (columns.of == 0) {
          checkpoint.read_bf16(part.tensor, from - base, to - base, part_rows.data());
          checkpoint.require_finite(part.tensor, part_rows);
        } else {
          const auto stored_width = static_cast<std::size_t>(columns.of);
          std::vector<Bf16> stored(static_cast<std::size_t>(to - from) * stored_width);
          checkpoint.read_bf16(part.tensor, from - base, to - base, stored.data());
          checkpoint.require_finite(part.tensor, stored);
          const Bf16* row = stored.data() + columns.first;
          for (Bf16* out_row = part_rows.data(); out_row != part_rows.data() + part_rows.size();
               out_row += width, row += stored_width)
            std::copy_n(row, width, out_row);
        }
      }
      base += part.rows;
    }
  });
  checkpoint.forget_pages();
  return packed;
}

std::vector<float> vector(const Checkpoint& checkpoint, const std::string& tensor, int size) {
  // Rounded to bf16 like every weight, so that the model is one set of bf16 numbers.
  std::vector<float> values(static_cast<std::size_t>(size));
  checkpoint.read_f32(tensor, 0, 1, values.data());
  for (float& value : values) {
    const Bf16 rounded = float_to_bf16(value);
    checkpoint.require_finite(tensor, {&rounded, 1});
    value = bf16_to_float(rounded);
  }
  return values;
}

// Concatenates several vectors.
std::vector<float> joined(const Checkpoint& checkpoint, const std::vector<Part>& parts) {
  std::vector<float> out;
  for (const Part& part : parts) {
    const std::vector<float> values = vector(checkpoint, part.tensor, part.rows);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

// The weights of an RMS norm. An inflated twin takes the mean square over `size` channels, the model inside
// it over `original` channels; a factor makes up for this. For other models the two numbers are equal.
std::vector<float> rms_weight(const Checkpoint& checkpoint, const std::string& tensor, int size,
                              int original) {
  std::vector<float> values = vector(checkpoint, tensor, size);
  if (const float offset = checkpoint.config().norm_offset; offset != 0) {
    for (float& value : values) value += offset;
  }
  if (size != original) {
    const auto factor = static_cast<float>(std::sqrt(static_cast<double>(original) / size));
    for (float& value : values) value *= factor;
  }
  return values;
}

/// Throws Error if an id stands for different tokens in the two tokenizers. The error names the first such
/// ids. Ids that only one of the tokenizers has are ignored.
void check_ids(const std::string& file, const Tokenizer& draft, const Tokenizer& target,
               const std::string& target_name) {
  constexpr int kShown = 3;
  const int count = std::min(draft.vocab_size(), target.vocab_size());
  int different = 0;
  std::string shown;
  const auto quoted = [](std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  for (Token id = 0; id < count; ++id) {
    if (draft.spelling(id) == target.spelling(id) || ++different > kShown) continue;
    shown += fmt::format("{}{} is {} in the draft and {} in the target", shown.empty() ? "" : ", ", id,
                         quoted(draft.spelling(id)), quoted(target.spelling(id)));
  }
  if (different == 0) return;
  throw Error({fmt::format("{}: tokenizer of the draft", file),
               fmt::format("{} token ids (of {} compared) that stand for other tokens: {}{}", different,
                           count, shown, different > kShown ? ", ..." : ""),
               fmt::format("the tokens of its target {} under the same ids", target_name),
               "Speculation needs one vocabulary; use a draft of the target's family."});
}

/// Whether the vocabularies of two models differ at most in padding rows: both models have a row for each id
/// of both tokenizers. Vocabularies are padded to a round number of rows: Qwen2.5 has 151,936 rows up to 3B
/// and 152,064 from 7B on. check_ids() compares the tokens. False if a tokenizer is missing, if a model is a
/// twin, and for a draft with a reduced output head or with its target's embedding.
bool differs_in_padding(const ModelConfig& draft, const std::optional<Tokenizer>& tokenizer,
                        const Model& target) {
  if (!tokenizer || !target.tokenizer() || draft.inflated || target.config().inflated) return false;
  if (!draft.head_ids.empty() || draft.embedding_of_target) return false;
  return std::max(tokenizer->vocab_size(), target.tokenizer()->vocab_size()) <=
         std::min(draft.vocab, target.config().vocab);
}

void check_draft(const Checkpoint& checkpoint, const Model& target,
                 const std::optional<Tokenizer>& tokenizer) {
  const ModelConfig& draft = checkpoint.config();
  const std::string file = checkpoint.path().string();
  if (draft.vocab != target.config().vocab && draft.vocab != target.config().tokens() &&
      !differs_in_padding(draft, tokenizer, target)) {
    throw Error({fmt::format("{}: vocabulary of the draft", file), fmt::format("{} tokens", draft.vocab),
                 fmt::format("{} tokens, as in its target {}", target.config().tokens(), target.name()),
                 "A draft must use the tokenizer of its target. The numbers of padding rows may differ if "
                 "both models come with their tokenizers."});
  }
  if (tokenizer && target.tokenizer()) check_ids(file, *tokenizer, *target.tokenizer(), target.name());
  const std::string& bound = draft.target_tokenizer_sha256;
  if (!bound.empty() && !target.tokenizer_sha256().empty() && bound != target.tokenizer_sha256()) {
    throw Error(
        {fmt::format("{}: tokenizer of the draft (SHA-256)", file), bound.substr(0, 16) + "...",
         fmt::format("{}..., the tokenizer of {}", target.tokenizer_sha256().substr(0, 16), target.name()),
         "Use the target that this draft was trained for."});
  }
  if (!draft.target_embedding_sha256.empty() && draft.target_embedding_sha256 != target.embedding_sha256()) {
    throw Error(
        {fmt::format("{}: embedding that the draft was trained on (SHA-256)", file),
         draft.target_embedding_sha256.substr(0, 16) + "...",
         fmt::format("{}..., the embedding of {}", target.embedding_sha256().substr(0, 16), target.name()),
         "Use the target that this draft was trained for."});
  }
}

}  // namespace

Model::Weights::Weights(const Checkpoint& checkpoint, std::shared_ptr<Backend> on, const Model* target)
    : config(checkpoint.config()), backend(std::move(on)) {
  tokenizer = checkpoint.tokenizer();
  if (tokenizer) tokenizer_sha256 = tokenizer->sha256();
  int rows_of_tokens = config.vocab, padding = 0;
  if (target != nullptr) {
    check_draft(checkpoint, *target, tokenizer);
    if (differs_in_padding(config, tokenizer, *target)) {
      config.vocab = target->config().vocab;
      rows_of_tokens = std::min(rows_of_tokens, config.vocab);
      padding = masked_rows = config.vocab - rows_of_tokens;
    } else if (config.vocab != target->config().vocab) {
      // The target is an inflated twin, and the draft was made for the model inside the twin. So the draft's
      // output head covers only a part of the target's vocabulary.
      if (config.head_ids.empty()) {
        config.head_ids.resize(static_cast<std::size_t>(config.vocab));
        std::iota(config.head_ids.begin(), config.head_ids.end(), 0);
      }
      config.vocab = target->config().vocab;
    }
  }
  const ModelConfig& c = config;
  const int original_hidden = c.inflated ? c.inflated->hidden : c.hidden,
            original_head_dim = c.inflated ? c.inflated->head_dim : c.head_dim;
  if (c.inflated && c.head_ids.empty()) masked_rows = c.vocab - c.inflated->vocab;
  if (c.embedding_of_target) {
    if (target == nullptr) {
      throw Error({checkpoint.path().string(), "a draft without its own embedding",
                   "a model that stands alone", "Name it as the draft of its target."});
    }
    embedding = target->weights_->original_embedding();
    embedding_beside_target = embedding.data != target->weights_->embedding.data;
    if (embedding.in != c.embedding_dim) {
      throw Error({fmt::format("{}: width of the target's embedding", checkpoint.path().string()),
                   std::to_string(embedding.in), std::to_string(c.embedding_dim),
                   "Use the target that this draft was trained for."});
    }
  } else if (!c.bare) {
    embedding =
        pack(checkpoint, *backend, {{"token_embedding", rows_of_tokens}, {"", padding}}, c.embedding_dim);
  }
  if (checkpoint.has("embed_projection")) {
    embed_projection = pack(checkpoint, *backend, {{"embed_projection", c.hidden}}, c.embedding_dim);
  }
  if (c.position_rows > 0)
    positions = pack(checkpoint, *backend, {{"position_embedding", c.position_rows}}, c.hidden);
  const auto norm = [&](const std::string& name) {
    if (c.norm == NormKind::kRms)
      return Norm{backend->keep(rms_weight(checkpoint, name, c.hidden, original_hidden)), {}};
    return Norm{backend->keep(vector(checkpoint, name, c.hidden)),
                backend->keep(vector(checkpoint, name + ".bias", c.hidden))};
  };
  layers.resize(static_cast<std::size_t>(c.layers));
  for (int i = 0; i < c.layers; ++i) {
    Layer& layer = layers[static_cast<std::size_t>(i)];
    const std::string at = fmt::format("layers.{}.", i);
    const std::vector<Part> qkv{
        {at + "attn_q", c.query_width()}, {at + "attn_k", c.kv_width()}, {at + "attn_v", c.kv_width()}};
    const std::vector<Part> ffn = c.gated
                                      ? std::vector<Part>{{at + "ffn_gate", c.ffn}, {at + "ffn_up", c.ffn}}
                                      : std::vector<Part>{{at + "ffn_up", c.ffn}};
    const auto bias = [&](std::vector<Part> parts) {
      for (Part& part : parts) part.tensor += ".bias";
      return backend->keep(joined(checkpoint, parts));
    };
    if (c.has_attn_norm(i)) layer.attn_norm = norm(at + "attn_norm");
    if (i == 0 && c.beside > 0) {
      const int both = c.beside + c.hidden;
      layer.qkv_beside = pack(checkpoint, *backend, qkv, c.beside, {0, both});
      layer.qkv = pack(checkpoint, *backend, qkv, c.hidden, {c.beside, both});
    } else {
      layer.qkv = pack(checkpoint, *backend, qkv, c.hidden);
    }
    layer.attn_out = pack(checkpoint, *backend, {{at + "attn_out", c.hidden}}, c.query_width());
    layer.ffn_norm = norm(at + "ffn_norm");
    layer.gate_up = pack(checkpoint, *backend, ffn, c.hidden);
    layer.ffn_down = pack(checkpoint, *backend, {{at + "ffn_down", c.hidden}}, c.ffn);
    if (c.qkv_bias) layer.qkv_bias = bias(qkv);
    if (c.attn_out_bias) layer.attn_out_bias = bias({{at + "attn_out", c.hidden}});
    if (c.ffn_bias) {
      layer.gate_up_bias = bias(ffn);
      layer.ffn_down_bias = bias({{at + "ffn_down", c.hidden}});
    }
    if (c.qk_norm) {
      layer.q_norm = backend->keep(rms_weight(checkpoint, at + "attn_q_norm", c.head_dim, original_head_dim));
      layer.k_norm = backend->keep(rms_weight(checkpoint, at + "attn_k_norm", c.head_dim, original_head_dim));
    }
    if (c.post_norms) {
      layer.attn_post_norm = norm(at + "attn_post_norm");
      layer.ffn_post_norm = norm(at + "ffn_post_norm");
    }
    layer.rope = c.rope_of[static_cast<std::size_t>(i)];
    layer.window = c.window(i);
  }
  if (c.final_norm) final_norm = norm("final_norm");
  if (c.bare) return;
  head = c.tied_head
             ? embedding
             : pack(checkpoint, *backend, {{"head", c.head_rows() - padding}, {"", padding}}, c.hidden);
}

std::shared_ptr<const std::vector<RopeBuffers>> Model::Weights::rope_tables(int positions,
                                                                            bool long_divisors) const {
  constexpr int kStep = 256;  // prompts of similar length share a table
  const std::lock_guard lock(rope_mutex_);
  RopeTables& last = rope_tables_[long_divisors ? 1 : 0];
  if (!last.tables || positions > last.positions) {
    positions = std::min(config.context, positions + (kStep - positions % kStep) % kStep);
    const auto back = [this](const Buffer<float>& from) {
      std::vector<float> to(from.size());
      backend->download(from.data(), from.size() * sizeof(float), to.data());
      return to;
    };
    std::vector<RopeBuffers> tables;
    for (std::size_t i = 0; i < config.ropes.size(); ++i) {
      const RopeTable known =
          last.tables ? RopeTable{0, back((*last.tables)[i].cos), back((*last.tables)[i].sin)} : RopeTable{};
      Rope rope = config.ropes[i];
      if (long_divisors) rope.divisors = rope.long_divisors;
      RopeTable table = make_rope_table(rope, positions, known);
      tables.push_back(
          {table.dims, backend->keep(std::move(table.cos)), backend->keep(std::move(table.sin))});
    }
    last = {std::make_shared<const std::vector<RopeBuffers>>(std::move(tables)), positions};
  }
  return last.tables;
}

std::vector<float> Model::Weights::embedding_rows(Token begin, Token end) const {
  std::vector<Token> tokens(static_cast<std::size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  Buffer<std::int32_t> staged;
  const Token* ids = backend->stage(tokens, staged);
  std::vector<float> rows(tokens.size() * static_cast<std::size_t>(embedding.in));
  Buffer<float> gathered;
  float* to = backend->host_memory() ? rows.data() : backend->room(gathered, rows.size());
  backend->gather(embedding, ids, end - begin, to);
  if (to != rows.data()) backend->download(to, rows.size() * sizeof(float), rows.data());
  return rows;
}

const PackedMatrix& Model::Weights::original_embedding() const {
  const ModelConfig& c = config;
  if (!c.inflated || c.embedding_of_target ||
      (c.hidden == c.inflated->hidden && c.vocab == c.inflated->vocab))
    return embedding;
  std::call_once(extracted_, [this, &c] {
    original_embedding_ =
        backend->pack(c.inflated->vocab, c.inflated->hidden, [this](int begin, int end, Bf16* out) {
          const std::vector<float> rows = embedding_rows(begin, end);
          for (auto row = rows.begin(); row != rows.end(); row += embedding.in)
            out = std::transform(row, row + config.inflated->hidden, out, float_to_bf16);
        });
  });
  return original_embedding_;
}

const std::string& Model::Weights::embedding_sha256() const {
  std::call_once(hashed_, [this] {
    const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
    // A twin hashes its original's embedding, because drafts were trained on that one.
    const bool own = config.inflated && !config.embedding_of_target;
    const int count = own ? config.inflated->vocab : embedding.out,
              width = own ? config.inflated->hidden : embedding.in;
    constexpr int kAtOnce = 1024;
    std::vector<Bf16> bits;
    for (Token begin = 0; begin < count; begin += kAtOnce) {
      const std::vector<float> rows = embedding_rows(begin, std::min(begin + kAtOnce, count));
      bits.clear();
      for (auto row = rows.begin(); row != rows.end(); row += embedding.in)
        std::transform(row, row + width, std::back_inserter(bits), float_to_bf16);
      EVP_DigestUpdate(context.get(), bits.data(), bits.size() * sizeof(Bf16));
    }
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context.get(), digest, &size);
    for (unsigned i = 0; i < size; ++i) embedding_sha256_ += fmt::format("{:02x}", digest[i]);
  });
  return embedding_sha256_;
}

}  // namespace speclab
