"""Trains heads on the text and the hidden states that generate.py stored, and writes the head folder.

    scripts/train/heads.py --out DIR [--kind medusa] [--heads 4] [--vocab 4096] [--objective forward_kl] [--minutes 30]

The kinds are blockwise, hydra, medusa and mlp_speculator (head_modules.py). The target stays as it is: this is the frozen mode of blockwise
parallel decoding, and Medusa-1. Modes that also train the target, and text from beam search, do not exist. Sequential heads read the tokens
of the text in training. The loss is sum_i decay^i * objective_i (head_objectives.py), with p as in train.py, over a reduced vocabulary.
States are read shard by shard, so they need not fit into memory. After each shard the training is saved, and the same command goes on from
there.

Before and after the training, and after each epoch, it measures on held-out sequences, by head: alpha = mean sum_v min(p, q), and how often the
head's token of each rank is the target's best token. These shares choose the tree in head.json (head_tree.py). For sequential heads they are
those after right tokens. Blockwise heads get no tree; they draft a chain, as in the paper.
"""

import argparse
import hashlib
import json
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
from generate import require_target
from head_modules import KINDS, make_heads
from head_objectives import OBJECTIVES, head_loss
from head_tree import best_tree
from safetensors.torch import save_file
from target import Gguf
from train import HELD_OUT, Text, choose_vocabulary

RANKS = 10  # ranks of a head whose accuracy is measured


class States:
    """Positions of the text with their states, shard by shard. left [M]: positions of the same sequence after each position. ids [M]: the token
    at each position."""

    def __init__(self, text, shards):
        self.text, self.shards = text, shards
        self.left, self.held_out = (
            torch.zeros(text.tokens, dtype=torch.long),
            torch.zeros(text.tokens, dtype=torch.bool),
        )
        self.ids = torch.zeros(text.tokens, dtype=torch.long)
        for i, (tokens, start, offset) in enumerate(text.sequences):
            n = len(tokens) - start
            self.ids[offset : offset + n] = tokens[start:]
            self.left[offset : offset + n] = torch.arange(n - 1, -1, -1)
            self.held_out[offset : offset + n] = i % HELD_OUT == 0

    def features(self, shard):
        with np.load(self.shards[shard]) as z:
            return torch.from_numpy(z["features"])

    def rows(self, shard, held_out):
        """Numbers of the positions of a shard that can predict something, counted from the shard's first position."""
        begin = self.text.begins[shard]
        end = self.text.begins[shard + 1] if shard + 1 < len(self.shards) else self.text.tokens
        usable = (self.left[begin:end] > 0) & (self.held_out[begin:end] == held_out)
        return usable.nonzero()[:, 0]

    def labels(self, place, head, device):
        """(rows of `place` that have a label for this head; index and p of the labels). The label of head i at a position is the target's
        distribution i + 1 positions later, because the state itself gives the first next token."""
        keep = (self.left[place] > head).nonzero()[:, 0]
        at = place[keep] + head + 1
        return keep.to(device), self.text.index[at].to(device).long(), self.text.p[at].to(device).float()

    def between(self, place, head, device):
        """The head + 1 tokens after each position of `place` that has a label for this head, [n, head + 1]: those that a sequential head reads."""
        at = place[self.left[place] > head]
        return self.ids[at[:, None] + 1 + torch.arange(head + 1)].to(device)


def hidden_of(heads, head, features, place, states, device):
    """What the output layer of a head reads at the positions with a label; features: of these positions."""
    return heads.hidden(head, features, states.between(place, head, device) if heads.sequential else None)


@torch.no_grad()
def measure(heads, states, device):
    """(alpha [heads], accuracy [heads, RANKS]) on held-out sequences."""
    count = heads.count
    alpha, hits, seen = torch.zeros(count), torch.zeros(count, RANKS), torch.zeros(count)
    for shard in range(len(states.shards)):
        rows = states.rows(shard, held_out=True)
        if not len(rows):
            continue
        features = states.features(shard)
        for part in rows.split(2048):
            f = features[part].to(device).float()
            for i in range(count):
                place = states.text.begins[shard] + part
                keep, index, p = states.labels(place, i, device)
                hidden, output = hidden_of(heads, i, f[keep], place, states, device), heads.output(i)
                for at in range(0, len(keep), 512):
                    k, w = index[at : at + 512], p[at : at + 512]
                    logits = hidden[at : at + 512] @ output.T
                    q = logits.log_softmax(1).gather(1, k).exp()
                    alpha[i] += torch.minimum(q, w).sum().item()
                    hits[i] += (logits.topk(RANKS).indices == k[:, :1]).sum(0).cpu()
                    seen[i] += len(k)
    return alpha / seen, hits / seen[:, None]


def report(when, alpha, accuracy):
    print(
        f"{when}: held-out alpha by head {[round(a, 3) for a in alpha.tolist()]}, best token right {[round(a, 3) for a in accuracy[:, 0].tolist()]}",
        flush=True,
    )


def train(heads, states, args, path):
    """Trains until the epochs or minutes are over. Returns (steps, tokens seen, seconds). Saves to `path` after each shard."""
    device = args.device
    adam = torch.optim.AdamW(heads.parameters(), lr=args.rate, betas=(0.9, 0.98), weight_decay=0.0)
    at = dict(step=0, tokens=0, seconds=0.0, done=0)  # done: finished shards, over all epochs
    if path.exists():
        saved = torch.load(path, weights_only=True)
        heads.load_state_dict(saved["heads"])
        adam.load_state_dict(saved["adam"])
        at = saved["at"]
        print(f"goes on after {at['done']} shards", flush=True)
    begin, shards = time.time() - at["seconds"], len(states.shards)
    progress = lambda: max(at["done"] / (args.epochs * shards), (time.time() - begin) / (60 * args.minutes))
    while progress() < 1:
        epoch, number = divmod(at["done"], shards)
        rng = random.Random(f"{args.seed}/{epoch}")
        order = list(range(shards))
        rng.shuffle(order)
        shard = order[number]
        rows = states.rows(shard, held_out=False)
        rows = rows[torch.from_numpy(np.random.default_rng([args.seed, at["done"]]).permutation(len(rows)))]
        features, losses = states.features(shard), []
        for part in rows.split(args.batch):
            if time.time() - begin > 60 * args.minutes:
                break
            f, total = features[part].to(device).float(), 0.0
            place = states.text.begins[shard] + part
            for i in range(heads.count):
                keep, index, p = states.labels(place, i, device)
                if len(keep):
                    hidden = hidden_of(heads, i, f[keep], place, states, device)
                    total = total + args.decay**i * head_loss(args.objective, hidden, heads.output(i), index, p)
            heads.zero_grad()
            total.backward()
            now = max(progress(), at["done"] / (args.epochs * shards))
            adam.param_groups[0]["lr"] = args.rate * min(1, (at["step"] + 1) / 20) * min(1, (1 - min(now, 1)) / 0.6)
            adam.step()
            losses.append(total.item())
            at["step"], at["tokens"] = at["step"] + 1, at["tokens"] + len(part)
        at["done"], at["seconds"] = at["done"] + 1, time.time() - begin
        torch.save(dict(heads=heads.state_dict(), adam=adam.state_dict(), at=at), path.with_suffix(".partial"))
        os.replace(path.with_suffix(".partial"), path)
        loss = sum(losses) / max(1, len(losses))
        print(
            f"shard {at['done']} of {args.epochs * shards}, {at['seconds']:.0f} s, {at['tokens']} tokens, loss {loss:.3f}",
            flush=True,
        )
        if at["done"] % shards == 0:
            report(f"epoch {at['done'] // shards}", *measure(heads, states, device))
    return at["step"], at["tokens"], at["seconds"]


def card(heads, file, accuracy, nodes, training):
    is_chain = heads.kind == "blockwise"
    tree, expected = best_tree([row[:1] for row in accuracy.tolist()] if is_chain else accuracy.tolist(), nodes)
    training |= dict(
        accuracy=[[round(a, 4) for a in row] for row in accuracy.tolist()], expected_tau=round(expected, 3)
    )
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
        "taps": ["final_norm"],
        "shape": heads.shape(),
        "training": training,
    }
    # Blockwise heads use all rows of the target's output layer.
    return out if is_chain else out | {"vocabulary_map": "draft_vocab", "tree": tree}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--cache", type=Path, default=Path(".cache/train"), help="folder of the text of generate.py")
    parser.add_argument("--out", type=Path, required=True, help="folder of the heads")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--kind", choices=KINDS, default="medusa")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--inner", type=int, default=512, help="width inside blockwise heads and an MLP speculator")
    parser.add_argument("--objective", choices=OBJECTIVES, default="forward_kl")
    parser.add_argument(
        "--vocab",
        type=int,
        default=4096,
        help="tokens that the heads can draft; for blockwise heads: that the loss sees",
    )
    parser.add_argument("--nodes", type=int, default=15, help="nodes of the tree in the card")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=30.0, help="stop after this time")
    parser.add_argument("--batch", type=int, default=1024, help="positions of a step")
    parser.add_argument("--rate", type=float, default=5e-4, help="largest learning rate of AdamW")
    parser.add_argument(
        "--decay", type=float, default=0.8, help="weight of a head's loss, relative to the head before it"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    file = Gguf(args.target)
    sha256 = file.sha256()
    shards = sorted(args.cache.glob("text-?????.npz"))
    if not shards:
        raise SystemExit(f"{args.cache} has no text; run scripts/train/generate.py first")
    require_target(shards, sha256)
    embedding = file.tensor("token_embd.weight")
    vocab, _, _ = choose_vocabulary(shards, embedding, args.vocab, args.device)
    states = States(Text(shards, embedding, vocab, args.device), shards)
    torch.manual_seed(args.seed)
    heads = make_heads(args.kind, embedding, vocab, args.heads, args.inner).to(args.device)
    report("start", *measure(heads, states, args.device))
    what = [sha256, [(s.name, s.stat().st_size) for s in shards], args.heads, args.vocab, args.seed, args.batch]
    what += [args.kind, args.inner, args.objective]
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]
    steps, tokens, seconds = train(heads, states, args, args.cache / f"heads-{key}.pt")
    alpha, accuracy = measure(heads, states, args.device)
    report("end", alpha, accuracy)
    training = dict(
        text=[s.name for s in shards],
        text_tokens=states.text.tokens,
        seed=args.seed,
        steps=steps,
        tokens=tokens,
        seconds=round(seconds),
        objective=args.objective,
        labels="the target's 64 most probable tokens",
        decay=args.decay,
        alpha=[round(a, 4) for a in alpha.tolist()],
    )
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(heads.tensors(), args.out / "head.safetensors", metadata={"format": "pt"})
    (args.out / "head.json").write_text(json.dumps(card(heads, file, accuracy, args.nodes, training), indent=1) + "\n")
    print(f"{args.out}: {(args.out / 'head.safetensors').stat().st_size / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    main()
