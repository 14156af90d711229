#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>

#include "core/base/error.h"
#include "core/model/files/checkpoint.h"
#include "core/theory/cost.h"
#include "experiments/cli/command.h"
#include "experiments/run/model_set.h"
#include "experiments/analysis/table.h"

namespace speclab {
namespace po = boost::program_options;
namespace {

using nlohmann::json;

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes * 1e-9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes * 1e-6);
  return fmt::format("{:.1f} kB", bytes * 1e-3);
}

json describe(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  std::map<std::string, double> types;
  for (const Checkpoint::TensorInfo& tensor : checkpoint.tensors())
    types[tensor.type] += weight_count(tensor);
  json out = {{"path", checkpoint.path().string()},
              {"family", config.family},
              {"name", config.name},
              {"hidden", config.hidden},
              {"layers", config.layers},
              {"heads", config.heads},
              {"kv_heads", config.kv_heads},
              {"head_dim", config.head_dim},
              {"ffn", config.ffn},
              {"vocab", config.vocab},
              {"head_rows", config.head_rows()},
              {"context", config.context},
              {"rope_theta", config.rope_theta},
              {"norm_eps", config.norm_eps},
              {"tied_head", config.tied_head},
              {"tokens", config.tokens()},
              {"embedding_of_target", config.embedding_of_target},
              {"parameters", weight_count(checkpoint)},
              {"types", types},
              {"file_bytes", checkpoint.file_bytes()},
              {"sha256", checkpoint.sha256()}};
  const theory::DecoderShape shape = theory::decoder_shape(config);
  const theory::ForwardCost step =
      theory::forward_cost(shape, {.tokens = 1, .logit_rows = 1, .context = 0, .keys = 1});
  out["flops_per_token"] = theory::flops_per_token(shape);
  out["weight_bytes_per_forward"] = step.weight_bytes;
  out["kv_bytes_per_position"] = step.kv_write_bytes;
  const std::optional<Tokenizer> tokenizer = checkpoint.tokenizer();
  out["assumed"] = checkpoint.assumed();
  if (tokenizer) {
    for (const std::string& sentence : tokenizer->assumed()) out["assumed"].push_back(sentence);
    json end = json::array();
    for (const Token token : tokenizer->end_of_generation())
      end.push_back({{"id", token}, {"text", tokenizer->spelling(token)}});
    out["tokenizer"] = {
        {"vocab", tokenizer->vocab_size()}, {"end_of_generation", end}, {"sha256", tokenizer->sha256()}};
  } else {
    out["tokenizer"] = nullptr;
  }
  try {
    const ChatTemplate chat =
        tokenizer ? chat_template_of(checkpoint, *tokenizer, "") : ChatTemplate::plain();
    out["chat_template"] = {
        {"family", chat.family_name()},
        {"default_system", chat.has_default_system() ? json(chat.default_system()) : json(nullptr)}};
  } catch (const Error& error) {
    out["chat_template"] = {{"error", error.what()}};
  }
  return out;
}

void print(const json& model) {
  fmt::print("{}\n  family        {} \"{}\"\n", model["path"].get<std::string>(),
             model["family"].get<std::string>(), model["name"].get<std::string>());
  fmt::print("  shape         {} layers, hidden {}, {} heads of {} ({} key/value), feed-forward {}\n",
             model["layers"].dump(), model["hidden"].dump(), model["heads"].dump(), model["head_dim"].dump(),
             model["kv_heads"].dump(), model["ffn"].dump());
  fmt::print("  vocabulary    {}{}{}, head {}\n", model["vocab"].dump(),
             model["tokens"] == model["vocab"] ? "" : " (masked from " + model["tokens"].dump() + " on)",
             model["embedding_of_target"].get<bool>() ? " (embedding of the target)" : "",
             model["head_rows"] != model["vocab"] ? fmt::format("over {} tokens", model["head_rows"].dump())
             : model["tied_head"].get<bool>()     ? "tied"
                                                  : "of its own");
  fmt::print("  context       {} positions, RoPE theta {}\n", model["context"].dump(),
             model["rope_theta"].dump());
  std::string types;
  for (const auto& [type, count] : model["types"].items())
    types += fmt::format("{}{} {:.1f} %", types.empty() ? "" : ", ", type,
                         100 * count.get<double>() / model["parameters"].get<double>());
  fmt::print("  parameters    {:.2f} M ({}), file {}\n", model["parameters"].get<double>() * 1e-6, types,
             bytes_text(model["file_bytes"].get<double>()));
  fmt::print("  per token     {:.1f} MFLOP, {} of weights as bf16, {} of KV cache\n",
             model["flops_per_token"].get<double>() * 1e-6,
             bytes_text(model["weight_bytes_per_forward"].get<double>()),
             bytes_text(model["kv_bytes_per_position"].get<double>()));
  if (model["tokenizer"].is_null()) {
    fmt::print("  tokenizer     none of its own\n");
  } else {
    std::string end;
    for (const json& token : model["tokenizer"]["end_of_generation"])
      end += fmt::format("{}{} ({})", end.empty() ? "" : ", ", token["text"].get<std::string>(),
                         token["id"].dump());
    fmt::print("  tokenizer     {} tokens, an answer ends at {}\n", model["tokenizer"]["vocab"].dump(),
               end.empty() ? "nothing" : end);
  }
  const json& chat = model["chat_template"];
  if (chat.contains("error")) {
    fmt::print("  chat template not usable: {}\n", chat["error"].get<std::string>());
  } else {
    fmt::print("  chat template {}{}\n", chat["family"].get<std::string>(),
               chat["default_system"].is_null() ? ""
                                                : fmt::format(", adds the system prompt \"{}\"",
                                                              chat["default_system"].get<std::string>()));
  }
  for (const json& sentence : model["assumed"])
    fmt::print("  assumed       {}\n", sentence.get<std::string>());
  fmt::print("  SHA-256       {}\n", model["sha256"].get<std::string>());
}

int run_model(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description options;
  BackendChoice backend;
  std::string inflate;
  options.add_options()("tensors", "list the tensors")("json", "print JSON");
  add_inflate_option(options, inflate);
  add_backend_options(options, backend);
  const auto values = parse_arguments(command, arguments, options, {"PATH"});
  if (!values) return kOk;
  make_backend(backend);  // this only checks the options; the printed numbers do not depend on the backend
  Checkpoint checkpoint = Checkpoint::open(required(*values, "PATH", command));
  if (const InflateShape shape = parse_inflate_text(inflate); shape.any()) checkpoint.inflate(shape);
  json model = describe(checkpoint);
  checkpoint.require_unchanged();
  const bool tensors = values->count("tensors") > 0;
  if (values->count("json") > 0) {
    if (tensors) {
      for (const auto& tensor : checkpoint.tensors())
        model["tensors"].push_back({{"name", tensor.name},
                                    {"file_name", tensor.file_name},
                                    {"type", tensor.type},
                                    {"shape", tensor.shape},
                                    {"bytes", tensor.bytes}});
    }
    fmt::print("{}\n", model.dump(1));
    return kOk;
  }
  print(model);
  if (tensors) {
    Table table{.header = {"tensor", "in the file", "type", "shape", "bytes"},
                .rows = {},
                .right = {false, false, false, false, true}};
    for (const auto& tensor : checkpoint.tensors())
      table.rows.push_back({tensor.name, tensor.file_name, tensor.type, json(tensor.shape).dump(),
                            std::to_string(tensor.bytes)});
    fmt::print("\n{}", to_text(table));
  }
  return kOk;
}

}  // namespace

const Command kModelCommand = {
    "model", "DIR|GGUF [options]",
    "Describes a model: shape, bytes, operations per token, tokenizer, chat template.",
    "speclab model models/SmolLM2-135M-Instruct.Q4_1.gguf", run_model};

}  // namespace speclab
