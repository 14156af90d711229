"""Heads that heads.py trains, by kind: the modules in PyTorch, and their tensors under the names that the engine reads."""

from head_kinds.block_draft import BlockDraft
from head_kinds.blockwise import BlockwiseHeads
from head_kinds.eagle import Eagle3Head, EagleHead
from head_kinds.hydra import HydraHeads
from head_kinds.medusa import MedusaHeads
from head_kinds.mlp_speculator import MlpSpeculator
from head_kinds.pass_embeddings import PassEmbeddings
from head_kinds.tuned_blockwise import TunedBlockwise

OF_STATES = {
    "blockwise": BlockwiseHeads,
    "hydra": HydraHeads,
    "medusa": MedusaHeads,
    "mlp_speculator": MlpSpeculator,
}  # they read the state of one position
OF_TEXT = {
    "block_draft": BlockDraft,
    "eagle": EagleHead,
    "eagle3": Eagle3Head,
    "pass": PassEmbeddings,
}  # they read whole texts
KINDS = tuple(sorted(OF_STATES | OF_TEXT))


def make_heads(kind, embedding, vocab, options, target=None):
    """embedding [V, D]: the target's; vocab [K]: sorted ids that the heads or the loss cover. options: see head_training.options. target:
    target.Target, for the kinds that read whole texts and for fine-tuned heads."""
    if getattr(options, "mode", "frozen") == "fine_tuned":
        return TunedBlockwise(embedding, vocab, target, options)
    if kind in OF_STATES:
        return OF_STATES[kind](embedding, vocab, options)
    return OF_TEXT[kind](embedding, vocab, target, options)
