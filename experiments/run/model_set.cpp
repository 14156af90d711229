#include "experiments/run/model_set.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/model/toy/toy_checkpoint.h"
#include "experiments/config/toy_spec.h"

namespace speclab {
namespace {

using nlohmann::json;

nlohmann::json describe(const Model& model, const std::string& path, const std::string& sha256,
                        double count) {
  const auto layers = model.layers();
  json out = {{"path", path},
              {"name", model.name()},
              {"sha256", sha256},
              {"parameters", count},
              {"weight_bytes", model.weight_bytes()},
              {"embedding_bytes", model.embedding_bytes()},
              {"layers", std::vector<int>(layers.begin(), layers.end())}};
  if (const ModelConfig& c = model.config(); c.inflated) {
    const InflatedFrom& from = *c.inflated;
    out["inflated"] = {
        {"from", to_json(InflateShape{from.hidden, from.layers, from.heads, from.kv_heads, from.head_dim,
                                      from.ffn, from.vocab})},
        {"to", to_json(InflateShape{c.hidden, c.layers, c.heads, c.kv_heads, c.head_dim, c.ffn, c.vocab})}};
    out["inflated"]["from"]["name"] = from.name;
  }
  return out;
}

}  // namespace

double weight_count(const Checkpoint::TensorInfo& tensor) {
  double count = 1;
  for (const std::int64_t extent : tensor.shape) count *= static_cast<double>(extent);
  return count;
}

double weight_count(const Checkpoint& checkpoint) {
  double count = 0;
  for (const Checkpoint::TensorInfo& tensor : checkpoint.tensors()) count += weight_count(tensor);
  return count;
}

ChatTemplate chat_template_of(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                              const std::string& name) {
  const auto spelling = [&](std::optional<Token> token) {
    return std::string(token ? tokenizer.spelling(*token) : std::string_view());
  };
  const ChatTemplate::Special special{.bos = spelling(tokenizer.bos()), .eos = spelling(tokenizer.eos())};
  if (!name.empty()) return ChatTemplate::by_name(name, special);
  return ChatTemplate::from_source(checkpoint.chat_template(), checkpoint.path().string(), special);
}

namespace {

/// Throws Error when the model does not exist. `from` is the place to get it from; "" when that is not known.
void require_present(const std::string& path, const std::string& from) {
  if (path_exists(path)) return;
  if (from.empty()) fail_path(path, ENOENT, "a model: a GGUF file, or a folder in Hugging Face's layout");
  throw Error({.what = path,
               .got = "no such file or directory",
               .expected = "the model " + from,
               .advice = fmt::format("Download it to {} (config.json, tokenizer.json and model.safetensors), "
                                     "or give the path of your copy with --set.",
                                     path)});
}

}  // namespace

ModelSet::ModelSet(const std::string& target, std::shared_ptr<Backend> backend,
                   const std::string& chat_template, const InflateShape& inflate, const std::string& from)
    : backend_(std::move(backend)) {
  require_present(target, from);
  Checkpoint checkpoint = Checkpoint::open(target);
  if (inflate.any()) checkpoint.inflate(inflate);
  target_ = Model::load(checkpoint, backend_, {});
  if (tokenizer()) template_ = chat_template_of(checkpoint, *tokenizer(), chat_template);
  descriptions_["target"] = describe(*target_, target, checkpoint.sha256(), weight_count(checkpoint));
}

ModelSet::ModelSet(const toy::MarkovSpec& target, std::shared_ptr<Backend> backend)
    : backend_(std::move(backend)) {
  const Checkpoint checkpoint = toy::open_toy(toy::make_markov_table(target), toy::describe(target));
  target_ = Model::load(checkpoint, backend_, {});
  add("target", target, checkpoint, *target_);
}

void ModelSet::add(const std::string& role, const toy::MarkovSpec& spec, const Checkpoint& checkpoint,
                   const Model& model) {
  json& description = descriptions_[role];
  description = describe(model, toy::describe(spec), checkpoint.sha256(), weight_count(checkpoint));
  description["markov"] = to_json(spec);
}

void ModelSet::add_draft(const DraftSpec& draft) {
  if (drafts_.contains(draft.name)) return;
  if (draft.markov) {
    const Checkpoint checkpoint =
        toy::open_toy(toy::make_markov_table(*draft.markov), toy::describe(*draft.markov));
    const auto model = Model::load(checkpoint, backend_, {.layers = {}, .target = target_});
    add(draft.name, *draft.markov, checkpoint, *model);
    drafts_[draft.name] = model;
    return;
  }
  if (!draft.model.empty()) {
    require_present(draft.model, draft.from);
    Checkpoint checkpoint = Checkpoint::open(draft.model);
    if (draft.inflate.any()) checkpoint.inflate(draft.inflate);
    const auto model = Model::load(checkpoint, backend_, {.layers = {}, .target = target_});
    descriptions_[draft.name] = describe(*model, draft.model, checkpoint.sha256(), weight_count(checkpoint));
    drafts_[draft.name] = model;
    return;
  }
  const std::vector<int> layers =
      draft.keep > 0 ? spread_layers(draft.keep, target_->config().layers) : draft.layers;
  const auto model = Model::with_layers(target_, layers);
  const nlohmann::json& of_target = descriptions_["target"];
  descriptions_[draft.name] =
      describe(*model, of_target["path"], of_target["sha256"], of_target["parameters"]);
  drafts_[draft.name] = model;
}

std::shared_ptr<const Model> ModelSet::draft(const std::string& name) const {
  if (name.empty()) return nullptr;
  const auto found = drafts_.find(name);
  SPECLAB_CHECK(found != drafts_.end(), "draft {} was not loaded", name);
  return found->second;
}

std::vector<std::shared_ptr<const Model>> ModelSet::drafts(const std::vector<std::string>& names) const {
  std::vector<std::shared_ptr<const Model>> models;
  for (const std::string& name : names) models.push_back(draft(name));
  return models;
}

std::vector<Token> ModelSet::end_tokens() const {
  return tokenizer() ? tokenizer()->end_of_generation() : std::vector<Token>{};
}

}  // namespace speclab
