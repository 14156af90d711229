#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/model/heads/block_form.h"
#include "core/model/heads/eagle/eagle_form.h"
#include "core/model/heads/falcon/falcon_form.h"
#include "core/model/heads/index_paths.h"
#include "core/model/heads/mtp/mtp_form.h"
#include "core/model/net/model.h"

namespace speclab {

/// The architectures of trained heads. All but PaSS read hidden states of the target. Between steps they keep
/// only what they computed from tokens and target states of committed positions, such as a KV cache.
enum class HeadKind : std::uint8_t {
  kBlockwise,      ///< BlockwiseHeads (blockwise_heads.h)
  kMedusa,         ///< MedusaHeads (medusa_heads.h)
  kHydra,          ///< HydraHeads (hydra_heads.h)
  kMlpSpeculator,  ///< MlpSpeculatorHeads (mlp_speculator_heads.h)
  kEagle,          ///< EagleHead (eagle_head.h)
  kParallelEagle,  ///< ParallelEagleHead (parallel_eagle_head.h)
  kMtp,            ///< MtpHead (mtp_head.h)
  kFalcon,         ///< FalconHead (falcon/falcon_head.h)
  kPass,           ///< PassEmbeddings (pass_embeddings.h)
  kBlockDraft,     ///< BlockHead (block_head.h)
};
/// The kind's name in cards, which is also the name of the strategy that drafts with it.
std::string_view to_string(HeadKind kind);

/// What a trained head says about itself. A head is a folder with a safetensors file and a card. The card of
/// this project is head.json:
///
///     {"format": "speclab head 1", "kind": "medusa", "weights": "head.safetensors",
///      "target": {"name": "...", "hidden": 576, "layers": 30, "vocab": 49152,
///                 "embedding_sha256": "...", "tokenizer_sha256": "..."},
///      "taps": ["final_norm"], "vocabulary_map": "draft_vocab", "tree": [[0], [0, 0], [1]],
///      "shape": {"heads": 4, "blocks": 1}, "training": {...}}
///
/// - "target" binds the head to its target. The two hashes and the name may be missing.
/// - "taps" is the state that the head reads: "final_norm", or a number of layers as in Tap::layer. PaSS
///   reads none, EAGLE-3 and P-EAGLE three, and a block draft one or more.
/// - "vocabulary_map" names the tensor with the tokens of a reduced output head (HeadFile::token_ids).
///   Without it, the output heads have a row for each token of the target.
/// - "tree" is the tree to draft by default (IndexPaths); without it, a chain.
/// - "shape": "heads", and by kind "blocks" (Medusa, Hydra: residual blocks of a head; default 1),
///   "prefix_attention" (Hydra), "inner" (MLP speculator, blockwise), "tied" and "scale_input" (MLP
///   speculator). PaSS: "heads" is the number of look-ahead embeddings. EAGLE, P-EAGLE, modules for
///   multi-token prediction, Falcon and block drafts have other members, see read_eagle_form(),
///   read_parallel_eagle_form(), read_mtp_form(), read_falcon_form() and read_block_form().
/// - "training" tells people about the data and the training. It is not read.
///
/// The tensors have the names of the published code, see the classes of the kinds. Without head.json, the
/// config.json of a published head is read: Medusa ("medusa_num_heads"), Hydra ("hydra_num_heads"), the
/// accelerators of the MLP speculator ("n_predict"), DFlash ("dflash_config"), and, if none of these keys is
/// there, EAGLE and P-EAGLE. Such a head says little about its target, so only the shapes bind it.
struct HeadCard {
  HeadKind kind = HeadKind::kMedusa;
  std::filesystem::path weights;  ///< the safetensors file
  bool published = false;         ///< from config.json. The stated `heads` may be wrong, see MedusaHeads
  /// Number of tokens of the target that the head was made for. If the target is an inflated twin, this is
  /// usually the number of its original, which is smaller.
  int vocab = 0;
  int tap = kFinalNorm;  ///< as Tap::layer
  int heads = 1;         ///< number of tokens that the head drafts after the pending token
  int blocks = 1;
  bool prefix_attention = false;
  int inner = 0;
  bool tied = false, scale_input = false;
  std::string vocabulary_map;  ///< name of a tensor; empty: all tokens of the target
  IndexPaths tree;             ///< empty: none
  EagleForm eagle;             ///< EAGLE, P-EAGLE; the members from `tap` to `scale_input` then say nothing
  MtpForm mtp;                 ///< modules for multi-token prediction; these members then say nothing either
  FalconForm falcon;           ///< Falcon; these members then say nothing either
  BlockForm block;             ///< of a block draft; `heads` is then the number of masked positions
};

/// Reads the card of the head at `path`, a folder or its head.json or config.json. Throws Error
/// - if the weights are in a file of PyTorch (.pt, .pth, .bin), which may contain code;
///   scripts/models/convert_head.py converts it,
/// - if the head is of another kind,
/// - if the head was made for another target: one with another width, number of layers, vocabulary, embedding
///   or tokenizer,
/// - if the card lacks a member or has an impossible value.
HeadCard read_head_card(const std::filesystem::path& path, HeadKind kind, const Model& target);

inline constexpr const char* kHeadFormat = "speclab head 1";
inline constexpr int kMostHeads = kLongestIndexPath;

}  // namespace speclab
