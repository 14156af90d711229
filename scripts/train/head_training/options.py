"""The options of heads.py, and what is refused."""

import argparse
from pathlib import Path

import torch
from distillation.labels import TOP
from distillation.objectives import OBJECTIVES
from head_kinds import KINDS, OF_STATES
from train import WRITERS

from head_training.measure import RANKS

MOST_HEADS = 16  # kMostHeads in core/model/heads/head_card.h
MOST_VOCAB = 32767  # numbers of tokens are stored in 16 bits
NOT_IN_KEY = ("cache", "device", "epochs", "minutes", "nodes", "out", "target")  # what a resumed training may change

# Options that some kinds do not have: (the kinds that have it, the default by kind).
OF_KINDS = {
    "inner": (("blockwise", "mlp_speculator"), lambda kind: 512),
    "unroll": (("eagle", "eagle3"), lambda kind: 3 if kind == "eagle3" else 1),
    "feature_loss": (("eagle",), lambda kind: 10.0 if kind == "eagle" else 0.0),
    "taps": (("eagle3", "block_draft"), lambda kind: None),
    "attention_heads": (("eagle", "eagle3", "block_draft"), lambda kind: None),
    "kv_heads": (("eagle", "eagle3", "block_draft"), lambda kind: None),
    "ffn": (("eagle", "eagle3", "block_draft"), lambda kind: None),
    "layers": (("block_draft",), lambda kind: 1),
    "anchors": (("pass", "block_draft"), lambda kind: 16),
    "mask_token": (("block_draft",), lambda kind: None),
    "mode": (("blockwise",), lambda kind: "frozen"),
    "target_rate": (("blockwise",), lambda kind: 1e-5),
}


def kind_of(name):
    return "block_draft" if name == "block" else name


def tap_of(text):
    return "final_norm" if text == "final_norm" else int(text)


def make_parser(text):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    add("--cache", type=Path, default=Path(".cache/train"), help="folder of the text of generate.py")
    add("--out", type=Path, required=True, help="folder of the heads")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--kind", type=kind_of, choices=KINDS, default="medusa", help="block is short for block_draft")
    add(
        "--heads", type=int, default=4, help="heads, look-ahead embeddings or masked positions; eagle*: measured depths"
    )
    add("--inner", type=int, help="blockwise, mlp_speculator: width inside (default: 512)")
    add("--objective", choices=OBJECTIVES, default="forward_kl")
    add("--ranking", type=float, default=0.0, help="weight of the ranking loss of HASS, added to the objective")
    add("--vocab", type=int, default=4096, help="number of tokens that the heads can draft, or that the loss sees")
    add("--writers", nargs="+", choices=WRITERS, default=["target"], help="whose text to train on (other_text.py)")
    add("--text", choices=("all", "greedy"), default="all", help="greedy: only text written at temperature 0")
    add("--unroll", type=int, help="eagle, eagle3: steps of training-time test (default: 1; eagle3: 3)")
    add("--feature-loss", type=float, help="eagle: weight of the smooth L1 loss of features (default: 10)")
    add("--taps", type=tap_of, nargs="+", help='eagle3, block: states to read, numbers of layers or "final_norm"')
    add("--attention-heads", type=int, help="eagle, eagle3, block: query heads (default: those of the target)")
    add(
        "--kv-heads",
        type=int,
        help="eagle, eagle3, block: key/value heads (default: the target's, or --attention-heads)",
    )
    add("--ffn", type=int, help="eagle, eagle3, block: width of the feed-forward (default: that of the target)")
    add("--layers", type=int, help="block: decoder layers (default: 1)")
    add("--anchors", type=int, help="pass, block: places of a sequence at which a step drafts (default: 16)")
    add("--mask-token", type=int, help="block: token at the masked positions (default: the rarest one)")
    add("--mode", choices=("frozen", "fine_tuned"), help="blockwise: fine_tuned trains the target too")
    add("--target-rate", type=float, help="--mode fine_tuned: largest learning rate of the target (default: 1e-5)")
    add("--nodes", type=int, default=15, help="nodes of the tree in the card")
    add("--epochs", type=int, default=4)
    add("--minutes", type=float, default=30.0, help="stop after this time")
    add("--batch", type=int, default=1024, help="positions of a step")
    add("--rate", type=float, default=5e-4, help="largest learning rate of AdamW")
    add("--decay", type=float, default=0.8, help="weight of a head's loss, relative to the head before it")
    add("--seed", type=int, default=1)
    return parser


def complete(parser, args):
    """Refuses options that do not fit, and sets the defaults that depend on the kind."""
    flag = lambda name: "--" + name.replace("_", "-")
    for name, (kinds, default) in OF_KINDS.items():
        if getattr(args, name) is None:
            setattr(args, name, default(args.kind))
        elif args.kind not in kinds:
            parser.error(
                f"{flag(name)}: heads of the kind {args.kind} have no such option; it is for {', '.join(kinds)}"
            )
    for name in (
        "heads",
        "inner",
        "unroll",
        "attention_heads",
        "kv_heads",
        "ffn",
        "layers",
        "anchors",
        "nodes",
        "epochs",
    ):
        value = getattr(args, name)
        if value is not None and value < 1:
            parser.error(f"{flag(name)}: {value}, expected a number of at least 1")
    for name in ("batch", "rate", "target_rate", "minutes"):
        if not getattr(args, name) > 0:
            parser.error(f"{flag(name)}: {getattr(args, name)}, expected a positive number")
    if args.heads > MOST_HEADS:
        parser.error(f"--heads: {args.heads}, expected at most {MOST_HEADS}; the engine reads no more")
    if not TOP <= args.vocab <= MOST_VOCAB:
        parser.error(f"--vocab: {args.vocab}, expected {TOP} to {MOST_VOCAB} tokens")
    if not 0 < args.decay <= 1:
        parser.error(f"--decay: {args.decay}, expected a number above 0 and at most 1")
    if args.ranking < 0:
        parser.error(f"--ranking: {args.ranking}, expected a weight of at least 0")
    if args.ranking and args.objective == "top_k":
        parser.error("--ranking: the objective top_k is this loss already; choose another --objective")
    if args.feature_loss < 0:
        parser.error(f"--feature-loss: {args.feature_loss}, expected a weight of at least 0")
    if args.seed < 0:
        parser.error(f"--seed: {args.seed}, expected a number of at least 0")
    return args


def fit_to_target(parser, args, layers, tokens):
    """Sets the states to read, and refuses what this target does not have. layers, tokens: their numbers in the target."""
    if args.vocab > tokens:
        parser.error(f"--vocab: {args.vocab}, but the target has {tokens} tokens")
    if args.mask_token is not None and not 0 <= args.mask_token < tokens:
        parser.error(f"--mask-token: {args.mask_token}, expected a token from 0 to {tokens - 1}")
    if args.taps is None:
        if args.kind == "eagle3":  # as in the paper, if these three differ
            args.taps = [2, layers // 2, layers - 3] if layers >= 7 else [0, layers // 2, layers]
        elif args.kind == "block_draft":
            args.taps = [layers // 3, 2 * layers // 3, "final_norm"]
        elif args.kind == "eagle":
            args.taps = ["final_norm"]
        return args
    if args.kind == "eagle3" and len(args.taps) != 3:
        parser.error(f"--taps: {len(args.taps)} states, but a head of EAGLE-3 reads 3")
    for tap in args.taps:
        if tap != "final_norm" and not 0 <= tap <= layers:
            parser.error(f'--taps: {tap}, expected "final_norm" or a number of layers from 0 to {layers}')
    return args


def reads_text(args):
    """Whether the training reads whole texts, so that it needs the target's weights."""
    return args.kind not in OF_STATES or args.mode == "fine_tuned"


assert RANKS <= TOP  # --vocab is at least TOP, so all ranks exist
