#include "experiments/run/model_set.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "core/backend/cuda_kernels.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "experiments/run/backend_rule.h"

namespace speclab {
namespace {

using nlohmann::json;

double parameters(const Checkpoint& checkpoint) {
  double count = 0;
  for (const Checkpoint::TensorInfo& tensor : checkpoint.tensors()) {
    double size = 1;
    for (const std::int64_t extent : tensor.shape) size *= static_cast<double>(extent);
    count += size;
  }
  return count;
}

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

ChatTemplate chat_template_of(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                              const std::string& name) {
  const auto spelling = [&](std::optional<Token> token) {
    return std::string(token ? tokenizer.spelling(*token) : std::string_view());
  };
  const ChatTemplate::Special special{.bos = spelling(tokenizer.bos()), .eos = spelling(tokenizer.eos())};
  if (!name.empty()) return ChatTemplate::by_name(name, special);
  return ChatTemplate::from_source(checkpoint.chat_template(), checkpoint.path().string(), special);
}

std::string backend_name(const BackendChoice& choice, const std::string& gpu_absent) {
  if (choice.backend == "auto") return choice.numerics == "auto" && gpu_absent.empty() ? "cuda" : "cpu";
  if (choice.backend != "cpu" && choice.backend != "cuda" && choice.backend != "host-simt") {
    throw Error({.what = "--backend",
                 .got = choice.backend,
                 .expected = "auto, cpu, cuda or host-simt",
                 .advice = ""});
  }
  return choice.backend;
}

namespace {

/// That of this machine.
std::string name_here(const BackendChoice& choice) {
  return backend_name(choice, choice.backend == "auto" ? gpu_absent() : "");
}

/// Of a backend that has one device.
void require_first_device(const BackendChoice& choice, const char* backend) {
  if (choice.device == 0) return;
  throw Error({.what = "--device",
               .got = std::to_string(choice.device),
               .expected = fmt::format("0: the {} backend has one device, all cores", backend),
               .advice = "--threads limits the cores."});
}

/// Whether it is cuBLASLt.
bool parse_prefill(const std::string& name) {
  if (name != "own" && name != "cublaslt")
    throw Error({.what = "--prefill", .got = name, .expected = "own or cublaslt", .advice = ""});
  return name == "cublaslt";
}

}  // namespace

bool is_device(const BackendChoice& choice) { return name_here(choice) != "cpu"; }

void check_backend(const BackendChoice& choice) {
  if (name_here(choice) != "cuda") {
    make_backend(choice);
    return;
  }
  parse_cuda_kernels(choice.kernels);
  parse_prefill(choice.prefill);
}

std::shared_ptr<Backend> make_backend(const BackendChoice& choice) {
  const std::string name = name_here(choice);
  const CudaKernels kernels = parse_cuda_kernels(choice.kernels);
  const bool cublaslt = parse_prefill(choice.prefill);
  if (name != "cpu") {
    const bool simulated = name == "host-simt";
    if (simulated) require_first_device(choice, "host-simt");
    auto backend = make_cuda_backend(
        {.device = choice.device, .threads = choice.threads, .simulated = simulated, .cublaslt = cublaslt},
        kernels);
    if (choice.numerics != "auto" && choice.numerics != backend->numerics_class()) {
      throw Error({.what = "--numerics",
                   .got = choice.numerics,
                   .expected = fmt::format("auto or {}, what {} computes", backend->numerics_class(),
                                           backend->device_name()),
                   .advice = ""});
    }
    return backend;
  }
  require_first_device(choice, "CPU");
  if (kernels == CudaKernels::kPersistent) {
    throw Error({.what = "--kernels",
                 .got = choice.kernels,
                 .expected = "launches or auto: the CPU backend has no kernels of a GPU",
                 .advice = ""});
  }
  if (cublaslt)
    throw Error({.what = "--prefill",
                 .got = choice.prefill,
                 .expected = "own: the CPU backend has no library of a GPU",
                 .advice = ""});
  return make_cpu_backend({.threads = choice.threads, .numerics = choice.numerics});
}

namespace {

/// `from`: where a model that is not there can be had; "" when nothing says so.
void require_present(const std::string& path, const std::string& from) {
  if (path_exists(path)) return;
  if (from.empty()) fail_path(path, ENOENT, "a model: a GGUF file, or a folder of Hugging Face's form");
  throw Error({.what = path,
               .got = "no such file or directory",
               .expected = "the model " + from,
               .advice = fmt::format("Download it to {} (config.json, tokenizer.json and model.safetensors), "
                                     "or --set the path of your copy.",
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
  descriptions_["target"] = describe(*target_, target, checkpoint.sha256(), parameters(checkpoint));
}

void ModelSet::add_draft(const DraftSpec& draft) {
  if (drafts_.contains(draft.name)) return;
  if (!draft.model.empty()) {
    require_present(draft.model, draft.from);
    Checkpoint checkpoint = Checkpoint::open(draft.model);
    if (draft.inflate.any()) checkpoint.inflate(draft.inflate);
    const auto model = Model::load(checkpoint, backend_, {.layers = {}, .target = target_});
    descriptions_[draft.name] = describe(*model, draft.model, checkpoint.sha256(), parameters(checkpoint));
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

std::vector<Token> ModelSet::end_tokens() const {
  return tokenizer() ? tokenizer()->end_of_generation() : std::vector<Token>{};
}

}  // namespace speclab
