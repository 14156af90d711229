#include "experiments/simulate/run_shapes.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/model/files/checkpoint.h"

namespace speclab {
namespace {

using nlohmann::json;

std::optional<theory::DecoderShape> shape_of(const json& model, double weight_bytes, double kv_bytes) {
  const std::string path = model.value("path", "");
  if (path.empty() || !std::filesystem::exists(path)) return std::nullopt;
  theory::DecoderShape shape = theory::decoder_shape(Checkpoint::open(path).config(), weight_bytes, kv_bytes);
  if (const auto inflated = model.find("inflated"); inflated != model.end()) {
    const json& to = inflated->at("to");
    const auto size = [&](const char* name, int& value) { value = to.value(name, value); };
    size("hidden", shape.hidden), size("layers", shape.layers), size("heads", shape.heads);
    size("kv_heads", shape.kv_heads), size("head_dim", shape.head_dim), size("ffn", shape.ffn);
    size("vocab", shape.vocab);
  }
  // The layers are set last: "to" has the layers of the whole model, and a draft may keep only some of them.
  if (const auto layers = model.find("layers"); layers != model.end() && layers->is_array())
    shape.layers = static_cast<int>(layers->size());
  return shape;
}

}  // namespace

std::map<std::string, theory::DecoderShape> run_shapes(const json& environment, double weight_bytes,
                                                       double kv_bytes) {
  std::map<std::string, theory::DecoderShape> shapes;
  const json models = environment.value("models", json::object());
  for (const auto& [role, model] : models.items()) {
    if (const auto shape = shape_of(model, weight_bytes, kv_bytes))
      shapes[role == "target" ? "" : role] = *shape;
  }
  return shapes;
}

}  // namespace speclab
