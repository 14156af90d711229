"""The card of trained heads, head.json, as core/model/heads/head_card.h describes it."""

from head_training.tree import best_tree


def card(heads, file, accuracy, nodes, training):
    """file: target.Gguf of the target. accuracy [heads, ranks]: the shares that choose the tree, see tree.py."""
    tree, expected = best_tree(accuracy.tolist() if heads.branches else [row[:1] for row in accuracy.tolist()], nodes)
    training |= dict(accuracy=[[round(a, 4) for a in row] for row in accuracy.tolist()])
    if heads.kind not in ("eagle", "pass"):  # a step of these two kinds drafts with more than these heads
        training |= dict(expected_tau=round(expected, 3))
    out = {
        "format": "speclab head 1",
        "kind": heads.kind,
        "weights": "head.safetensors",
        "target": {
            "name": str(file.field("general.name")),
            "hidden": heads.width,
            "layers": int(file.field("llama.block_count")),
            "vocab": len(file.field("tokenizer.ggml.tokens")),
            "embedding_sha256": file.embedding_sha256(),
            "tokenizer_sha256": file.tokenizer_sha256(),
        },
        "shape": heads.shape(),
        "training": training,
    }
    if heads.taps is not None:
        out["taps"] = heads.taps
    if heads.map_name() is not None:
        out["vocabulary_map"] = heads.map_name()
    if heads.branches and tree:  # no tree if no head was ever right
        out["tree"] = tree
    return out
