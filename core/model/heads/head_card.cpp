#include "core/model/heads/head_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/model/files/checkpoint_json.h"

namespace speclab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kMostBlocks = 8, kMostInner = 1 << 17;
constexpr const char* kOther = "Use the target that this head was trained for.";
constexpr const char* kWriteCard = "Write the head's card again.";

constexpr std::pair<HeadKind, std::string_view> kKinds[] = {{HeadKind::kBlockwise, "blockwise"},
                                                            {HeadKind::kMedusa, "medusa"},
                                                            {HeadKind::kHydra, "hydra"},
                                                            {HeadKind::kMlpSpeculator, "mlp_speculator"},
                                                            {HeadKind::kEagle, "eagle"},
                                                            {HeadKind::kParallelEagle, "parallel_eagle"},
                                                            {HeadKind::kMtp, "mtp"},
                                                            {HeadKind::kFalcon, "falcon"},
                                                            {HeadKind::kPass, "pass"},
                                                            {HeadKind::kBlockDraft, "block_draft"}};

bool is_pickle(const fs::path& file) {
  const std::string extension = file.extension().string();
  return extension == ".pt" || extension == ".pth" || extension == ".bin";
}

[[noreturn]] void refuse_pickle(const fs::path& file) {
  throw Error({file.string(), "a file of PyTorch, which may contain code that runs when it is read",
               "a safetensors file", "Convert the head with scripts/models/convert_head.py."});
}

/// Throws Error if the member is there and its number is neither `have` nor `or_else`.
void require_number(const ConfigValues& stated, const char* key, int have, int or_else, const Model& target) {
  if (!stated.has(key)) return;
  const int said = stated.integer(key, 0, INT32_MAX);
  if (said == have || said == or_else) return;
  throw Error({stated.name(key), fmt::format("{}", said),
               fmt::format("{}, as in the target {}", have, target.name()), kOther});
}

void require_hash(const ConfigValues& stated, const char* key, const std::string& have, const Model& target) {
  const std::string said = stated.text_or(key, "");
  if (said.empty()) return;
  if (said.size() != 64 || said.find_first_not_of("0123456789abcdef") != std::string::npos)
    stated.refuse(key, "64 lower-case hexadecimal digits", kWriteCard);
  if (have.empty() || said == have) return;
  throw Error({stated.name(key), said.substr(0, 16) + "...",
               fmt::format("{}..., as the target {} has it", have.substr(0, 16), target.name()), kOther});
}

void require_target(const ConfigValues& stated, const char* hidden, const char* layers, const char* vocab,
                    const Model& target) {
  const ModelConfig& config = target.config();
  require_number(stated, hidden, config.hidden, config.hidden, target);
  require_number(stated, layers, config.layers, config.layers, target);
  require_number(stated, vocab, config.vocab, config.tokens(), target);
}

int read_tap(const ConfigValues& card, const Model& target) {
  if (!card.has("taps")) return kFinalNorm;
  const json& taps = card.at("taps");
  const int layers = target.config().layers;
  if (taps.is_array() && taps.size() == 1) {
    if (taps[0] == "final_norm") return kFinalNorm;
    if (taps[0].is_number_unsigned() && taps[0] <= layers) return taps[0].get<int>();
  }
  throw Error({card.name("taps"), taps.dump(),
               fmt::format("[\"final_norm\"] or one number of layers from 0 to {}", layers), kWriteCard});
}

/// The card of this project.
HeadCard read_own(const ConfigValues& card, const fs::path& folder, const Model& target) {
  if (card.text_or("format", "") != kHeadFormat)
    card.refuse("format", fmt::format("\"{}\"", kHeadFormat), "Another version wrote this card.");
  HeadCard out;
  const std::string kind = card.text_or("kind", "");
  const auto* const known = std::find_if(std::begin(kKinds), std::end(kKinds),
                                         [&](const auto& entry) { return entry.second == kind; });
  if (known == std::end(kKinds)) {
    std::string names;
    for (const auto& [each, name] : kKinds) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name);
    card.refuse("kind", "one of " + names, kWriteCard);
  }
  out.kind = known->first;
  const ConfigValues stated = card.object("target");
  for (const char* key : {"hidden", "layers", "vocab"}) stated.integer(key, 0, INT32_MAX);  // must be there
  require_target(stated, "hidden", "layers", "vocab", target);
  out.vocab = stated.integer("vocab", 0, INT32_MAX);
  require_hash(stated, "tokenizer_sha256", target.tokenizer_sha256(), target);
  if (stated.has("embedding_sha256"))
    require_hash(stated, "embedding_sha256", target.embedding_sha256(), target);
  out.vocabulary_map = card.text_or("vocabulary_map", "");
  if (card.has("tree")) out.tree = read_index_paths(card.at("tree"), card.name("tree"));
  const fs::path weights = card.text_or("weights", "head.safetensors");
  if (is_pickle(weights)) refuse_pickle(folder / weights);
  if (weights.empty() || weights != weights.filename())
    card.refuse("weights", "the name of a safetensors file in the folder of the card", kWriteCard);
  out.weights = folder / weights;
  if (out.kind == HeadKind::kFalcon) {
    out.falcon = read_falcon_form(card, target);
    return out;
  }
  if (out.kind == HeadKind::kMtp) {
    out.mtp = read_mtp_form(card, target);
    return out;
  }
  if (out.kind == HeadKind::kParallelEagle) {
    out.eagle = read_parallel_eagle_form(card, target);
    return out;
  }
  if (out.kind == HeadKind::kEagle) {
    out.eagle = read_eagle_form(card, target);
    if (!out.vocabulary_map.empty() && out.eagle.version == 1) {
      card.refuse("vocabulary_map", "none with version 1", "Such a head has the output head of the target.");
    }
    return out;
  }

  if (out.kind == HeadKind::kBlockDraft) out.block = read_block_form(card, target);
  else out.tap = read_tap(card, target);
  const ConfigValues shape = card.object("shape");
  out.heads = out.kind == HeadKind::kBlockDraft ? out.block.size - 1 : shape.integer("heads", 1, kMostHeads);
  if (out.kind == HeadKind::kPass && !out.vocabulary_map.empty())
    card.refuse("vocabulary_map", "none", "Look-ahead embeddings use the output head of the target.");
  out.blocks = shape.integer_or("blocks", 1, out.kind == HeadKind::kHydra ? 1 : 0, kMostBlocks);
  out.prefix_attention = shape.flag_or("prefix_attention", false);
  if (out.kind == HeadKind::kMlpSpeculator || out.kind == HeadKind::kBlockwise)
    out.inner = shape.integer("inner", 1, kMostInner);
  out.tied = shape.flag_or("tied", false);
  out.scale_input = shape.flag_or("scale_input", false);
  return out;
}

/// The first of these files that the folder has.
fs::path weights_in(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (path_exists(folder / name)) return folder / name;
  }
  const std::vector<fs::path> entries = folder_entries(folder);
  const auto pickle = std::find_if(entries.begin(), entries.end(), is_pickle);
  if (pickle != entries.end()) refuse_pickle(*pickle);
  throw Error({(folder / *names.begin()).string(), "no such file", "the weights of the head in one file",
               "The folder is incomplete, or the weights are in several files; join them into one."});
}

/// The number of tokens that a published head states; if it states none, the number that the target can draw.
int published_vocab(const ConfigValues& config, const Model& target) {
  return config.integer_or("vocab_size", target.config().tokens(), 0, INT32_MAX);
}

/// The config.json of a head of EAGLE or P-EAGLE describes its decoder layers, in the form of a Llama model.
HeadCard read_published_eagle_card(const ConfigValues& config, const fs::path& folder, const Model& target) {
  HeadCard out;
  out.published = true;
  const ModelConfig& of = target.config();
  require_number(config, "vocab_size", of.vocab, of.tokens(), target);
  out.vocab = published_vocab(config, target);
  out.eagle = read_published_eagle(config, target);
  out.kind = out.eagle.parallel > 0 ? HeadKind::kParallelEagle : HeadKind::kEagle;
  // Without the key, the output head has a row for each token.
  const int rows = config.integer_or("draft_vocab_size", out.vocab, 1, INT32_MAX);
  if (out.eagle.version == 3 && rows != out.vocab) out.vocabulary_map = "d2t";
  out.weights = weights_in(folder, {"model.safetensors"});
  return out;
}

/// The config.json that the published code of a kind writes. `wanted` is the kind that the caller asks for.
HeadCard read_published(const ConfigValues& config, const fs::path& folder, HeadKind wanted,
                        const Model& target) {
  const bool other = config.has("medusa_num_heads") || config.has("hydra_num_heads") ||
                     config.has("n_predict") || config.has("dflash_config");
  if (wanted == HeadKind::kMtp && !other) {
    throw Error({config.where(), "a config.json", "a head.json, because modules of a checkpoint need a card",
                 "scripts/models/convert_head.py takes the modules out of a checkpoint."});
  }
  if (wanted == HeadKind::kFalcon && !other)
    throw Error({config.where(), "a config.json", "a head.json, the card of this project",
                 "The published heads of Falcon are not read."});
  if ((wanted == HeadKind::kEagle || wanted == HeadKind::kParallelEagle) && !other)
    return read_published_eagle_card(config, folder, target);
  HeadCard out;
  out.published = true;
  out.vocab = published_vocab(config, target);
  if (config.has("dflash_config")) {
    require_target(config, "hidden_size", "num_target_layers", "vocab_size", target);
    out.kind = HeadKind::kBlockDraft;
    out.block = read_published_block(config, target);
    out.heads = out.block.size - 1;
    out.weights = weights_in(folder, {"model.safetensors"});
    return out;
  }
  require_target(config, "hidden_size", "num_hidden_layers", "vocab_size", target);
  if (config.has("medusa_num_heads")) {
    out.kind = HeadKind::kMedusa;
    out.heads = config.integer("medusa_num_heads", 1, kMostHeads);
    out.blocks = config.integer_or("medusa_num_layers", 1, 0, kMostBlocks);
    out.weights = weights_in(folder, {"medusa_lm_head.safetensors", "model.safetensors"});
  } else if (config.has("hydra_num_heads")) {
    out.kind = HeadKind::kHydra;
    out.heads = config.integer("hydra_num_heads", 1, kMostHeads);
    out.blocks = config.integer_or("hydra_num_layers", 1, 1, kMostBlocks);
    const std::string form = config.text_or("hydra_head_arch", "mlp");
    if (form != "mlp" && form != "prefix-mlp")
      config.refuse("hydra_head_arch", "\"mlp\" or \"prefix-mlp\"", "Other forms are not supported.");
    out.prefix_attention = form == "prefix-mlp";
    if (!config.flag_or("grounded_heads", false))
      config.refuse("grounded_heads", "true", "Heads that do not read the drafted tokens are not supported.");
    const int layers = target.config().layers;
    // transformers lists the states from the embedding to the final norm; this offset counts from the end.
    const int offset = config.integer_or("hidden_state_offset", 0, 0, layers);
    out.tap = offset == 0 ? kFinalNorm : layers - offset;
    out.weights = weights_in(folder, {"hydra_lm_head.safetensors", "model.safetensors"});
  } else if (config.has("n_predict")) {
    out.kind = HeadKind::kMlpSpeculator;
    out.heads = config.integer("n_predict", 1, kMostHeads);
    require_number(config, "emb_dim", target.config().hidden, target.config().hidden, target);
    const int inner = config.integer_or("inner_dim", 0, 0, kMostInner);
    out.inner = inner > 0 ? inner : target.config().hidden;
    out.tied = config.flag_or("tie_weights", config.flag_or("tie_wts", false));
    out.scale_input = config.flag_or("scale_input", false);
    out.weights = weights_in(folder, {"model.safetensors"});
  } else {
    throw Error({config.name("medusa_num_heads"),
                 "nothing, and none of hydra_num_heads, n_predict and dflash_config",
                 "the config.json of a published head", "Name the folder of a head, or write a head.json."});
  }
  return out;
}

}  // namespace

std::string_view to_string(HeadKind kind) {
  for (const auto& [each, name] : kKinds) {
    if (each == kind) return name;
  }
  SPECLAB_CHECK(false, "head kind {}", static_cast<int>(kind));
  return "";
}

HeadCard read_head_card(const fs::path& path, HeadKind kind, const Model& target) {
  if (is_pickle(path)) refuse_pickle(path);
  std::error_code unreadable;
  const bool is_folder = fs::is_directory(path, unreadable);
  if (!is_folder && (!path_exists(path) || path.extension() != ".json")) {
    throw Error({path.string(), path_exists(path) ? "a file that is no card" : "no such folder",
                 "the folder of a head, with head.json and a safetensors file",
                 "Name the folder, not the file of the weights."});
  }
  const fs::path folder = is_folder ? path : path.parent_path();
  const fs::path own = folder / "head.json";
  const fs::path file = !is_folder ? path : path_exists(own) ? own : folder / "config.json";
  if (!path_exists(file)) {
    throw Error({path.string(), "a folder with neither head.json nor config.json", "the folder of a head",
                 "scripts/models/convert_head.py writes head.json for a head of PyTorch."});
  }
  const json text = read_checkpoint_json(file, kMostConfigBytes);
  const ConfigValues values(text, file.string());
  HeadCard card =
      values.has("format") ? read_own(values, folder, target) : read_published(values, folder, kind, target);
  if (card.kind != kind) {
    throw Error({file.string(), fmt::format("heads of the kind {}", to_string(card.kind)),
                 fmt::format("heads of the kind {}", to_string(kind)),
                 "Use the strategy with the name of the kind."});
  }
  return card;
}

}  // namespace speclab
